#include <math.h>
#include <stdlib.h>

#include "references/compare.h"
#include "references/median.h"
#include "references/metric.h"

#ifdef __FAST_MATH__
#error "isnan() must mean what it says"
#endif

/* Sums of one row over the elements that are finite on both sides; d = got - ref. */
typedef struct row_sums {
    double gg, rr, dd, dr, max_abs;
    int64_t n, n_mask_differ, n_nan;
} row_sums;

static bool same_kind(double a, double b)
{
    return (isinf(a) || isinf(b)) ? a == b : isnan(a) == isnan(b);
}

static row_sums sum_row(const double *got, const double *ref, int64_t n)
{
    row_sums s = {0};
    for (int64_t i = 0; i < n; i++) {
        double g = got[i], r = ref[i], d = g - r;
        if (!isfinite(g) || !isfinite(r)) {
            s.n_mask_differ += !same_kind(g, r);
            s.n_nan += isnan(g) || isnan(r);
            continue;
        }
        s.gg += g * g;
        s.rr += r * r;
        s.dd += d * d;
        s.dr += d * r;
        s.max_abs = fabs(d) > s.max_abs ? fabs(d) : s.max_abs;
        s.n++;
    }
    return s;
}

static double rel_of(const row_sums *s)
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
static double one_minus_cos(const row_sums *s)
{
    if (!(s->rr > 0) || !(s->gg > 0))
        return s->rr > 0 || s->gg > 0 ? 1 : 0;
    double cosine = (s->rr + s->dr) / sqrt(s->rr * s->gg);
    double rest = (s->dd - s->dr * (s->dr / s->rr)) / s->gg;
    if (cosine < 0.5)
        return 1 - cosine;
    return rest > 0 ? rest / (1 + cosine) : 0;
}

static double gain_of(const row_sums *s)
{
    return s->rr > 0 ? 1 + s->dr / s->rr : NAN;
}

static bool is_bad(double got, double ref, double limit)
{
    if (!isfinite(got) || !isfinite(ref))
        return isnan(got) || isnan(ref) || !same_kind(got, ref);
    return !(fabs(got - ref) <= limit);
}

static int64_t first_bad(const double *got, const double *ref, const row_sums *rows, int64_t n_rows,
                         int64_t n_cols, double bound)
{
    for (int64_t r = 0; r < n_rows; r++) {
        if (rel_of(&rows[r]) <= bound)
            continue;
        double limit = rows[r].n ? bound * sqrt(rows[r].rr / (double)rows[r].n) : 0;
        for (int64_t c = 0; c < n_cols; c++)
            if (is_bad(got[r * n_cols + c], ref[r * n_cols + c], limit))
                return r * n_cols + c;
    }
    return -1;
}

/* Row errors and gains, the worst row and the medians. work: [2 n_rows]. */
static void judge_rows(assay_metrics *out, const row_sums *rows, int64_t n_rows, double *work)
{
    double *errors = work, *gains = work + n_rows;
    int64_t n_gains = 0;
    out->row_rel_max = n_rows ? -1 : NAN;
    for (int64_t r = 0; r < n_rows; r++) {
        double gain = gain_of(&rows[r]);
        errors[r] = rel_of(&rows[r]);
        if (errors[r] > out->row_rel_max) {
            out->row_rel_max = errors[r];
            out->worst_row = r;
        }
        if (isfinite(gain))
            gains[n_gains++] = gain;
    }
    out->row_rel_median = assay_median(errors, n_rows);
    out->gain_row_median = assay_median(gains, n_gains);
}

void assay_metrics_of(assay_metrics *out, const double *got, const double *ref, int64_t n_rows,
                      int64_t n_cols, double bound)
{
    assay_metrics_with_rows(out, NULL, got, ref, n_rows, n_cols, bound);
}

void assay_metrics_with_rows(assay_metrics *out, double *row_errors, const double *got,
                             const double *ref, int64_t n_rows, int64_t n_cols, double bound)
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
    row_sums *rows = malloc(((size_t)n_rows + 1) * sizeof *rows), whole = {0};
    double *work = malloc((2 * (size_t)n_rows + 1) * sizeof *work);
    if (rows && work &&
        out->n) { /* without memory every number stays NaN, which no bound lets pass */
#pragma omp parallel for schedule(static) if (out->n > 1 << 16)
        for (int64_t r = 0; r < n_rows; r++)
            rows[r] = sum_row(got + r * n_cols, ref + r * n_cols, n_cols);
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
        out->n_mask_differ = whole.n_mask_differ;
        out->n_nan = whole.n_nan;
        out->rel = rel_of(&whole);
        out->one_minus_cos = one_minus_cos(&whole);
        out->gain = gain_of(&whole);
        out->max_abs = whole.n_mask_differ || whole.n_nan ? INFINITY : whole.max_abs;
        out->first_bad = first_bad(got, ref, rows, n_rows, n_cols, bound);
        judge_rows(out, rows, n_rows, work);
    }
    for (int64_t r = 0; r < n_rows && row_errors; r++)
        row_errors[r] = rows && work && n_cols ? rel_of(&rows[r]) : NAN;
    free(rows);
    free(work);
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
