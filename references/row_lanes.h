/* Sums of a row of float64 in eight interleaved parts, and of single elements behind them. */
#ifndef ASSAY_REFERENCES_ROW_LANES_H
#define ASSAY_REFERENCES_ROW_LANES_H

#include <math.h>

#include "engine/base/wide.h"
#include "references/metric.h"

typedef struct assay_row_lanes {
    assay_f64s gg, rr, dd, dr;
    assay_i64s most;             /* bits of the largest |d|, which order as whole numbers do */
    assay_i64s bad, differ, nan; /* elements that are not finite on either side; counts */
} assay_row_lanes;

/* Bits of |x|. */
#define ASSAY_LANES_SIZE(x) ((assay_i64s)(x)&INT64_MAX)

/* Without a look at single elements: one that is not finite makes gg or rr so. */
ASSAY_INSIDE void assay_row_lanes_add(assay_row_lanes *s, const assay_f64s *g, const assay_f64s *r)
{
    const assay_f64s d = *g - *r;
    const assay_i64s size = ASSAY_LANES_SIZE(d), more = (s->most - size) >> 63;
    s->gg += *g * *g;
    s->rr += *r * *r;
    s->dd += d * d;
    s->dr += d * *r;
    s->most = (size & more) | (s->most & ~more);
}

/* An element that is not finite on either side is counted, and a zero on both sides. */
ASSAY_INSIDE void assay_row_lanes_add_masked(assay_row_lanes *s, const assay_f64s *g,
                                             const assay_f64s *r)
{
    const int64_t infinite = 0x7FF0000000000000;
    const assay_i64s size_g = ASSAY_LANES_SIZE(*g), size_r = ASSAY_LANES_SIZE(*r),
                     bad = ~((size_g - infinite) & (size_r - infinite)) >> 63,
                     nan_g = (infinite - size_g) >> 63, nan_r = (infinite - size_r) >> 63;
    const assay_f64s kept_g = (assay_f64s)((assay_i64s)*g & ~bad),
                     kept_r = (assay_f64s)((assay_i64s)*r & ~bad);
    s->bad -= bad;
    s->nan -= nan_g | nan_r;
    s->differ -= bad & ~((assay_i64s)(*g == *r) | (nan_g & nan_r));
    assay_row_lanes_add(s, &kept_g, &kept_r);
}

ASSAY_INSIDE int64_t assay_lanes_count(const assay_i64s *lanes)
{
    int64_t n = 0;
    for (int j = 0; j < ASSAY_LANES_F64; j++)
        n += (*lanes)[j];
    return n;
}

/* The lanes together; rest: sums of what did not fill them, added behind. */
ASSAY_INSIDE void assay_row_lanes_finish(assay_row_sums *rest, const assay_row_lanes *s)
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
    rest->n -= assay_lanes_count(&s->bad);
    rest->n_nan += assay_lanes_count(&s->nan);
    rest->n_mask_differ += assay_lanes_count(&s->differ);
}

/* One element behind the lanes; rest->n counts all elements at first. */
static inline void assay_row_add_one(assay_row_sums *rest, double g, double r)
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

#endif
