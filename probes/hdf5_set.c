#include "probes/hdf5_set.h"

#include <stdlib.h>
#include <string.h>

void assay_h5_set_init(assay_h5_set *out, hid_t group, const char *path, const void *bytes,
                       uint64_t n, uint64_t address)
{
    out->group = group;
    out->id = -1;
    out->path = path;
    out->is_read = bytes && assay_h5_header_read(&out->header, bytes, n, address);
}

void assay_h5_set_close(assay_h5_set *set)
{
    assay_h5_close(set->id);
    set->id = -1;
}

static assay_status open_by_library(assay_h5_set *set)
{
    return set->id >= 0 ? ASSAY_OK : assay_h5_open_dataset(&set->id, set->group, set->path);
}

/* A known attribute, or NULL; by_library: the bytes do not say, and it has opened the dataset. */
typedef struct answer {
    const assay_h5_attr *attr;
    bool by_library;
} answer;

static assay_status ask(answer *out, bool *found, assay_h5_set *set, const char *name,
                        bool (*fits)(const assay_h5_attr *))
{
    *out = (answer){NULL, !set->is_read};
    if (set->is_read)
        out->attr = assay_h5_header_attr(&set->header, name);
    *found = out->attr;
    if (out->attr && !fits(out->attr))
        *out = (answer){NULL, true};
    return out->by_library ? open_by_library(set) : ASSAY_OK;
}

static bool any(const assay_h5_attr *attr)
{
    (void)attr;
    return true;
}

static bool is_text(const assay_h5_attr *attr)
{
    return attr->format == ASSAY_H5_TEXT;
}

static bool is_whole(const assay_h5_attr *attr)
{
    return attr->format == ASSAY_H5_I32 || attr->format == ASSAY_H5_I64 ||
           attr->format == ASSAY_H5_U64;
}

static bool is_one_u64(const assay_h5_attr *attr)
{
    return attr->format == ASSAY_H5_U64 && attr->n == 1;
}

static bool is_one_double(const assay_h5_attr *attr)
{
    return attr->format == ASSAY_H5_F64 && attr->n == 1;
}

assay_status assay_h5_set_info(assay_h5_info *out, assay_h5_set *set)
{
    if (set->is_read) {
        *out = set->header.info;
        return ASSAY_OK;
    }
    ASSAY_TRY(open_by_library(set));
    return assay_h5_dataset(out, set->id, set->path);
}

assay_status assay_h5_set_has(bool *out, assay_h5_set *set, const char *name)
{
    answer is;
    ASSAY_TRY(ask(&is, out, set, name, any));
    htri_t exists = is.by_library ? H5Aexists(set->id, name) : *out;
    if (exists < 0)
        return assay_h5_fail(ASSAY_BAD_FILE, "'%s': attribute '%s' is damaged", set->path, name);
    *out = exists > 0;
    return ASSAY_OK;
}

assay_status assay_h5_set_text(char **out, bool *found, assay_h5_set *set, const char *name)
{
    answer is;
    ASSAY_TRY(ask(&is, found, set, name, is_text));
    if (is.by_library)
        return assay_h5_attr_text(out, found, set->id, set->path, name);
    if (!is.attr)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(out, (size_t)is.attr->n + 1, 1, "text"));
    memcpy(*out, is.attr->values, (size_t)is.attr->n);
    return ASSAY_OK;
}

/* As the library converts: what is too large becomes the largest. */
static void widen(int64_t *out, const assay_h5_attr *attr)
{
    const char *at = attr->values;
    for (int64_t i = 0; i < attr->n; i++) {
        int32_t narrow;
        uint64_t wide;
        if (attr->format == ASSAY_H5_I32) {
            memcpy(&narrow, at + i * 4, sizeof narrow);
            out[i] = narrow;
        } else {
            memcpy(&wide, at + i * 8, sizeof wide);
            out[i] = attr->format == ASSAY_H5_U64 && wide > INT64_MAX ? INT64_MAX : (int64_t)wide;
        }
    }
}

assay_status assay_h5_set_ints(int64_t **out, int64_t *n, bool *found, assay_h5_set *set,
                               const char *name)
{
    answer is;
    ASSAY_TRY(ask(&is, found, set, name, is_whole));
    if (is.by_library)
        return assay_h5_attr_ints(out, n, found, set->id, set->path, name);
    if (!is.attr)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(out, (size_t)is.attr->n, sizeof **out, "numbers"));
    widen(*out, is.attr);
    *n = is.attr->n;
    return ASSAY_OK;
}

assay_status assay_h5_set_double(double *out, bool *found, assay_h5_set *set, const char *name)
{
    answer is;
    ASSAY_TRY(ask(&is, found, set, name, is_one_double));
    if (is.by_library)
        return assay_h5_attr_double(out, found, set->id, set->path, name);
    if (is.attr)
        memcpy(out, is.attr->values, sizeof *out);
    return ASSAY_OK;
}

assay_status assay_h5_set_u64(uint64_t *out, bool *found, assay_h5_set *set, const char *name)
{
    answer is;
    ASSAY_TRY(ask(&is, found, set, name, is_one_u64));
    if (is.by_library)
        return assay_h5_attr_u64(out, found, set->id, set->path, name);
    if (is.attr)
        memcpy(out, is.attr->values, sizeof *out);
    return ASSAY_OK;
}
