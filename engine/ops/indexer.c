#include "engine/ops/indexer.h"

#include <math.h>
#include <stdlib.h>

#include "engine/ops/linear.h"

void assay_op_index_scores(float *scores, int64_t n_all, float *dots, const float *q,
                           const float *w, assay_rows k, const assay_indexer *how)
{
    ASSAY_BUG_IF(k.n > n_all || (k.n > 0 && k.width != how->d_head));
    assay_op_linear(assay_rows_of(dots, how->n_head, k.n),
                    assay_rows_of((float *)q, how->n_head, how->d_head), k.at, k.stride, false);
    for (int64_t j = 0; j < k.n; j++) {
        float sum = 0;
        for (int h = 0; h < how->n_summed; h++) {
            float dot = dots[h * k.n + j];
            if (!how->no_relu && dot < 0)
                dot = 0;
            sum += w[h] * dot;
        }
        scores[j] = sum * (float)how->scale;
    }
    for (int64_t j = k.n; j < n_all; j++)
        scores[j] = -INFINITY;
}

/* Larger score first, then smaller position; NaN last. */
static int descending(const void *pa, const void *pb, void *user)
{
    const float *scores = user;
    int32_t a = *(const int32_t *)pa, b = *(const int32_t *)pb;
    float x = scores[a], y = scores[b];
    if (isnan(x) != isnan(y))
        return isnan(x) ? 1 : -1;
    if (x != y && !isnan(x))
        return x > y ? -1 : 1;
    return a < b ? -1 : 1;
}

void assay_op_index_select(int32_t *ids, int64_t n_ids, int32_t *order, const float *scores,
                           int64_t n_seen, const assay_indexer *how)
{
    int64_t n = how->top_k < n_seen ? how->top_k : n_seen;
    ASSAY_BUG_IF(n > n_ids);
    for (int64_t j = 0; j < n_seen; j++)
        order[j] = (int32_t)j;
    qsort_r(order, (size_t)n_seen, sizeof *order, descending, (void *)scores);
    for (int64_t i = 0; i < n_ids; i++)
        ids[i] = i < n ? order[i] : -1;
}
