/*
 * Router and experts (model-spec: mixture of experts). Only the experts that some token chose are
 * decoded.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "references/oracle/oracle_private.h"

assay_status assay_oracle_route_bias(const double **bias, oracle_eval *e, int layer)
{
    oracle_matrix w;
    int64_t n;
    assay_knobs knobs = *e->knobs;
    *bias = NULL;
    if (!assay_oracle_find(e->oracle, layer, "exp_probs_b.bias"))
        return ASSAY_OK;
    knobs.round_weight = ASSAY_DTYPE_F64; /* kept in float32 by 16-bit engines */
    ASSAY_TRY(assay_oracle_matrix(&w, e->oracle, layer, "exp_probs_b.bias", 1, 1,
                                  e->oracle->shape.n_expert, &knobs));
    return assay_oracle_rows(bias, &n, e->oracle, &w, 0, 0);
}

assay_status assay_oracle_op_moe_probs(double *out, const oracle_call *c)
{
    for (int64_t t = 0; t < c->n_tokens; t++)
        assay_oracle_gate(out + t * c->width, c->in[0] + t * c->width, c->width,
                          c->eval->knobs->gate,
                          assay_oracle_at_least_f32(c->eval->knobs->round_out));
    return ASSAY_OK;
}

assay_status assay_oracle_op_moe_topk(double *out, const oracle_call *c)
{
    const assay_oracle *o = c->eval->oracle;
    const assay_knobs *k = c->eval->knobs;
    int64_t E = o->shape.n_expert, U = c->width, n = k->n_expert_used < U ? k->n_expert_used : U;
    double sign = k->choose_lowest ? -1 : 1;
    const double *bias;
    ASSAY_TRY(assay_oracle_route_bias(&bias, c->eval, c->layer));
    double *scores;
    ASSAY_TRY(assay_alloc(&scores, (size_t)(E + U), sizeof *scores, "scores of experts"));
    int32_t *ids = (int32_t *)(scores + E);
    for (int64_t t = 0; t < c->n_tokens; t++) {
        assay_oracle_route_scores(scores, c->in[0] + t * E, bias, E, o->shape.n_group, k);
        for (int64_t i = 0; i < E; i++)
            scores[i] = scores[i] > -HUGE_VAL ? sign * scores[i] : scores[i];
        assay_oracle_top(ids, scores, E, n);
        for (int64_t i = 0; i < U; i++)
            out[t * U + i] = i < n ? ids[i] : -1;
    }
    free(scores);
    return ASSAY_OK;
}

assay_status assay_oracle_op_moe_weights(double *out, const oracle_call *c)
{
    int64_t E = c->in_width[0], U = c->width;
    const double *bias;
    ASSAY_TRY(assay_oracle_route_bias(&bias, c->eval, c->layer));
    for (int64_t t = 0; t < c->n_tokens; t++)
        assay_oracle_route_weights(out + t * U, c->in[0] + t * E, bias, c->in[1] + t * U, E, U,
                                   c->eval->knobs);
    return ASSAY_OK;
}

/* The knobs for the weight of this op: where the layer shift is for other parts alone, without. */
static assay_knobs knobs_of(const oracle_call *c)
{
    assay_knobs k = *c->eval->knobs;
    int part = c->point == ASSAY_POINT_MOE_EXPERT_GATE ? 1
               : c->point == ASSAY_POINT_MOE_EXPERT_UP ? 2
                                                       : 4;
    if (k.expert_parts && !(k.expert_parts & part))
        k.weight_layer_shift = 0;
    return k;
}

/* The weight of one expert op: its own tensor, or half of a fused gate and up. */
static assay_status expert_matrix(oracle_matrix *w, int64_t *first_row, const oracle_call *c,
                                  int64_t cols)
{
    const assay_oracle *o = c->eval->oracle;
    int64_t E = o->shape.n_expert, M = o->shape.n_ff_expert;
    assay_knobs knobs = knobs_of(c);
    *first_row = 0;
    if (c->point == ASSAY_POINT_MOE_EXPERT_DOWN)
        return assay_oracle_matrix(w, o, c->layer, "ffn_down_exps.weight", E,
                                   c->width / c->in_width[1], cols, &knobs);
    bool is_up = c->point == ASSAY_POINT_MOE_EXPERT_UP;
    if (assay_oracle_find(o, c->layer, "ffn_gate_up_exps.weight")) {
        *first_row = is_up ? M : 0;
        return assay_oracle_matrix(w, o, c->layer, "ffn_gate_up_exps.weight", E, 2 * M, cols,
                                   &knobs);
    }
    return assay_oracle_matrix(
        w, o, c->layer, is_up ? "ffn_up_exps.weight" : "ffn_gate_exps.weight", E, M, cols, &knobs);
}

/* The expert that is computed for a chosen id; -1: none. */
static int64_t computed_id(double id, const oracle_call *c)
{
    int64_t E = c->eval->oracle->shape.n_expert;
    const assay_knobs *k = c->eval->knobs;
    if (!(id >= 0 && id < (double)E))
        return -1;
    int64_t e = ((int64_t)id + k->expert_shift) % E;
    e = e < 0 ? e + E : e;
    return k->expert_modulo > 0 ? e % k->expert_modulo : e;
}

/* Chosen (token, place) pairs of one expert run together. */
static assay_status run_expert(double *out, double *x, double *y, const oracle_call *c, int64_t id,
                               int64_t cols, int64_t rows)
{
    int64_t U = c->in_width[1], n = 0, first_row;
    bool per_choice = c->point == ASSAY_POINT_MOE_EXPERT_DOWN;
    oracle_matrix w;
    for (int64_t i = 0; i < c->n_tokens * U; i++)
        if (computed_id(c->in[1][i], c) == id)
            memcpy(x + n++ * cols, c->in[0] + (per_choice ? i : i / U) * cols,
                   (size_t)cols * sizeof *x);
    if (n == 0)
        return ASSAY_OK;
    ASSAY_TRY(expert_matrix(&w, &first_row, c, cols));
    oracle_part part = {.slice = id, .row = first_row, .n_rows = rows, .n_cols = cols};
    ASSAY_TRY(assay_oracle_product(y, rows, x, cols, n, c->eval->oracle, &w, part, c->eval->knobs));
    for (int64_t i = 0, at = 0; i < c->n_tokens * U; i++)
        if (computed_id(c->in[1][i], c) == id)
            memcpy(out + i * rows, y + at++ * rows, (size_t)rows * sizeof *out);
    return ASSAY_OK;
}

/* Gate, up or down of the chosen experts: [T, U, ...], zeros where nothing was chosen. */
assay_status assay_oracle_op_expert(double *out, const oracle_call *c)
{
    int64_t U = c->in_width[1], n = c->n_tokens * U, rows = c->width / U;
    int64_t cols = c->point == ASSAY_POINT_MOE_EXPERT_DOWN ? c->in_width[0] / U : c->in_width[0];
    double *x;
    ASSAY_TRY(assay_alloc(&x, (size_t)(n * (cols + rows)), sizeof *x, "rows of one expert"));
    assay_status s = ASSAY_OK;
    for (int64_t e = 0; e < c->eval->oracle->shape.n_expert && s == ASSAY_OK; e++)
        s = run_expert(out, x, x + n * cols, c, e, cols, rows);
    free(x);
    return s;
}

/* routed[t] = sum_u weight[t, u] down[t, u], in the order of the choice */
assay_status assay_oracle_op_routed(double *out, const oracle_call *c)
{
    int64_t U = c->in_width[1], D = c->width;
    assay_dtype round = c->eval->knobs->round_out;
    int power = c->eval->knobs->routed_power;
    for (int64_t t = 0; t < c->n_tokens; t++)
        for (int64_t u = 0; u < U; u++)
            for (int64_t d = 0; d < D; d++) {
                double w = c->in[1][t * U + u], weight = power == 0 ? 1 : power == 2 ? w * w : w;
                double part = weight * c->in[0][(t * U + u) * D + d];
                double sum = out[t * D + d] + assay_oracle_round_one(part, round);
                out[t * D + d] = assay_oracle_round_one(sum, round);
            }
    return ASSAY_OK;
}

assay_status assay_oracle_op_moe_out(double *out, const oracle_call *c)
{
    const assay_knobs *k = c->eval->knobs;
    for (int64_t i = 0; i < c->n; i++)
        out[i] = k->routed_times * c->in[0][i] + (c->in[1] ? k->shared_times * c->in[1][i] : 0);
    return ASSAY_OK;
}
