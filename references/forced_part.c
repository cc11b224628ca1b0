#include "references/forced_part.h"

#include <stdlib.h>
#include <string.h>

typedef struct shape {      /* of one value on both sides */
    bool heads_first;       /* [H, T, S] */
    int64_t outer;          /* H, or 1 */
    int64_t rows, all_rows; /* tokens captured, tokens of the step */
    int64_t cols, wide;     /* columns per row: the oracle's, the captured */
    bool is_keys;           /* a list of selected keys */
} shape;

static assay_status misfit(const assay_seen *seen, int n_dims, const int64_t *dims)
{
    char name[ASSAY_POINT_NAME_BYTES];
    assay_point_format(name, seen->point, seen->layer);
    int64_t a[ASSAY_MAX_DIMS] = {0}, b[ASSAY_MAX_DIMS] = {0};
    memcpy(a, seen->dims, sizeof a);
    memcpy(b, dims, (size_t)n_dims * sizeof *b);
    return assay_fail(ASSAY_BAD_SHAPE,
                      "%s ('%s') has shape [%lld, %lld, %lld, %lld], expected [%lld, %lld, %lld, "
                      "%lld] (0: no such axis)",
                      name, seen->source ? seen->source : "", (long long)a[0], (long long)a[1],
                      (long long)a[2], (long long)a[3], (long long)b[0], (long long)b[1],
                      (long long)b[2], (long long)b[3]);
}

static assay_status find_shape(shape *out, const assay_part *at, const assay_seen *seen)
{
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS] = {0};
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, at->pass, at->step, seen->point, seen->layer));
    const char *axes = assay_point_at(seen->point)->axes;
    size_t n_axes = strlen(axes);
    bool open_end = axes[n_axes - 1] == 'S' || axes[n_axes - 1] == 'X';
    if (seen->n_dims != n_dims)
        return misfit(seen, n_dims, dims);
    for (int i = 0; i < n_dims; i++) {
        bool may_be_less = i == (axes[0] == 'H') && seen->dims[i] > 0 && seen->dims[i] < dims[i];
        bool may_differ = open_end && i == n_dims - 1 && seen->dims[i] > 0;
        if (axes[n_axes - 1] == 'S' && seen->dims[i] < dims[i])
            may_differ = false;
        if (seen->dims[i] != dims[i] && !may_be_less && !may_differ)
            return misfit(seen, n_dims, dims);
    }
    out->heads_first = axes[0] == 'H';
    int t = out->heads_first ? 1 : 0;
    out->outer = out->heads_first ? dims[0] : 1;
    out->rows = seen->dims[t];
    out->all_rows = dims[t];
    out->cols = out->wide = 1;
    for (int i = t + 1; i < n_dims; i++) {
        out->cols *= dims[i];
        out->wide *= seen->dims[i];
    }
    out->is_keys = axes[n_axes - 1] == 'X';
    return ASSAY_OK;
}

int64_t assay_part_count(const assay_part *at, const assay_seen *seen)
{
    shape s;
    if (find_shape(&s, at, seen) != ASSAY_OK)
        return -1;
    return s.outer * s.rows * s.cols;
}

/* Ids of keys that the mask allows first, in their order, then -1. */
static void cut_keys(double *out, const double *ids, const shape *s, int64_t n_visible)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->wide && n < s->cols; i++)
        if (ids[i] >= 0 && ids[i] < (double)n_visible)
            out[n++] = ids[i];
    while (n < s->cols)
        out[n++] = -1;
}

assay_status assay_part_read(double *out, const assay_part *at, const assay_seen *seen)
{
    shape s;
    ASSAY_TRY(find_shape(&s, at, seen));
    int64_t first = assay_run_step_at(at->run, at->prompt, at->step)->first_position;
    if (s.cols == s.wide && !s.is_keys)
        return assay_run_read(out, at->run, seen);
    double *raw;
    ASSAY_TRY(assay_alloc(&raw, (size_t)(s.outer * s.rows * s.wide), sizeof *raw, "a value"));
    assay_status status = assay_run_read(raw, at->run, seen);
    for (int64_t r = 0; status == ASSAY_OK && r < s.outer * s.rows; r++) {
        int64_t row = s.all_rows - s.rows + r % s.rows;
        if (s.is_keys)
            cut_keys(out + r * s.cols, raw + r * s.wide, &s, first + row + 1);
        else
            memcpy(out + r * s.cols, raw + r * s.wide, (size_t)s.cols * sizeof *out);
    }
    free(raw);
    return status;
}

assay_status assay_part_put(const assay_part *at, const assay_seen *seen)
{
    shape s;
    ASSAY_TRY(find_shape(&s, at, seen));
    int64_t n = s.outer * s.all_rows * s.cols;
    double *values;
    ASSAY_TRY(assay_alloc(&values, (size_t)n, sizeof *values, "a value"));
    assay_status status;
    if (s.rows == s.all_rows) {
        status = assay_part_read(values, at, seen);
    } else {
        const double *own;
        double *kept = NULL;
        status = assay_pass_value(&own, at->pass, at->step, seen->point, seen->layer);
        if (status == ASSAY_OK) {
            memcpy(values, own, (size_t)n * sizeof *values);
            status =
                assay_alloc(&kept, (size_t)(s.outer * s.rows * s.cols), sizeof *kept, "a value");
        }
        if (status == ASSAY_OK)
            status = assay_part_read(kept, at, seen);
        for (int64_t h = 0; status == ASSAY_OK && h < s.outer; h++)
            memcpy(values + (h * s.all_rows + s.all_rows - s.rows) * s.cols,
                   kept + h * s.rows * s.cols, (size_t)(s.rows * s.cols) * sizeof *values);
        free(kept);
    }
    if (status == ASSAY_OK)
        status = assay_pass_put(at->pass, at->step, seen->point, seen->layer, values, n);
    free(values);
    return status;
}

static void cut_rows(double *out, const double *all, const shape *s)
{
    for (int64_t h = 0; h < s->outer; h++)
        memcpy(out + h * s->rows * s->cols,
               all + (h * s->all_rows + s->all_rows - s->rows) * s->cols,
               (size_t)(s->rows * s->cols) * sizeof *out);
}

assay_status assay_part_expect(double *out, const assay_part *at, const assay_seen *seen,
                               const assay_knobs *knobs)
{
    shape s;
    ASSAY_TRY(find_shape(&s, at, seen));
    if (s.rows == s.all_rows)
        return assay_pass_expect(out, at->pass, at->step, seen->point, seen->layer, knobs);
    double *all;
    ASSAY_TRY(assay_alloc(&all, (size_t)(s.outer * s.all_rows * s.cols), sizeof *all, "a value"));
    assay_status status =
        assay_pass_expect(all, at->pass, at->step, seen->point, seen->layer, knobs);
    if (status == ASSAY_OK)
        cut_rows(out, all, &s);
    free(all);
    return status;
}

assay_status assay_part_value(double *out, const assay_part *at, assay_point point, int layer,
                              int64_t n_rows)
{
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS];
    const double *values;
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, at->pass, at->step, point, layer));
    ASSAY_TRY(assay_pass_value(&values, at->pass, at->step, point, layer));
    int64_t cols = 1;
    for (int i = 1; i < n_dims; i++)
        cols *= dims[i];
    memcpy(out, values + (dims[0] - n_rows) * cols, (size_t)(n_rows * cols) * sizeof *out);
    return ASSAY_OK;
}
