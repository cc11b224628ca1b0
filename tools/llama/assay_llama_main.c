/*
 * assay-llama MODEL.gguf CAPTURE -p TEXT [-n N] [-t TIER]: one prompt through llama.cpp, then N
 * greedy steps, captured.
 */
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/llama/assay_llama.h"

#define MAX_TOKENS 8192

typedef struct work {
    struct llama_model *model;
    struct llama_context *context;
    const struct llama_vocab *vocab;
    assay_llama *capture;
    struct llama_batch batch;
    int32_t ids[MAX_TOKENS];
    int n_ids;
} work;

static int fail(const char *text)
{
    fprintf(stderr, "assay-llama: %s\n", text);
    return 128;
}

/* One ubatch at `first`, logits of every row. */
static int step(work *w, int phase, int first, int n)
{
    int status = assay_llama_begin(w->capture, phase, first, w->ids + first, n);
    if (status)
        return fail(assay_last_error());
    w->batch.n_tokens = n;
    for (int i = 0; i < n; i++) {
        w->batch.token[i] = w->ids[first + i];
        w->batch.pos[i] = first + i;
        w->batch.n_seq_id[i] = 1;
        w->batch.seq_id[i][0] = 0;
        w->batch.logits[i] = 1;
    }
    return llama_decode(w->context, w->batch) ? fail("llama_decode failed") : 0;
}

static int32_t greedy(const work *w, int row)
{
    const float *x = llama_get_logits_ith(w->context, row);
    int32_t best = 0, n = llama_vocab_n_tokens(w->vocab);
    for (int32_t i = 1; x && i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

static int generate(work *w, int n_new)
{
    int status = step(w, ASSAY_PREFILL, 0, w->n_ids), last = w->n_ids - 1;
    for (int i = 0; i < n_new && !status; i++) {
        w->ids[w->n_ids++] = greedy(w, last);
        last = 0;
        status = step(w, ASSAY_DECODE, w->n_ids - 1, 1);
    }
    return status;
}

static int prepare(work *w, const char *model, const char *text, int n_new, const char *capture,
                   const char *tier)
{
    struct llama_model_params mp = llama_model_default_params();
    w->model = llama_model_load_from_file(model, mp);
    if (!w->model)
        return fail("the model cannot be loaded");
    w->vocab = llama_model_get_vocab(w->model);
    w->n_ids = llama_tokenize(w->vocab, text, (int32_t)strlen(text), w->ids, MAX_TOKENS - n_new,
                              true, true);
    if (w->n_ids < 1)
        return fail("the text has no tokens, or too many");
    assay_session_options o = assay_session_options_default();
    o.tier = tier;
    int status = assay_llama_open(&w->capture, capture, &o);
    if (status)
        return fail(assay_last_error()), status;
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = (uint32_t)(w->n_ids + n_new + 1);
    cp.n_batch = cp.n_ubatch = (uint32_t)w->n_ids; /* a prompt is one graph */
    cp.cb_eval = assay_llama_eval;
    cp.cb_eval_user_data = w->capture;
    w->context = llama_init_from_model(w->model, cp);
    w->batch = llama_batch_init(w->n_ids, 0, 1);
    return w->context ? 0 : fail("no context");
}

int main(int argc, char **argv)
{
    const char *text = NULL, *tier = NULL;
    int n_new = 0, option;
    while ((option = getopt(argc, argv, "p:n:t:")) != -1) {
        if (option == 'p')
            text = optarg;
        else if (option == 't')
            tier = optarg;
        else if (option == 'n')
            n_new = atoi(optarg);
        else
            return 129;
    }
    if (argc - optind != 2 || !text || n_new < 0 || n_new >= MAX_TOKENS / 2) {
        fprintf(stderr, "assay-llama MODEL.gguf CAPTURE -p TEXT [-n N] [-t TIER]\n");
        return 129;
    }
    static work w;
    llama_backend_init();
    int status = prepare(&w, argv[optind], text, n_new, argv[optind + 1], tier);
    if (!status)
        status = generate(&w, n_new);
    if (status) {
        assay_llama_abandon(w.capture);
    } else {
        status = assay_llama_close(w.capture);
        if (status)
            fail(assay_last_error());
    }
    if (w.batch.token)
        llama_batch_free(w.batch);
    if (w.context)
        llama_free(w.context);
    if (w.model)
        llama_model_free(w.model);
    llama_backend_free();
    return status;
}
