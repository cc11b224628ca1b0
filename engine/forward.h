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

#include "engine/kvcache.h"
#include "engine/model.h"
#include "engine/ops/norm.h"
#include "engine/ops/rotary.h"
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

struct assay_engine {
    assay_model *model;
    const assay_hparams *hp;
    assay_engine_options options;
    assay_part part;
    assay_kvcache *cache;
    int64_t *n_past; /* [max_sequences] positions in the cache */
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
    float *scratch; /* growing; weights that the model does not keep, gathered rows */
    size_t n_scratch;
    float *kv_b_scratch;
    float *cat; /* growing; q of both parts side by side */
    size_t n_cat;
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
/* Sizes of a point in this step. */
int assay_point_dims(int64_t dims[ASSAY_MAX_DIMS], const assay_engine *e, assay_point point);
bool assay_point_wanted(const assay_engine *e, assay_point point, int layer);
/* Shows `slot` as the value of `point`; read_slot is what the reader will read. */
assay_status assay_point_show(assay_engine *e, assay_point point, int layer, int slot,
                              int written_slot, int read_slot);
/* Reads a point: ledger and rows in one. */
assay_status assay_point_read(assay_rows *rows, assay_engine *e, assay_point point,
                              assay_point reader);
assay_seam_place assay_place_of(const assay_engine *e, int layer);

/* ---- engine/linear.c: products with weights ---- */

assay_slice assay_slice_of(const assay_engine *e, const assay_weight *weight);
/* y = x w^T (+ y if add) with this rank's slice. */
assay_status assay_linear(assay_engine *e, assay_rows y, assay_rows x, const assay_weight *weight,
                          assay_slice slice, bool add);
/* The usual case: the role's slice, and its bias role if the file has one (ASSAY_ROLE_COUNT: none).
 */
assay_status assay_linear_role(assay_engine *e, assay_rows y, assay_rows x, assay_role role,
                               int layer, assay_role bias);
/* A vector (norm weight, bias) as the engine's format has it, whole. Borrowed until the next call
 * without keeping. */
assay_status assay_vector(const float **out, assay_engine *e, assay_role role, int layer);
/* Two vectors that are needed at once. */
assay_status assay_pair_of_vectors(const float **a, const float **b, assay_engine *e,
                                   assay_role role_a, assay_role role_b, int layer);
assay_status assay_scratch(float **out, assay_engine *e, size_t n);

/* ---- forward*.c ---- */

assay_status assay_forward_norm(assay_engine *e, assay_point to, assay_rows x, assay_role weight,
                                double eps, int layer);
assay_status assay_forward_layer(assay_engine *e, int layer);
assay_status assay_forward_attention(assay_engine *e, int layer);
assay_status assay_forward_fused_qa(assay_engine *e, assay_rows x, int layer);
assay_status assay_forward_shared(assay_engine *e, assay_rows x, int layer);
assay_status assay_forward_index(assay_engine *e, int layer);
assay_status assay_forward_ffn(assay_engine *e, int layer);
assay_status assay_forward_moe(assay_engine *e, int layer);
assay_rotary assay_rotary_of(const assay_engine *e, int layer);
assay_status assay_cache_write(assay_engine *e, assay_kv_kind kind, int layer, assay_rows rows);
/* Room for the q of the kernel: [T, n] floats that stay valid until the next call. */
assay_status assay_cat(float **out, assay_engine *e, size_t n);

#endif
