/*
 * LEAK: values outside the valid rows enter valid ones: a statistic (amax, group scale) taken over
 * foreign rows, or products that run over the ends of their rows.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/role.h"
#include "reports/home_blocks.h"

const assay_fault_kind assay_fault_kinds_leak[] = {
    {.name = "leak-amax",
     .about = "the stream kept in 8 bits under one scale that padding rows enter",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_SHARED_SCALE,
     .value = 4,
     .n_ints = 2,
     .ints = {ASSAY_POINT_ATTN_RESID, 8},
     .home = "attn_resid",
     .run = {.pad_to = 8}},
    {.name = "leak-next-scale",
     .about = "normed rows kept in 8 bits, each read with the next row's scale",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_SHARED_SCALE,
     .value = 3,
     .n_ints = 1,
     .ints = {ASSAY_POINT_FFN_NORM},
     .home = "ffn.in_norm"},
    {.name = "leak-row-end",
     .about = "the output projection reads beyond the ends of its rows",
     .weakest = 2,
     .strongest = 16,
     .seam = ASSAY_SEAM_READ_BEYOND,
     .value = 4,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .home = "attn.proj"},
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
    {.name = "row-scale",
     .about = "the scale of each row, not multiplied back behind the output projection",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_EPILOGUE,
     .value = 1,
     .n_ints = 2,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT, 3},
     .home = "attn.proj"},
    {0}};

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(x[i]))
            most = fmax(most, fabs(x[i]));
    return most;
}

#define CODES 127       /* of 8 bits, either sign */
#define NEAR_TIE 0x1p-8 /* of the value: its own rounding to bfloat16 */
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
    for (int64_t i = 0; i < home->n; i++) { /* near a tie, rounding before it decides */
        double slack = step / 2 + NEAR_TIE * fabs(home->expected[i]);
        home->scratch[i] = fabs(home->got[i] - home->expected[i]) <= slack
                               ? home->got[i]
                               : nearbyint(home->expected[i] / step) * step;
    }
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

/* Codes of row t under its own scale, read with row u's; returns what the scale was, 0: not so. */
static double recode(double *out, const assay_home *home, int64_t t, int64_t u)
{
    int64_t n = home->judged->n_cols, n_right = 0;
    const double *x = home->expected + t * n, *got = home->got + t * n;
    double own = largest(x, n) / 127, cross = 0, square = 0;
    if (!(own > 0))
        return 0;
    for (int64_t i = 0; i < n; i++) {
        double code = nearbyint(x[i] / own);
        cross += got[i] * code;
        square += code * code;
    }
    double read = cross / square, want = largest(home->expected + u * n, n) / 127;
    for (int64_t i = 0; i < n; i++) {
        double code = nearbyint(got[i] / read), ideal = x[i] / own;
        bool right = fabs(code - ideal) <= 0.55 + fabs(ideal) / 256;
        out[t * n + i] = right ? code * read : x[i];
        n_right += right;
    }
    return fabs(read / want - 1) < 0.02 && n_right > n - n / 16 ? read : 0;
}

static assay_status try_neighbour_scale(assay_home *home, int side)
{
    const assay_judged *j = home->judged;
    char text[320];
    int64_t n_other = 0;
    for (int64_t t = 0; t < j->n_rows; t++) {
        int64_t u = t + side;
        bool inside = u >= 0 && u < j->n_rows;
        if (!recode(home->scratch, home, t, inside ? u : t))
            return ASSAY_OK;
        n_other += inside;
    }
    if (n_other == 0)
        return ASSAY_OK;
    snprintf(text, sizeof text,
             "each row holds 8-bit codes under its own largest element, read with the scale of the "
             "row %s it",
             side > 0 ? "behind" : "before");
    return assay_home_offer(home, home->scratch,
                            &(assay_offer_text){.kind = "another row's scale",
                                                .complexity = 0.5,
                                                .fitted = json_pack("{s:i}", "rows off", side),
                                                .evidence = text});
}

static assay_status try_row_ends(assay_home *home)
{
    static const int counts[] = {1, 2, 3, 4, 8, 16, 32};
    char text[320];
    if (!assay_home_multiplies(home) || home->judged->n_rows < 2)
        return ASSAY_OK;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        assay_knobs knobs = *home->knobs;
        knobs.read_beyond = counts[i];
        snprintf(text, sizeof text,
                 "%d elements behind the end of each row of activations and weight (the next rows' "
                 "first ones) enter the products",
                 counts[i]);
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){.kind = "read beyond the ends of rows",
                                .complexity = 0.5,
                                .fitted = json_pack("{s:i}", "elements", counts[i]),
                                .evidence = text}));
    }
    return ASSAY_OK;
}

assay_status assay_fault_match_leak(assay_home *home)
{
    const assay_judged *j = home->judged;
    char text[320];
    if (!j->against && !j->is_ids && j->n_nonfinite == 0)
        ASSAY_TRY(offer_coarse(home));
    if (j->against || j->is_ids || j->n_cols < 16 ||
        j->point == ASSAY_POINT_PROBS) /* of a softmax: its denominator */
        return ASSAY_OK;
    ASSAY_TRY(try_neighbour_scale(home, 1));
    ASSAY_TRY(try_neighbour_scale(home, -1));
    if (j->n_rows < 2 || assay_home_settled(home))
        return ASSAY_OK;
    ASSAY_TRY(try_row_ends(home));
    assay_relation_scale_rows(&home->rel, home->scratch, &home->pair);
    if (home->rel.spread < 1e-3)
        return ASSAY_OK; /* one factor for all */
    snprintf(text, sizeof text,
             "every row is the expected one times a factor of its own (they differ by %.3g %%)",
             100 * home->rel.spread);
    return assay_home_offer_relation(
        home, &(assay_offer_text){.kind = "rows scaled each by its own factor",
                                  .family = assay_home_input_name(home),
                                  .complexity = (double)j->n_rows,
                                  .fitted = json_pack("{s:f}", "spread", home->rel.spread),
                                  .evidence = text});
}
