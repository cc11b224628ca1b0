/*
 * Captures of llama.cpp by its evaluation callback.
 *
 *     assay_llama *a;
 *     assay_llama_open(&a, "run.h5", NULL);
 *     params.cb_eval = assay_llama_eval;                    llama_context_params
 *     params.cb_eval_user_data = a;
 *     ...
 *     assay_llama_begin(a, ASSAY_PREFILL, 0, ids, n);       before each llama_decode of one ubatch
 *     llama_decode(ctx, batch);
 *     assay_llama_close(a);                  then: assay diagnose run.h5 --model MODEL.gguf
 *
 * A node is kept under its name and the number of its use in the graph ("q-0#2"), shape outermost
 * first. Functions return 0 or the status of assay.h; assay_last_error() says what happened. A
 * failure inside the callback is handed back by the next call, and nothing more is captured.
 */
#ifndef ASSAY_TOOLS_LLAMA_ASSAY_LLAMA_H
#define ASSAY_TOOLS_LLAMA_ASSAY_LLAMA_H

#include <stdbool.h>
#include <stdint.h>

#include "probes/assay.h"

struct ggml_tensor;
typedef struct assay_llama assay_llama;

/* options: of the session; producer and naming are set here. NULL: the default. */
int assay_llama_open(assay_llama **out, const char *path, const assay_session_options *options);
int assay_llama_begin(assay_llama *a, int phase, int64_t first_position, const int32_t *tokens,
                      int64_t n_tokens);
/* ggml_backend_sched_eval_callback. */
bool assay_llama_eval(struct ggml_tensor *node, bool ask, void *user);
int assay_llama_close(assay_llama *a);
/* Leaves no file. NULL is fine. */
void assay_llama_abandon(assay_llama *a);

#endif
