/*
 * STATE-STALE: a value is that of another request of the same run, at the same place.
 */
#include <stdio.h>
#include <stdlib.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_state_stale[] = {{0}};

assay_status assay_fault_match_state_stale(assay_home *home)
{
    const assay_judged *j = home->judged;
    assay_run *run = assay_forced_run(home->forced);
    char text[320];
    if (j->against || j->is_ids)
        return ASSAY_OK;
    for (int p = 0; p < assay_run_n_prompts(run); p++) {
        if (p == j->prompt || j->step >= assay_run_prompt_at(run, p)->n_steps)
            continue;
        const assay_seen *seen = assay_run_find(run, p, j->step, j->point, j->layer);
        if (!seen || !seen->has_values)
            continue;
        int64_t n = 1;
        for (int i = 0; i < seen->n_dims; i++)
            n *= seen->dims[i];
        if (n != home->n)
            continue;
        double *other;
        ASSAY_TRY(assay_alloc(&other, (size_t)n, sizeof *other, "another prompt's value"));
        assay_status s = assay_run_read(other, run, seen);
        if (s == ASSAY_OK) {
            assay_relation_equals(&home->rel, home->scratch, &home->pair, other);
            snprintf(text, sizeof text, "the value is that of prompt '%s'",
                     assay_run_prompt_at(run, p)->name);
            s = assay_home_offer_relation(
                home, &(assay_offer_text){.kind = "another request's value", .evidence = text});
        }
        free(other);
        ASSAY_TRY(s);
    }
    return ASSAY_OK;
}
