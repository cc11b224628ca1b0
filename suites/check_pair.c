/*
 * Rows that compare two ways of computing the same thing: traces of both, and the worst of what
 * they differ in.
 */
#include "suites/check_pair.h"

#include <stdlib.h>

#include "engine/comm.h"

assay_status assay_check_trace(assay_trace **out, assay_check_context *context,
                               const assay_engine_options *options,
                               const assay_check_prompt *prompt, int64_t chunk)
{
    assay_engine *engine = NULL;
    assay_trace *trace = NULL;
    assay_engine_options e = *options;
    int64_t n = assay_check_length(context, prompt);
    int32_t next;
    assay_status s;
    ASSAY_GO(assay_trace_new(&trace, true, -1));
    e.tap = assay_trace_tap;
    e.tap_user = trace;
    ASSAY_GO(assay_check_engine(&engine, context, &e, n + 1));
    ASSAY_GO(assay_engine_generate(&next, engine, prompt->tokens, n, 1, chunk, NULL, NULL));
    *out = trace;
    trace = NULL;
out:
    assay_engine_free(engine);
    assay_trace_free(trace);
    return s;
}

typedef struct rank_job {
    assay_check_context *context;
    const assay_check_prompt *prompt;
    int64_t n;
    assay_trace **traces;
} rank_job;

static assay_status run_rank(void *user, assay_comm *comm)
{
    rank_job *j = user;
    assay_engine *engine = NULL;
    assay_engine_options e = j->context->engine;
    int32_t next;
    assay_status s;
    e.tap = assay_trace_tap;
    e.tap_user = j->traces[comm->rank];
    e.comm = comm;
    ASSAY_GO(assay_check_engine(&engine, j->context, &e, j->n + 1));
    s = assay_engine_generate(&next, engine, j->prompt->tokens, j->n, 1, 0, NULL, NULL);
out:
    assay_engine_free(engine);
    return s;
}

assay_status assay_check_trace_ranks(assay_trace **out, assay_check_context *context,
                                     const assay_check_prompt *prompt, int n_ranks)
{
    rank_job j = {context, prompt, assay_check_length(context, prompt), NULL};
    assay_status s;
    ASSAY_GO(assay_alloc(&j.traces, (size_t)n_ranks, sizeof *j.traces, "traces of ranks"));
    for (int r = 0; r < n_ranks; r++)
        ASSAY_GO(assay_trace_new(&j.traces[r], true, -1));
    ASSAY_GO(assay_ranks_run(n_ranks, run_rank, &j));
    s = assay_trace_join(out, j.traces, n_ranks);
out:
    for (int r = 0; j.traces && r < n_ranks; r++)
        assay_trace_free(j.traces[r]);
    free(j.traces);
    return s;
}

assay_status assay_check_pair_add(assay_check_pair *pair, const assay_check_context *context,
                                  const assay_trace *expected, const assay_trace *got,
                                  const char *name)
{
    assay_trace_difference d;
    char point[ASSAY_POINT_NAME_BYTES];
    ASSAY_TRY(assay_trace_compare(&d, got, expected, assay_model_hparams(context->model)->n_layer,
                                  context->engine.dtype,
                                  context->engine.products == ASSAY_PRODUCTS_INTEGER));
    pair->n_compared += d.n_compared;
    pair->n_flips += d.n_flips;
    pair->n_left_out += d.n_left_out;
    if (d.n_compared &&
        !(d.worst * pair->bound <= pair->worst * d.worst_bound && pair->bound > 0)) {
        pair->worst = d.worst;
        pair->bound = d.worst_bound;
        assay_point_format(pair->worst_point, d.worst_point, d.worst_layer);
    }
    if (!d.failed)
        return assay_strings_add(&pair->row->details, "%s: %d points, worst %.1e", name,
                                 d.n_compared, d.worst);
    assay_point_format(point, d.point, d.layer);
    if (!pair->n_failed++)
        ASSAY_TRY(assay_strings_add(&pair->first,
                                    "%s: first apart at %s [token %lld, %lld]: %.6g and %.6g", name,
                                    point, (long long)d.row, (long long)d.col, d.got, d.expected));
    return assay_strings_add(&pair->row->details,
                             "%s: first apart at %s [token %lld, %lld]: %.6g and %.6g, relative "
                             "%.1e, bound %.1e",
                             name, point, (long long)d.row, (long long)d.col, d.got, d.expected,
                             d.rel, d.bound);
}

assay_status assay_check_pair_end(assay_check_pair *pair)
{
    assay_status s;
    if (pair->n_flips)
        ASSAY_TRY(assay_strings_add(&pair->row->details,
                                    "%d choices of experts or keys differ at near ties; %d rows "
                                    "behind them were not judged",
                                    pair->n_flips, pair->n_left_out));
    if (pair->n_failed)
        s = assay_check_say(pair->row, ASSAY_VERDICT_FAIL, "not %s: %s", pair->what,
                            pair->first.items[0]);
    else if (!pair->n_compared)
        s = assay_check_say(pair->row, ASSAY_VERDICT_INCONCLUSIVE, "nothing could be compared");
    else if (pair->worst == 0)
        s = assay_check_say(pair->row, ASSAY_VERDICT_PASS, "%s, equal in every value", pair->what);
    else
        s = assay_check_say(pair->row, ASSAY_VERDICT_PASS, "%s, worst %.1e at %s (bound %.1e)",
                            pair->what, pair->worst, pair->worst_point, pair->bound);
    assay_strings_clear(&pair->first);
    return s;
}
