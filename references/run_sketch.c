/*
 * Sketches that a run keeps, and values that are known by them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probes/recorder.h"
#include "references/run_private.h"

/* The tables sketch/row and sketch/values of one prompt. */
typedef struct table {
    int32_t *rows;
    float *values;
    int64_t n;
} table;

static assay_status load(table *t, assay_run *run, hid_t file, const char *group)
{
    char path[1024], kind;
    int64_t n_rows;
    assay_h5_info info;
    double *wide = NULL;
    assay_status s;
    snprintf(path, sizeof path, "%.900s/sketch", group);
    ASSAY_TRY(assay_h5_member(&kind, file, path));
    if (kind != 'g')
        return ASSAY_OK;
    snprintf(path, sizeof path, "%.900s/sketch/row", group);
    ASSAY_TRY(assay_h5_member(&kind, file, path));
    if (kind != 'd')
        return ASSAY_OK;
    ASSAY_TRY(assay_h5_read_ids(&t->rows, &n_rows, file, path));
    ASSAY_TRY(assay_run_keep(run, t->rows));
    snprintf(path, sizeof path, "%.900s/sketch/values", group);
    ASSAY_TRY(assay_h5_dataset(&info, file, path));
    if (info.n_dims != 2 || info.dims[1] != ASSAY_SKETCH_N || n_rows != 2 * info.dims[0])
        return assay_fail(ASSAY_BAD_FILE, "'%s': expected %lld rows of %d numbers", path,
                          (long long)(n_rows / 2), ASSAY_SKETCH_N);
    ASSAY_GO(assay_alloc(&wide, (size_t)info.count, sizeof *wide, "sketches"));
    ASSAY_GO(assay_h5_read_f64(wide, file, path, &info));
    ASSAY_GO(assay_alloc(&t->values, (size_t)info.count, sizeof *t->values, "sketches"));
    ASSAY_GO(assay_run_keep(run, t->values));
    for (int64_t i = 0; i < info.count; i++)
        t->values[i] = (float)wide[i];
    t->n = info.dims[0];
out:
    free(wide);
    return s;
}

assay_status assay_run_read_sketches(assay_run *run, assay_prompt_data *prompt, hid_t file,
                                     const char *group, const int32_t *steps, const int *entries,
                                     int64_t n_rows)
{
    table t = {NULL, NULL, 0};
    ASSAY_TRY(load(&t, run, file, group));
    for (int64_t i = 0, end; i < t.n; i = end) {
        int32_t row = t.rows[2 * i];
        if (row < 0 || row >= n_rows)
            return assay_fail(ASSAY_BAD_FILE, "sketch %lld is of row %d, and there are %lld",
                              (long long)i, row, (long long)n_rows);
        for (end = i + 1; end < t.n && t.rows[2 * end] == row; end++)
            ;
        if (entries[row] < 0)
            continue;
        assay_entry *e = &prompt->steps[steps[row]].entries[entries[row]];
        e->sketch = t.values + i * ASSAY_SKETCH_N;
        e->n_groups = end - i;
        e->seen.has_sketch = true;
    }
    return ASSAY_OK;
}

const float *assay_run_sketch(int64_t *n_groups, const assay_seen *seen)
{
    const assay_entry *e = (const assay_entry *)(const void *)seen;
    *n_groups = e->n_groups;
    return e->sketch;
}

assay_status assay_run_show(assay_run *run, const assay_seen *seen, int n_dims, const int64_t *dims,
                            const double *values, double unsure, assay_known how)
{
    /* entries are the run's own; outside they are shown as constants */
    assay_entry *e = (assay_entry *)(uintptr_t)(const void *)seen;
    int64_t n = 1;
    e->seen.n_dims = n_dims;
    memcpy(e->seen.dims, dims, (size_t)n_dims * sizeof *dims);
    assay_plan_identity(&e->plan, dims, n_dims);
    assay_entry_settle(e);
    if (!values)
        return ASSAY_OK;
    double *copy;
    for (int d = 0; d < n_dims; d++)
        n *= dims[d];
    ASSAY_TRY(assay_alloc(&copy, (size_t)n, sizeof *copy, "values"));
    ASSAY_TRY(assay_run_keep(run, copy));
    memcpy(copy, values, (size_t)n * sizeof *copy);
    e->known = copy;
    e->seen.has_values = true;
    e->seen.unsure = unsure;
    e->seen.known = how;
    return ASSAY_OK;
}
