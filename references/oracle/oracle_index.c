/*
 * The sparse-attention indexer: score[t, j] = scale sum_h w[t, h] relu(q[t, h] . k[j]), j <= t, and
 * the keys with the largest scores. Source: DeepSeek-V3.2's lightning indexer as GLM-5 uses it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "references/oracle/oracle_private.h"

static void add_head(double *out, const double *dots, const double *weights, int64_t n_head,
                     const oracle_call *c)
{
    const assay_knobs *k = c->eval->knobs;
    for (int64_t t = 0; t < c->n_tokens; t++)
        for (int64_t j = 0; j < c->n_keys; j++) {
            double dot = dots[t * c->n_keys + j];
            if (k->index_relu && dot < 0)
                dot = 0;
            out[t * c->n_keys + j] += weights[t * n_head] * dot;
        }
}

assay_status assay_oracle_op_index_scores(double *out, const oracle_call *c)
{
    const assay_oracle_shape *shape = &c->eval->oracle->shape;
    const assay_knobs *k = c->eval->knobs;
    int64_t T = c->n_tokens, S = c->n_keys, I = shape->index_n_head, J = shape->index_d_head;
    double *dots = NULL, *keys = NULL;
    uint8_t *seen = NULL;
    assay_status s;
    ASSAY_GO(assay_alloc(&dots, (size_t)(T * S), sizeof *dots, "indexer scores"));
    ASSAY_GO(assay_alloc(&keys, (size_t)(S * J), sizeof *keys, "indexer keys"));
    ASSAY_GO(assay_alloc(&seen, (size_t)(T * S), 1, "indexer mask"));
    memcpy(keys, c->in[2], (size_t)(S * J) * sizeof *keys);
    assay_oracle_round(keys, S * J, k->round_cache);
    for (int64_t h = 0; h < I; h++) {
        ASSAY_GO(assay_oracle_gemm(dots, S, c->in[0] + h * J, I * J, keys, J, T, S, J, false,
                                   k->round_out != ASSAY_DTYPE_F64));
        add_head(out, dots, c->in[1] + h, I, c);
    }
    ASSAY_GO(assay_oracle_mask(seen, c, NULL));
    for (int64_t i = 0; i < T * S; i++)
        out[i] = seen[i] ? out[i] * k->index_scale : -HUGE_VAL;
out:
    free(dots);
    free(keys);
    free(seen);
    return s;
}

assay_status assay_oracle_op_index_topk(double *out, const oracle_call *c)
{
    int64_t X = c->width, n = c->eval->knobs->index_top_k < X ? c->eval->knobs->index_top_k : X;
    int32_t *ids;
    ASSAY_TRY(assay_alloc(&ids, (size_t)X, sizeof *ids, "selected keys"));
    for (int64_t t = 0; t < c->n_tokens; t++) {
        assay_oracle_top(ids, c->in[0] + t * c->n_keys, c->n_keys, n);
        for (int64_t i = 0; i < X; i++)
            out[t * X + i] = i < n ? ids[i] : -1;
    }
    free(ids);
    return ASSAY_OK;
}
