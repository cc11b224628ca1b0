#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/wide.h"
#include "references/compare.h"
#include "references/median.h"
#include "references/metric.h"

#ifdef __FAST_MATH__
#error "isnan() must mean what it says"
#endif

static bool same_kind(double a, double b)
{
    return (isinf(a) || isinf(b)) ? a == b : isnan(a) == isnan(b);
}

/* Sums of a row in eight interleaved parts. */
typedef struct row_lanes {
    assay_f64s gg, rr, dd, dr;
    assay_i64s most;             /* bits of the largest |d|, which order as whole numbers do */
    assay_i64s bad, differ, nan; /* elements that are not finite on either side; counts */
} row_lanes;

/* Bits of |x|. */
#define LANES_SIZE(x) ((assay_i64s)(x)&INT64_MAX)

/* Without a look at single elements: one that is not finite makes gg or rr so. */
ASSAY_INSIDE void add_lanes(row_lanes *s, const assay_f64s *g, const assay_f64s *r)
{
    const assay_f64s d = *g - *r;
    const assay_i64s size = LANES_SIZE(d), more = (s->most - size) >> 63;
    s->gg += *g * *g;
    s->rr += *r * *r;
    s->dd += d * d;
    s->dr += d * *r;
    s->most = (size & more) | (s->most & ~more);
}

/* An element that is not finite on either side is counted, and a zero on both sides. */
ASSAY_INSIDE void add_masked_lanes(row_lanes *s, const assay_f64s *g, const assay_f64s *r)
{
    const int64_t infinite = 0x7FF0000000000000;
    const assay_i64s size_g = LANES_SIZE(*g), size_r = LANES_SIZE(*r),
                     bad = ~((size_g - infinite) & (size_r - infinite)) >> 63,
                     nan_g = (infinite - size_g) >> 63, nan_r = (infinite - size_r) >> 63;
    const assay_f64s kept_g = (assay_f64s)((assay_i64s)*g & ~bad),
                     kept_r = (assay_f64s)((assay_i64s)*r & ~bad);
    s->bad -= bad;
    s->nan -= nan_g | nan_r;
    s->differ -= bad & ~((assay_i64s)(*g == *r) | (nan_g & nan_r));
    add_lanes(s, &kept_g, &kept_r);
}

ASSAY_INSIDE int64_t count_of(const assay_i64s *lanes)
{
    int64_t n = 0;
    for (int j = 0; j < ASSAY_LANES_F64; j++)
        n += (*lanes)[j];
    return n;
}

/* The lanes together; rest: sums of what did not fill them, added behind. */
ASSAY_INSIDE void finish(assay_row_sums *rest, const row_lanes *s)
{
    int64_t bits = 0;
    double most;
    for (int j = 0; j < ASSAY_LANES_F64; j++)
        bits = s->most[j] > bits ? s->most[j] : bits;
    memcpy(&most, &bits, sizeof most);
    rest->gg = assay_lanes_total(&s->gg) + rest->gg;
    rest->rr = assay_lanes_total(&s->rr) + rest->rr;
    rest->dd = assay_lanes_total(&s->dd) + rest->dd;
    rest->dr = assay_lanes_total(&s->dr) + rest->dr;
    rest->max_abs = most > rest->max_abs ? most : rest->max_abs;
    rest->n -= count_of(&s->bad);
    rest->n_nan += count_of(&s->nan);
    rest->n_mask_differ += count_of(&s->differ);
}

/* One element behind the lanes; rest->n counts all elements at first. */
static void add_one(assay_row_sums *rest, double g, double r)
{
    double d = g - r;
    if (!isfinite(g) || !isfinite(r)) {
        bool same = g == r || (isnan(g) && isnan(r));
        rest->n--;
        rest->n_mask_differ += !same;
        rest->n_nan += isnan(g) || isnan(r);
        return;
    }
    rest->gg += g * g;
    rest->rr += r * r;
    rest->dd += d * d;
    rest->dr += d * r;
    rest->max_abs = fabs(d) > rest->max_abs ? fabs(d) : rest->max_abs;
}

ASSAY_INSIDE void sum(assay_row_sums *out, const double *got, const double *ref, int64_t n,
                      bool masked)
{
    row_lanes s = {.gg = {0}};
    int64_t i = 0;
    for (; i + ASSAY_LANES_F64 <= n; i += ASSAY_LANES_F64) {
        assay_f64s g, r;
        memcpy(&g, got + i, sizeof g);
        memcpy(&r, ref + i, sizeof r);
        if (masked)
            add_masked_lanes(&s, &g, &r);
        else
            add_lanes(&s, &g, &r);
    }
    assay_row_sums rest = {.n = n};
    for (; i < n; i++)
        add_one(&rest, got[i], ref[i]);
    finish(&rest, &s);
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

void assay_row_sums_add(assay_row_sums *sums, const assay_row_sums *more)
{
    sums->gg += more->gg;
    sums->rr += more->rr;
    sums->dd += more->dd;
    sums->dr += more->dr;
    sums->n += more->n;
    sums->n_mask_differ += more->n_mask_differ;
    sums->n_nan += more->n_nan;
    sums->max_abs = more->max_abs > sums->max_abs ? more->max_abs : sums->max_abs;
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

double assay_row_gain_median(double *work, const assay_row_sums *rows, int64_t n_rows)
{
    int64_t n = 0;
    for (int64_t r = 0; r < n_rows; r++) {
        double gain = assay_row_gain(&rows[r]);
        if (isfinite(gain))
            work[n++] = gain;
    }
    return assay_median(work, n);
}

void assay_metrics_of_whole(assay_metrics *out, const assay_row_sums *whole, int64_t n_rows,
                            int64_t n_cols)
{
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
    if (!whole || !out->n)
        return;
    out->n_mask_differ = whole->n_mask_differ;
    out->n_nan = whole->n_nan;
    out->rel = assay_row_rel(whole);
    out->one_minus_cos = one_minus_cos(whole);
    out->gain = assay_row_gain(whole);
    out->max_abs = whole->n_mask_differ || whole->n_nan ? INFINITY : whole->max_abs;
}

/* The worst row and the medians. work: [n_rows]. */
static void judge_rows(assay_metrics *out, const assay_row_sums *rows, int64_t n_rows, double *work)
{
    out->row_rel_max = -1;
    for (int64_t r = 0; r < n_rows; r++) {
        work[r] = assay_row_rel(&rows[r]);
        if (work[r] > out->row_rel_max) {
            out->row_rel_max = work[r];
            out->worst_row = r;
        }
    }
    out->row_rel_median = assay_median(work, n_rows);
    out->gain_row_median = assay_row_gain_median(work, rows, n_rows);
}

void assay_metrics_of(assay_metrics *out, const double *got, const double *ref, int64_t n_rows,
                      int64_t n_cols, double bound)
{
    ASSAY_BUG_IF(n_rows < 0 || n_cols < 0);
    assay_row_sums whole = {0},
                   *rows = assay_alloc_or_lack((size_t)n_rows + 1, sizeof *rows, "sums of rows");
    double *work = assay_alloc_or_lack((size_t)n_rows + 1, sizeof *work, "row errors");
    const bool has_room = rows && work;
#pragma omp parallel for schedule(static) if (n_rows * n_cols > 1 << 16)
    for (int64_t r = 0; r < (has_room ? n_rows : 0); r++)
        rows[r] = assay_row_sums_of(got + r * n_cols, ref + r * n_cols, n_cols);
    for (int64_t r = 0; r < (has_room ? n_rows : 0); r++)
        assay_row_sums_add(&whole, &rows[r]);
    assay_metrics_of_whole(out, has_room ? &whole : NULL, n_rows, n_cols);
    if (has_room && out->n)
        judge_rows(out, rows, n_rows, work);
    for (int64_t r = 0; r < n_rows && has_room && out->first_bad < 0; r++) {
        int64_t bad = assay_row_first_bad(got + r * n_cols, ref + r * n_cols, n_cols, bound);
        out->first_bad = bad < 0 ? -1 : r * n_cols + bad;
    }
    free(work);
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
