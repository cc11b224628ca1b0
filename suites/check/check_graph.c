/*
 * Eager = replay: the same requests with and without graphs, bit for bit. One request is captured,
 * a second one of another length replays it; then three requests share a bucket of four, one row of
 * which nobody owns; then the cache moves to other addresses, and the steps go on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device.h"
#include "suites/check.h"
#include "suites/trace.h"

#define N_SEQUENCES 3
#define N_STEPS 5 /* decode steps of each part */
#define N_PARTS 4

static const char *const parts[N_PARTS] = {"first request", "second request of another length",
                                           "three requests in a bucket of four",
                                           "after the cache has moved"};

/* Logits of every decode step, in order. */
typedef struct record {
    float *logits;
    int64_t n, room, n_vocab;
    int64_t end[N_PARTS]; /* rows up to the end of each part */
} record;

static assay_status step(record *out, assay_engine *engine, const int32_t *tokens,
                         const int32_t *positions, const int32_t *sequences, int64_t n, bool keep)
{
    assay_batch batch = {n, tokens, positions, sequences};
    ASSAY_BUG_IF(out->n + n > out->room);
    ASSAY_TRY(
        assay_engine_forward(engine, &batch, keep ? out->logits + out->n * out->n_vocab : NULL));
    out->n += keep ? n : 0;
    return ASSAY_OK;
}

/* The first n tokens of a prompt into one sequence. */
static assay_status prefill(record *out, assay_engine *engine, const assay_check_prompt *p,
                            int64_t n, int32_t sequence)
{
    int32_t *numbers;
    ASSAY_TRY(assay_alloc(&numbers, (size_t)n * 2, sizeof *numbers, "positions"));
    for (int64_t i = 0; i < n; i++) {
        numbers[i] = (int32_t)i;
        numbers[n + i] = sequence;
    }
    assay_status s = step(out, engine, p->tokens, numbers, numbers + n, n, false);
    free(numbers);
    return s;
}

/* One row for each of n sequences; tokens are the prompt's own, taken from the front again. */
static assay_status decode(record *out, assay_engine *engine, const assay_check_prompt *p,
                           int32_t *lengths, int n)
{
    for (int i = 0; i < N_STEPS; i++) {
        int32_t tokens[N_SEQUENCES], positions[N_SEQUENCES], sequences[N_SEQUENCES];
        for (int q = 0; q < n; q++) {
            positions[q] = lengths[q]++;
            sequences[q] = q;
            tokens[q] = p->tokens[(positions[q] + q) % p->n];
        }
        ASSAY_TRY(step(out, engine, tokens, positions, sequences, n, true));
    }
    return ASSAY_OK;
}

static assay_status run_parts(record *out, assay_engine *engine, const assay_check_prompt *p)
{
    int32_t lengths[N_SEQUENCES] = {(int32_t)p->n};
    ASSAY_TRY(prefill(out, engine, p, p->n, 0));
    ASSAY_TRY(decode(out, engine, p, lengths, 1));
    out->end[0] = out->n;
    assay_engine_reset(engine, -1);
    lengths[0] = (int32_t)(p->n / 2 > 0 ? p->n / 2 : 1);
    ASSAY_TRY(prefill(out, engine, p, lengths[0], 0));
    ASSAY_TRY(decode(out, engine, p, lengths, 1));
    out->end[1] = out->n;
    for (int q = 1; q < N_SEQUENCES; q++) {
        lengths[q] = (int32_t)(p->n > q ? p->n - q : 1);
        ASSAY_TRY(prefill(out, engine, p, lengths[q], q));
    }
    ASSAY_TRY(decode(out, engine, p, lengths, N_SEQUENCES));
    out->end[2] = out->n;
    ASSAY_TRY(assay_device_move_cache(engine));
    ASSAY_TRY(decode(out, engine, p, lengths, N_SEQUENCES));
    out->end[3] = out->n;
    return ASSAY_OK;
}

static assay_status run(record *out, assay_check_context *c, const assay_check_prompt *p,
                        bool use_graph, assay_trace *trace)
{
    assay_engine *engine = NULL;
    assay_engine_options e = c->engine;
    assay_status s;
    e.use_graph = use_graph;
    e.max_sequences = N_SEQUENCES;
    e.tap = trace ? assay_trace_tap : NULL;
    e.tap_user = trace;
    out->n_vocab = assay_model_hparams(c->model)->n_vocab;
    out->room = N_STEPS * 2 * (1 + N_SEQUENCES) + p->n;
    ASSAY_GO(assay_alloc(&out->logits, (size_t)(out->room * out->n_vocab), sizeof *out->logits,
                         "logits"));
    ASSAY_GO(assay_check_engine(&engine, c, &e, p->n + 3 * N_STEPS));
    s = run_parts(out, engine, p);
out:
    assay_engine_free(engine);
    return s;
}

/* The part and the first row that differ; NULL: none. */
static const char *first_difference(int64_t *row, const record *a, const record *b)
{
    size_t bytes = (size_t)a->n_vocab * sizeof(float);
    for (int64_t i = 0, part = 0; i < a->n; i++) {
        while (i >= a->end[part])
            part++;
        if (memcmp(a->logits + i * a->n_vocab, b->logits + i * a->n_vocab, bytes)) {
            *row = i - (part ? a->end[part - 1] : 0);
            return parts[part];
        }
    }
    return NULL;
}

static const assay_trace_item *first_point(const assay_trace *a, const assay_trace *b)
{
    for (int i = 0; i < assay_trace_n(a); i++) {
        const assay_trace_item *x = assay_trace_at(a, i);
        const assay_trace_item *y = assay_trace_find(b, x->point, x->layer);
        if (!y || y->checksum != x->checksum)
            return x;
    }
    return NULL;
}

static assay_status judge(assay_check_row *row, const record *eager, const record *graph,
                          const assay_trace *seen_eager, const assay_trace *seen_graph)
{
    int64_t at;
    const char *part = first_difference(&at, eager, graph);
    const assay_trace_item *point = first_point(seen_eager, seen_graph);
    char name[ASSAY_POINT_NAME_BYTES] = "";
    if (point)
        assay_point_format(name, point->point, point->layer);
    if (part)
        return assay_check_say(
            row, ASSAY_VERDICT_FAIL, "%s: logits of row %lld differ between eager and replay%s%s",
            part, (long long)at, point ? "; the first point that differs is " : "", name);
    if (point)
        return assay_check_say(row, ASSAY_VERDICT_FAIL,
                               "%s differs between eager and replay, the logits do not", name);
    return assay_check_say(row, ASSAY_VERDICT_PASS,
                           "eager = replay, bit for bit: %lld decoded rows, %d points; a second "
                           "request, a padded bucket, a moved cache",
                           (long long)eager->n, assay_trace_n(seen_eager));
}

assay_status assay_check_graph(assay_check_row *row, assay_check_context *context)
{
    const assay_check_prompt *p = &context->prompts[0];
    record eager = {0}, graph = {0}, bare = {0};
    assay_trace *seen_eager = NULL, *seen_graph = NULL;
    assay_status s;
    if (context->engine.backend != ASSAY_BACKEND_CUDA)
        return assay_check_say(row, ASSAY_VERDICT_SKIP,
                               "graphs are of devices, and the backend is cpu");
    ASSAY_GO(assay_trace_new(&seen_eager, false, -1));
    ASSAY_GO(assay_trace_new(&seen_graph, false, -1));
    ASSAY_GO(run(&eager, context, p, false, seen_eager));
    ASSAY_GO(run(&graph, context, p, true, seen_graph));
    ASSAY_GO(run(&bare, context, p, true, NULL));
    int64_t at;
    const char *part = first_difference(&at, &graph, &bare);
    if (part)
        s = assay_check_say(row, ASSAY_VERDICT_FAIL,
                            "%s: logits of row %lld change when the probe is on", part,
                            (long long)at);
    else
        s = judge(row, &eager, &graph, seen_eager, seen_graph);
out:
    assay_trace_free(seen_eager);
    assay_trace_free(seen_graph);
    free(eager.logits);
    free(graph.logits);
    free(bare.logits);
    return s;
}
