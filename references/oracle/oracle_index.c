/*
 * The sparse-attention indexer: score[t, j] = scale sum_h w[t, h] relu(q[t, h] . k[j]), j <= t, and
 * the keys with the largest scores. Source: DeepSeek-V3.2's lightning indexer as GLM-5 uses it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "references/oracle/oracle_private.h"

/* Sums over heads so far, [T, S] each: the scores, the squares of their terms, and the variance of
 * the terms where they are computed in float32. */
typedef struct sums {
    double *scores, *squares, *variance;
} sums;

/* variance: of the dots; NULL: they are exact. */
static void add_head(sums *to, const double *dots, const double *variance, const double *weights,
                     int64_t n_head, const oracle_call *c)
{
    const assay_knobs *k = c->eval->knobs;
    for (int64_t i = 0; i < c->n_tokens * c->n_keys; i++) {
        double weight = weights[i / c->n_keys * n_head], dot = dots[i];
        if (k->index_relu && dot < 0)
            dot = 0;
        to->scores[i] += weight * dot;
        if (!variance)
            continue;
        to->squares[i] += weight * dot * weight * dot;
        /* the relu silences a head that is negative beyond its noise */
        if (!k->index_relu || dots[i] > 0 || dots[i] * dots[i] < 16 * variance[i])
            to->variance[i] += weight * weight * variance[i];
    }
}

static assay_status sum_heads(sums *to, double *dots, double *variance, const double *keys,
                              const oracle_call *c)
{
    const assay_oracle_shape *shape = &c->eval->oracle->shape;
    int64_t T = c->n_tokens, S = c->n_keys, I = shape->index_n_head, J = shape->index_d_head;
    int n = c->eval->knobs->index_heads;
    oracle_factor factor = {.values = keys, .ld = J};
    for (int64_t h = 0; h < (n > 0 && n < I ? n : I); h++) {
        const double *q = c->in[0] + h * J;
        ASSAY_TRY(assay_oracle_multiply(dots, S, q, I * J, &factor, T, S, J, false));
        if (variance)
            ASSAY_TRY(
                assay_oracle_multiply_variance(variance, dots, S, q, I * J, &factor, T, S, J));
        add_head(to, dots, variance, c->in[1] + h, I, c);
    }
    for (int64_t i = 0; variance && i < T * S; i++)
        to->scores[i] = assay_oracle_off_by(
            to->scores[i],
            to->variance[i] + assay_oracle_sum_variance(to->scores[i], to->squares[i], I));
    return ASSAY_OK;
}

assay_status assay_oracle_op_index_scores(double *out, const oracle_call *c)
{
    const assay_knobs *k = c->eval->knobs;
    int64_t T = c->n_tokens, S = c->n_keys, J = c->eval->oracle->shape.index_d_head;
    bool exact = k->round_out == ASSAY_DTYPE_F64;
    double *dots = NULL, *keys = NULL;
    uint8_t *seen = NULL;
    assay_status s;
    ASSAY_GO(assay_alloc(&dots, (size_t)(T * S), 4 * sizeof *dots, "indexer scores"));
    ASSAY_GO(assay_alloc(&keys, (size_t)(S * J), sizeof *keys, "indexer keys"));
    ASSAY_GO(assay_alloc(&seen, (size_t)(T * S), 1, "indexer mask"));
    memcpy(keys, c->in[2], (size_t)(S * J) * sizeof *keys);
    assay_oracle_through_codec(keys, S, J, k);
    ASSAY_GO(assay_oracle_from_slots(keys, S, J, 0, k->key_wrap, 1));
    sums to = {out, dots + 2 * T * S, dots + 3 * T * S};
    ASSAY_GO(sum_heads(&to, dots, exact ? NULL : dots + T * S, keys, c));
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
    int64_t S = c->n_keys;
    double *scores, sign = c->eval->knobs->choose_lowest ? -1 : 1;
    ASSAY_TRY(assay_alloc(&scores, (size_t)(S + X), sizeof *scores, "selected keys"));
    int32_t *ids = (int32_t *)(scores + S);
    for (int64_t t = 0; t < c->n_tokens; t++) {
        for (int64_t j = 0; j < S; j++) {
            double score = c->in[0][t * S + j];
            scores[j] = score > -HUGE_VAL ? sign * score : score;
        }
        assay_oracle_top(ids, scores, S, n);
        for (int64_t i = 0; i < X; i++)
            out[t * X + i] = i < n ? ids[i] : -1;
    }
    free(scores);
    return ASSAY_OK;
}
