/*
 * Steps of a foreign dump as one sequence: what repeats, starts over or leaves a gap is left out
 * and noted, so that every step that is judged follows the one before.
 */
#include <stdlib.h>
#include <string.h>

#include "references/run_private.h"

typedef enum { STEP_FOLLOWS, STEP_STARTS_OVER, STEP_REPEATS, STEP_GAP, STEP_UNTOLD } step_kind;

static step_kind kind_of(const assay_step_data *step, int64_t first, int64_t next)
{
    if (!step->about.tokens || step->about.n_tokens < 1)
        return STEP_UNTOLD;
    if (next < 0 || step->about.first_position == next)
        return STEP_FOLLOWS;
    if (step->about.first_position == first)
        return STEP_STARTS_OVER;
    return step->about.first_position < next ? STEP_REPEATS : STEP_GAP;
}

static assay_status note(assay_run *run, const assay_prompt_data *p, int step, step_kind kind,
                         int64_t next)
{
    const char *name = p->about.name;
    long long at = (long long)p->steps[step].about.first_position;
    switch (kind) {
    case STEP_STARTS_OVER:
        return assay_run_add_note(run,
                                  "prompt '%s': step %d starts over at position %lld; the steps "
                                  "before it are taken for a warm-up and left out",
                                  name, step, at);
    case STEP_REPEATS:
        return assay_run_add_note(run,
                                  "prompt '%s': step %d is at position %lld, which an earlier step "
                                  "computed (the next one is %lld): left out",
                                  name, step, at, (long long)next);
    case STEP_GAP:
        return assay_run_add_note(run,
                                  "prompt '%s': step %d begins at position %lld, the steps before "
                                  "it end before %lld: it and what follows is left out",
                                  name, step, at, (long long)next);
    case STEP_UNTOLD:
        return assay_run_add_note(
            run,
            "prompt '%s': step %d does not say its tokens, and no value shows "
            "them: it and what follows is left out",
            name, step);
    case STEP_FOLLOWS:
        break;
    }
    return ASSAY_OK;
}

static void drop(assay_step_data *step)
{
    free(step->entries);
    *step = (assay_step_data){.n_entries = 0};
}

static assay_status settle(assay_run *run, assay_prompt_data *p)
{
    int kept = 0, n = p->n_steps;
    int64_t first = -1, next = -1;
    bool is_over = false;
    for (int k = 0; k < n; k++) {
        step_kind kind = is_over ? STEP_GAP : kind_of(&p->steps[k], first, next);
        if (kind != STEP_FOLLOWS && !is_over)
            ASSAY_TRY(note(run, p, k, kind, next));
        is_over = is_over || kind == STEP_GAP || kind == STEP_UNTOLD;
        for (; kind == STEP_STARTS_OVER && kept > 0; kept--)
            drop(&p->steps[kept - 1]);
        if (kind != STEP_FOLLOWS && kind != STEP_STARTS_OVER) {
            drop(&p->steps[k]);
            continue;
        }
        const assay_run_step *about = &p->steps[k].about;
        first = kept ? first : about->first_position;
        next = about->first_position + about->n_tokens;
        if (kept != k) {
            p->steps[kept] = p->steps[k];
            p->steps[k] = (assay_step_data){.n_entries = 0};
        }
        kept++;
    }
    if (kept < n) { /* ids that were chosen belong to the steps as they were */
        p->about.greedy = NULL;
        p->about.n_greedy = 0;
    }
    p->n_steps = p->about.n_steps = kept;
    return ASSAY_OK;
}

assay_status assay_run_settle_steps(assay_run *run)
{
    int kept = 0;
    for (int i = 0; i < run->n_prompts; i++) {
        assay_prompt_data *p = &run->prompts[i];
        ASSAY_TRY(settle(run, p));
        if (p->n_steps > 0) {
            run->prompts[kept++] = *p;
            continue;
        }
        ASSAY_TRY(assay_run_add_note(run, "prompt '%s' has no step that can be judged: left out",
                                     p->about.name));
        free(p->steps);
        p->steps = NULL;
    }
    run->n_prompts = kept;
    return ASSAY_OK;
}
