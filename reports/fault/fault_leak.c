/*
 * LEAK: a statistic (amax, group scale) was taken over foreign rows. Either some rows are the
 * expected ones times a factor of their own and the others are right; or all values are whole
 * multiples of one step, that of 8-bit codes for larger values than there are.
 */
#include <math.h>
#include <stdio.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_leak[] = {
    {.name = "pad-scale",
     .about = "attention's normalised input in 8 bits, its scale taken over padding rows too",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_PAD_SCALE,
     .value = 1,
     .n_ints = 2,
     .ints = {ASSAY_POINT_IN_NORM, 40},
     .home = "attn.in_norm",
     .device = true},
    {.name = "pad-scale-ffn",
     .about = "the same of the feed-forward block's normalised input",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_PAD_SCALE,
     .value = 1,
     .n_ints = 2,
     .ints = {ASSAY_POINT_FFN_NORM, 40},
     .home = "ffn.in_norm",
     .device = true},
    {0}};

#define CODES 127       /* of 8 bits, either sign */
#define LEAST_VALUES 16 /* that a step is believed for */

static double magnitude(const double *x, int64_t n, bool least)
{
    double most = 0, least_one = INFINITY;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(x[i]));
        if (x[i] != 0)
            least_one = fmin(least_one, fabs(x[i]));
    }
    return least ? least_one : most;
}

static bool are_multiples(const double *x, int64_t n, double step)
{
    int n_some = 0;
    for (int64_t i = 0; i < n; i++) {
        double code = x[i] / step, whole = nearbyint(code);
        if (!(fabs(code - whole) <= 1e-4) || fabs(whole) > CODES)
            return false;
        n_some += whole != 0;
    }
    return n_some >= LEAST_VALUES;
}

/* The step of which all values are multiples; the smallest one may be two or three steps. 0: none.
 */
static double step_of(const double *x, int64_t n)
{
    double least = magnitude(x, n, true);
    for (int k = 1; isfinite(least) && k <= 4; k++)
        if (are_multiples(x, n, least / k))
            return least / k;
    return 0;
}

static assay_status offer_coarse(assay_home *home)
{
    double step = step_of(home->got, home->n), most = magnitude(home->expected, home->n, false);
    char text[320];
    if (step == 0 || CODES * step < 1.05 * most) /* its own rows' scale */
        return ASSAY_OK;
    for (int64_t i = 0; i < home->n; i++)
        home->scratch[i] = nearbyint(home->expected[i] / step) * step;
    snprintf(text, sizeof text,
             "all values are whole multiples of %.4g, as 8-bit codes of values up to %.4g are; the "
             "largest value here is %.4g",
             step, CODES * step, most);
    return assay_home_offer(
        home, home->scratch,
        &(assay_offer_text){.kind = "8 bits under a scale of other rows",
                            .complexity = 0.3,
                            .fitted = json_pack("{s:f, s:f}", "step", step, "largest", most),
                            .evidence = text});
}

assay_status assay_fault_match_leak(assay_home *home)
{
    const assay_judged *j = home->judged;
    char text[320];
    if (!j->against && !j->is_ids && j->n_nonfinite == 0)
        ASSAY_TRY(offer_coarse(home));
    if (j->against || j->is_ids || j->n_rows < 2 || j->n_cols < 16 ||
        j->point == ASSAY_POINT_PROBS) /* of a softmax: its denominator */
        return ASSAY_OK;
    assay_relation_scale_rows(&home->rel, home->scratch, &home->pair);
    if (home->rel.spread < 1e-3)
        return ASSAY_OK; /* one factor for all */
    snprintf(text, sizeof text,
             "every row is the expected one times a factor of its own (they differ by %.3g %%)",
             100 * home->rel.spread);
    return assay_home_offer_relation(
        home, &(assay_offer_text){.kind = "rows scaled each by its own factor",
                                  .complexity = (double)j->n_rows,
                                  .fitted = json_pack("{s:f}", "spread", home->rel.spread),
                                  .evidence = text});
}
