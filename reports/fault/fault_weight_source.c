/*
 * WEIGHT-SOURCE: the op right, with another tensor's weight.
 */
#include <math.h>
#include <stdio.h>

#include "engine/role.h"
#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_weight_source[] = {
    {.name = "other-layer",
     .about = "the output projection with layer 0's weight",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_WEIGHT_LAYER,
     .value = 0,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .home = "attn.proj"},
    {.name = "other-layer-norm",
     .about = "the norm before attention with layer 0's weight",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_WEIGHT_LAYER,
     .value = 0,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_NORM},
     .home = "attn.in_norm"},
    {.name = "weight-random",
     .about = "random numbers of the right size for the output projection",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_WEIGHT_VIEW,
     .value = 7,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .home = "attn.proj"},
    {.name = "head-tied",
     .about = "the embedding used as output head",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_HEAD_TIED,
     .value = 1,
     .home = "logits"},
    {0}};

/*
 * No map leads from expected to got, yet the size is right in every row: what a product with
 * numbers of the right size gives.
 */
static assay_status try_cloud(assay_home *home)
{
    const assay_judged *j = home->judged;
    if (!assay_home_multiplies(home) || j->n_interval > 2)
        return ASSAY_OK;
    for (int64_t r = 0; r < j->n_rows; r++) {
        double got = 0, want = 0, cross = 0;
        for (int64_t i = r * j->n_cols; i < (r + 1) * j->n_cols; i++) {
            got += home->got[i] * home->got[i];
            want += home->expected[i] * home->expected[i];
            cross += home->got[i] * home->expected[i];
        }
        if (!(got > want / 100 && got < want * 100 && cross * cross < 0.16 * got * want))
            return ASSAY_OK;
    }
    return assay_home_offer(
        home, home->got,
        &(assay_offer_text){.kind = "numbers of another tensor or of none",
                            .complexity = 4,
                            .shape_only = true,
                            .evidence =
                                "every row has the right size and no likeness to what is "
                                "expected; no other layer's weight and no map explains it"});
}

assay_status assay_fault_match_weight_source(assay_home *home)
{
    const assay_judged *j = home->judged;
    char text[320];
    if (j->against || j->is_ids || j->n_nonfinite_added > 0)
        return ASSAY_OK;
    if (assay_home_is(home, ASSAY_POINT_LOGITS)) {
        assay_knobs knobs = *home->knobs;
        knobs.head_tied = !knobs.head_tied;
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){.kind = "output head tied to the embedding",
                                .complexity = 0.2,
                                .evidence = "final_norm times the embedding's rows gives the "
                                            "logits"}));
        return try_cloud(home);
    }
    if (j->layer < 0 || !assay_home_weighs(home))
        return ASSAY_OK;
    for (int layer = 0; layer < home->shape->n_layer; layer++) {
        if (layer == j->layer)
            continue;
        assay_knobs knobs = *home->knobs;
        knobs.weight_layer_shift = layer - j->layer;
        snprintf(text, sizeof text, "this op with layer %d's weight gives the value", layer);
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){.kind = "another layer's weight",
                                .complexity = 0.3,
                                .fitted = json_pack("{s:i}", "layer", layer),
                                .evidence = text}));
    }
    return try_cloud(home);
}
