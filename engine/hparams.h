/*
 * Hyperparameters of one model, as the engine uses them, read from GGUF metadata by
 * engine/hparams.c.
 *
 * A key that the architecture needs and the file lacks is an assumption: it gets a row in `assumed`
 * (key, value taken, why, what other engines take) and is never filled in silently.
 */
#ifndef ASSAY_ENGINE_HPARAMS_H
#define ASSAY_ENGINE_HPARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/gguf.h"

#define ASSAY_MAX_LAYERS 512
#define ASSAY_MAX_ASSUMED 32

typedef enum { ASSAY_GATING_SOFTMAX = 1, ASSAY_GATING_SIGMOID = 2 } assay_gating;
typedef enum { ASSAY_GROUP_MAX, ASSAY_GROUP_TOP2_SUM } assay_group_rule;

typedef struct assay_assumed {
    char key[96];
    char value[64];
    char why[256]; /* reason, and what other engines assume */
} assay_assumed;

typedef struct assay_hparams {
    char architecture[32];
    bool is_mla;      /* false: llama */
    bool has_indexer; /* glm-dsa */
    int n_layer;      /* trunk */
    int n_layer_nextn;
    int n_vocab, n_embd, n_ff, n_context;
    int n_head, n_head_kv;
    int d_head;                  /* llama: width of a head */
    int d_nope, d_rope, d_value; /* N, R, V */
    int n_rank_q;                /* q_lora; 0: none */
    int n_rank_kv;               /* kv_lora */
    double eps_norm;             /* layer norms of the stream and the final norm */
    double eps_q_a, eps_kv_a;    /* latent norms: eps_norm unless a convention says otherwise */
    double eps_index;            /* layer norm of the indexer's keys */
    int n_layer_dense;           /* leading dense layers */
    int n_expert, n_expert_used, n_expert_shared, n_group, n_group_used, n_ff_expert;
    assay_gating gating;
    assay_group_rule group_rule;
    bool weights_norm;
    double weights_scale; /* 1: none */
    double rope_base;
    double rope_factor; /* 1: none */
    bool rope_yarn;
    double yarn_orig_context, yarn_beta_fast, yarn_beta_slow, yarn_log_multiplier, rope_attn_factor;
    double rope_magnitude; /* on cos and sin */
    double softmax_scale;
    int index_n_head, index_d_head, index_top_k;
    bool index_rope_half_split;        /* deepseek32; else adjacent pairs */
    bool index_full[ASSAY_MAX_LAYERS]; /* false: the layer reuses the last full layer's selection */
    int n_assumed;
    assay_assumed assumed[ASSAY_MAX_ASSUMED];
} assay_hparams;

assay_status assay_hparams_read(assay_hparams *out, const assay_gguf *file);

#endif
