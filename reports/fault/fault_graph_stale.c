/*
 * GRAPH-STALE: a later step attends with the number of keys of an earlier one. (The first keys left
 * out, or one key too few in every step, are VALID-SET; here the border is exactly where an earlier
 * step ended, and that step was right.)
 */
#include <math.h>
#include <stdio.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_graph_stale[] = {
    {.name = "stale-lengths",
     .about = "replayed attention reads the lengths of the step that the graph was captured with",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_GRAPH_METADATA,
     .value = 2,
     .home = "attn.o_latent attn.kernel_out attn.out attn.lse attn.probs",
     .device = true},
    {0}};

/* The op was right in that step: a border that is wrong by itself is wrong there too. */
static bool was_right(const assay_home *home, int step)
{
    const assay_judged *j = home->judged;
    int there = assay_forced_find(home->forced, j->prompt, step, j->point, j->layer);
    return there >= 0 && !assay_forced_at(home->forced, there)->is_home;
}

assay_status assay_fault_match_graph_stale(assay_home *home)
{
    const assay_judged *j = home->judged;
    assay_run *run = assay_forced_run(home->forced);
    char text[320];
    if (j->against || j->is_ids || j->step < 2 || !assay_home_attends(home))
        return ASSAY_OK;
    for (int step = 1; step < j->step; step++) {
        const assay_run_step *at = assay_run_step_at(run, j->prompt, step);
        assay_knobs knobs = *home->knobs;
        knobs.key_limit = (int)(at->first_position + at->n_tokens);
        snprintf(text, sizeof text, "this step sees %d keys, as step %d did; its own are not seen",
                 knobs.key_limit, step);
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){.kind = "lengths of an earlier step",
                                .family = "attention",
                                .complexity = was_right(home, step) ? 0.02 : 0.5,
                                .fitted = json_pack("{s:i}", "step", step),
                                .evidence = text}));
    }
    return ASSAY_OK;
}
