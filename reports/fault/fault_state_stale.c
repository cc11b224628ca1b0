/*
 * STATE-STALE: a value is that of another request of the same run, at the same place.
 */
#include <stdio.h>
#include <stdlib.h>

#include "reports/home_cache.h"

const assay_fault_kind assay_fault_kinds_state_stale[] = {{0}};

/* The first keys and values are another request's: a prefix that was taken for known. */
static assay_status try_prefix(assay_home *home, int prompt)
{
    const assay_run_prompt *other = assay_run_prompt_at(assay_forced_run(home->forced), prompt);
    int64_t n = assay_home_n_keys(home);
    assay_slot *slots;
    double *out = NULL;
    char text[320];
    ASSAY_TRY(assay_alloc(&slots, (size_t)n, sizeof *slots, "slots"));
    assay_status s = assay_alloc(&out, (size_t)home->n, sizeof *out, "a value");
    for (int64_t length = 1; s == ASSAY_OK && length <= n && length <= other->n_tokens; length++) {
        bool power = (length & (length - 1)) == 0;
        if (!power && length % 16 != 0 && length != other->n_tokens)
            continue;
        assay_home_own_slots(slots, home);
        for (int64_t i = 0; i < length; i++)
            slots[i].prompt = prompt;
        s = assay_home_attend(out, home, slots, ASSAY_CACHED_ALL);
        snprintf(text, sizeof text,
                 "attention with the first %lld keys and values of prompt '%s' gives the value",
                 (long long)length, other->name);
        if (s == ASSAY_OK)
            s = assay_home_offer(
                home, out,
                &(assay_offer_text){.kind = "another request's keys",
                                    .family = "attention",
                                    .complexity = 0.7,
                                    .fitted = json_pack("{s:s, s:I}", "prompt", other->name, "keys",
                                                        (json_int_t)length),
                                    .evidence = text});
        else if (s == ASSAY_MISSING)
            s = ASSAY_OK;
    }
    free(out);
    free(slots);
    return s;
}

assay_status assay_fault_match_state_stale(assay_home *home)
{
    const assay_judged *j = home->judged;
    assay_run *run = assay_forced_run(home->forced);
    char text[320];
    if (j->against || j->is_ids)
        return ASSAY_OK;
    bool attends = j->point == ASSAY_POINT_PROBS || j->point == ASSAY_POINT_KERNEL_OUT ||
                   j->point == ASSAY_POINT_O_LATENT || j->point == ASSAY_POINT_INDEX_SCORES;
    for (int p = 0; p < assay_run_n_prompts(run); p++) {
        if (p != j->prompt && attends && !assay_home_best(home) && p < 8)
            ASSAY_TRY(try_prefix(home, p));
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
