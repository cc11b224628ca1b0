#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/wide.h"
#include "references/compare.h"
#include "references/median.h"
#include "references/metric.h"
#include "references/row_lanes.h"

#ifdef __FAST_MATH__
#error "isnan() must mean what it says"
#endif

static bool same_kind(double a, double b)
{
    return (isinf(a) || isinf(b)) ? a == b : isnan(a) == isnan(b);
}

ASSAY_INSIDE void sum(assay_row_sums *out, const double *got, const double *ref, int64_t n,
                      bool masked)
{
    assay_row_lanes s = {.gg = {0}};
    int64_t i = 0;
    for (; i + ASSAY_LANES_F64 <= n; i += ASSAY_LANES_F64) {
        assay_f64s g, r;
        memcpy(&g, got + i, sizeof g);
        memcpy(&r, ref + i, sizeof r);
        if (masked)
            assay_row_lanes_add_masked(&s, &g, &r);
        else
            assay_row_lanes_add(&s, &g, &r);
    }
    assay_row_sums rest = {.n = n};
    for (; i < n; i++)
        assay_row_add_one(&rest, got[i], ref[i]);
    assay_row_lanes_finish(&rest, &s);
    *out = rest;
}

ASSAY_WIDEST_INT static void sum_all(assay_row_sums *out, const double *got, const double *ref,
                                     int64_t n)
{
    sum(out, got, ref, n, false);
}

ASSAY_WIDEST_INT static void sum_masked(assay_row_sums *out, const double *got, const double *ref,
                                        int64_t n)
{
    sum(out, got, ref, n, true);
}

assay_row_sums assay_row_sums_of(const double *got, const double *ref, int64_t n)
{
    assay_row_sums s;
    sum_all(&s, got, ref, n);
    if (!isfinite(s.gg) || !isfinite(s.rr) || s.n < n)
        sum_masked(&s, got, ref, n);
    return s;
}

double assay_row_rel(const assay_row_sums *s)
{
    if (s->n_mask_differ || s->n_nan || !isfinite(s->rr) || !isfinite(s->dd))
        return INFINITY;
    if (s->rr > 0)
        return sqrt(s->dd / s->rr);
    return s->max_abs > 0 ? INFINITY : 0; /* also where squares underflow */
}

/*
 * 1 - cos without cancellation: sin^2 = |got - gain ref|^2 / |got|^2, and the numerator is
 * |d|^2 - <d, ref>^2 / |ref|^2.
 */
static double one_minus_cos(const assay_row_sums *s)
{
    if (!(s->rr > 0) || !(s->gg > 0))
        return s->rr > 0 || s->gg > 0 ? 1 : 0;
    double cosine = (s->rr + s->dr) / sqrt(s->rr * s->gg);
    double rest = (s->dd - s->dr * (s->dr / s->rr)) / s->gg;
    if (cosine < 0.5)
        return 1 - cosine;
    return rest > 0 ? rest / (1 + cosine) : 0;
}

double assay_row_gain(const assay_row_sums *s)
{
    return s->rr > 0 ? 1 + s->dr / s->rr : NAN;
}

static bool is_bad(double got, double ref, double limit)
{
    if (!isfinite(got) || !isfinite(ref))
        return isnan(got) || isnan(ref) || !same_kind(got, ref);
    return !(fabs(got - ref) <= limit);
}

int64_t assay_row_first_bad(const double *got, const double *ref, int64_t n, double bound)
{
    assay_row_sums row = assay_row_sums_of(got, ref, n);
    if (assay_row_rel(&row) <= bound)
        return -1;
    double limit = row.n ? bound * sqrt(row.rr / (double)row.n) : 0;
    for (int64_t c = 0; c < n; c++)
        if (is_bad(got[c], ref[c], limit))
            return c;
    return -1;
}

/* Row errors and gains, the worst row and the medians. work: [2 n_rows]; row_errors may be NULL. */
static void judge_rows(assay_metrics *out, double *row_errors, const assay_row_sums *rows,
                       int64_t n_rows, double *work)
{
    double *errors = work, *gains = work + n_rows;
    int64_t n_gains = 0;
    out->row_rel_max = n_rows ? -1 : NAN;
    for (int64_t r = 0; r < n_rows; r++) {
        double gain = assay_row_gain(&rows[r]);
        errors[r] = assay_row_rel(&rows[r]);
        if (errors[r] > out->row_rel_max) {
            out->row_rel_max = errors[r];
            out->worst_row = r;
        }
        if (isfinite(gain))
            gains[n_gains++] = gain;
    }
    if (row_errors)
        memcpy(row_errors, errors, (size_t)n_rows * sizeof *errors);
    out->row_rel_median = assay_median(errors, n_rows);
    out->gain_row_median = assay_median(gains, n_gains);
}

static assay_row_sums sum_rows(const assay_row_sums *rows, int64_t n_rows)
{
    assay_row_sums whole = {0};
    for (int64_t r = 0; r < n_rows; r++) {
        whole.gg += rows[r].gg;
        whole.rr += rows[r].rr;
        whole.dd += rows[r].dd;
        whole.dr += rows[r].dr;
        whole.n += rows[r].n;
        whole.n_mask_differ += rows[r].n_mask_differ;
        whole.n_nan += rows[r].n_nan;
        whole.max_abs = rows[r].max_abs > whole.max_abs ? rows[r].max_abs : whole.max_abs;
    }
    return whole;
}

void assay_metrics_from_rows(assay_metrics *out, double *row_errors, const assay_row_sums *rows,
                             int64_t n_rows, int64_t n_cols)
{
    ASSAY_BUG_IF(n_rows < 0 || n_cols < 0);
    *out = (assay_metrics){.n = n_rows * n_cols,
                           .n_rows = n_rows,
                           .rel = NAN,
                           .one_minus_cos = NAN,
                           .gain = NAN,
                           .max_abs = NAN,
                           .row_rel_max = NAN,
                           .row_rel_median = NAN,
                           .gain_row_median = NAN,
                           .worst_row = -1,
                           .first_bad = -1};
    double *work =
        rows ? assay_alloc_or_lack(2 * (size_t)n_rows + 1, sizeof *work, "row errors") : NULL;
    for (int64_t r = 0; r < n_rows && row_errors && !(work && n_cols); r++)
        row_errors[r] = NAN;
    if (work && out->n) {
        const assay_row_sums whole = sum_rows(rows, n_rows);
        out->n_mask_differ = whole.n_mask_differ;
        out->n_nan = whole.n_nan;
        out->rel = assay_row_rel(&whole);
        out->one_minus_cos = one_minus_cos(&whole);
        out->gain = assay_row_gain(&whole);
        out->max_abs = whole.n_mask_differ || whole.n_nan ? INFINITY : whole.max_abs;
        judge_rows(out, row_errors, rows, n_rows, work);
    }
    free(work);
}

void assay_metrics_of(assay_metrics *out, const double *got, const double *ref, int64_t n_rows,
                      int64_t n_cols, double bound)
{
    ASSAY_BUG_IF(n_rows < 0 || n_cols < 0);
    assay_row_sums *rows = assay_alloc_or_lack((size_t)n_rows + 1, sizeof *rows, "sums of rows");
#pragma omp parallel for schedule(static) if (n_rows * n_cols > 1 << 16)
    for (int64_t r = 0; r < (rows ? n_rows : 0); r++)
        rows[r] = assay_row_sums_of(got + r * n_cols, ref + r * n_cols, n_cols);
    assay_metrics_from_rows(out, NULL, rows, n_rows, n_cols);
    for (int64_t r = 0; r < n_rows && rows && out->first_bad < 0; r++) {
        int64_t bad = assay_row_first_bad(got + r * n_cols, ref + r * n_cols, n_cols, bound);
        out->first_bad = bad < 0 ? -1 : r * n_cols + bad;
    }
    free(rows);
}

#define X(id, name, member, meaning)                                                               \
    static double get_##id(const assay_metrics *m)                                                 \
    {                                                                                              \
        return (double)m->member;                                                                  \
    }
#include "references/metric.def"
#undef X

static const assay_metric table[] = {
#define X(id, name, member, meaning) {name, meaning, get_##id},
#include "references/metric.def"
#undef X
};

int assay_metric_count(void)
{
    return (int)(sizeof table / sizeof *table);
}

const assay_metric *assay_metric_at(int index)
{
    ASSAY_BUG_IF(index < 0 || index >= assay_metric_count());
    return &table[index];
}
