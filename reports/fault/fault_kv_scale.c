/*
 * KV-SCALE: what is read from the cache is what was written times a factor; direction exact.
 */
#include <math.h>
#include <stdio.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_kv_scale[] = {
    {.name = "value-scale",
     .about = "values read times a factor",
     .weakest = 1.01,
     .strongest = 2,
     .seam = ASSAY_SEAM_KV_SCALE,
     .value = 1.1,
     .n_ints = 1,
     .ints = {1},
     .home = "attn.kernel_out attn.probs attn.lse attn.o_latent"},
    {.name = "cache-scale",
     .about = "keys and values read times a factor",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_SCALE,
     .value = 2,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse attn.index.scores"},
    {.name = "cache-scale-lost",
     .about = "rows of an 8-bit cache read without their scale",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_ROW_SCALE,
     .value = 1,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse attn.index.scores",
     .run = {.cache = ASSAY_CACHE_F8E4M3}},
    {.name = "cache-scale-zero",
     .about = "the scale of an 8-bit cache is never set: 0",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_ROW_SCALE,
     .value = 3,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse attn.index.scores",
     .run = {.cache = ASSAY_CACHE_Q8_0}},
    {0}};

static assay_status try_side(assay_home *home, bool keys)
{
    assay_knobs knobs = *home->knobs;
    double best, rest, *at = keys ? &knobs.key_scale : &knobs.value_scale;
    char text[320];
    ASSAY_TRY(assay_home_fit(&best, &rest, home, &knobs, at, 1.0 / 256, 256, 25));
    if (fabs(best - 1) < 1e-3)
        return ASSAY_OK;
    snprintf(text, sizeof text, "%s times %.6g give the value%s", keys ? "keys" : "values", best,
             fabs(best / (448.0 / 240) - 1) < 5e-3 || fabs(best / (240.0 / 448) - 1) < 5e-3
                 ? " (448/240: ranges of the two 8-bit formats)"
                 : "");
    return assay_home_offer_variant(
        home, &knobs,
        &(assay_offer_text){.kind = keys ? "keys scaled" : "values scaled",
                            .family = "attention",
                            .complexity = 1.1,
                            .fitted = json_pack("{s:f}", keys ? "key scale" : "value scale", best),
                            .evidence = text});
}

/* The run's own log-sum-exp is the logarithm of the number of keys: keys are zero, too. */
static bool scores_are_zero(assay_home *home)
{
    const assay_judged *j = home->judged;
    const assay_run_step *step =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    double *lse;
    int64_t n, n_head = home->shape->n_head;
    if (assay_home_value(&lse, &n, home, ASSAY_POINT_LSE, j->layer) != ASSAY_OK)
        return false;
    int64_t last = step->first_position + step->n_tokens, rows = n / n_head;
    bool zero = n > 0;
    for (int64_t i = 0; i < n && zero; i++)
        zero = fabs(lse[i] - log((double)(last - rows + i / n_head + 1))) < 1e-3;
    free(lse);
    return zero;
}

/* A cache that keeps a scale, and a reader that does not use it. */
static assay_status try_codec(assay_home *home)
{
    static const struct {
        assay_misread misread;
        const char *kind, *text;
    } ways[] = {
        {ASSAY_MISREAD_SCALE_ONE, "cache read without its scale",
         "the codes of the cache, without the scale they were written with, give the value"},
        {ASSAY_MISREAD_SCALE_ZERO, "scale of the cache is zero",
         "rows of the cache times a scale of 0 give the value"}};
    for (size_t i = 0; i < 2 && home->knobs->codec != ASSAY_STORED_PLAIN; i++) {
        assay_knobs knobs = *home->knobs;
        knobs.misread = ways[i].misread;
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){.kind = ways[i].kind,
                                .family = "attention",
                                .complexity = i == 1 && scores_are_zero(home) ? -0.1 : 0.2,
                                .evidence = ways[i].text}));
    }
    return ASSAY_OK;
}

static assay_status try_both(assay_home *home)
{
    /* the latent cache holds keys and values in one tensor */
    assay_knobs knobs = *home->knobs;
    static const double factors[] = {448.0 / 240, 240.0 / 448, 2, 0.5, 4, 0.25};
    char text[320];
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        knobs.key_scale = knobs.value_scale = factors[i];
        snprintf(text, sizeof text, "keys and values times %.6g give the value", factors[i]);
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){.kind = "cache scaled",
                                .family = "attention",
                                .complexity = 1,
                                .fitted = json_pack("{s:f}", "cache scale", factors[i]),
                                .evidence = text}));
    }
    return ASSAY_OK;
}

assay_status assay_fault_match_kv_scale(assay_home *home)
{
    const assay_judged *j = home->judged;
    char text[320];
    if (j->against || j->is_ids)
        return ASSAY_OK;
    if (assay_home_attends(home) || j->point == ASSAY_POINT_INDEX_SCORES)
        ASSAY_TRY(try_codec(home));
    if (assay_home_attends(home)) {
        if (assay_home_settled(home)) /* the scale of the logits says as much about keys */
            return ASSAY_OK;
        ASSAY_TRY(try_side(home, false));
        ASSAY_TRY(try_side(home, true));
        return try_both(home);
    }
    if (j->point != ASSAY_POINT_K && j->point != ASSAY_POINT_V &&
        j->point != ASSAY_POINT_KV_LATENT && j->point != ASSAY_POINT_K_ROPE)
        return ASSAY_OK;
    assay_relation_scale(&home->rel, home->scratch, &home->pair);
    snprintf(text, sizeof text, "the cached tensor is the expected one times %.6g",
             home->rel.value);
    return assay_home_offer_relation(
        home, &(assay_offer_text){.kind = "cached tensor scaled",
                                  .complexity = 1,
                                  .fitted = json_pack("{s:f}", "scale", home->rel.value),
                                  .evidence = text});
}
