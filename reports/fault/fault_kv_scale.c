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
