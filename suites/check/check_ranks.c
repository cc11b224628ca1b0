/*
 * 1 rank = N ranks: virtual ranks in this process, their shards put together in rank order.
 */
#include <stdlib.h>

#include "suites/check_pair.h"

static assay_status one_prompt(assay_check_pair *pair, assay_check_context *c,
                               const assay_check_prompt *p)
{
    assay_trace *one = NULL, *many = NULL;
    assay_status s;
    ASSAY_GO(assay_check_trace(&one, c, &c->engine, p, 0));
    ASSAY_GO(assay_check_trace_ranks(&many, c, p, c->options->n_ranks));
    s = assay_check_pair_add(pair, c, one, many, p->name);
out:
    assay_trace_free(one);
    assay_trace_free(many);
    return s;
}

assay_status assay_check_ranks(assay_check_row *row, assay_check_context *context)
{
    assay_check_pair pair = {.row = row, .what = "1 rank = N ranks"};
    if (context->options->n_ranks < 2)
        return assay_check_say(row, ASSAY_VERDICT_SKIP, "one rank (--ranks N)");
    for (int i = 0; i < context->n_prompts; i++)
        ASSAY_TRY(one_prompt(&pair, context, &context->prompts[i]));
    return assay_check_pair_end(&pair);
}
