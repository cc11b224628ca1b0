/*
 * DRAFT: homes in the multi-token prediction layers behind the trunk.
 */
#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_draft[] = {{0}};

assay_status assay_fault_match_draft(assay_home *home)
{
    if (home->judged->layer < home->shape->n_layer || home->judged->against)
        return ASSAY_OK;
    assay_knobs knobs = *home->knobs;
    knobs.nextn_concat_exchanged = true;
    ASSAY_TRY(assay_home_offer_variant(
        home, &knobs,
        &(assay_offer_text){.kind = "hidden state before the embedding",
                            .complexity = 0.2,
                            .evidence = "the halves of the concatenated input are exchanged"}));
    knobs = *home->knobs;
    knobs.nextn_hidden_raw = true;
    return assay_home_offer_variant(
        home, &knobs,
        &(assay_offer_text){.kind = "hidden state before the final norm",
                            .complexity = 0.2,
                            .evidence = "the hidden state was taken before the final norm"});
}
