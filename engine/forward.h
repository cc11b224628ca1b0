/*
 * The inside of an engine, shared by engine.c and forward*.c. Nothing outside engine/ includes
 * this.
 *
 * A forward call (step) goes through the layers; each op begins its point's slot, computes, and
 * shows it (point_done). Row-wise ops work on all rows of the batch, padding too; attention works
 * per sequence (span) over that sequence's cache.
 */
#ifndef ASSAY_ENGINE_FORWARD_H
#define ASSAY_ENGINE_FORWARD_H

#include "engine/draft.h"
#include "engine/kvcache.h"
#include "engine/model.h"
#include "engine/ops/indexer.h"
#include "engine/ops/norm.h"
#include "engine/ops/rotary.h"
#include "engine/ops/router.h"
#include "engine/prefix.h"
#include "engine/slots.h"

/* Rows of one sequence in this step. */
typedef struct assay_span {
    int sequence;
    int64_t n_rows;
    const int64_t *rows; /* indices in the batch, positions ascending by one */
    int64_t first;       /* position of the first row; the cache holds 0 ... first - 1 */
    int64_t n_keys;      /* first + n_rows */
} assay_span;

/* What this rank owns: of heads, widths, experts and the vocabulary. One rank: everything. */
typedef struct assay_part {
    int rank, n_ranks;
    int head, n_head;
    int kv_head, n_head_kv;
    int64_t ff, n_ff, ff_expert, n_ff_expert, ff_shared, n_ff_shared;
    int expert, n_expert;
    int64_t vocab, n_vocab;
} assay_part;

/* Fails where sizes do not divide (engine/shard.h). */
assay_status assay_part_of(assay_part *out, const assay_hparams *hp, bool whole_experts, int rank,
                           int n_ranks);

struct assay_engine {
    assay_model *model;
    const assay_hparams *hp;
    assay_engine_options options;
    assay_part part;
    assay_kvcache *cache;
    int64_t *n_past;        /* [max_sequences] positions in the cache */
    assay_prefix *prefixes; /* NULL: not reused */
    int32_t **history;      /* [max_sequences] tokens in the cache, kept when prefixes are reused */
    assay_slots slots;
    /* the step that runs */
    assay_batch batch;
    const int32_t *sequences; /* [n] */
    int32_t *zero_sequences;
    int32_t *positions; /* [n], padding rows at -1 */
    int64_t *row_order;
    assay_span *spans;
    int n_spans;
    int64_t n_room; /* rows that the four arrays have room for */
    int64_t n_keys_most;
    int64_t step;
    bool is_prefill, is_continuing;
    /* drafts: what is behind the last row (-1: not known), how many last rows are drafts; and after
     * the step how many rows are true, and what follows them */
    int32_t next_token;
    int64_t n_drafted, n_true;
    int32_t drafts[ASSAY_MAX_DRAFTS];
    float *scratch; /* growing; weights that the model does not keep, gathered rows */
    size_t n_scratch;
    float *kv_b_scratch;
    float *cat; /* growing; q of both parts side by side */
    size_t n_cat;
    float *rounded; /* growing; activations in 8-bit blocks */
    size_t n_rounded;
    struct bent *bent;           /* weights that a seam changes */
    struct assay_device *device; /* NULL: the host */
};

/* Which rows and columns of a weight; filled by engine/linear.c from the role's kind. */
typedef struct assay_slice {
    int64_t row, n_rows, column, n_columns;
} assay_slice;

/* ---- engine/show.c: points ---- */

/* Begins the slot of a point whose axes are those of point.def, T first, with this rank's sizes. */
assay_status assay_point_begin(assay_engine *e, assay_point point, int layer);
/* The op has written: rounds to the working format, marks, injects, shows. */
assay_status assay_point_done(assay_engine *e, assay_point point, int layer);
/* The same without rounding (routing and selection stay in float32). */
assay_status assay_point_done_exact(assay_engine *e, assay_point point, int layer);
/* The op has written this rank's part of a sum: shows the part, adds up over ranks, and goes on as
 * done. */
assay_status assay_point_done_reduced(assay_engine *e, assay_point point, int layer);
/* Sizes of a point in this step. */
int assay_point_dims(int64_t dims[ASSAY_MAX_DIMS], const assay_engine *e, assay_point point);
bool assay_point_wanted(const assay_engine *e, assay_point point, int layer);
/* How ranks share a point: a sum that is not taken there, the axis that is cut (-1: none), and how
 * many neighbours hold the same shard. */
bool assay_point_is_partial(const assay_engine *e, assay_point point);
int assay_point_shard_axis(const assay_engine *e, assay_point point);
int assay_point_n_copies(const assay_engine *e, assay_point point);
/* Shows a buffer as the value of a point, with what the op wrote and what the reader will read. */
assay_status assay_point_show(assay_engine *e, assay_point point, int layer,
                              const assay_buffer *shown, const assay_buffer *written,
                              const assay_buffer *read);
/* After the op: what its caller has of it (all, in a healthy run). */
assay_status assay_point_settle(assay_engine *e, assay_point point, int layer);
/* Reads a point: ledger and rows in one. */
assay_status assay_point_read(assay_rows *rows, assay_engine *e, assay_point point,
                              assay_point reader);
assay_seam_place assay_place_of(const assay_engine *e, int layer);

/* ---- engine/linear.c: products with weights ---- */

assay_slice assay_slice_of(const assay_engine *e, const assay_weight *weight);
/* What this rank loads of a weight: its own part. */
assay_part assay_part_of_weight(const assay_engine *e, assay_role role, int layer);
/* y = x w^T (+ y if add) with this rank's slice. */
assay_status assay_linear(assay_engine *e, assay_rows y, assay_rows x, const assay_weight *weight,
                          assay_slice slice, bool add);
/* The usual case: the role's slice, and its bias role if the file has one (ASSAY_ROLE_COUNT: none).
 */
assay_status assay_linear_role(assay_engine *e, assay_rows y, assay_rows x, assay_role role,
                               int layer, assay_role bias);
/* ---- engine/linear_stream.c ---- */

/* Whether products take the weight from its blocks: copies in float32 would be slower than those.
 * Rounded and bent weights are kept. */
bool assay_streams(const assay_engine *e, const assay_weight *weight);
assay_status assay_linear_streaming(assay_engine *e, assay_rows y, assay_rows x,
                                    const assay_weight *weight, assay_slice slice, bool add);
/* Whether the product is one of integers: asked for, of a type that has one, whole blocks. */
bool assay_is_integer(const assay_engine *e, const assay_weight *weight, assay_slice slice);
assay_status assay_linear_integer(assay_engine *e, assay_rows y, assay_rows x,
                                  const assay_weight *weight, assay_slice slice, bool add);
/* x as a product of integers with this weight sees it, in float32; valid until the next product. */
assay_status assay_round_rows(assay_rows *x, assay_engine *e, const assay_weight *weight);
/* Room for rounded rows. */
assay_status assay_rounded(float **out, assay_engine *e, size_t n);

/* y = x w^T and y = x w (engine/ops/linear.h), steady where the engine is to be batch-invariant. */
void assay_product(const assay_engine *e, assay_rows y, assay_rows x, const float *w,
                   int64_t w_stride, bool add);
void assay_product_t(const assay_engine *e, assay_rows y, assay_rows x, const float *w,
                     int64_t w_stride, bool add);
/* A vector (norm weight, bias) as the engine's format has it, whole. Borrowed until the next call
 * without keeping. */
assay_status assay_vector(const float **out, assay_engine *e, assay_role role, int layer);
/* Two vectors that are needed at once. */
assay_status assay_pair_of_vectors(const float **a, const float **b, assay_engine *e,
                                   assay_role role_a, assay_role role_b, int layer);
assay_status assay_scratch(float **out, assay_engine *e, size_t n);

/* Values of a weight as this engine has it: decoded, or bent by a seam. NULL in *out: the model
 * keeps nothing, decode rows. */
assay_status assay_weight_values(const float **out, assay_engine *e, const assay_weight *weight);

/* ---- engine/bend.c: parameters of ops, with the seams consulted ---- */

/* Numbers of norms and rotations, as seam.def counts them. */
enum {
    ASSAY_NORM_IN,
    ASSAY_NORM_Q_A,
    ASSAY_NORM_KV_A,
    ASSAY_NORM_FFN,
    ASSAY_NORM_FINAL,
    ASSAY_NORM_INDEX
};
enum { ASSAY_TURN_Q, ASSAY_TURN_K, ASSAY_TURN_INDEX_Q, ASSAY_TURN_INDEX_K };
/* Kinds of feed-forward. */
enum { ASSAY_FFN_DENSE, ASSAY_FFN_SHARED, ASSAY_FFN_ROUTED };

double assay_bent(const assay_engine *e, assay_seam seam, int layer, double right);
/* The setting of a seam that counts things by ints[0]; NULL: none. */
const assay_seam_setting *assay_bent_of(const assay_engine *e, assay_seam seam, int layer,
                                        int which);
double assay_bent_value_of(const assay_engine *e, assay_seam seam, int layer, int which,
                           double right);
assay_norm assay_norm_of(const assay_engine *e, int layer, int which);
assay_rotary assay_rotary_of(const assay_engine *e, int layer, int which);
assay_routing assay_routing_of(const assay_engine *e, int layer);
assay_indexer assay_indexer_of(const assay_engine *e, int layer);
/* Order of the parts of a merged projection of n parts. */
const int *assay_part_order(const assay_engine *e, int fused, int layer, const int *right, int n);
/* What seams do to the rows of a point inside the op that makes it. */
/* What wrong epilogues do to y, the product of x with the weight of a role. */
assay_status assay_bend_epilogue(assay_engine *e, assay_rows y, assay_rows x, assay_role role,
                                 int layer);
void assay_bend_rows(assay_engine *e, assay_point point, int layer, assay_rows rows);

/* ---- engine/bend_weight.c ---- */

/* True: a seam changes this weight, and *out are its values. */
assay_status assay_bent_weight(bool *bent, const float **out, assay_engine *e,
                               const assay_weight *weight);
/* kv_b from parts of which a seam changes one; scratch as assay_model_kv_b. */
assay_status assay_bent_kv_b_parts(bool *bent, const float **out, assay_engine *e, int layer,
                                   float *scratch);
assay_status assay_bent_kv_b(bool *bent, const float **out, assay_engine *e, int layer,
                             const float *right);
void assay_bent_free(assay_engine *e);

/* ---- forward*.c ---- */

assay_status assay_forward_norm(assay_engine *e, assay_point to, assay_rows x, assay_role weight,
                                int which, int layer);
/* y = down projection of x, in this kind of feed-forward's format. */
assay_status assay_forward_down(assay_engine *e, assay_rows y, assay_rows x, assay_role role,
                                int layer, assay_role bias);
assay_status assay_forward_layer(assay_engine *e, int layer);
assay_status assay_forward_attention(assay_engine *e, int layer);
assay_status assay_forward_fused_qa(assay_engine *e, assay_rows x, int layer);
assay_status assay_forward_shared(assay_engine *e, assay_rows x, int layer);
assay_status assay_forward_index(assay_engine *e, int layer);
assay_status assay_forward_ffn(assay_engine *e, int layer);
assay_status assay_forward_moe(assay_engine *e, int layer);
/* The prediction layers, behind the trunk of this step. */
assay_status assay_forward_drafts(assay_engine *e);
assay_status assay_cache_write(assay_engine *e, assay_kv_kind kind, int layer, assay_rows rows);
/* Keys (or values) 0 ... n_keys - 1 of a span; *own is the caller's to free (NULL: borrowed from
 * the cache). */
assay_status assay_cache_read(const float **rows, int64_t *stride, float **own, assay_engine *e,
                              assay_kv_kind kind, int layer, const assay_span *span);
/* Room for the q of the kernel: [T, n] floats that stay valid until the next call. */
assay_status assay_cat(float **out, assay_engine *e, size_t n);

#endif
