/*
 * Shards: which rows and columns of a weight a rank holds under tensor parallelism.
 *
 * A weight is seen as a matrix [rows, width]: all outer dimensions together, and the innermost one,
 * along which quantized blocks run. A rank holds up to three parts, each a rectangle that repeats:
 *
 *     rows first + i stride ... + n_rows - 1 for i in 0 ... repeat - 1, columns first_col ...
 *
 * By kind of the role (role.def); P ranks, rank p:
 *
 *     COPY            everything
 *     COLUMN          rows p rows/P ...                      HEADS, KV_HEADS   the same by heads
 *     QKV             q, k and v rows, each by its heads
 *     ROW             columns p width/P ...                  ROW_HEADS         the same by heads
 *     EXPERT_COLUMN   the rows of COLUMN inside every expert (gate and up each for itself), or
 * whole experts p E/P ... EXPERT_ROW      the columns of ROW in every expert, or whole experts
 *     VOCAB           rows p ceil(rows/P) ..., the last rank what is left
 *
 * More ranks than key/value heads: P/G ranks hold the same head.
 *
 * Fails: ASSAY_BAD_SHAPE when P does not divide, with the sizes. Whether a border cuts a block is a
 * matter of the tensor's type: assay_shard_cuts_block.
 *
 * Source: the table of vLLM's linear layers and DeepSeek's converter (column = outputs, row =
 * inputs).
 */
#ifndef ASSAY_ENGINE_SHARD_H
#define ASSAY_ENGINE_SHARD_H

#include "engine/role.h"

typedef struct assay_shard_part {
    int64_t first, n_rows, stride, repeat;
    int64_t first_col, n_cols;
} assay_shard_part;

typedef struct assay_shard {
    bool is_whole;   /* every rank has all of it */
    bool is_reduced; /* the product is a partial sum */
    int n_parts;
    assay_shard_part parts[3];
} assay_shard;

/* whole_experts: experts are dealt out whole (expert parallel) instead of cut inside. */
assay_status assay_shard_of(assay_shard *out, const assay_hparams *hp, assay_role role,
                            bool whole_experts, int rank, int n_ranks);

/* Whether a column border of the shard lies inside a block of so many elements. */
bool assay_shard_cuts_block(const assay_shard *shard, int block_elements);

/* Elements that the shard holds. */
int64_t assay_shard_count(const assay_shard *shard);

#endif
