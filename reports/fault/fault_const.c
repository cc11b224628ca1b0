/*
 * CONST: norms with another epsilon, offset or statistic; multipliers and caps of embedding and
 * logits; any other tensor that is the expected one times a constant.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/role.h"
#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_const[] = {
    {.name = "norm-eps",
     .about = "another epsilon in the norm before attention",
     .weakest = 0.0001,
     .strongest = 1,
     .seam = ASSAY_SEAM_NORM_EPS,
     .value = 0.001,
     .n_ints = 1,
     .ints = {0},
     .home = "attn.in_norm"},
    {.name = "norm-plus-one",
     .about = "norm weights + 1",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_NORM_WEIGHT_OFFSET,
     .value = 1,
     .n_ints = 1,
     .ints = {3},
     .home = "ffn.in_norm"},
    {.name = "norm-left-out",
     .about = "the norm before the feed-forward left out",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_NORM_LEFT_OUT,
     .value = 1,
     .n_ints = 1,
     .ints = {3},
     .home = "ffn.in_norm"},
    {.name = "norm-sum",
     .about = "sum of squares for their mean",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_NORM_SUM,
     .value = 1,
     .n_ints = 1,
     .ints = {0},
     .home = "attn.in_norm"},
    {.name = "norm-no-weight",
     .about = "a norm without its weight",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_NORM_NO_WEIGHT,
     .value = 1,
     .n_ints = 1,
     .ints = {0},
     .home = "attn.in_norm"},
    {.name = "embed-scale",
     .about = "embedding times a factor",
     .weakest = 1.01,
     .strongest = 16,
     .seam = ASSAY_SEAM_EMBED_SCALE,
     .value = 1.02,
     .home = "embed"},
    {.name = "logits-scale",
     .about = "logits times a factor",
     .weakest = 1.01,
     .strongest = 4,
     .seam = ASSAY_SEAM_LOGITS_SCALE,
     .value = 1.02,
     .home = "logits"},
    {.name = "logits-cap",
     .about = "soft cap on the logits",
     .weakest = 5,
     .strongest = 60,
     .seam = ASSAY_SEAM_LOGITS_CAP,
     .value = 30,
     .home = "logits"},
    {.name = "head-gain",
     .about = "one head's output times a factor",
     .weakest = 0.5,
     .strongest = 0.995,
     .seam = ASSAY_SEAM_HEAD_GAIN,
     .value = 0.995,
     .home = "attn.o_latent attn.kernel_out attn.out"},
    {.name = "proj-sign",
     .about = "the output projection with the other sign",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_WEIGHT_SCALE,
     .value = -1,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .home = "attn.proj"},
    {.name = "bias-added",
     .about = "a bias that the model has not, added behind the output projection",
     .weakest = 0.1,
     .strongest = 1,
     .seam = ASSAY_SEAM_EPILOGUE,
     .value = 1,
     .n_ints = 2,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT, 1},
     .home = "attn.proj"},
    {.name = "channel-scale",
     .about = "a scale for each channel, applied twice behind the output projection",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_EPILOGUE,
     .value = 1,
     .n_ints = 2,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT, 2},
     .home = "attn.proj"},
    {0}};

static const assay_point norm_points[ASSAY_N_NORMS] = {
    [ASSAY_NORM_OF_ATTN] = ASSAY_POINT_IN_NORM,
    [ASSAY_NORM_OF_Q_A] = ASSAY_POINT_Q_A_NORM,
    [ASSAY_NORM_OF_KV_A] = ASSAY_POINT_KV_LATENT,
    [ASSAY_NORM_OF_FFN] = ASSAY_POINT_FFN_NORM,
    [ASSAY_NORM_OF_FINAL] = ASSAY_POINT_FINAL_NORM,
    [ASSAY_NORM_OF_INDEX_K] = ASSAY_POINT_INDEX_K_NORM,
};

static const struct {
    assay_norm_kind norm;
    const char *kind, *evidence;
} norms[] = {
    {ASSAY_NORM_LEFT_OUT, "norm left out", "the value is the norm's input"},
    {ASSAY_NORM_SUM, "sum of squares for their mean", "dividing by the root of the sum gives it"},
    {ASSAY_NORM_WEIGHT_PLUS_1, "norm weight + 1", "weight + 1 for weight gives the value"},
    {ASSAY_NORM_WEIGHT_MINUS_1, "norm weight - 1", "weight - 1 for weight gives the value"},
    {ASSAY_NORM_NO_WEIGHT, "norm without its weight", "the norm without its weight gives it"},
    {ASSAY_NORM_CENTERED, "mean subtracted", "a norm that subtracts the mean gives the value"},
    {ASSAY_NORM_NOT_CENTERED, "mean not subtracted", "a norm that keeps the mean gives the value"},
    {ASSAY_NORM_NO_BIAS, "norm without its bias", "the norm without its bias gives the value"},
};

/* Epsilons that engines leave at a default of their own: a convention, when it is one of the norms
 * where they do. */
static bool is_convention(int which, double eps)
{
    static const double defaults[] = {1e-5, 1e-6, 1e-12, 1e-20};
    if (which != ASSAY_NORM_OF_Q_A && which != ASSAY_NORM_OF_KV_A && which != ASSAY_NORM_OF_INDEX_K)
        return false;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (fabs(log(eps / defaults[i])) < 0.2)
            return true;
    return eps < 1e-9;
}

static assay_status try_eps(assay_home *home, int which)
{
    assay_knobs knobs = *home->knobs;
    double best, rest, right = knobs.eps[which], none;
    char text[320];
    knobs.eps[which] = 0;
    ASSAY_TRY(assay_home_rest(&none, home, &knobs));
    ASSAY_TRY(assay_home_fit(&best, &rest, home, &knobs, &knobs.eps[which], 1e-9, 1e3, 49));
    if (none <= rest * 1.02) {
        best = 0;
        knobs.eps[which] = 0;
    }
    if (right > 0 && fabs(best / right - 1) < 1e-3)
        return ASSAY_OK;
    snprintf(text, sizeof text, "fitted epsilon %.4g, the model has %.4g", best, right);
    return assay_home_offer_variant(
        home, &knobs,
        &(assay_offer_text){.kind = "epsilon of the norm",
                            .complexity = 1,
                            .convention = is_convention(which, best),
                            .fitted = json_pack("{s:f, s:f}", "epsilon", best, "right", right),
                            .evidence = text});
}

static assay_status try_norm(assay_home *home, int which)
{
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        assay_knobs knobs = *home->knobs;
        knobs.norm[which] = norms[i].norm;
        ASSAY_TRY(assay_home_offer_variant(home, &knobs,
                                           &(assay_offer_text){.kind = norms[i].kind,
                                                               .complexity = 0.2,
                                                               .evidence = norms[i].evidence}));
    }
    return try_eps(home, which);
}

static assay_status try_cap(assay_home *home)
{
    assay_knobs knobs = *home->knobs;
    double best, rest;
    char text[320];
    knobs.final_cap = 30;
    ASSAY_TRY(assay_home_fit(&best, &rest, home, &knobs, &knobs.final_cap, 0.5, 500, 17));
    snprintf(text, sizeof text, "c tanh(x/c) with c = %.4g gives the logits", best);
    return assay_home_offer_variant(home, &knobs,
                                    &(assay_offer_text){.kind = "cap on the logits",
                                                        .complexity = 1,
                                                        .fitted = json_pack("{s:f}", "cap", best),
                                                        .evidence = text});
}

static assay_status try_factors(assay_home *home)
{
    const assay_judged *j = home->judged;
    char text[320];
    assay_relation_scale(&home->rel, home->scratch, &home->pair);
    snprintf(text, sizeof text, "the value is the expected one times %.6g", home->rel.value);
    if (fabs(home->rel.value) > 1e-6)
        ASSAY_TRY(assay_home_offer(
            home, home->scratch,
            &(assay_offer_text){.kind = home->rel.value < 0 ? "sign" : "one factor",
                                .complexity = 1.2,
                                .fitted = json_pack("{s:f}", "factor", home->rel.value),
                                .evidence = text}));
    if (j->n_groups > 1) {
        assay_relation_scale_one_block(&home->rel, home->scratch, &home->pair, j->n_groups);
        snprintf(text, sizeof text,
                 "head %lld is the expected one times %.6g, the others are right",
                 (long long)home->rel.index, home->rel.value);
        ASSAY_TRY(
            assay_home_offer(home, home->scratch,
                             &(assay_offer_text){.kind = "one head's factor",
                                                 .complexity = 1.4,
                                                 .fitted = json_pack("{s:I, s:f}", "head",
                                                                     (json_int_t)home->rel.index,
                                                                     "factor", home->rel.value),
                                                 .evidence = text}));
    }
    if (j->n_rows >= 4) {
        assay_relation_constant(&home->rel, home->scratch, &home->pair);
        snprintf(text, sizeof text, "the same vector is added to every row (its size %.4g)",
                 home->rel.value);
        ASSAY_TRY(assay_home_offer_relation(
            home, &(assay_offer_text){.kind = "a constant added",
                                      .complexity = (double)j->n_cols,
                                      .fitted = json_pack("{s:f}", "size", home->rel.value),
                                      .evidence = text}));
        assay_relation_scale_cols(&home->rel, home->scratch, &home->pair);
        snprintf(text, sizeof text,
                 "every channel is the expected one times a factor of its own "
                 "(median %.5g)",
                 home->rel.value);
        ASSAY_TRY(assay_home_offer_relation(
            home, &(assay_offer_text){.kind = "a factor per channel",
                                      .complexity = (double)j->n_cols,
                                      .fitted = json_pack("{s:f}", "median", home->rel.value),
                                      .evidence = text}));
    }
    return ASSAY_OK;
}

assay_status assay_fault_match_const(assay_home *home)
{
    const assay_judged *j = home->judged;
    if (j->against || j->is_ids || j->n_nonfinite_added > 0)
        return ASSAY_OK;
    for (int i = 0; i < ASSAY_N_NORMS; i++)
        if (assay_home_is(home, norm_points[i]))
            ASSAY_TRY(try_norm(home, i));
    if (assay_home_is(home, ASSAY_POINT_LOGITS))
        ASSAY_TRY(try_cap(home));
    if (!assay_home_settled(home) && !assay_home_is_zeroed(home)) /* 0 is no constant */
        return try_factors(home);
    return ASSAY_OK;
}
