#include "engine/key.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *assay_key_name(const assay_hparams *hp, const char *key)
{
    static _Thread_local char names[4][160];
    static _Thread_local int next;
    char *name = names[next++ % 4];
    snprintf(name, sizeof names[0], "%s.%s", hp->architecture, key);
    return name;
}

bool assay_key_is_there(const assay_hparams *hp, const assay_gguf *file, const char *key)
{
    return assay_gguf_find_key(file, assay_key_name(hp, key)) != NULL;
}

static assay_status in_range(int *out, const char *name, uint32_t value, int least, int most)
{
    if (value > (uint32_t)most || (int)value < least)
        return assay_fail(ASSAY_BAD_FILE, "key '%s' is %u, expected %d to %d", name, value, least,
                          most);
    *out = (int)value;
    return ASSAY_OK;
}

static assay_status real_in_range(double *out, const char *name, float value, double least,
                                  double most)
{
    if (!(value >= least && value <= most))
        return assay_fail(ASSAY_BAD_FILE, "key '%s' is %g, expected %g to %g", name, value, least,
                          most);
    *out = value;
    return ASSAY_OK;
}

assay_status assay_key_need(int *out, const assay_hparams *hp, const assay_gguf *file,
                            const char *key, int least, int most)
{
    const char *name = assay_key_name(hp, key);
    uint32_t value;
    if (!assay_gguf_find_key(file, name))
        return assay_fail(ASSAY_BAD_FILE, "key '%s' is missing and architecture '%s' requires it",
                          name, hp->architecture);
    ASSAY_TRY(assay_gguf_u32(&value, file, name));
    return in_range(out, name, value, least, most);
}

assay_status assay_key_need_real(double *out, const assay_hparams *hp, const assay_gguf *file,
                                 const char *key, double least, double most)
{
    const char *name = assay_key_name(hp, key);
    float value;
    if (!assay_gguf_find_key(file, name))
        return assay_fail(ASSAY_BAD_FILE, "key '%s' is missing and architecture '%s' requires it",
                          name, hp->architecture);
    ASSAY_TRY(assay_gguf_f32(&value, file, name));
    return real_in_range(out, name, value, least, most);
}

assay_status assay_key_take(int *out, assay_hparams *hp, const assay_gguf *file, const char *key,
                            int otherwise, int least, int most, const char *why)
{
    const char *name = assay_key_name(hp, key);
    uint32_t value;
    if (!assay_gguf_find_key(file, name)) {
        *out = otherwise;
        if (why)
            assay_assume(hp, name, why, "%d", otherwise);
        return ASSAY_OK;
    }
    ASSAY_TRY(assay_gguf_u32(&value, file, name));
    return in_range(out, name, value, least, most);
}

assay_status assay_key_take_real(double *out, assay_hparams *hp, const assay_gguf *file,
                                 const char *key, double otherwise, double least, double most,
                                 const char *why)
{
    const char *name = assay_key_name(hp, key);
    float value;
    if (!assay_gguf_find_key(file, name)) {
        *out = otherwise;
        if (why)
            assay_assume(hp, name, why, "%g", otherwise);
        return ASSAY_OK;
    }
    ASSAY_TRY(assay_gguf_f32(&value, file, name));
    return real_in_range(out, name, value, least, most);
}

assay_status assay_key_take_flag(bool *out, assay_hparams *hp, const assay_gguf *file,
                                 const char *key, bool otherwise, const char *why)
{
    const char *name = assay_key_name(hp, key);
    if (!assay_gguf_find_key(file, name)) {
        *out = otherwise;
        if (why)
            assay_assume(hp, name, why, "%s", otherwise ? "true" : "false");
        return ASSAY_OK;
    }
    return assay_gguf_bool(out, file, name);
}

assay_status assay_key_uniform(int *out, bool *there, const assay_hparams *hp,
                               const assay_gguf *file, const char *key, int n_block, int least,
                               int most)
{
    const char *name = assay_key_name(hp, key);
    uint32_t values[ASSAY_MAX_LAYERS];
    ASSAY_BUG_IF(n_block < 1 || n_block > ASSAY_MAX_LAYERS);
    *there = assay_gguf_find_key(file, name) != NULL;
    if (!*there)
        return ASSAY_OK;
    ASSAY_TRY(assay_gguf_u32_or_array(values, file, name, (uint64_t)n_block));
    for (int i = 1; i < n_block; i++)
        if (values[i] != values[0])
            return assay_fail(ASSAY_UNSUPPORTED,
                              "key '%s' is %u in layer %d and %u in layer 0; layers that differ in "
                              "shape cannot be run",
                              name, values[i], i, values[0]);
    return in_range(out, name, values[0], least, most);
}

void assay_assume(assay_hparams *hp, const char *key, const char *why, const char *value_format,
                  ...)
{
    ASSAY_BUG_IF(hp->n_assumed >= ASSAY_MAX_ASSUMED);
    assay_assumed *row = &hp->assumed[hp->n_assumed++];
    snprintf(row->key, sizeof row->key, "%s", key);
    snprintf(row->why, sizeof row->why, "%s", why);
    va_list args;
    va_start(args, value_format);
    vsnprintf(row->value, sizeof row->value, value_format, args);
    va_end(args);
}
