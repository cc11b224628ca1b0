/* Stand-in for llama.h: see README.md. */
#ifndef ASSAY_SUITES_TESTS_LLAMA_LLAMA_H
#define ASSAY_SUITES_TESTS_LLAMA_LLAMA_H

#include <ggml-backend.h>

typedef int32_t llama_pos;
typedef int32_t llama_token;
typedef int32_t llama_seq_id;

struct llama_model;
struct llama_context;
struct llama_vocab;

typedef struct llama_batch {
    int32_t n_tokens;
    llama_token *token;
    float *embd;
    llama_pos *pos;
    int32_t *n_seq_id;
    llama_seq_id **seq_id;
    int8_t *logits;
} llama_batch;

struct llama_model_params {
    int32_t n_gpu_layers;
};

struct llama_context_params {
    uint32_t n_ctx, n_batch, n_ubatch;
    ggml_backend_sched_eval_callback cb_eval;
    void *cb_eval_user_data;
};

void llama_backend_init(void);
void llama_backend_free(void);
struct llama_model_params llama_model_default_params(void);
struct llama_context_params llama_context_default_params(void);
struct llama_model *llama_model_load_from_file(const char *path, struct llama_model_params params);
void llama_model_free(struct llama_model *model);
struct llama_context *llama_init_from_model(struct llama_model *model,
                                            struct llama_context_params params);
void llama_free(struct llama_context *ctx);
const struct llama_vocab *llama_model_get_vocab(const struct llama_model *model);
int32_t llama_vocab_n_tokens(const struct llama_vocab *vocab);
int32_t llama_tokenize(const struct llama_vocab *vocab, const char *text, int32_t text_len,
                       llama_token *tokens, int32_t n_tokens_max, bool add_special,
                       bool parse_special);
struct llama_batch llama_batch_init(int32_t n_tokens, int32_t embd, int32_t n_seq_max);
void llama_batch_free(struct llama_batch batch);
int32_t llama_decode(struct llama_context *ctx, struct llama_batch batch);
float *llama_get_logits_ith(struct llama_context *ctx, int32_t i);

#endif
