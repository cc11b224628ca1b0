/*
 * The cache, any way it can be kept: in pages, with the keys in parts that are merged, and with a
 * prefix that an earlier request left behind. All of them must give what the plain contiguous one
 * gives.
 */
#include <stdlib.h>

#include "suites/check.h"
#include "suites/check_pair.h"

#define PAGE 16

/* Keeps only the calls behind the prefix. */
typedef struct rest {
    assay_trace *trace;
    bool is_on;
} rest;

static assay_status tap_rest(void *user, const assay_tap_event *event)
{
    const rest *r = user;
    return r->is_on ? assay_trace_tap(r->trace, event) : ASSAY_OK;
}

static assay_status forward(assay_engine *engine, const int32_t *tokens, int64_t first, int64_t n)
{
    int32_t *positions;
    if (n < 1)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&positions, (size_t)n, sizeof *positions, "positions"));
    for (int64_t i = 0; i < n; i++)
        positions[i] = (int32_t)(first + i);
    assay_batch batch = {n, tokens + first, positions, NULL};
    assay_status s = assay_engine_forward(engine, &batch, NULL);
    free(positions);
    return s;
}

/* A request over a prefix, cold (two calls that are cut there) or after another one (`before`, cut
 * tokens): with the same beginning, which is found again, or with other tokens, which must not be.
 */
static assay_status run_prefix(assay_trace **out, assay_check_context *c,
                               const assay_check_prompt *prompt, int64_t cut, const int32_t *before)
{
    bool warm = before != NULL;
    int64_t n = assay_check_length(c, prompt), reused = 0;
    assay_engine *engine = NULL;
    assay_engine_options e = c->engine;
    rest r = {NULL, false};
    assay_status s;
    ASSAY_GO(assay_trace_new(&r.trace, true, -1));
    e.page_size = warm ? PAGE : 0;
    e.reuse_prefixes = warm;
    e.tap = tap_rest;
    e.tap_user = &r;
    ASSAY_GO(assay_check_engine(&engine, c, &e, n + 1));
    ASSAY_GO(forward(engine, warm ? before : prompt->tokens, 0, cut));
    if (warm) { /* the first request ends; its pages stay */
        assay_engine_reset(engine, -1);
        ASSAY_GO(assay_engine_reuse(&reused, engine, 0, prompt->tokens, n));
        if (before == prompt->tokens && reused != cut)
            ASSAY_GO(assay_fail(ASSAY_CANNOT_JUDGE,
                                "%lld positions were found again, expected %lld", (long long)reused,
                                (long long)cut));
        ASSAY_GO(forward(engine, prompt->tokens, reused, cut - reused));
    }
    r.is_on = true;
    ASSAY_GO(forward(engine, prompt->tokens, cut, n - cut));
    *out = r.trace;
    r.trace = NULL;
out:
    assay_engine_free(engine);
    assay_trace_free(r.trace);
    return s;
}

static assay_status compare_prefix(assay_check_pair *pair, assay_check_context *c,
                                   const assay_check_prompt *prompt)
{
    int64_t cut = (assay_check_length(c, prompt) - 1) / PAGE * PAGE;
    assay_trace *cold = NULL, *warm = NULL, *behind = NULL;
    int32_t *other;
    if (cut < PAGE)
        return ASSAY_OK; /* not a page long */
    ASSAY_TRY(assay_alloc(&other, (size_t)cut, sizeof *other, "another request"));
    for (int64_t i = 0; i < cut; i++)
        other[i] = (prompt->tokens[i] + 1) % assay_model_hparams(c->model)->n_vocab;
    assay_status s = run_prefix(&cold, c, prompt, cut, NULL);
    if (s == ASSAY_OK)
        s = run_prefix(&warm, c, prompt, cut, prompt->tokens);
    if (s == ASSAY_OK)
        s = assay_check_pair_add(pair, c, cold, warm, "prefix reused");
    if (s == ASSAY_OK)
        s = run_prefix(&behind, c, prompt, cut, other);
    if (s == ASSAY_OK)
        s = assay_check_pair_add(pair, c, cold, behind, "behind a request of other tokens");
    assay_trace_free(cold);
    assay_trace_free(warm);
    assay_trace_free(behind);
    free(other);
    return s;
}

static assay_status compare_ways(assay_check_pair *pair, assay_check_context *c,
                                 const assay_check_prompt *prompt)
{
    static const struct {
        const char *name;
        int page_size, key_split;
    } ways[] = {{"pages of 16", PAGE, 0}, {"pages of 1", 1, 0}, {"keys in parts of 7", 0, 7}};
    assay_trace *plain = NULL, *other = NULL;
    assay_status s = assay_check_trace(&plain, c, &c->engine, prompt, 0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways && s == ASSAY_OK; i++) {
        assay_engine_options e = c->engine;
        e.page_size = ways[i].page_size;
        e.key_split = ways[i].key_split;
        e.reuse_prefixes = e.reuse_prefixes && e.page_size > 0;
        s = assay_check_trace(&other, c, &e, prompt, 5);
        if (s == ASSAY_OK)
            s = assay_check_pair_add(pair, c, plain, other, ways[i].name);
        assay_trace_free(other);
        other = NULL;
    }
    assay_trace_free(plain);
    return s;
}

assay_status assay_check_cache(assay_check_row *row, assay_check_context *context)
{
    const assay_check_prompt *longest = &context->prompts[0];
    assay_check_pair pair = {.row = row,
                             .what = "paged = contiguous, merged parts = whole, reused = cold"};
    for (int i = 1; i < context->n_prompts; i++)
        if (context->prompts[i].n > longest->n)
            longest = &context->prompts[i];
    assay_status s = compare_ways(&pair, context, longest);
    if (s == ASSAY_OK)
        s = compare_prefix(&pair, context, longest);
    if (s == ASSAY_OK)
        return assay_check_pair_end(&pair);
    assay_strings_clear(&pair.first);
    return s;
}
