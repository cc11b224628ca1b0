/*
 * How many keys the indexer keeps. A captured list that is longer than the model file says is a
 * fact; the forced pass follows it, so that only the number itself is reported, not all behind it.
 */
#include <stdio.h>

#include "reports/diagnose_private.h"

assay_status assay_diagnosis_selection(assay_result *result, const assay_diagnosis *d,
                                       const char *reproduce)
{
    int right = assay_oracle_knobs(assay_forced_oracle(d->forced))->index_top_k;
    int kept = assay_forced_knobs(d->forced)->index_top_k, width;
    if (kept <= right || !assay_oracle_shape_of(assay_forced_oracle(d->forced))->has_indexer)
        return ASSAY_OK;
    assay_finding f;
    assay_status s;
    char sentence[160];
    assay_finding_init(&f);
    snprintf(sentence, sizeof sentence, "the selection keeps %d keys, the model file says %d", kept,
             right);
    ASSAY_GO(assay_diagnosis_list_widths(&f, &width, assay_forced_run(d->forced),
                                         ASSAY_POINT_INDEX_TOPK, right, false));
    ASSAY_GO(assay_diagnosis_fact(
        &f, ASSAY_FAULT_SELECT, "another number of keys",
        assay_point_at(ASSAY_POINT_INDEX_TOPK)->made_by, sentence,
        "Compare the engine's top-k with <arch>.attention.indexer.top_k of the file; one of them "
        "is not the model's.",
        reproduce));
    json_object_set_new(f.fitted, "top_k", json_integer(kept));
    json_object_set_new(f.fitted, "right", json_integer(right));
    ASSAY_GO(assay_strings_add(&f.evidence,
                               "the last row of the list holds %d different keys that the mask "
                               "allows; everything behind it was judged with this list",
                               kept));
    s = assay_result_add_finding(result, &f);
out:
    assay_finding_clear(&f);
    return s;
}
