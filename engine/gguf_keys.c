/*
 * Typed values of keys. Every match of types is exact, as in the reference loader.
 */
#include <string.h>

#include "engine/gguf_file.h"

static assay_status find(const assay_gguf_key **out, const assay_gguf *set, const char *name,
                         assay_gguf_type type)
{
    const assay_gguf_key *key = assay_gguf_find_key(set, name);
    if (!key)
        return assay_fail(ASSAY_MISSING, "'%s': key '%s' is missing, expected %s",
                          assay_gguf_path(set), name, gguf_type_name(type));
    if (key->type != type)
        return gguf_refuse(&set->files[0], GGUF_RULE_KEY_TYPE, key->offset,
                           "key '%s' is %s, expected %s", name, gguf_type_name(key->type),
                           gguf_type_name(type));
    *out = key;
    return ASSAY_OK;
}

assay_status assay_gguf_u32(uint32_t *out, const assay_gguf *set, const char *name)
{
    const assay_gguf_key *key;
    ASSAY_TRY(find(&key, set, name, ASSAY_GGUF_U32));
    *out = gguf_load_u32(key->value);
    return ASSAY_OK;
}

assay_status assay_gguf_f32(float *out, const assay_gguf *set, const char *name)
{
    const assay_gguf_key *key;
    ASSAY_TRY(find(&key, set, name, ASSAY_GGUF_F32));
    memcpy(out, key->value, sizeof *out);
    return ASSAY_OK;
}

assay_status assay_gguf_bool(bool *out, const assay_gguf *set, const char *name)
{
    const assay_gguf_key *key;
    ASSAY_TRY(find(&key, set, name, ASSAY_GGUF_BOOL));
    *out = *(const uint8_t *)key->value != 0;
    return ASSAY_OK;
}

static assay_gguf_string string_at(const uint8_t *p)
{
    return (assay_gguf_string){(const char *)p + 8, gguf_load_u64(p)};
}

assay_status assay_gguf_str(assay_gguf_string *out, const assay_gguf *set, const char *name)
{
    const assay_gguf_key *key;
    ASSAY_TRY(find(&key, set, name, ASSAY_GGUF_STRING));
    *out = string_at(key->value);
    return ASSAY_OK;
}

/* Element i of an array of u32, i32 or bool. */
static assay_status element_u32(uint32_t *out, const assay_gguf *set, const assay_gguf_key *key,
                                uint64_t i)
{
    const uint8_t *p = key->value;
    if (key->element == ASSAY_GGUF_BOOL) {
        *out = p[i] != 0;
        return ASSAY_OK;
    }
    uint32_t x = gguf_load_u32(p + 4 * i);
    if (key->element == ASSAY_GGUF_I32 && x > INT32_MAX)
        return gguf_refuse(&set->files[0], GGUF_RULE_KEY_VALUE, key->offset,
                           "element %llu of key '%s' is %d, expected at least 0",
                           (unsigned long long)i, key->name, (int32_t)x);
    *out = x;
    return ASSAY_OK;
}

static assay_status check_array(const assay_gguf *set, const assay_gguf_key *key, uint64_t n)
{
    const gguf_file *file = &set->files[0];
    if (key->element != ASSAY_GGUF_U32 && key->element != ASSAY_GGUF_I32 &&
        key->element != ASSAY_GGUF_BOOL)
        return gguf_refuse(file, GGUF_RULE_KEY_TYPE, key->offset,
                           "key '%s' is an array of %s, expected u32, i32 or bool", key->name,
                           gguf_type_name(key->element));
    if (key->count != n)
        return gguf_refuse(file, GGUF_RULE_KEY_LENGTH, key->offset,
                           "key '%s' is an array of %llu, expected %llu elements", key->name,
                           (unsigned long long)key->count, (unsigned long long)n);
    return ASSAY_OK;
}

assay_status assay_gguf_u32_or_array(uint32_t *out, const assay_gguf *set, const char *name,
                                     uint64_t n)
{
    const assay_gguf_key *key = assay_gguf_find_key(set, name);
    if (!key || key->type != ASSAY_GGUF_ARRAY) {
        uint32_t x;
        ASSAY_TRY(assay_gguf_u32(&x, set, name));
        for (uint64_t i = 0; i < n; i++)
            out[i] = x;
        return ASSAY_OK;
    }
    ASSAY_TRY(check_array(set, key, n));
    uint32_t x;
    for (uint64_t i = 0; i < n; i++) /* first pass: a failure leaves out untouched */
        ASSAY_TRY(element_u32(&x, set, key, i));
    for (uint64_t i = 0; i < n; i++)
        ASSAY_TRY(element_u32(&out[i], set, key, i));
    return ASSAY_OK;
}

static assay_status string_array(const assay_gguf_key *key)
{
    if (key->type != ASSAY_GGUF_ARRAY || key->element != ASSAY_GGUF_STRING)
        return assay_fail(ASSAY_BAD_FILE, "key '%s' is %s of %s, expected an array of string",
                          key->name, gguf_type_name(key->type), gguf_type_name(key->element));
    return ASSAY_OK;
}

assay_status assay_gguf_str_at(assay_gguf_string *out, const assay_gguf_key *key, uint64_t i)
{
    ASSAY_TRY(string_array(key));
    if (i >= key->count)
        return assay_fail(ASSAY_MISSING, "key '%s' has %llu elements, expected more than %llu",
                          key->name, (unsigned long long)key->count, (unsigned long long)i);
    const uint8_t *p = key->value;
    for (uint64_t k = 0; k < i; k++)
        p += 8 + gguf_load_u64(p);
    *out = string_at(p);
    return ASSAY_OK;
}

assay_status assay_gguf_str_array(assay_gguf_string *out, const assay_gguf_key *key)
{
    ASSAY_TRY(string_array(key));
    const uint8_t *p = key->value;
    for (uint64_t i = 0; i < key->count; i++) {
        out[i] = string_at(p);
        p += 8 + out[i].n;
    }
    return ASSAY_OK;
}
