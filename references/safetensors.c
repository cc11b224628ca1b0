#include "references/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "engine/base/number.h"
#include "references/safetensors_file.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[ASSAY_SAFETENSORS_DTYPE_COUNT] = {
#define X(id, name, bytes) {name, bytes},
    ASSAY_SAFETENSORS_DTYPES(X)
#undef X
};

const char *assay_safetensors_dtype_name(assay_safetensors_dtype dtype)
{
    ASSAY_BUG_IF((unsigned)dtype >= ASSAY_SAFETENSORS_DTYPE_COUNT);
    return dtypes[dtype].name;
}

size_t safetensors_dtype_bytes(assay_safetensors_dtype dtype)
{
    return dtypes[dtype].bytes;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const assay_safetensor *)a)->name, ((const assay_safetensor *)b)->name);
}

/* One list of all files' tensors, sorted by name. */
static assay_status gather(assay_safetensors *set)
{
    int64_t n = 0;
    for (int f = 0; f < set->n_files; f++)
        n += set->files[f].n_tensors;
    ASSAY_TRY(assay_alloc(&set->tensors, (size_t)n, sizeof *set->tensors, "tensors"));
    for (int f = 0; f < set->n_files; f++)
        for (int64_t i = 0; i < set->files[f].n_tensors; i++) {
            assay_safetensor *t = &set->tensors[set->n_tensors++];
            *t = set->files[f].tensors[i];
            t->file = f;
        }
    qsort(set->tensors, (size_t)n, sizeof *set->tensors, by_name);
    for (int64_t i = 1; i < n; i++) {
        const assay_safetensor *a = &set->tensors[i - 1], *b = &set->tensors[i];
        if (strcmp(a->name, b->name) == 0)
            return safetensors_refuse(set->files[b->file].path, SAFETENSORS_RULE_DUPLICATE,
                                      "tensor '%s' is in '%s' too, expected in one file", b->name,
                                      set->files[a->file].path);
    }
    return ASSAY_OK;
}

static bool is_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static assay_status open_folder(assay_safetensors *set, const char *path)
{
    char *index = NULL, *single = NULL;
    assay_status s;
    if (asprintf(&index, "%s/model.safetensors.index.json", path) < 0)
        index = NULL;
    if (asprintf(&single, "%s/model.safetensors", path) < 0)
        single = NULL;
    if (!index || !single)
        s = assay_fail(ASSAY_NO_MEMORY, "no memory for paths in '%s'", path);
    else if (is_there(index))
        s = safetensors_open_index(set, index);
    else if (is_there(single))
        s = safetensors_open_files(set, (const char *const *)&single, 1);
    else
        s = assay_fail(ASSAY_MISSING,
                       "'%s' has neither model.safetensors.index.json nor model.safetensors", path);
    free(index);
    free(single);
    return s;
}

static assay_status open_any(assay_safetensors *set, const char *path)
{
    struct stat st;
    size_t n = strlen(path);
    if (stat(path, &st) != 0)
        return assay_fail(ASSAY_IO, "cannot open '%s': %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return open_folder(set, path);
    if (n > 5 && strcmp(path + n - 5, ".json") == 0)
        return safetensors_open_index(set, path);
    return safetensors_open_files(set, &path, 1);
}

assay_status assay_safetensors_open(assay_safetensors **out, const char *path)
{
    assay_safetensors *set = NULL;
    assay_status s;
    ASSAY_TRY(assay_alloc(&set, 1, sizeof *set, path));
    ASSAY_GO(open_any(set, path));
    ASSAY_GO(gather(set));
    ASSAY_GO(safetensors_check_index(set));
    *out = set;
    return ASSAY_OK;
out:
    assay_safetensors_close(set);
    return s;
}

void assay_safetensors_close(assay_safetensors *set)
{
    if (!set)
        return;
    for (int f = 0; f < set->n_files; f++)
        safetensors_file_close(&set->files[f]);
    json_decref(set->index);
    free(set->index_path);
    free(set->files);
    free(set->tensors);
    free(set);
}

int assay_safetensors_n_files(const assay_safetensors *set)
{
    return set->n_files;
}

const char *assay_safetensors_file_path(const assay_safetensors *set, int index)
{
    ASSAY_BUG_IF(index < 0 || index >= set->n_files);
    return set->files[index].path;
}

int64_t assay_safetensors_n_tensors(const assay_safetensors *set)
{
    return set->n_tensors;
}

const assay_safetensor *assay_safetensors_at(const assay_safetensors *set, int64_t index)
{
    ASSAY_BUG_IF(index < 0 || index >= set->n_tensors);
    return &set->tensors[index];
}

const assay_safetensor *assay_safetensors_find(const assay_safetensors *set, const char *name)
{
    assay_safetensor key = {.name = name};
    return bsearch(&key, set->tensors, (size_t)set->n_tensors, sizeof key, by_name);
}

/* fp8 e5m2 is the upper byte of an f16. */
static float one(assay_safetensors_dtype dtype, const uint8_t *p)
{
    uint16_t half;
    float single;
    double wide;
    switch (dtype) {
    case ASSAY_SAFETENSORS_F8_E5M2:
        return assay_f16_to_f32((uint16_t)(*p << 8));
    case ASSAY_SAFETENSORS_F8_E4M3:
        return assay_f8e4m3_to_f32(*p);
    case ASSAY_SAFETENSORS_F16:
        memcpy(&half, p, sizeof half);
        return assay_f16_to_f32(half);
    case ASSAY_SAFETENSORS_BF16:
        memcpy(&half, p, sizeof half);
        return assay_bf16_to_f32(half);
    case ASSAY_SAFETENSORS_F32:
        memcpy(&single, p, sizeof single);
        return single;
    default:
        memcpy(&wide, p, sizeof wide);
        return (float)wide;
    }
}

assay_status assay_safetensors_decode(float *out, const assay_safetensor *t, int64_t first,
                                      int64_t n)
{
    bool is_float = t->dtype == ASSAY_SAFETENSORS_F8_E5M2 ||
                    t->dtype == ASSAY_SAFETENSORS_F8_E4M3 || t->dtype == ASSAY_SAFETENSORS_F16 ||
                    t->dtype == ASSAY_SAFETENSORS_BF16 || t->dtype == ASSAY_SAFETENSORS_F32 ||
                    t->dtype == ASSAY_SAFETENSORS_F64;
    size_t each = dtypes[t->dtype].bytes;
    ASSAY_BUG_IF(first < 0 || n < 0 || first > t->count || n > t->count - first);
    if (!is_float)
        return assay_fail(ASSAY_UNSUPPORTED, "tensor '%s' is %s, which holds no weights", t->name,
                          dtypes[t->dtype].name);
    const uint8_t *p = (const uint8_t *)t->data + (size_t)first * each;
    for (int64_t i = 0; i < n; i++)
        out[i] = one(t->dtype, p + (size_t)i * each);
    return ASSAY_OK;
}
