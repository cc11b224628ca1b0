/*
 * What steps cost on a device, for each model named: eager and replayed decode, with recorders at
 * every point, against the time that the weights' bytes alone take; how much of a prefill is inside
 * cuBLAS. All of it in one run. Prints rows of a table.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/device.h"
#include "engine/device/runtime.h"
#include "engine/model.h"
#include "probes/recorder_device.h"

#define N_PREFILL 512
#define N_PROMPT 24
#define COPY_BYTES ((size_t)2 << 30)
#define N_REPEAT 5

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static bool is_expert(assay_role r)
{
    return r == ASSAY_ROLE_GATE_EXPS || r == ASSAY_ROLE_UP_EXPS || r == ASSAY_ROLE_GATE_UP_EXPS ||
           r == ASSAY_ROLE_DOWN_EXPS;
}

/* Packed bytes that one token reads: all matrices, of the experts the chosen ones, of the embedding
 * a row. */
static double touched_bytes(const assay_model *model)
{
    const assay_hparams *hp = assay_model_hparams(model);
    bool tied = !assay_model_weight(model, ASSAY_ROLE_OUTPUT, -1);
    double bytes = 0;
    for (int layer = -1; layer < hp->n_layer; layer++)
        for (int r = 0; r < ASSAY_ROLE_COUNT; r++) {
            const assay_weight *w = assay_model_weight(model, (assay_role)r, layer);
            double share = 1;
            if (!w || assay_role_at((assay_role)r)->per_layer != (layer >= 0))
                continue;
            if (is_expert((assay_role)r))
                share = (double)hp->n_expert_used / hp->n_expert;
            if (r == ASSAY_ROLE_TOKEN_EMBD && !tied)
                share = 1.0 / (double)w->n_rows;
            bytes += share * (double)w->info->n_bytes;
        }
    return bytes;
}

/* Bytes read and written, by the second, of a large copy. */
static assay_status copy_rate(double *rate)
{
    void *a, *b, *stream, *from, *to;
    float ms, best = 0;
    ASSAY_TRY(assay_cuda_stream_new(&stream));
    ASSAY_TRY(assay_cuda_event_new(&from, true));
    ASSAY_TRY(assay_cuda_event_new(&to, true));
    ASSAY_TRY(assay_cuda_alloc(&a, COPY_BYTES, "copy"));
    ASSAY_TRY(assay_cuda_alloc(&b, COPY_BYTES, "copy"));
    for (int i = 0; i < N_REPEAT + 1; i++) {
        ASSAY_TRY(assay_cuda_record(from, stream));
        ASSAY_TRY(assay_cuda_within(stream, b, a, COPY_BYTES));
        ASSAY_TRY(assay_cuda_record(to, stream));
        ASSAY_TRY(assay_cuda_sync(stream));
        ASSAY_TRY(assay_cuda_elapsed(&ms, from, to));
        if (i && (best == 0 || ms < best))
            best = ms;
    }
    *rate = 2.0 * (double)COPY_BYTES / best * 1e3;
    assay_cuda_free(a);
    assay_cuda_free(b);
    assay_cuda_stream_free(stream);
    return ASSAY_OK;
}

static assay_status prefill(assay_engine *engine, int64_t n, int n_vocab)
{
    int32_t tokens[N_PREFILL], positions[N_PREFILL];
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)((i * 7919 + 13) % n_vocab);
        positions[i] = (int32_t)i;
    }
    assay_batch batch = {n, tokens, positions, NULL};
    ASSAY_TRY(assay_engine_forward(engine, &batch, NULL));
    return assay_device_wait(engine);
}

/* Milliseconds of one decode step, the host not waiting in between: the best of some runs. */
static assay_status decode_ms(double *ms, int32_t *last, assay_engine *engine, int n_vocab,
                              int n_steps)
{
    int32_t *ids, first = 5;
    *ms = 0;
    ASSAY_TRY(assay_alloc(&ids, (size_t)n_steps, sizeof *ids, "ids"));
    assay_engine_reset(engine, -1);
    assay_status s = prefill(engine, N_PROMPT, n_vocab);
    if (s == ASSAY_OK)
        s = assay_device_decode(ids, engine, &first, 1, 4); /* warm, and captured */
    for (int i = 0; i < N_REPEAT && s == ASSAY_OK; i++) {
        double from = now_ms();
        s = assay_device_decode(ids, engine, &first, 1, n_steps);
        double took = (now_ms() - from) / n_steps;
        *ms = *ms == 0 || took < *ms ? took : *ms;
    }
    *last = ids[n_steps - 1];
    free(ids);
    return s;
}

typedef struct costs {
    double eager, graph, stats, sketch, prefill, products;
    int64_t n_launches, n_nodes;
} costs;

static assay_status with_recorder(double *ms, assay_engine *engine, int n_vocab, int n_steps,
                                  bool sketch)
{
    assay_recorder_device *recorder;
    int32_t last;
    ASSAY_TRY(
        assay_recorder_device_new(&recorder, sketch ? ASSAY_DEVICE_SKETCH : ASSAY_DEVICE_STATS, 2));
    assay_status s = assay_device_run_as(engine, true, assay_recorder_device_tap, recorder);
    if (s == ASSAY_OK)
        s = decode_ms(ms, &last, engine, n_vocab, n_steps);
    assay_status back = assay_device_run_as(engine, false, NULL, NULL);
    assay_recorder_device_free(recorder);
    return s == ASSAY_OK ? back : s;
}

static assay_status measure_decode(costs *c, assay_engine *engine, int n_vocab, int n_steps)
{
    assay_device_counts counts;
    int32_t eager, graph;
    ASSAY_TRY(assay_device_run_as(engine, false, NULL, NULL));
    ASSAY_TRY(decode_ms(&c->eager, &eager, engine, n_vocab, n_steps));
    ASSAY_TRY(assay_device_counts_of(&counts, engine));
    c->n_launches = counts.n_launches;
    ASSAY_TRY(assay_device_run_as(engine, true, NULL, NULL));
    ASSAY_TRY(decode_ms(&c->graph, &graph, engine, n_vocab, n_steps));
    ASSAY_TRY(assay_device_counts_of(&counts, engine));
    c->n_nodes = counts.n_nodes;
    if (eager != graph)
        return assay_fail(ASSAY_DEVICE, "the last token is %d eagerly and %d replayed", eager,
                          graph);
    ASSAY_TRY(with_recorder(&c->stats, engine, n_vocab, n_steps, false));
    return with_recorder(&c->sketch, engine, n_vocab, n_steps, true);
}

static assay_status measure_prefill(costs *c, assay_engine *engine, int n_vocab)
{
    assay_device_counts counts;
    for (int i = 0; i < 3; i++) {
        assay_engine_reset(engine, -1);
        double from = now_ms();
        ASSAY_TRY(prefill(engine, N_PREFILL, n_vocab));
        double took = now_ms() - from;
        c->prefill = i == 1 || took < c->prefill ? took : c->prefill;
    }
    assay_engine_reset(engine, -1);
    assay_device_time_products(engine, true);
    ASSAY_TRY(prefill(engine, N_PREFILL, n_vocab));
    ASSAY_TRY(assay_device_counts_of(&counts, engine));
    c->products = counts.product_ms;
    assay_device_time_products(engine, false);
    return ASSAY_OK;
}

static void print(const char *name, const costs *c, double bytes, double rate)
{
    double floor = bytes / rate * 1e3;
    printf("| %s: decode, eager | %.3f ms | %.0f tokens/s, %lld kernels, %.2f us each\n", name,
           c->eager, 1e3 / c->eager, (long long)c->n_launches,
           c->eager * 1e3 / (double)c->n_launches);
    printf("| %s: decode, graph | %.3f ms | %.0f tokens/s, %lld nodes, %.2f us each\n", name,
           c->graph, 1e3 / c->graph, (long long)c->n_nodes, c->graph * 1e3 / (double)c->n_nodes);
    printf("| %s: eager / graph | %.2f | \n", name, c->eager / c->graph);
    printf("| %s: graph with stats at every point | %.3f ms | %.3f x\n", name, c->stats,
           c->stats / c->graph);
    printf("| %s: graph with stats and sketch | %.3f ms | %.3f x\n", name, c->sketch,
           c->sketch / c->graph);
    printf("| %s: bytes of weights a token reads | %.1f MB | %.3f ms at %.2f TB/s\n", name,
           bytes * 1e-6, floor, rate * 1e-12);
    printf("| %s: bandwidth floor / graph step | %.1f %% | \n", name, 100 * floor / c->graph);
    printf("| %s: prefill of %d tokens | %.2f ms | %.1f %% inside cuBLAS\n", name, N_PREFILL,
           c->prefill, 100 * c->products / c->prefill);
}

static assay_status run(const char *path, double rate)
{
    assay_model *model = NULL;
    assay_engine *engine = NULL;
    assay_engine_options o = assay_engine_options_default();
    costs c = {0};
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    assay_status s;
    ASSAY_GO(assay_model_open(&model, path, NULL));
    double bytes = touched_bytes(model), from = now_ms();
    int n_vocab = assay_model_hparams(model)->n_vocab;
    o.backend = ASSAY_BACKEND_CUDA;
    o.path = assay_model_hparams(model)->is_mla ? ASSAY_PATH_LATENT : ASSAY_PATH_EXPANDED;
    o.max_positions = 1024;
    ASSAY_GO(assay_engine_new(&engine, model, &o));
    printf("%s: on the device after %.1f s\n", name, (now_ms() - from) * 1e-3);
    ASSAY_GO(measure_decode(&c, engine, n_vocab, bytes > 1e8 ? 48 : 150));
    ASSAY_GO(measure_prefill(&c, engine, n_vocab));
    print(name, &c, bytes, rate);
    fflush(stdout);
out:
    assay_engine_free(engine);
    assay_model_close(model);
    return s;
}

int main(int argc, char **argv)
{
    char name[128];
    double rate;
    assay_status s = copy_rate(&rate);
    if (s == ASSAY_OK)
        printf("| %s: copy, bytes read and written | %.2f TB/s |\n", assay_device_name(name),
               rate * 1e-12);
    for (int i = 1; i < argc && s == ASSAY_OK; i++)
        s = run(argv[i], rate);
    if (s != ASSAY_OK)
        fprintf(stderr, "%s\n", assay_error_text());
    return s == ASSAY_OK ? 0 : assay_status_exit(s);
}
