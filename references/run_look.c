/*
 * Values as they lie: mapped where a file holds them in one piece and in canonical layout, so that
 * they are read but once, by whoever needs them; unpacked once, on all threads, where they lie in
 * packed chunks.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/wide.h"
#include "probes/hdf5_chunks.h"
#include "references/run_private.h"

void assay_run_map(assay_run_file *file)
{
    if (assay_mapping_open(&file->mapping, file->path) != ASSAY_OK)
        file->mapping = (assay_mapping){0}; /* then it is read through HDF5 */
}

void assay_run_unmap(assay_run_file *file)
{
    assay_mapping_close(&file->mapping);
}

/* Format of the numbers as they lie in the file; ASSAY_DTYPE_COUNT: not one of those here. */
static assay_dtype format_of(const assay_source *source)
{
    if (source->packed == ASSAY_DTYPE_F16 || source->packed == ASSAY_DTYPE_BF16)
        return source->packed;
    if (source->packed != ASSAY_DTYPE_COUNT || source->info.is_unsigned16)
        return ASSAY_DTYPE_COUNT;
    const assay_dtype dtype = source->info.dtype;
    bool is_here = dtype == ASSAY_DTYPE_F32 || dtype == ASSAY_DTYPE_F64 ||
                   (dtype == ASSAY_DTYPE_I32 && source->info.element_bytes == sizeof(int32_t));
    return is_here ? dtype : ASSAY_DTYPE_COUNT;
}

bool assay_entry_is_plain(const assay_entry *e)
{
    if (e->plain != PLAIN_UNTOLD)
        return e->plain == PLAIN_YES;
    return !e->n_parts && !e->second && !e->base && !e->rows && assay_plan_is_identity(&e->plan);
}

void assay_entry_settle(assay_entry *e)
{
    e->plain = PLAIN_UNTOLD;
    e->plain = assay_entry_is_plain(e) ? PLAIN_YES : PLAIN_NO;
}

/* ... and in a format that is known here. */
static bool is_as_stored(const assay_entry *e)
{
    return assay_entry_is_plain(e) && !e->known && format_of(&e->source) != ASSAY_DTYPE_COUNT;
}

/* Where the file holds them in one piece; NULL: it does not. */
static const void *find_mapped(const assay_run *run, const assay_entry *e)
{
    const assay_source *source = &e->source;
    if (!is_as_stored(e) || source->info.offset < 0)
        return NULL;
    const assay_run_file *file = &run->files[source->file];
    size_t at = (size_t)source->info.offset, size = assay_dtype_bytes(format_of(source)),
           n = (size_t)source->info.count * size;
    if (!file->mapping.bytes || at % size || at > file->mapping.n_bytes ||
        n > file->mapping.n_bytes - at)
        return NULL;
    return (const char *)file->mapping.bytes + at;
}

bool assay_run_is_mapped(const assay_run *run, const assay_seen *seen)
{
    return find_mapped(run, (const assay_entry *)(const void *)seen) != NULL;
}

/* Whether it need not be converted, though it may not lie in one piece. */
static bool can_unpack(const assay_entry *e)
{
    return is_as_stored(e) && e->source.info.is_native &&
           e->source.info.element_bytes == assay_dtype_bytes(format_of(&e->source));
}

double assay_run_bytes_stored(const assay_run *run, const assay_seen *seen)
{
    const assay_entry *e = (const assay_entry *)(const void *)seen;
    if (!find_mapped(run, e) && !can_unpack(e))
        return INFINITY;
    return (double)e->source.info.count * (double)e->source.info.element_bytes;
}

/* What is not in one piece, or not where a number may lie; NULL: it has to be converted. */
static assay_status unpack(void **out, const assay_run *run, const assay_entry *e)
{
    const assay_source *source = &e->source;
    *out = NULL;
    if (!can_unpack(e))
        return ASSAY_OK;
    void *data;
    ASSAY_TRY(assay_shelf_take(&data, run->shelf,
                               (size_t)source->info.count * source->info.element_bytes, "values"));
    assay_status s =
        assay_h5_read_stored(data, run->files[source->file].id, source->path, &source->info);
    if (s != ASSAY_OK) {
        assay_shelf_give(run->shelf, data);
        return assay_within(s, "'%s'", run->files[source->file].path);
    }
    *out = data;
    return ASSAY_OK;
}

/* *out stays empty where the value has to be converted. What the file says of its bytes is left to
 * be proven. */
static assay_status look_as_stored(assay_stored *out, const assay_run *run, const assay_entry *e)
{
    void *owned = NULL;
    const void *data = find_mapped(run, e);
    if (!data)
        ASSAY_TRY(unpack(&owned, run, e));
    data = data ? data : owned;
    if (!data)
        return ASSAY_OK;
    const bool is_slow = e->source.is_sealed || e->source.is_mixed; /* proven by itself */
    if (is_slow) {
        assay_status s = assay_run_check(run, &e->source, data);
        if (s != ASSAY_OK) {
            assay_shelf_give(run->shelf, owned);
            return s;
        }
    }
    if (run->marks_reads)
        assay_run_mark(run, &e->seen);
    *out = (assay_stored){.data = data,
                          .dtype = format_of(&e->source),
                          .owned = owned,
                          .run = run,
                          .unproven = e->source.is_summed && !is_slow ? &e->seen : NULL};
    return ASSAY_OK;
}

assay_status assay_stored_prove(assay_stored *stored, const uint64_t *checksum)
{
    if (!stored->unproven)
        return ASSAY_OK;
    const assay_entry *e = (const assay_entry *)(const void *)stored->unproven;
    assay_status s = checksum ? assay_run_check_sum(stored->run, &e->source, *checksum)
                              : assay_run_check(stored->run, &e->source, stored->data);
    if (s == ASSAY_OK)
        stored->unproven = NULL;
    return s;
}

assay_status assay_run_look_unproven(assay_stored *out, const assay_run *run,
                                     const assay_seen *seen)
{
    const assay_entry *e = (const assay_entry *)(const void *)seen;
    assay_stored found = {.dtype = ASSAY_DTYPE_F64, .run = run};
    const int64_t count = assay_seen_count(seen);
    if (seen->has_values)
        ASSAY_TRY(look_as_stored(&found, run, e));
    if (!found.data) {
        ASSAY_TRY(
            assay_shelf_take(&found.owned, run->shelf, (size_t)count * sizeof(double), "values"));
        assay_status s = assay_run_read_converted(found.owned, run, seen);
        if (s != ASSAY_OK) {
            assay_shelf_give(run->shelf, found.owned);
            return s;
        }
        found.data = found.owned;
    }
    *out = found;
    return ASSAY_OK;
}

assay_status assay_run_look(assay_stored *out, const assay_run *run, const assay_seen *seen)
{
    assay_stored found;
    ASSAY_TRY(assay_run_look_unproven(&found, run, seen));
    assay_status s = assay_stored_prove(&found, NULL);
    if (s == ASSAY_OK)
        *out = found;
    else
        assay_stored_clear(&found);
    return s;
}

void assay_stored_clear(assay_stored *stored)
{
    if (stored->run)
        assay_shelf_give(stored->run->shelf, stored->owned);
    else
        free(stored->owned);
    *stored = (assay_stored){.dtype = ASSAY_DTYPE_F64};
}

ASSAY_WIDEST static void widen_f32(double *out, const float *in, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = in[i];
}

ASSAY_WIDEST static void widen_bf16(float *out, const uint16_t *in, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)in[i] << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

const float *assay_stored_at_f32(const assay_stored *stored, int64_t first, int64_t n, float *room)
{
    const uint16_t *words = stored->data;
    switch (stored->dtype) {
    case ASSAY_DTYPE_F32:
        return (const float *)stored->data + first;
    case ASSAY_DTYPE_BF16:
        widen_bf16(room, words + first, n);
        return room;
    case ASSAY_DTYPE_F16:
        for (int64_t i = 0; i < n; i++)
            room[i] = assay_f16_to_f32(words[first + i]);
        return room;
    case ASSAY_DTYPE_F64:
        for (int64_t i = 0; i < n; i++)
            room[i] = (float)((const double *)stored->data)[first + i];
        return room;
    case ASSAY_DTYPE_I32:
        for (int64_t i = 0; i < n; i++)
            room[i] = (float)((const int32_t *)stored->data)[first + i];
        return room;
    default:
        ASSAY_BUG_IF("a stored value of another format");
    }
    return room;
}

/* Values of 16 bits by way of float32. */
static void widen_twice(double *out, const assay_stored *stored, int64_t first, int64_t n)
{
    enum { AT_ONCE = 512 };
    float room[AT_ONCE];
    for (int64_t i = 0; i < n; i += AT_ONCE) {
        int64_t m = n - i < AT_ONCE ? n - i : AT_ONCE;
        widen_f32(out + i, assay_stored_at_f32(stored, first + i, m, room), m);
    }
}

const double *assay_stored_at(const assay_stored *stored, int64_t first, int64_t n, double *room)
{
    switch (stored->dtype) {
    case ASSAY_DTYPE_F64:
        return (const double *)stored->data + first;
    case ASSAY_DTYPE_F32:
        widen_f32(room, (const float *)stored->data + first, n);
        return room;
    case ASSAY_DTYPE_I32:
        for (int64_t i = 0; i < n; i++)
            room[i] = ((const int32_t *)stored->data)[first + i];
        return room;
    case ASSAY_DTYPE_BF16:
    case ASSAY_DTYPE_F16:
        widen_twice(room, stored, first, n);
        return room;
    default:
        ASSAY_BUG_IF("a stored value of another format");
    }
    return room;
}

assay_status assay_run_read(double *out, const assay_run *run, const assay_seen *seen)
{
    assay_stored found = {.dtype = ASSAY_DTYPE_F64};
    const int64_t count = assay_seen_count(seen);
    if (seen->has_values)
        ASSAY_TRY(look_as_stored(&found, run, (const assay_entry *)(const void *)seen));
    if (!found.data)
        return assay_run_read_converted(out, run, seen);
    assay_status s = assay_stored_prove(&found, NULL);
    if (s == ASSAY_OK) {
        const double *values = assay_stored_at(&found, 0, count, out);
        if (values != out)
            memcpy(out, values, (size_t)count * sizeof *out);
    }
    assay_stored_clear(&found);
    return s;
}
