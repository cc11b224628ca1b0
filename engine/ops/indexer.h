/*
 * The indexer of sparse attention: which keys a row attends to.
 *
 *   score[t,j] = scale * sum_h w[t,h] * max(0, dot(q[t,h], k[j]))      j <= t, else -inf scale = 1
 * / sqrt(J I) sel(t)     = the min(top_k, seen) largest, larger score first, then smaller position;
 * -1 behind them
 *
 * Products in float32 through BLAS; the sum over heads in float32 in head order. Source:
 * DeepSeek-V3.2, GLM-5 (glm_moe_dsa).
 */
#ifndef ASSAY_ENGINE_OPS_INDEXER_H
#define ASSAY_ENGINE_OPS_INDEXER_H

#include <stdbool.h>

#include "engine/ops/rows.h"

typedef struct assay_indexer {
    int n_head, d_head;
    int n_summed; /* heads in the sum; right: n_head */
    double scale;
    bool no_relu;
    bool steady; /* products whose bits do not depend on the number of keys */
    int64_t top_k;
} assay_indexer;

/* One row's scores over n_seen keys (rows of k); the rest of scores[n_all] is -inf. dots: [n_head,
 * n_seen] scratch. */
void assay_op_index_scores(float *scores, int64_t n_all, float *dots, const float *q,
                           const float *w, assay_rows k, const assay_indexer *how);
/* ids: [n_ids], n_ids >= min(top_k, n_seen); order: [n_seen] scratch. */
void assay_op_index_select(int32_t *ids, int64_t n_ids, int32_t *order, const float *scores,
                           int64_t n_seen, const assay_indexer *how);

#endif
