/*
 * A choice that was not captured, inferred from what came out behind it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "references/forced_ids.h"

enum { MAX_TRIES = 4 };

typedef struct infer {
    double *ids, *own, *best;         /* [rows, width] */
    double *scores, *exact, *rounded; /* [rows, n_scores] */
    double *out, *error;              /* value; [rows]: best error so far */
    int64_t rows, width, n_scores, cols;
} infer;

static void infer_clear(infer *x)
{
    free(x->ids);
    free(x->scores);
    free(x->out);
    free(x->error);
}

static assay_status make_room(infer *x, int64_t n_values)
{
    size_t n_ids = (size_t)(x->rows * x->width), n_scores = (size_t)(x->rows * x->n_scores);
    ASSAY_TRY(assay_alloc(&x->ids, n_ids, 3 * sizeof *x->ids, "ids"));
    ASSAY_TRY(assay_alloc(&x->scores, n_scores, 3 * sizeof *x->scores, "scores"));
    ASSAY_TRY(assay_alloc(&x->out, (size_t)n_values, sizeof *x->out, "a value"));
    ASSAY_TRY(assay_alloc(&x->error, (size_t)x->rows, sizeof *x->error, "errors of rows"));
    x->own = x->ids + n_ids;
    x->best = x->own + n_ids;
    x->exact = x->scores + n_scores;
    x->rounded = x->exact + n_scores;
    return ASSAY_OK;
}

static double row_error(const double *got, const double *want, int64_t n)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = got[i] - want[i];
        if (!isfinite(d))
            continue;
        error += d * d;
        size += got[i] * got[i];
    }
    return size > 0 ? sqrt(error / size) : 0;
}

static double noise_of(const infer *x, int64_t r)
{
    double sum = 0, top = 0;
    for (int64_t i = 0; i < x->n_scores; i++) {
        double a = x->exact[r * x->n_scores + i], b = x->rounded[r * x->n_scores + i];
        sum += (a - b) * (a - b);
        top = fmax(top, fabs(a));
    }
    return fmax(4 * sqrt(sum / (double)x->n_scores), ldexp(top, -22));
}

static bool is_chosen(const infer *x, int64_t r, int64_t id)
{
    for (int64_t k = 0; k < x->width; k++)
        if (x->own[r * x->width + k] == (double)id)
            return true;
    return false;
}

/* The attempt-th nearest exchange of a chosen id for a left-out one; false: none within the noise.
 */
static bool exchange(infer *x, int64_t r, int attempt)
{
    const double *scores = x->scores + r * x->n_scores;
    double noise = noise_of(x, r), last = -1;
    double *ids = x->ids + r * x->width;
    memcpy(ids, x->own + r * x->width, (size_t)x->width * sizeof *ids);
    int64_t slot = -1, id = -1;
    for (int k = 0; k <= attempt; k++) {
        double least = INFINITY;
        slot = id = -1;
        for (int64_t c = 0; c < x->width; c++)
            for (int64_t i = 0; i < x->n_scores; i++) {
                double gap = scores[(int64_t)x->own[r * x->width + c]] - scores[i];
                if (!is_chosen(x, r, i) && gap > last && gap < least) {
                    least = gap;
                    slot = c;
                    id = i;
                }
            }
        if (slot < 0 || least > noise)
            return false;
        last = least;
    }
    ids[slot] = (double)id;
    return true;
}

static assay_status put_ids(const assay_part *at, int layer, infer *x)
{
    return assay_pass_put(at->pass, at->step, ASSAY_POINT_MOE_TOPK, layer, x->ids,
                          x->rows * x->width);
}

/* One exchange in every row that stands out; the rows that come nearer keep it. */
static assay_status attempt_all(bool *any, infer *x, const assay_part *at, const assay_judged *j,
                                const double *got, const assay_knobs *knobs, int attempt)
{
    int64_t first = x->rows - j->n_rows;
    *any = false;
    memcpy(x->ids, x->best, (size_t)(x->rows * x->width) * sizeof *x->ids);
    for (int64_t r = 0; r < j->n_rows; r++) {
        if (x->error[first + r] <= 3 * j->floor_row_median)
            continue;
        if (exchange(x, first + r, attempt))
            *any = true;
        else
            memcpy(x->ids + (first + r) * x->width, x->best + (first + r) * x->width,
                   (size_t)x->width * sizeof *x->ids);
    }
    if (!*any)
        return ASSAY_OK;
    ASSAY_TRY(put_ids(at, j->layer, x));
    ASSAY_TRY(assay_part_expect(x->out, at, j->seen, knobs));
    for (int64_t r = 0; r < j->n_rows; r++) {
        double e = row_error(got + r * j->n_cols, x->out + r * j->n_cols, j->n_cols);
        if (e < 0.5 * x->error[first + r]) {
            x->error[first + r] = e;
            memcpy(x->best + (first + r) * x->width, x->ids + (first + r) * x->width,
                   (size_t)x->width * sizeof *x->ids);
        }
    }
    return ASSAY_OK;
}

/* Groups of experts are left aside: an expert of a forbidden group cannot fit what came out. */
static assay_status read_choice(infer *x, const assay_part *at, int layer, assay_oracle *oracle,
                                const assay_knobs *rounding)
{
    const double *own, *exact;
    ASSAY_TRY(assay_pass_value(&own, at->pass, at->step, ASSAY_POINT_MOE_TOPK, layer));
    memcpy(x->own, own, (size_t)(x->rows * x->width) * sizeof *own);
    memcpy(x->best, own, (size_t)(x->rows * x->width) * sizeof *own);
    ASSAY_TRY(assay_pass_value(&exact, at->pass, at->step, ASSAY_POINT_MOE_PROBS, layer));
    memcpy(x->exact, exact, (size_t)(x->rows * x->n_scores) * sizeof *exact);
    ASSAY_TRY(
        assay_pass_expect(x->rounded, at->pass, at->step, ASSAY_POINT_MOE_PROBS, layer, rounding));
    memcpy(x->scores, exact, (size_t)(x->rows * x->n_scores) * sizeof *exact);
    return assay_ids_add_bias(x->scores, x->rows, x->n_scores, oracle, layer);
}

static bool chooses_experts(const assay_part *at, const assay_judged *j)
{
    assay_point points[ASSAY_FORCED_INTERVAL];
    int layers[ASSAY_FORCED_INTERVAL], steps[ASSAY_FORCED_INTERVAL];
    int n = assay_pass_interval(points, layers, steps, ASSAY_FORCED_INTERVAL, at->pass, j->step,
                                j->point, j->layer);
    for (int i = 0; i < n && i < ASSAY_FORCED_INTERVAL; i++)
        if (points[i] == ASSAY_POINT_MOE_TOPK && layers[i] == j->layer && steps[i] == j->step)
            return true;
    return false;
}

assay_status assay_ids_infer(int64_t *n_changed, const assay_part *at, const assay_judged *judged,
                             const double *got, const double *expected, const assay_knobs *knobs,
                             const assay_knobs *rounding, assay_oracle *oracle)
{
    const assay_judged *j = judged;
    infer x = {0};
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS];
    assay_status s = ASSAY_OK;
    *n_changed = 0;
    if (!chooses_experts(at, j))
        return ASSAY_OK;
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, at->pass, at->step, ASSAY_POINT_MOE_TOPK, j->layer));
    x.rows = dims[0];
    x.width = dims[1];
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, at->pass, at->step, ASSAY_POINT_MOE_PROBS, j->layer));
    x.n_scores = dims[1];
    x.cols = j->n_cols;
    if (j->n_rows > x.rows)
        return ASSAY_OK;
    ASSAY_GO(make_room(&x, j->n_rows * j->n_cols));
    ASSAY_GO(read_choice(&x, at, j->layer, oracle, rounding));
    for (int64_t r = 0; r < j->n_rows; r++)
        x.error[x.rows - j->n_rows + r] =
            row_error(got + r * j->n_cols, expected + r * j->n_cols, j->n_cols);
    bool any = true;
    for (int t = 0; t < MAX_TRIES && any; t++)
        ASSAY_GO(attempt_all(&any, &x, at, j, got, knobs, t));
    for (int64_t r = 0; r < x.rows; r++)
        *n_changed += memcmp(x.best + r * x.width, x.own + r * x.width,
                             (size_t)x.width * sizeof *x.best) != 0;
    memcpy(x.ids, x.best, (size_t)(x.rows * x.width) * sizeof *x.ids);
    if (assay_pass_is_put(at->pass, at->step, ASSAY_POINT_MOE_TOPK, j->layer))
        ASSAY_GO(put_ids(at, j->layer, &x));
    if (*n_changed > 0) /* what was computed behind the old choice is void */
        assay_pass_forget(at->pass, 1 << 20);
out:
    infer_clear(&x);
    return s;
}
