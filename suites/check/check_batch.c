/*
 * Alone = in a batch: requests of unequal lengths share every call, their rows interleaved with
 * each other and with padding, first in one order, then in the other.
 */
#include <stdio.h>
#include <stdlib.h>

#include "suites/check_pair.h"

#define MAX_REQUESTS 3

typedef struct request {
    const int32_t *tokens;
    int64_t n;
    assay_trace *alone, *shared;
} request;

typedef struct requests {
    int n;
    request items[MAX_REQUESTS];
} requests;

static assay_status tap_all(void *user, const assay_tap_event *event)
{
    requests *all = user;
    for (int i = 0; i < all->n; i++)
        ASSAY_TRY(assay_trace_tap(all->items[i].shared, event));
    return ASSAY_OK;
}

/* Prompts of unequal lengths; where there are too few, beginnings of the longest. */
static void choose(requests *all, const assay_check_context *c)
{
    const assay_check_prompt *longest = &c->prompts[0];
    for (int i = 1; i < c->n_prompts; i++)
        if (c->prompts[i].n > longest->n)
            longest = &c->prompts[i];
    for (int i = 0; i < c->n_prompts && all->n < MAX_REQUESTS; i++)
        all->items[all->n++] =
            (request){.tokens = c->prompts[i].tokens, .n = assay_check_length(c, &c->prompts[i])};
    for (int64_t n = assay_check_length(c, longest) - 1; all->n < MAX_REQUESTS && n > 1; n /= 2)
        all->items[all->n++] = (request){.tokens = longest->tokens, .n = n};
}

typedef struct rows {
    int32_t *tokens, *positions, *sequences;
    int64_t n;
} rows;

static void add_row(rows *r, int32_t token, int64_t position, int sequence)
{
    r->tokens[r->n] = token;
    r->positions[r->n] = (int32_t)position;
    r->sequences[r->n++] = sequence;
}

/* Rows of position `at` of every request that is that long, a row of padding behind each. */
static void add_position(rows *r, const requests *all, int64_t at, bool reversed)
{
    for (int i = 0; i < all->n; i++) {
        int k = reversed ? all->n - 1 - i : i;
        if (at >= all->items[k].n)
            continue;
        add_row(r, all->items[k].tokens[at], at, k);
        add_row(r, 0, 0, -1);
    }
}

/* Two calls: all but the last positions, then the rest, which some requests no longer have. */
static assay_status run_shared(requests *all, assay_check_context *c, bool reversed)
{
    assay_engine *engine = NULL;
    assay_engine_options e = c->engine;
    int64_t longest = 0, total = 0;
    rows r = {0};
    assay_status s;
    for (int i = 0; i < all->n; i++) {
        total += 2 * all->items[i].n;
        longest = all->items[i].n > longest ? all->items[i].n : longest;
    }
    e.tap = tap_all;
    e.tap_user = all;
    e.max_sequences = all->n;
    ASSAY_GO(assay_alloc(&r.tokens, (size_t)total, sizeof *r.tokens, "a batch"));
    ASSAY_GO(assay_alloc(&r.positions, (size_t)total, sizeof *r.positions, "a batch"));
    ASSAY_GO(assay_alloc(&r.sequences, (size_t)total, sizeof *r.sequences, "a batch"));
    ASSAY_GO(assay_check_engine(&engine, c, &e, longest));
    for (int64_t at = 0, cut = (longest + 1) / 2; at < longest; cut = longest) {
        for (r.n = 0; at < cut; at++)
            add_position(&r, all, at, reversed);
        assay_batch batch = {r.n, r.tokens, r.positions, r.sequences};
        ASSAY_GO(assay_engine_forward(engine, &batch, NULL));
    }
out:
    assay_engine_free(engine);
    free(r.tokens);
    free(r.positions);
    free(r.sequences);
    return s;
}

static assay_status compare_order(assay_check_pair *pair, requests *all, assay_check_context *c,
                                  bool reversed)
{
    for (int i = 0; i < all->n; i++)
        ASSAY_TRY(assay_trace_new(&all->items[i].shared, true, i));
    ASSAY_TRY(run_shared(all, c, reversed));
    for (int i = 0; i < all->n; i++) {
        char name[64];
        snprintf(name, sizeof name, "request %d of %lld tokens%s", i, (long long)all->items[i].n,
                 reversed ? ", other order" : "");
        ASSAY_TRY(assay_check_pair_add(pair, c, all->items[i].alone, all->items[i].shared, name));
        assay_trace_free(all->items[i].shared);
        all->items[i].shared = NULL;
    }
    return ASSAY_OK;
}

assay_status assay_check_batch(assay_check_row *row, assay_check_context *context)
{
    assay_check_pair pair = {.row = row, .what = "alone = in a batch of unequal lengths"};
    requests all = {0};
    assay_status s = ASSAY_OK;
    choose(&all, context);
    for (int i = 0; i < all.n; i++) {
        assay_check_prompt p = {.tokens = all.items[i].tokens, .n = all.items[i].n};
        ASSAY_GO(assay_check_trace(&all.items[i].alone, context, &context->engine, &p, 0));
    }
    ASSAY_GO(compare_order(&pair, &all, context, false));
    ASSAY_GO(compare_order(&pair, &all, context, true));
out:
    for (int i = 0; i < all.n; i++) {
        assay_trace_free(all.items[i].alone);
        assay_trace_free(all.items[i].shared);
    }
    if (s == ASSAY_OK)
        return assay_check_pair_end(&pair);
    assay_strings_clear(&pair.first);
    return s;
}
