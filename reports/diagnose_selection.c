/*
 * How many keys the indexer keeps. A captured list that is longer than the model file says is a
 * fact; the forced pass follows it, so that only the number itself is reported, not all behind it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/diagnose_private.h"

/* Every step whose list is longer than `right`, the first one as the place. */
static assay_status add_places(assay_finding *f, const assay_run *run, int right)
{
    char name[ASSAY_POINT_NAME_BYTES];
    for (int p = 0; p < assay_run_n_prompts(run); p++)
        for (int step = 0; step < assay_run_prompt_at(run, p)->n_steps; step++)
            for (int i = 0; i < assay_run_n_seen(run, p, step); i++) {
                const assay_seen *seen = assay_run_seen_at(run, p, step, i);
                if (seen->point != ASSAY_POINT_INDEX_TOPK || seen->n_dims != 2 ||
                    seen->dims[1] <= right)
                    continue;
                assay_point_format(name, seen->point, seen->layer);
                if (!f->points.n)
                    ASSAY_TRY(assay_finding_set(&f->point, "%s", name));
                ASSAY_TRY(assay_finding_add_place(f, name, seen->layer, step,
                                                  assay_run_prompt_at(run, p)->name));
            }
    return ASSAY_OK;
}

assay_status assay_diagnosis_selection(assay_result *result, const assay_diagnosis *d,
                                       const char *reproduce)
{
    int right = assay_oracle_knobs(assay_forced_oracle(d->forced))->index_top_k;
    int kept = assay_forced_knobs(d->forced)->index_top_k;
    const assay_fault *fault = assay_fault_at(ASSAY_FAULT_SELECT);
    if (kept <= right || !assay_oracle_shape_of(assay_forced_oracle(d->forced))->has_indexer)
        return ASSAY_OK;
    assay_finding f;
    assay_status s;
    char sentence[160];
    assay_finding_init(&f);
    snprintf(sentence, sizeof sentence, "the selection keeps %d keys, the model file says %d", kept,
             right);
    f.confidence = f.explained = 1;
    ASSAY_GO(add_places(&f, assay_forced_run(d->forced), right));
    ASSAY_GO(assay_finding_set(&f.fault_class, "%s", fault->name));
    ASSAY_GO(assay_finding_set(&f.kind, "%s", "another number of keys"));
    ASSAY_GO(assay_finding_set(&f.op, "%s", assay_point_at(ASSAY_POINT_INDEX_TOPK)->made_by));
    ASSAY_GO(assay_finding_set(&f.sentence, "%s", sentence));
    ASSAY_GO(
        assay_finding_set(&f.advice, "%s",
                          "Compare the engine's top-k with <arch>.attention.indexer.top_k of the "
                          "file; one of them is not the model's."));
    if (reproduce)
        ASSAY_GO(assay_finding_set(&f.reproduce, "%s", reproduce));
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
