/*
 * RACE: one capture can show it where a sum is not that of the operands which are found in memory
 * afterwards, or where it holds the same request twice: equal tokens, equal inputs, other bits.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/home_ranks.h"

const assay_fault_kind assay_fault_kinds_race[] = {
    {.name = "reduce-late",
     .about = "the first 2 rows behind the output projection are read before the sum over ranks "
              "has arrived",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_REDUCE_LATE,
     .value = 1,
     .n_ints = 2,
     .ints = {ASSAY_POINT_PROJ, 2},
     .ranks = true,
     .home = "attn.proj"},
    {.name = "stream-wait",
     .about = "the shared expert's output is read without waiting for the stream that makes it",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_STREAM_WAIT,
     .value = 0,
     .needs = ASSAY_NEEDS_SHARED_EXPERT,
     .home = "moe.out",
     .device = true},
    {0}};

/* A sum of two finite tensors that is finite nowhere: its reader had an operand before it was
 * written, and what is in memory afterwards is right. */
static assay_status offer_early_reader(assay_home *home)
{
    const assay_judged *j = home->judged;
    bool adds = assay_home_is(home, ASSAY_POINT_MOE_OUT) || assay_home_is(home, ASSAY_POINT_OUT) ||
                assay_home_is(home, ASSAY_POINT_ATTN_RESID);
    if (!adds || j->seen->n_poison > 0 || j->n_nonfinite_added < home->n)
        return ASSAY_OK;
    return assay_home_offer(
        home, home->got,
        &(assay_offer_text){.kind = "read before it was written",
                            .complexity = 0.02,
                            .evidence = "both operands are finite where they are kept, their sum "
                                        "is finite nowhere: an operand was read before its "
                                        "writer, on another stream, had come so far"});
}

static bool same_step(const assay_run *run, int a, int b, int step)
{
    if (step >= assay_run_prompt_at(run, b)->n_steps)
        return false;
    const assay_run_step *x = assay_run_step_at(run, a, step), *y = assay_run_step_at(run, b, step);
    return x->n_tokens == y->n_tokens && x->first_position == y->first_position &&
           !memcmp(x->tokens, y->tokens, (size_t)x->n_tokens * sizeof *x->tokens);
}

assay_status assay_fault_match_race(assay_home *home)
{
    const assay_judged *j = home->judged;
    assay_run *run = assay_forced_run(home->forced);
    char text[320];
    if (!j->is_ids && j->n_nonfinite_added == 0)
        ASSAY_TRY(assay_home_try_own_addend(home, true));
    if (!j->is_ids && !j->against)
        ASSAY_TRY(offer_early_reader(home));
    for (int p = 0; p < assay_run_n_prompts(run); p++) {
        if (p == j->prompt || !same_step(run, j->prompt, p, j->step))
            continue;
        int other = assay_forced_find(home->forced, p, j->step, j->point, j->layer);
        if (other < 0 || assay_forced_at(home->forced, other)->is_home)
            continue;
        snprintf(text, sizeof text,
                 "prompt '%s' has the same tokens, and there the op gives what is expected",
                 assay_run_prompt_at(run, p)->name);
        ASSAY_TRY(
            assay_home_offer(home, home->got,
                             &(assay_offer_text){.kind = "the same request twice, other values",
                                                 .complexity = 3,
                                                 .shape_only = true,
                                                 .evidence = text}));
    }
    return ASSAY_OK;
}
