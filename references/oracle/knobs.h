/*
 * Knobs: every choice an op of the oracle makes, as plain numbers. The right values come from the
 * model file; a convention of another engine or a hypothesis about a fault is a copy with one knob
 * turned. The oracle knows no fault classes.
 */
#ifndef ASSAY_REFERENCES_ORACLE_KNOBS_H
#define ASSAY_REFERENCES_ORACLE_KNOBS_H

#include <stdbool.h>

#include "engine/base/number.h"

typedef enum { /* how a norm is computed */
               ASSAY_NORM_RIGHT,
               ASSAY_NORM_LEFT_OUT,      /* y = x */
               ASSAY_NORM_SUM,           /* sum of squares for their mean */
               ASSAY_NORM_WEIGHT_PLUS_1, /* weight + 1 */
               ASSAY_NORM_NO_WEIGHT,
               ASSAY_NORM_WEIGHT_MINUS_1 /* stored as offset from one, used as it is: weight - 1 */
} assay_norm_kind;

typedef enum { ASSAY_PAIR_ADJACENT, ASSAY_PAIR_HALF_SPLIT } assay_pairing;

typedef struct assay_rope_knobs {
    assay_pairing pairing;
    bool skip;    /* not rotated at all */
    bool inverse; /* angle with the other sign */
    double base;
    double factor; /* context extension; 1: none */
    bool yarn;     /* false and factor > 1: linear */
    double orig_context, beta_fast, beta_slow;
    double magnitude;    /* on cos and sin */
    int width;           /* channels that are rotated; right: the whole rotary part */
    int frequency_width; /* divisor in the exponent 2i / width; right: width */
    double position_offset_q, position_offset_k;
    double position_scale; /* 1 */
    bool use_freqs;        /* llama's rope_freqs.weight, where the file has it */
} assay_rope_knobs;

typedef enum {
    ASSAY_KV_B_RIGHT,
    ASSAY_KV_B_HALVES_EXCHANGED,
    ASSAY_KV_B_KEY_TRANSPOSED,
    ASSAY_KV_B_VALUE_TRANSPOSED
} assay_kv_b_view;
typedef enum {
    ASSAY_BIAS_SELECTION_ONLY,
    ASSAY_BIAS_LEFT_OUT,
    ASSAY_BIAS_IN_WEIGHTS
} assay_bias_use;
typedef enum {
    ASSAY_GROUPS_NONE,
    ASSAY_GROUPS_MAX,
    ASSAY_GROUPS_TOP2_SUM,
    ASSAY_GROUPS_SUM_ALL
} assay_groups;
typedef enum { ASSAY_GATE_SOFTMAX, ASSAY_GATE_SIGMOID, ASSAY_GATE_SOFTMAX_SELECTED } assay_gate;

/* How the bytes of a weight are read. */
typedef enum {
    ASSAY_WEIGHT_RIGHT,
    ASSAY_WEIGHT_TRANSPOSED,        /* where square, or read with the other stride */
    ASSAY_WEIGHT_NIBBLES_EXCHANGED, /* quantized: neighbours 2i and 2i+1 of a byte exchanged */
    ASSAY_WEIGHT_NEIGHBOUR_SCALE,   /* quantized: block i decoded with block i+1's scale */
    ASSAY_WEIGHT_ROWS_REVERSED
} assay_weight_view;

typedef struct assay_knobs {
    /* norms: 0 in_norm, 1 q_a, 2 kv_a, 3 ffn.in_norm, 4 final, 5 indexer's layer norm */
    double eps[6];
    assay_norm_kind norm[6];
    /* rotary: main attention and indexer */
    assay_rope_knobs rope, index_rope;
    bool index_rope_last; /* rotated channels last, as in the main attention */
    /* attention */
    double softmax_scale;
    double logit_cap;     /* c tanh(x / c); 0: none */
    int mask_shift;       /* key j is seen when j <= t + shift; right: 0 */
    bool mask_none;       /* every key of the step is seen */
    int window;           /* only the last n keys; 0: all */
    bool kv_heads_modulo; /* llama: head h uses h mod G for h / (H / G) */
    assay_kv_b_view kv_b;
    bool follow_selection; /* attention uses captured selections where there are any (right), else
                              its own */
    bool dense;            /* ignore the selection */
    /* indexer */
    bool index_relu;
    double index_scale;
    int index_top_k;
    /* router and experts */
    assay_gate gate;
    assay_groups groups;
    int n_group_used;
    bool group_mask_zero; /* forbidden groups at 0 instead of -inf */
    assay_bias_use bias;
    bool weights_norm;
    double weights_scale;
    int n_expert_used;
    int expert_shift;    /* expert id + shift mod E is the one computed */
    bool follow_routing; /* experts follow captured ids and weights where there are any (right) */
    double routed_times, shared_times; /* 1 */
    bool gate_up_exchanged;            /* silu(up) * gate */
    bool gate_gelu;                    /* another activation */
    double embed_scale, logits_scale;  /* 1 */
    double final_cap;                  /* 0: none */
    bool head_tied;                    /* output head = embedding; right: as the file */
    double attn_times, ffn_times;      /* what a residual add takes; 1 */
    /* weights */
    int weight_layer_shift; /* layer n computes with layer n + shift's weights */
    assay_weight_view weight_view;
    /* numbers: formats that outputs, weights and inputs of each op are rounded to; F64: not rounded
     */
    assay_dtype round_out, round_weight;
    bool activations_q8; /* inputs of products rounded to the 8-bit partner of the weight's type
                            (model-spec 2.5) */
} assay_knobs;

#endif
