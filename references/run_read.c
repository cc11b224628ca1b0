/*
 * Values of a run on their way to canonical layout: stored numbers, a second tensor added, the
 * layout, what is laid under, and parts of ranks put together.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probes/recorder.h"
#include "references/run_private.h"

static assay_status check_seal(const assay_run *run, const assay_source *source, const void *bytes)
{
    const assay_h5_info *info = &source->info;
    char is[65];
    ASSAY_TRY(bytes ? assay_sha256_hex(is, bytes, (size_t)info->count * info->element_bytes)
                    : assay_h5_sha256(is, run->files[source->file].id, source->path));
    if (strcmp(source->sha256, is))
        return assay_fail(ASSAY_BAD_FILE,
                          "'%s' was changed after it was written: SHA-256 %s, recorded %s",
                          source->path, is, source->sha256);
    return ASSAY_OK;
}

assay_status assay_run_check_sum(const assay_run *run, const assay_source *source, uint64_t is)
{
    if (source->checksum == is)
        return ASSAY_OK;
    return assay_within(assay_fail(ASSAY_BAD_FILE,
                                   "'%s' was changed after it was written: checksum %016llx, "
                                   "recorded %016llx (whoever means to change it removes the "
                                   "attribute)",
                                   source->path, (unsigned long long)is,
                                   (unsigned long long)source->checksum),
                        "'%s'", run->files[source->file].path);
}

assay_status assay_run_check(const assay_run *run, const assay_source *source, const void *bytes)
{
    uint64_t is;
    if (!source->is_sealed && !source->is_summed)
        return ASSAY_OK;
    assay_checksum_fn *sum = source->is_mixed ? assay_checksum_mixed : assay_checksum_of;
    if (source->is_summed && bytes)
        return assay_run_check_sum(run, source,
                                   sum(bytes, source->info.element_bytes, source->info.count));
    const assay_run_file *file = &run->files[source->file];
    assay_status s = source->is_sealed ? check_seal(run, source, bytes)
                                       : assay_h5_checksum(&is, file->id, source->path, sum);
    if (s != ASSAY_OK)
        return assay_within(s, "'%s'", file->path);
    return source->is_sealed ? ASSAY_OK : assay_run_check_sum(run, source, is);
}

static assay_status read_source(double *out, const assay_run *run, const assay_source *source)
{
    hid_t file = run->files[source->file].id;
    ASSAY_TRY(assay_run_check(run, source, NULL));
    if (source->packed == ASSAY_DTYPE_COUNT)
        return assay_h5_read_f64(out, file, source->path, &source->info);
    /* The words are read into the far half of the output and widened from the front. */
    int64_t n = source->info.count;
    uint16_t *words = (uint16_t *)(void *)out + 3 * n;
    ASSAY_TRY(assay_h5_read_u16(words, file, source->path, &source->info));
    for (int64_t i = 0; i < n; i++) {
        uint16_t word = words[i];
        out[i] =
            source->packed == ASSAY_DTYPE_BF16 ? assay_bf16_to_f32(word) : assay_f16_to_f32(word);
    }
    return ASSAY_OK;
}

static assay_status add_source(double *in, const assay_run *run, const assay_source *second)
{
    double *more;
    ASSAY_TRY(assay_alloc(&more, (size_t)second->info.count, sizeof *more, second->path));
    assay_status s = read_source(more, run, second);
    for (int64_t i = 0; s == ASSAY_OK && i < second->info.count; i++)
        in[i] += more[i];
    free(more);
    return s;
}

/* Puts one rank's part at its place in the whole: blocks of the axes behind part_axis. */
static void place_part(double *out, const double *part, const assay_entry *whole,
                       const assay_seen *seen, int64_t first)
{
    int64_t n_before = 1, n_behind = 1;
    int axis = whole->part_axis;
    for (int d = 0; d < axis; d++)
        n_before *= seen->dims[d];
    for (int d = axis + 1; d < seen->n_dims; d++)
        n_behind *= seen->dims[d];
    int64_t run = seen->dims[axis] * n_behind, all = whole->seen.dims[axis] * n_behind;
    for (int64_t i = 0; i < n_before; i++)
        memcpy(out + i * all + first * n_behind, part + i * run, (size_t)run * sizeof *out);
}

static assay_status read_parts(double *out, const assay_run *run, const assay_entry *whole)
{
    if (whole->part_axis < 0)
        return assay_run_read(out, run, &whole->parts[0]->seen);
    int64_t first = 0;
    for (int i = 0; i < whole->n_parts; i++) {
        const assay_seen *seen = &whole->parts[i]->seen;
        double *part;
        ASSAY_TRY(assay_alloc(&part, (size_t)assay_plan_n_out(&whole->parts[i]->plan), sizeof *part,
                              seen->source));
        assay_status s = assay_run_read(part, run, seen);
        if (s == ASSAY_OK)
            place_part(out, part, whole, seen, first);
        free(part);
        ASSAY_TRY(s);
        first += seen->dims[whole->part_axis];
    }
    return ASSAY_OK;
}

static assay_status read_whole(double *out, const assay_run *run, const assay_entry *e);

/* The value that is laid under, all rows of it. */
static assay_status read_base(double *out, const assay_run *run, const assay_entry *base)
{
    if (!base->rows)
        return assay_run_read(out, run, &base->seen);
    if (run->marks_reads)
        assay_run_mark(run, &base->seen);
    return read_whole(out, run, base);
}

static assay_status read_whole(double *out, const assay_run *run, const assay_entry *e)
{
    double *in, *base = NULL;
    ASSAY_TRY(assay_alloc(&in, (size_t)assay_plan_n_in(&e->plan), sizeof *in, "values"));
    assay_status s = read_source(in, run, &e->source);
    if (s == ASSAY_OK && e->second)
        s = add_source(in, run, e->second);
    if (s == ASSAY_OK)
        assay_plan_apply(out, in, &e->plan);
    if (s == ASSAY_OK && e->base) {
        s = assay_alloc(&base, (size_t)assay_plan_n_out(&e->plan), sizeof *base, "values");
        if (s == ASSAY_OK)
            s = read_base(base, run, e->base);
        if (s == ASSAY_OK)
            assay_plan_overlay(out, base, &e->plan);
        free(base);
    }
    free(in);
    return s;
}

/* Rows of one request out of the batch's. */
static assay_status read_rows(double *out, const assay_run *run, const assay_entry *e)
{
    int64_t n_before = 1, n_behind = 1, n_all = e->full_dims[e->rows_axis];
    int64_t n = e->seen.dims[e->rows_axis];
    double *all;
    for (int d = 0; d < e->seen.n_dims; d++)
        *(d < e->rows_axis ? &n_before : &n_behind) *= d == e->rows_axis ? 1 : e->full_dims[d];
    ASSAY_TRY(assay_alloc(&all, (size_t)(n_before * n_all * n_behind), sizeof *all, "values"));
    assay_status s = read_whole(all, run, e);
    for (int64_t i = 0; s == ASSAY_OK && i < n_before; i++)
        for (int64_t r = 0; r < n; r++)
            memcpy(out + (i * n + r) * n_behind, all + (i * n_all + e->rows[r]) * n_behind,
                   (size_t)n_behind * sizeof *out);
    free(all);
    return s;
}

assay_status assay_run_read_converted(double *out, const assay_run *run, const assay_seen *seen)
{
    const assay_entry *e = (const assay_entry *)(const void *)seen;
    if (!seen->has_values)
        return assay_fail(ASSAY_MISSING, "'%s': only statistics were kept", seen->source);
    if (run->marks_reads)
        assay_run_mark(run, seen);
    if (e->known) {
        memcpy(out, e->known, (size_t)assay_plan_n_out(&e->plan) * sizeof *out);
        return ASSAY_OK;
    }
    if (e->n_parts)
        return read_parts(out, run, e);
    return e->rows ? read_rows(out, run, e) : read_whole(out, run, e);
}
