/*
 * Knobs: every choice an op of the oracle makes, as plain numbers. The right values come from the
 * model file; a convention of another engine or a hypothesis about a fault is a copy with one knob
 * turned. The oracle knows no fault classes.
 */
#ifndef ASSAY_REFERENCES_ORACLE_KNOBS_H
#define ASSAY_REFERENCES_ORACLE_KNOBS_H

#include <stdbool.h>

#include "engine/base/number.h"

/* How a norm is computed. */
typedef enum {
    ASSAY_NORM_RIGHT,
    ASSAY_NORM_LEFT_OUT,       /* y = x */
    ASSAY_NORM_SUM,            /* sum of squares for their mean */
    ASSAY_NORM_WEIGHT_PLUS_1,  /* weight + 1 */
    ASSAY_NORM_NO_WEIGHT,      /* (no bias either) */
    ASSAY_NORM_WEIGHT_MINUS_1, /* weight - 1: stored as offset from one, used as it is */
    ASSAY_NORM_CENTERED,       /* rms norms: the mean subtracted first (right for the indexer's) */
    ASSAY_NORM_NOT_CENTERED,   /* indexer's layer norm: mean not subtracted */
    ASSAY_NORM_NO_BIAS         /* indexer's layer norm: bias left out */
} assay_norm_kind;

/* Index of a norm in eps and norm. */
enum {
    ASSAY_NORM_OF_ATTN,    /* attn.in_norm */
    ASSAY_NORM_OF_Q_A,     /* attn.q_a_norm */
    ASSAY_NORM_OF_KV_A,    /* attn.kv_latent */
    ASSAY_NORM_OF_FFN,     /* ffn.in_norm */
    ASSAY_NORM_OF_FINAL,   /* final_norm */
    ASSAY_NORM_OF_INDEX_K, /* attn.index.k_norm */
    ASSAY_N_NORMS
};

/* Which channels of a rotated part of width W make a pair, and where the rotated pair i is written.
 */
typedef enum {
    ASSAY_PAIR_ADJACENT,          /* (2i, 2i+1), in place */
    ASSAY_PAIR_HALF_SPLIT,        /* (i, i + W/2), in place */
    ASSAY_PAIR_SPLIT_TO_ADJACENT, /* read (i, i + W/2), written (2i, 2i+1) */
    ASSAY_PAIR_ADJACENT_TO_SPLIT  /* read (2i, 2i+1), written (i, i + W/2) */
} assay_pairing;

typedef struct assay_rope_knobs {
    assay_pairing pairing;
    bool skip;           /* not rotated at all */
    bool skip_q, skip_k; /* only one side not rotated */
    bool inverse;        /* angle with the other sign */
    double base;
    double factor; /* context extension; 1: none */
    bool yarn;     /* false and factor > 1: linear */
    double orig_context, beta_fast, beta_slow;
    double magnitude; /* on cos and sin */
    int width; /* channels that are rotated (the first ones of the rotary part); right: all */
    int frequency_width; /* divisor in the exponent 2i / width; right: width */
    double position_offset_q, position_offset_k;
    double position_scale;        /* 1 */
    bool use_freqs;               /* llama's rope_freqs.weight, where the file has it */
    assay_dtype frequency_format; /* the frequencies themselves are kept in this format (F64: not
                                     rounded): a model cast to bf16 as a whole has them in bf16 */
} assay_rope_knobs;

typedef enum {
    ASSAY_KV_B_RIGHT,
    ASSAY_KV_B_HALVES_EXCHANGED, /* per head value rows first, then key rows: in the matrix itself
                                  */
    ASSAY_KV_B_KEY_TRANSPOSED,   /* memory of the key half read as its transpose */
    ASSAY_KV_B_VALUE_TRANSPOSED,
    ASSAY_KV_B_OTHER_HEAD,      /* every head's rows are those of head h + kv_b_head_shift */
    ASSAY_KV_B_KEY_RESTRIDED,   /* key half put together as [N, L], that memory read as [L, N] */
    ASSAY_KV_B_SPLIT_EXCHANGED, /* the product is right; its cut into k and v takes values first */
    ASSAY_KV_B_SPLIT_BY_KIND,   /* cut as [all keys | all values] instead of per head */
    ASSAY_KV_B_FIRST_HEAD       /* every head's rows are those of head 0 (a stride of 0) */
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

/* What the feed-forward does to its gate. */
typedef enum {
    ASSAY_ACT_SILU, /* right */
    ASSAY_ACT_GELU_TANH,
    ASSAY_ACT_GELU_ERF,
    ASSAY_ACT_QUICK_GELU, /* x sigmoid(1.702 x) */
    ASSAY_ACT_RELU,
    ASSAY_ACT_RELU_SQUARED,
    ASSAY_ACT_SIGMOID,
    ASSAY_ACT_TANH,
    ASSAY_ACT_IDENTITY, /* left out */
    ASSAY_N_ACTS
} assay_activation;

/* How the bytes of a weight are read. */
typedef enum {
    ASSAY_WEIGHT_RIGHT,
    ASSAY_WEIGHT_TRANSPOSED,        /* memory of a matrix read with the other stride */
    ASSAY_WEIGHT_NIBBLES_EXCHANGED, /* 4-bit codes: high and low half of each byte exchanged */
    ASSAY_WEIGHT_NEIGHBOUR_SCALE,   /* quantized: block i decoded with block i+1's scale */
    ASSAY_WEIGHT_ROWS_REVERSED,
    ASSAY_WEIGHT_NEIGHBOURS_EXCHANGED, /* 4-bit codes: elements 2i and 2i+1 exchanged */
    ASSAY_WEIGHT_OTHER_16_BIT,         /* f16 read as bf16 and bf16 as f16 */
    ASSAY_WEIGHT_SCALE_BEFORE,         /* quantized: block i decoded with block i-1's scale */
    ASSAY_WEIGHT_SCALE_IN_ROW,  /* the next block's, the last one of a row has the row's first */
    ASSAY_WEIGHT_SCALE_NEXT_ROW /* that of the same block of the next row */
} assay_weight_view;

/* How attention over two parts of the keys is put together. */
typedef enum {
    ASSAY_MERGE_RIGHT,      /* weights exp(lse_part - lse) */
    ASSAY_MERGE_MEAN,       /* the mean of both */
    ASSAY_MERGE_SUM,        /* both added */
    ASSAY_MERGE_LSE_SIGN,   /* weights exp(-lse_part) */
    ASSAY_MERGE_LSE_BASE_2, /* weights 2^lse_part of natural lse */
    ASSAY_MERGE_FIRST_ONLY,
    ASSAY_MERGE_LAST_ONLY,
    ASSAY_MERGE_EMPTY_COUNTS, /* a part without a key enters with log-sum-exp 0 */
    ASSAY_MERGE_EMPTY_REPEATS /* ... with output and log-sum-exp of the part before it */
} assay_merge;

/* Which parts there are, and how they are put together. */
typedef enum {
    ASSAY_PARTS_TWO,   /* keys 0 ... merge_at - 1 and the rest */
    ASSAY_PARTS_CHAIN, /* merge_at keys each, one after the other into a running result */
    ASSAY_PARTS_ALL    /* merge_at keys each, all at once */
} assay_parts;

/* Stored types of a cache that keep a scale: blocks of 32 with a float16 one, or a row with one. */
typedef enum { ASSAY_STORED_PLAIN, ASSAY_STORED_Q8_0, ASSAY_STORED_F8E4M3 } assay_stored_type;

/* What a reader of the cache makes of its bytes. */
typedef enum {
    ASSAY_MISREAD_NOTHING,
    ASSAY_MISREAD_BF16_AS_F16,
    ASSAY_MISREAD_F16_AS_BF16,
    ASSAY_MISREAD_SCALE_ONE,        /* codes without their scale */
    ASSAY_MISREAD_SCALE_POWER_OF_2, /* the scale's exponent alone */
    ASSAY_MISREAD_SCALE_ZERO
} assay_misread;

typedef struct assay_knobs {
    /* norms: 0 in_norm, 1 q_a, 2 kv_a, 3 ffn.in_norm, 4 final, 5 indexer's layer norm */
    double eps[ASSAY_N_NORMS];
    assay_norm_kind norm[ASSAY_N_NORMS];
    /* rotary: main attention and indexer */
    assay_rope_knobs rope, index_rope;
    bool index_rope_last; /* rotated channels last, as in the main attention */
    /* attention */
    double softmax_scale;
    double logit_cap;        /* c tanh(x / c); 0: none */
    int mask_shift;          /* key j is seen when j <= t + shift; right: 0 */
    bool mask_none;          /* every key of the step is seen */
    int window;              /* only the last n keys; 0: all */
    int key_first;           /* keys before this one are not seen; 0 */
    int key_limit;           /* keys from this one on are not seen; 0: no limit */
    int key_row_shift;       /* slot j of the cache holds key j - shift (no such key: zeros); 0 */
    int value_row_shift;     /* the same for values; 0 */
    int key_wrap;            /* key and value j are those of j mod n; 0: as they are */
    double key_extra;        /* keys of zeros that every row sees besides; 0 */
    assay_stored_type codec; /* how the cache stores keys and values */
    assay_misread misread;
    double key_scale, value_scale; /* what attention reads = stored x scale; 1 */
    bool kv_heads_modulo;          /* llama: head h uses h mod G for h / (H / G) */
    assay_kv_b_view kv_b;
    int kv_b_head_shift;   /* mod H */
    bool follow_selection; /* attention uses captured selections where there are any (right), else
                              its own */
    bool dense;            /* ignore the selection */
    int merge_at;          /* keys 0 ... n-1 and the rest attended apart, then merged; 0: whole */
    assay_merge merge;
    assay_parts merge_parts;
    /* indexer */
    bool index_relu;
    int index_heads; /* only the first n heads are summed; 0: all */
    double index_scale;
    int index_top_k;
    /* router and experts */
    assay_gate gate;
    assay_groups groups;
    int n_group_used;
    bool group_mask_zero; /* forbidden groups at 0 instead of -inf */
    assay_bias_use bias;
    int bias_first, bias_count; /* of the selection's bias only so many entries, from the first on,
                                   moved to the front; count 0: all in place */
    bool weights_norm;
    double weights_scale;
    int n_expert_used;
    int expert_shift;    /* expert id + shift mod E is the one computed */
    int expert_modulo;   /* expert id mod n is the one computed (local id for global); 0: none */
    bool follow_routing; /* experts follow captured ids and weights where there are any (right) */
    int routed_power;    /* how often the router's weight is applied; 1 */
    bool choose_lowest;  /* the lowest scores chosen, of experts and of keys */
    double routed_times, shared_times; /* 1 */
    bool gate_up_exchanged;            /* silu(up) * gate */
    bool gate_up_riffle;               /* columns 2i and 2i + 1 of gate and up for i and n + i */
    bool up_left_out;                  /* the gate alone goes on */
    assay_activation activation;
    double embed_scale, logits_scale; /* 1 */
    double final_cap;                 /* 0: none */
    bool head_tied;                   /* output head = embedding; right: as the file */
    double attn_times, ffn_times;     /* what a residual add takes; 1 */
    double stream_times;              /* the stream in the residual add behind attention; 1 */
    bool residual_after_norm;         /* attn_resid = in_norm + proj: the stream was overwritten */
    /* multi-token prediction layers */
    bool nextn_concat_exchanged; /* hidden half first, then the embedding's */
    bool nextn_hidden_raw;       /* hidden state before the final norm */
    bool nextn_embed_lost;       /* the embedding at position 0 is zero */
    /* products */
    int read_beyond; /* elements behind the end of both rows (the next rows' first ones) enter too
                      */
    int tile_rest;   /* rows of an incomplete tile of n rows behind complete ones use half of the
                        inputs */
    /* weights */
    int weight_layer_shift; /* layer n computes with layer n + shift's weights */
    int expert_parts;       /* of experts, only gate (1), up (2), down (4) do so; 0: all weights */
    assay_weight_view weight_view;
    /*
     * Numbers: formats that outputs and weights of each op are rounded to; F64: not rounded.
     *
     * With round_out, the op is computed as the noisiest healthy engine does: products summed in
     * float32; with a 16-bit format also attention scores, attention probabilities before the
     * product with the values, the normalised vector before its weight, rotary factors and their
     * products, silu before the product with up, and each expert's part of the sum are rounded. The
     * router (logits, probabilities, weights) and the selection's scores stay in float32.
     */
    assay_dtype round_out, round_weight;
    assay_dtype round_probs; /* attention probabilities before their product with the values, where
                                round_out leaves them; F64: not rounded */
    assay_dtype round_cache; /* what attention reads from the cache (keys, values, latents, index
                                keys); F64: not rounded */
    bool activations_q8;     /* inputs of products rounded to the 8-bit partner of the weight's type
                                (model-spec 2.5) */
} assay_knobs;

#endif
