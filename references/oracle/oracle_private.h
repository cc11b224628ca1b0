/*
 * Inside of the oracle: the model, weights as float64 chunks, and an evaluation of ops.
 */
#ifndef ASSAY_REFERENCES_ORACLE_ORACLE_PRIVATE_H
#define ASSAY_REFERENCES_ORACLE_ORACLE_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "references/oracle/oracle.h"
#include "references/oracle/oracle_ops.h"
#include "references/oracle/oracle_quant.h"

typedef struct oracle_chunk oracle_chunk;

struct assay_oracle {
    const assay_gguf *file;
    assay_oracle_shape shape;
    assay_knobs right;
    bool has_q_lora;
    int n_group;
    int64_t weight_bytes_max, weight_bytes;
    assay_oracle_watch_fn *watch; /* NULL: none */
    void *watch_user;
    assay_oracle_rows_fn *rows; /* NULL: the file's data */
    void *rows_user;
    oracle_chunk *chunks[1024]; /* hash table, chained */
    uint64_t tick;
};

/* oracle_shape.c: hyperparameters of the file. */
assay_status assay_oracle_read_shape(assay_oracle *oracle);
/* NULL: absent. layer -1: global name. */
const assay_gguf_tensor_info *assay_oracle_find(const assay_oracle *oracle, int layer,
                                                const char *name);

/* A weight as the ops see it: slices of [rows, cols], row-major. */
typedef struct oracle_matrix {
    const assay_gguf_tensor_info *info;
    const oracle_quant *quant;
    int64_t slices, rows, cols;
    assay_weight_view view;
    assay_dtype round;
    bool whole; /* never in parts */
} oracle_matrix;

/*
 * Finds a weight of a layer (-1: global) under the knobs (layer shift, view, rounding) and checks
 * its shape. Fails: ASSAY_MISSING, ASSAY_BAD_SHAPE, ASSAY_UNSUPPORTED (format).
 */
assay_status assay_oracle_matrix(oracle_matrix *out, const assay_oracle *oracle, int layer,
                                 const char *name, int64_t slices, int64_t rows, int64_t cols,
                                 const assay_knobs *knobs);

/*
 * Decoded rows of one slice, as many as lie together from `row` on: *n_rows of them. Borrowed until
 * four further chunks were asked for.
 */
assay_status assay_oracle_rows(const double **out, int64_t *n_rows, assay_oracle *oracle,
                               const oracle_matrix *w, int64_t slice, int64_t row);
/* One row, decoded into the caller's memory and not kept (embedding). */
assay_status assay_oracle_row(double *out, const assay_oracle *oracle, const oracle_matrix *w,
                              int64_t slice, int64_t row);
void assay_oracle_free_chunks(assay_oracle *oracle);

/* The second factor of a product. */
typedef struct oracle_factor {
    const double *values;
    int64_t ld;
    bool transposed; /* [k, n] instead of [n, k] */
} oracle_factor;

/* y[m, n] = x[m, k] w^T; f32: the sums are off by what float32 makes of them (oracle_ops.h). */
assay_status assay_oracle_multiply(double *y, int64_t ldy, const double *x, int64_t ldx,
                                   const oracle_factor *w, int64_t m, int64_t n, int64_t k,
                                   bool f32);
/* variance[m, n] of those sums in float32, y as they are exactly. */
assay_status assay_oracle_multiply_variance(double *variance, const double *y, int64_t ldy,
                                            const double *x, int64_t ldx, const oracle_factor *w,
                                            int64_t m, int64_t n, int64_t k);
/* y[m, n] = x[m, k] w^T with w [n, k]; transposed: w is [k, n] and y = x w. f32: as above. */
assay_status assay_oracle_gemm(double *y, int64_t ldy, const double *x, int64_t ldx,
                               const double *w, int64_t ldw, int64_t m, int64_t n, int64_t k,
                               bool transposed, bool f32);

/* ---- oracle_attention_noise.c: what float32 does to one head of attention ---- */

/* variance[n]: of the dot products of one row; becomes p^2 times the relative variance of each
 * key's part. Returns the sum. */
double assay_oracle_key_variance(double *variance, const double *scores, const double *p, int64_t n,
                                 double scale);
/* The log-sum-exp one standard deviation off; most: the largest score, all: as returned. */
double assay_oracle_lse_off(double lse, double most, double all, const double *p, int64_t n);
/* Probabilities of one row, each one standard deviation off. */
void assay_oracle_probs_off(double *p, const double *variance, int64_t n);
/* o[T, w] = sum over keys of p[T, S] v[S, w], each one standard deviation off. */
assay_status assay_oracle_values_off(double *o, int64_t ld_o, const double *p,
                                     const double *variance, const double *v, int64_t ld_v,
                                     int64_t T, int64_t S, int64_t w);

/* Rows `row` ... row + n_rows - 1 and columns `col` ... of a slice. */
typedef struct oracle_part {
    int64_t slice, row, n_rows, col, n_cols;
} oracle_part;

/* y[m, n_rows] = x[m, n_cols] W^T, activations rounded where the knobs ask for it; x is left alone.
 */
assay_status assay_oracle_product(double *y, int64_t ldy, const double *x, int64_t ldx, int64_t m,
                                  assay_oracle *oracle, const oracle_matrix *w, oracle_part part,
                                  const assay_knobs *knobs);

/* Values of one pass or of one call, by step, layer and point. */
typedef struct oracle_store {
    int n_steps;
    double ***steps; /* [n_steps][(n_layers + 1) * ASSAY_POINT_COUNT] */
} oracle_store;

/* Slots of one step; where a point lies in them. */
size_t assay_oracle_n_slots(const assay_oracle *oracle);
size_t assay_oracle_slot_of(assay_point point, int layer);

/* oracle.c. The slot's address, made when needed; NULL: out of memory. */
double **assay_oracle_store_slot(oracle_store *store, const assay_oracle *oracle, int step,
                                 assay_point point, int layer);
double *assay_oracle_store_get(const oracle_store *store, int step, assay_point point, int layer);
/* Frees values of layers below `layer` and global ones; INT_MAX: all. */
void assay_oracle_store_drop(oracle_store *store, const assay_oracle *oracle, int layer);
/* Frees what may have been computed from a value that is now replaced. */
void assay_oracle_store_drop_after(oracle_store *store, const assay_oracle *oracle, int step,
                                   assay_point point, int layer);
void assay_oracle_store_clear(oracle_store *store, const assay_oracle *oracle);

typedef struct oracle_step {
    int64_t n_tokens, first_position,
        first_key; /* first_key: index of its first token in the pass */
    int32_t *tokens;
    bool *used; /* by slot: a put value that a question went through */
} oracle_step;

/* Values computed under other knobs than the pass's own, kept for the next question with the same
 * ones. */
typedef struct oracle_variant {
    assay_knobs knobs;
    oracle_store store;
    uint64_t used; /* 0: free */
} oracle_variant;

#define ORACLE_N_VARIANTS 4

struct assay_pass {
    assay_oracle *oracle;
    assay_knobs knobs;
    bool latent;
    int n_steps;
    oracle_step *steps;
    oracle_store put, memo;
    oracle_variant variants[ORACLE_N_VARIANTS];
    uint64_t tick;
    int64_t n_ops;
};

/* One evaluation: which knobs, and where computed values are kept. */
typedef struct oracle_eval {
    assay_pass *pass;
    assay_oracle *oracle;
    const assay_knobs *knobs;
    oracle_store *memo;
} oracle_eval;

#define ORACLE_MAX_INPUTS 5

/* One op on one step: its inputs are there. */
typedef struct oracle_call {
    oracle_eval *eval;
    assay_point point;
    int step, layer;
    int64_t n_tokens, n_keys; /* T, S */
    const oracle_step *at;
    const double *in[ORACLE_MAX_INPUTS];
    int64_t in_width[ORACLE_MAX_INPUTS]; /* values per token */
    int64_t n, width;                    /* of the output: all, per token */
    bool selection_is_ids;               /* the selection input holds ids (else scores) */
    int64_t n_selected;                  /* ids per row of the selection input */
} oracle_call;

typedef assay_status oracle_compute(double *out, const oracle_call *call);

/* How an input is found from the op's own place. */
typedef enum {
    FROM_NOWHERE,
    FROM_HERE,   /* same layer, same step */
    FROM_BEFORE, /* output of the layer before, or the embedding */
    FROM_STREAM, /* the same, as the residual add takes it (knob residual_after_norm) */
    FROM_CACHE,  /* same layer, all steps so far, rows behind each other: [S, ...] */
    FROM_LAST,   /* the last layer of the trunk */
    FROM_HIDDEN, /* final_norm, or what the prediction layer before left (knob nextn_hidden_raw) */
    FROM_SELECTION, /* what limits the keys: a put topk, else scores, else nothing (NULL) */
    FROM_SOURCE     /* the full layer whose selection this layer uses */
} oracle_from;

typedef struct oracle_input {
    oracle_from from;
    assay_point point;
} oracle_input;

typedef struct oracle_place {
    const assay_pass *pass; /* NULL: as the model alone says */
    const assay_oracle *oracle;
    int step, layer;
    bool latent;
} oracle_place;

typedef struct oracle_op {
    assay_point point;
    bool (*when)(const oracle_place *place);
    oracle_compute *compute;
    oracle_input inputs[ORACLE_MAX_INPUTS];
} oracle_op;

/* oracle_graph.c: the row that makes the point at this place; NULL: this model has no such point
 * there. */
const oracle_op *assay_oracle_op_at(const oracle_place *place, assay_point point);
/* The full layer whose selection `layer` uses. */
int assay_oracle_source_layer(const assay_oracle *oracle, int layer);

/* Width of a head's key: nope and rotary part. */
static inline int64_t oracle_key_width(const assay_oracle *o)
{
    return o->shape.d_nope + o->shape.d_rope;
}

/* Key half [N, L] and value half [V, L] of one head of kv_b under the knobs, from either kind of
 * file; either output may be NULL. */
assay_status assay_oracle_kv_b_head(double *key, double *value, const oracle_call *call, int head);

/* Marks the keys that a row may see, [T, S]; selection as the call's input `in` has it (NULL: all).
 */
assay_status assay_oracle_mask(uint8_t *seen, const oracle_call *call, const double *selection);

/* Format of a 16-bit computation's intermediate values; F64 when it is wider. */
assay_dtype assay_oracle_half(const assay_knobs *knobs);

/* The row of a one-row weight (norms, biases); layer -1: global. */
assay_status assay_oracle_vector(const double **out, oracle_eval *eval, int layer, const char *name,
                                 int64_t n);

/* Selection bias of a layer's router; *bias NULL where the file has none. */
assay_status assay_oracle_route_bias(const double **bias, oracle_eval *eval, int layer);

/* oracle_cache.c: rows of the cache in its stored format, as a reader takes them; then from the
 * slots that are read, scaled. */
void assay_oracle_through_codec(double *rows, int64_t n, int64_t width, const assay_knobs *knobs);
assay_status assay_oracle_from_slots(double *rows, int64_t n, int64_t width, int shift, int wrap,
                                     double scale);

/* oracle_pass.c */
assay_status assay_oracle_value(const double **out, oracle_eval *eval, int step, assay_point point,
                                int layer);
const double *assay_oracle_put_at(const assay_pass *pass, int step, assay_point point, int layer);
int64_t assay_oracle_count(const assay_pass *pass, int step, assay_point point, int layer);

/* An evaluation with these knobs (NULL: the pass's own), with what is kept of them. */
oracle_eval assay_oracle_eval(assay_pass *pass, const assay_knobs *knobs);

/* Is the layer dense, by the file. */
bool assay_oracle_is_dense(const assay_oracle *oracle, int layer);

/* Ops. */
oracle_compute assay_oracle_op_embed, assay_oracle_op_nextn_in, assay_oracle_op_norm,
    assay_oracle_op_index_norm, assay_oracle_op_project, assay_oracle_op_q_rope,
    assay_oracle_op_k_rope, assay_oracle_op_kv_b, assay_oracle_op_k, assay_oracle_op_v,
    assay_oracle_op_q_latent, assay_oracle_op_index_rope, assay_oracle_op_index_scores,
    assay_oracle_op_index_topk, assay_oracle_op_copy, assay_oracle_op_attention,
    assay_oracle_op_probs_values, assay_oracle_op_values_out, assay_oracle_op_residual,
    assay_oracle_op_act, assay_oracle_op_moe_probs, assay_oracle_op_moe_topk,
    assay_oracle_op_moe_weights, assay_oracle_op_expert, assay_oracle_op_routed,
    assay_oracle_op_moe_out, assay_oracle_op_logits;

#endif
