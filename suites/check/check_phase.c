/*
 * prefill = decode = chunked prefill: the same rows, however the prompt is cut into calls.
 */
#include <stdio.h>
#include <stdlib.h>

#include "suites/check.h"
#include "suites/check_pair.h"

static const int64_t chunks[] = {1, 3, 7}; /* 1: token by token, as decode does it */

#define N_CHUNKS ((int)(sizeof chunks / sizeof *chunks))

static assay_status one_prompt(assay_check_pair *pair, assay_check_context *c,
                               const assay_check_prompt *p)
{
    assay_trace *whole = NULL, *cut = NULL;
    char name[96];
    assay_status s;
    ASSAY_GO(assay_check_trace(&whole, c, &c->engine, p, 0));
    for (int i = 0; i < N_CHUNKS; i++) {
        if (chunks[i] >= p->n)
            continue;
        ASSAY_GO(assay_check_trace(&cut, c, &c->engine, p, chunks[i]));
        snprintf(name, sizeof name, "%s, chunks of %lld", p->name, (long long)chunks[i]);
        ASSAY_GO(assay_check_pair_add(pair, c, whole, cut, name));
        assay_trace_free(cut);
        cut = NULL;
    }
out:
    assay_trace_free(whole);
    assay_trace_free(cut);
    return s;
}

assay_status assay_check_phase(assay_check_row *row, assay_check_context *context)
{
    assay_check_pair pair = {.row = row, .what = "prefill = decode = chunks of 3 and 7"};
    int64_t longest = 0;
    for (int i = 0; i < context->n_prompts; i++)
        if (context->prompts[i].n > longest)
            longest = context->prompts[i].n;
    if (longest < 2)
        return assay_check_say(row, ASSAY_VERDICT_SKIP, "a prompt of one token cannot be cut");
    for (int i = 0; i < context->n_prompts; i++)
        ASSAY_TRY(one_prompt(&pair, context, &context->prompts[i]));
    return assay_check_pair_end(&pair);
}
