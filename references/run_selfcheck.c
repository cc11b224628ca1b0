#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probes/recorder.h"
#include "probes/selfcheck.h"
#include "references/run_private.h"

typedef struct report {
    const assay_run *run;
    assay_run_line_fn *line;
    void *user;
} report;

static assay_status tell(void *user, const assay_print *a, const assay_print *b)
{
    const report *r = user;
    char one[ASSAY_POINT_NAME_BYTES], two[ASSAY_POINT_NAME_BYTES], text[512];
    snprintf(text, sizeof text,
             "prompt %s: %s of step %d and %s of step %d are bit-equal: the capture may show one "
             "buffer twice",
             assay_run_prompt_at(r->run, a->prompt)->name,
             assay_point_format(one, a->point, a->layer), a->step,
             assay_point_format(two, b->point, b->layer), b->step);
    return r->line(r->user, text);
}

static assay_status print_seen(assay_print *out, const assay_run *run, const assay_seen *seen)
{
    int64_t n = assay_seen_count(seen);
    double *x;
    ASSAY_TRY(assay_alloc(&x, (size_t)n, sizeof *x, seen->source));
    assay_status s = assay_run_read(x, run, seen);
    if (s == ASSAY_OK)
        assay_print_of(out, x, n);
    free(x);
    return s;
}

static uint64_t token_number(const assay_run_step *step)
{
    uint64_t number = 0;
    for (int64_t i = 0; step->tokens && i < step->n_tokens; i++)
        number = assay_mix(number + (uint64_t)(uint32_t)step->tokens[i] + 1);
    return number;
}

assay_status assay_run_selfcheck(const assay_run *run, assay_run_line_fn *line, void *user)
{
    size_t room = 0;
    for (int p = 0; p < run->n_prompts; p++)
        for (int s = 0; s < run->prompts[p].n_steps; s++)
            room += (size_t)run->prompts[p].steps[s].n_entries;
    assay_print *prints;
    ASSAY_TRY(assay_alloc(&prints, room, sizeof *prints, "prints"));
    assay_status status = ASSAY_OK;
    int n = 0;
    for (int p = 0; p < run->n_prompts; p++)
        for (int s = 0; s < run->prompts[p].n_steps; s++)
            for (int i = 0; i < run->prompts[p].steps[s].n_entries; i++) {
                const assay_seen *seen = &run->prompts[p].steps[s].entries[i].seen;
                if (!seen->has_values || status != ASSAY_OK)
                    continue;
                assay_print *print = &prints[n++];
                *print = (assay_print){.point = seen->point,
                                       .layer = seen->layer,
                                       .prompt = p,
                                       .step = s,
                                       .rank = seen->rank,
                                       .hand_over = seen->hand_over,
                                       .tokens = token_number(&run->prompts[p].steps[s].about)};
                status = print_seen(print, run, seen);
            }
    report r = {run, line, user};
    if (status == ASSAY_OK)
        status = assay_selfcheck(prints, n, tell, &r);
    free(prints);
    return status;
}
