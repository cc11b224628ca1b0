/*
 * Forged models: GGUF files with the shapes of a known model, any number of layers, any type that
 * can be encoded, and seeded weights that keep activations of order one and logits finite.
 *
 *   matrices   normal, deviation gain / sqrt(inputs); the last matrix of each branch is smaller by
 *              sqrt(2 layers), so that the stream keeps its size through any depth
 *   norms      1 + 0.1 x        biases 0.1 x        embedding x        (x of deviation 1)
 *
 * A weight depends on the seed, the tensor's name and its place alone: files of other types,
 * orders or numbers of shards hold the same model, up to rounding. What is never quantized in
 * practice (vectors, router, the indexer's head weights) is f32; rows that no whole number of
 * blocks fills get the fallback type that the reference's quantizer takes.
 *
 * A skeleton has the right header and size, and holes for data: no disk, zeros when read.
 */
#ifndef ASSAY_SUITES_FORGE_MODEL_H
#define ASSAY_SUITES_FORGE_MODEL_H

#include "engine/hparams.h"

/* Shapes and constants of a known model; sources in forge_shape.c. */
typedef struct assay_forge_shape {
    const char *name, *architecture;
    int n_layer, n_nextn, n_layer_dense;
    int n_embd, n_head, n_head_kv, n_rank_q, n_rank_kv, d_nope, d_rope, d_value; /* llama: d_rope */
    int n_ff, n_ff_expert, n_expert, n_expert_used, n_expert_shared, n_group, n_group_used;
    int gating; /* 1 softmax, 2 sigmoid with a selection bias */
    bool weights_norm;
    double weights_scale;
    int n_vocab, n_context;
    double eps, rope_base, yarn_factor, yarn_mscale_all, yarn_beta_fast; /* factor 0: no YaRN */
    int index_n_head, index_d_head, index_top_k;
    bool index_shared; /* the pattern of GLM-5.2: full at 0, 1, 2, then every fourth */
} assay_forge_shape;

int assay_forge_shape_count(void);
const assay_forge_shape *assay_forge_shape_at(int index);
const assay_forge_shape *assay_forge_shape_find(const char *name); /* NULL: unknown */

typedef enum {
    ASSAY_FORGE_BY_LAYER, /* embedding, layers, final norm, head */
    ASSAY_FORGE_SORTED,   /* as llama-quantize: by layer, then by name: kv_a before q_a */
    ASSAY_FORGE_REVERSED,
    ASSAY_FORGE_SHUFFLED, /* by the seed */
    ASSAY_FORGE_ORDER_COUNT
} assay_forge_order;

const char *assay_forge_order_name(assay_forge_order order);

typedef struct assay_forge_options {
    const char *like; /* row of the shapes */
    const char *type; /* name of quant.def; NULL: q8_0 */
    int n_layer;      /* trunk layers; 0: all, and the model's nextn blocks with them */
    int n_nextn;      /* -1: as above */
    int n_vocab;      /* 0: the model's */
    uint64_t seed;
    bool skeleton;
    bool biases; /* llama: every projection has its bias */
    bool kv_b;   /* attn_kv_b in one piece and no *_mla keys, as old files */
    int n_files; /* 0, 1: one */
    assay_forge_order order;
    const char *wrong;    /* a kind of forge_wrong.h in one tensor; NULL: right */
    const char *wrong_at; /* the tensor; NULL: the kind's own choice */
} assay_forge_options;

typedef struct assay_forge_result {
    char path[4096]; /* what has to be opened */
    uint64_t n_bytes;
    int64_t n_tensors;
    char wrong_at[64]; /* the tensor that is wrong; empty: none */
} assay_forge_result;

/*
 * Writes the model. `done` (may be NULL) is called after each tensor. Fails: ASSAY_USAGE (unknown
 * name, a type that cannot be encoded and no skeleton), ASSAY_IO.
 */
typedef void assay_forge_progress_fn(void *user, int64_t done, int64_t total);
assay_status assay_forge_model(assay_forge_result *out, const char *path,
                               const assay_forge_options *options, assay_forge_progress_fn *done,
                               void *user);

/* Hyperparameters as they come out of the forged file (but for `assumed`). */
assay_status assay_forge_hparams(assay_hparams *out, const assay_forge_options *options);

#endif
