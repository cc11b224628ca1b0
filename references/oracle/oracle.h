/*
 * The oracle: the forward pass in float64, plainly written, apart from the engine (they share
 * engine/base and the GGUF reader).
 *
 * A pass is one sequence: steps of tokens, and a value for every point of every layer of every
 * step, computed when asked for and kept. A captured value may be put in place of the oracle's own:
 * everything computed afterwards starts from it. So
 *
 *     nothing put, everything read           = the reference run
 *     every captured value put, expect each  = the forced pass: each op judged on the inputs it
 * really had
 *
 * Where points were not captured, an expected value is computed through them, from the nearest
 * captured values on: the interval between captured points is judged as a whole. Attention reads
 * keys and values of earlier steps the same way (captured where captured, else computed), so decode
 * steps need nothing special.
 *
 * Path: a pass computes attention expanded or latent; both are equal in exact arithmetic. Points of
 * the other path can still be put and expected (k and v on a latent pass are judged from kv_b); the
 * attention op reads those of its own path.
 *
 * Attention is always judged on q, k and v (or the latents), never on attn.probs, since no kernel
 * reads a dump; only where nothing of q and k was captured but probs were, kernel_out is probs x
 * values.
 *
 * Discrete points: attention follows a put attn.index.topk (cut by the causal mask; -1 ignored) of
 * its layer or, on a layer that shares one, of the nearest layer before it; experts follow put
 * moe.topk and moe.weights. Ids put without weights: weights from the probabilities at these ids.
 * Where at most top_k keys are visible, all are selected.
 *
 * llama: k, v and k_rope have G heads: [T, G, K], [T, G, V], [T, G, R].
 */
#ifndef ASSAY_REFERENCES_ORACLE_ORACLE_H
#define ASSAY_REFERENCES_ORACLE_ORACLE_H

#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/gguf.h"
#include "engine/point.h"
#include "references/oracle/knobs.h"

typedef struct assay_oracle
    assay_oracle; /* a model: shapes, right knobs, weights decoded on demand */
typedef struct assay_pass assay_pass;

/* One letter of point.def's axes -> size; S (keys so far) depends on the step. */
typedef struct assay_oracle_shape {
    char architecture[32];
    int n_layer_nextn; /* layers behind the trunk that predict further tokens: n_layer ... */
    int n_layer, n_vocab, n_embd, n_head, n_head_kv, n_rank_q, n_rank_kv, d_nope, d_rope, d_value;
    int n_ff, n_layer_dense, n_expert, n_expert_used, n_group, n_ff_expert, n_ff_shared;
    int index_n_head, index_d_head;
    bool has_indexer, is_mla;
    bool index_full[512];
} assay_oracle_shape;

/* weight_bytes_max: decoded float64 weights kept at most (0: 2 GiB); least recently used ones go
 * first. */
/* Reads hyperparameters and checks that the tensors are there; decodes nothing. */
assay_status assay_oracle_open(assay_oracle **out, const assay_gguf *file,
                               int64_t weight_bytes_max);
void assay_oracle_close(assay_oracle *oracle);
const assay_oracle_shape *assay_oracle_shape_of(const assay_oracle *oracle);
/* The right knobs of this model, by the file. eps of q_a and kv_a norms as the file says; the
 * caller applies a convention of the producer (profile) to a copy. */
const assay_knobs *assay_oracle_knobs(const assay_oracle *oracle);
/* Whether layer `layer` of this model has the point on the given path ("latent" points do not exist
 * on the expanded path). */
bool assay_oracle_has_point(const assay_oracle *oracle, assay_point point, int layer, bool latent);
/* Axes of a point in this model, letters of point.def (llama: G heads in k, v and k_rope). */
const char *assay_oracle_axes(const assay_oracle *oracle, assay_point point);
/* Decoded weight, row-major float64, dims outermost first (four, missing ones 1); NULL name:
 * ASSAY_MISSING. Borrowed until the next call that decodes a weight. */
assay_status assay_oracle_weight(const double **out, int64_t dims[4], assay_oracle *oracle,
                                 const char *name);

/*
 * Sees which bytes of which weight are about to be decoded: n_bytes from `at` of the tensor's data.
 * Another status than ASSAY_OK refuses them. What was decoded so far is dropped, so that nothing is
 * taken from memory unseen. NULL: nobody looks.
 */
typedef assay_status assay_oracle_watch_fn(void *user, const assay_gguf_tensor_info *tensor,
                                           uint64_t at, uint64_t n_bytes);
void assay_oracle_watch(assay_oracle *oracle, assay_oracle_watch_fn *fn, void *user);

/*
 * Weights that lie elsewhere than in the file's own data: n rows from `row` on, rows of all slices
 * counted through, decoded into out; a tensor of one dimension is one row. The file then says
 * names, number formats, shapes and hyperparameters only, and its data is never read. A watch sees
 * the bytes that the rows would take up in the file. Before any weight is decoded; NULL: the file's
 * own.
 */
typedef assay_status assay_oracle_rows_fn(float *out, void *user,
                                          const assay_gguf_tensor_info *tensor, int64_t row,
                                          int64_t n);
void assay_oracle_take_rows(assay_oracle *oracle, assay_oracle_rows_fn *fn, void *user);
const assay_gguf *assay_oracle_file(const assay_oracle *oracle);
/* Another oracle over the same file and the same rows. */
assay_status assay_oracle_open_again(assay_oracle **out, const assay_oracle *oracle);
/*
 * Whole rows of a tensor as bytes of the file, as a watch sees them: n_bytes from `at` of its data.
 * Rows of another source are encoded in the format that the file says for the tensor, which must
 * hold them exactly: f32, f16 or bf16.
 */
assay_status assay_oracle_bytes(uint8_t *out, const assay_oracle *oracle,
                                const assay_gguf_tensor_info *tensor, uint64_t at,
                                uint64_t n_bytes);

typedef struct assay_pass_options {
    bool latent;              /* path */
    const assay_knobs *knobs; /* copied; NULL: the right ones */
} assay_pass_options;

assay_status assay_pass_new(assay_pass **out, assay_oracle *oracle,
                            const assay_pass_options *options);
void assay_pass_free(assay_pass *pass);

/* Steps continue each other: positions first_position ... first_position + n - 1. Returns the
 * step's index in *step. */
assay_status assay_pass_add_step(int *step, assay_pass *pass, const int32_t *tokens,
                                 int64_t n_tokens, int64_t first_position);
/* Drops every value of the pass that was computed (not put), to bound memory: all layers below
 * `layer`. */
void assay_pass_forget(assay_pass *pass, int layer);

/* Shape of a point in a step: axes of point.def. Fails: ASSAY_MISSING when the model has no such
 * point there. */
assay_status assay_pass_dims(int *n_dims, int64_t dims[ASSAY_MAX_DIMS], assay_pass *pass, int step,
                             assay_point point, int layer);

/* Puts a captured value (copied; layer -1 for global points). Values computed before that may
 * depend on it are dropped, so puts come first and questions after them. Fails: ASSAY_BAD_SHAPE if
 * n is not the point's count. */
assay_status assay_pass_put(assay_pass *pass, int step, assay_point point, int layer,
                            const double *values, int64_t n);
bool assay_pass_is_put(const assay_pass *pass, int step, assay_point point, int layer);
/* Whether a question so far was answered from the value put there. */
bool assay_pass_was_used(const assay_pass *pass, int step, assay_point point, int layer);

/* The value at a point: the one put there, else the computed one. Borrowed until the pass is freed,
 * forgets or is given a further value. */
assay_status assay_pass_value(const double **out, assay_pass *pass, int step, assay_point point,
                              int layer);

/*
 * What the op that makes the point gives on the inputs of this pass, even where a value was put at
 * the point itself. With knobs, the ops of the interval (this op and the uncaptured ones before it)
 * run with these instead; nothing of that shows in assay_pass_value. What was computed for the last
 * few sets of knobs is kept for the next question with the same ones, until a put or a forget. out:
 * the caller's, the point's count.
 */
assay_status assay_pass_expect(double *out, assay_pass *pass, int step, assay_point point,
                               int layer, const assay_knobs *knobs);

/* Points that assay_pass_expect would go through without a captured value, nearest first; returns
 * how many (at most max). */
int assay_pass_interval(assay_point *points, int *layers, int *steps, int max, assay_pass *pass,
                        int step, assay_point point, int layer);

/*
 * How far each row's choice at a discrete point (moe.topk, attn.index.topk) is from the right one,
 * where the choice is the value put there (else the oracle's own: all zero).
 *
 *   gap     [n_rows] best score that was left out - worst score that was chosen, over the ids that
 *           differ from the right choice; 0: a right choice; < 0 never. A forbidden group counts
 * with the distance between the group scores. An id that no key or expert has: HUGE_VAL. n_flips
 * [n_rows] chosen ids that the right choice does not hold (ties at equal score are no flips) scale
 * [n_rows] size of the scores at the boundary: the larger magnitude of the two scores
 *
 * Right choice: on the captured scores' inputs, as assay_pass_expect gives it. Any output may be
 * NULL.
 */
assay_status assay_pass_selection_gap(double *gap, int64_t *n_flips, double *scale,
                                      assay_pass *pass, int step, assay_point point, int layer,
                                      const assay_knobs *knobs);

/* Scores that decide at a discrete point, [T, E] or [T, S]: biased and masked (-inf: not allowed),
 * computed by the pass. Caller's memory. */
assay_status assay_pass_selection_scores(double *out, assay_pass *pass, int step, assay_point point,
                                         int layer, const assay_knobs *knobs);

/* How a reduced sum is split over ranks. */
typedef enum {
    ASSAY_PARTIAL_COLUMNS, /* heads of attn.proj; intermediate channels of a feed-forward */
    ASSAY_PARTIAL_EXPERTS  /* moe.routed: rank r owns experts r E/N ... (r+1) E/N - 1 */
} assay_partial_kind;

/*
 * What rank `rank` of n_ranks contributes to the point before the reduction, on the inputs of this
 * pass: embed (rows of its part of the vocabulary), attn.proj, ffn.out, moe.routed, moe.shared,
 * moe.out. Fails: ASSAY_BAD_SHAPE when n_ranks does not divide the heads, channels or experts;
 * ASSAY_MISSING for a point that is no sum over ranks.
 */
assay_status assay_pass_expect_partial(double *out, assay_pass *pass, int step, assay_point point,
                                       int layer, int rank, int n_ranks, assay_partial_kind kind,
                                       const assay_knobs *knobs);

/* Number of op evaluations so far (one op on one step), to state the cost of a diagnosis. */
int64_t assay_pass_n_ops(const assay_pass *pass);

#endif
