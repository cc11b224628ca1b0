/*
 * The probe may lie: with and without it the logits must be the same bits, and no two points that
 * should differ may hold the same bits (a tap that shows a recycled buffer).
 */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "probes/selfcheck.h"
#include "suites/check.h"
#include "suites/check_stages.h"
#include "suites/trace.h"

static assay_status run(float *logits, assay_check_context *c, const assay_check_prompt *p,
                        assay_trace *trace)
{
    assay_engine *engine = NULL;
    assay_engine_options e = c->engine;
    int32_t *positions = NULL;
    assay_status s;
    if (trace) {
        e.tap = assay_trace_tap;
        e.tap_user = trace;
    }
    ASSAY_GO(assay_alloc(&positions, (size_t)p->n, sizeof *positions, "positions"));
    for (int64_t i = 0; i < p->n; i++)
        positions[i] = (int32_t)i;
    ASSAY_GO(assay_check_engine(&engine, c, &e, p->n));
    assay_batch batch = {.n = p->n, .tokens = p->tokens, .positions = positions};
    s = assay_engine_forward(engine, &batch, logits);
out:
    assay_engine_free(engine);
    free(positions);
    return s;
}

static assay_status tell_cuts(assay_check_row *row, const assay_check_context *c)
{
    for (int i = 0; i < c->n_prompts; i++)
        if (assay_check_length(c, &c->prompts[i]) < c->prompts[i].n)
            ASSAY_TRY(assay_strings_add(
                &row->details,
                "time and memory: rows path, phase and batch use %lld of %lld tokens of '%s'",
                (long long)assay_check_length(c, &c->prompts[i]), (long long)c->prompts[i].n,
                c->prompts[i].name));
    return ASSAY_OK;
}

static bool is_stream(assay_point point)
{
    return point == ASSAY_POINT_EMBED || point == ASSAY_POINT_ATTN_RESID ||
           point == ASSAY_POINT_OUT;
}

/* What a residual add puts on the stream, where it is constant (zero): then the stream does not
 * change, and that is no lie of the probe. */
static bool adds_nothing(const assay_trace *trace, int layer)
{
    static const assay_point branches[] = {ASSAY_POINT_PROJ, ASSAY_POINT_FFN_OUT,
                                           ASSAY_POINT_MOE_OUT};
    for (size_t i = 0; i < sizeof branches / sizeof *branches; i++) {
        const assay_trace_item *item = assay_trace_find(trace, branches[i], layer);
        if (item && item->is_constant)
            return true;
    }
    return false;
}

/* Kernel output and what the projection reads are one buffer in a healthy run; ids repeat; a
 * constant buffer is no sign of recycling. */
static bool may_be_equal(const assay_trace *trace, bool is_one_token, const assay_trace_item *a,
                         const assay_trace_item *b)
{
    if (assay_point_at(a->point)->is_ids || assay_point_at(b->point)->is_ids)
        return true;
    if (a->is_constant || b->is_constant)
        return true;
    if (is_stream(a->point) && is_stream(b->point) && adds_nothing(trace, b->layer))
        return true;
    if (a->layer != b->layer)
        return false;
    return is_one_token ? assay_points_equal_at_start(a->point, b->point)
                        : a->point == ASSAY_POINT_KERNEL_OUT && b->point == ASSAY_POINT_OUT_ATTN;
}

static assay_status find_twins(assay_check_row *row, const assay_trace *trace, bool is_one_token,
                               int *n_twins)
{
    char a_name[ASSAY_POINT_NAME_BYTES], b_name[ASSAY_POINT_NAME_BYTES];
    *n_twins = 0;
    for (int i = 0; i < assay_trace_n(trace); i++)
        for (int j = i + 1; j < assay_trace_n(trace); j++) {
            const assay_trace_item *a = assay_trace_at(trace, i), *b = assay_trace_at(trace, j);
            if (a->checksum != b->checksum || a->n_elements != b->n_elements ||
                may_be_equal(trace, is_one_token, a, b))
                continue;
            ++*n_twins;
            ASSAY_TRY(assay_strings_add(&row->details, "%s and %s hold the same bits",
                                        assay_point_format(a_name, a->point, a->layer),
                                        assay_point_format(b_name, b->point, b->layer)));
        }
    return ASSAY_OK;
}

assay_status assay_check_probe(assay_check_row *row, assay_check_context *context)
{
    const assay_check_prompt *p = &context->prompts[0];
    int64_t n_vocab = assay_model_hparams(context->model)->n_vocab;
    float *off = NULL, *on = NULL;
    assay_trace *trace = NULL;
    assay_check_stages *stages;
    int n_twins;
    assay_status s;
    ASSAY_GO(assay_alloc(&off, (size_t)(p->n * n_vocab), sizeof *off, "logits"));
    ASSAY_GO(assay_alloc(&on, (size_t)(p->n * n_vocab), sizeof *on, "logits"));
    ASSAY_GO(assay_trace_new(&trace, false, -1));
    double began = omp_get_wtime();
    ASSAY_GO(run(off, context, p, NULL));
    context->tokens_per_s = (double)p->n / (omp_get_wtime() - began);
    ASSAY_GO(assay_check_plan(&stages, context));
    context->token_bytes = (double)stages->need.full_bytes / (double)stages->n_tokens;
    ASSAY_GO(tell_cuts(row, context));
    ASSAY_GO(run(on, context, p, trace));
    ASSAY_GO(find_twins(row, trace, p->n == 1, &n_twins));
    if (!assay_trace_n(trace))
        s = assay_check_say(row, ASSAY_VERDICT_FAIL, "the engine showed no point");
    else if (memcmp(off, on, (size_t)(p->n * n_vocab) * sizeof *off))
        s = assay_check_say(row, ASSAY_VERDICT_FAIL,
                            "logits of prompt '%s' change when the probe is on", p->name);
    else if (n_twins)
        s = assay_check_say(row, ASSAY_VERDICT_FAIL, "%s (%d such pairs)",
                            row->details.items[row->details.n - 1], n_twins);
    else
        s = assay_check_say(row, ASSAY_VERDICT_PASS,
                            "logits are the same bits with and without it; %d points, no two alike",
                            assay_trace_n(trace));
out:
    assay_trace_free(trace);
    free(off);
    free(on);
    return s;
}
