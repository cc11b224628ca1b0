/*
 * What one rank contributes to a sum over ranks.
 */
#include <stdlib.h>
#include <string.h>

#include "references/oracle/oracle_private.h"

/* A point that is a sum over ranks: its input's columns are cut, heads or channels whole. */
typedef struct summed {
    assay_point point, input;
    const char *weight;
} summed;

static const summed sums[] = {
    {ASSAY_POINT_PROJ, ASSAY_POINT_OUT_ATTN, "attn_output.weight"},
    {ASSAY_POINT_FFN_OUT, ASSAY_POINT_FFN_ACT, "ffn_down.weight"},
    {ASSAY_POINT_SHARED, ASSAY_POINT_SHARED_ACT, "ffn_down_shexp.weight"},
};

typedef struct rank_share {
    int rank, n_ranks;
    assay_partial_kind kind;
} rank_share;

static assay_status cut(int64_t *first, int64_t *n, int64_t total, rank_share share,
                        const char *what)
{
    *first = *n = 0;
    if (share.n_ranks <= 0 || share.rank < 0 || share.rank >= share.n_ranks ||
        total % share.n_ranks)
        return assay_fail(ASSAY_BAD_SHAPE, "rank %d of %d: %lld %s do not divide", share.rank,
                          share.n_ranks, (long long)total, what);
    *n = total / share.n_ranks;
    *first = share.rank * *n;
    return ASSAY_OK;
}

static assay_status partial_columns(double *out, oracle_eval *e, int step, int layer,
                                    const summed *sum, rank_share share)
{
    const assay_oracle_shape *shape = &e->oracle->shape;
    int64_t T = e->pass->steps[step].n_tokens, D = shape->n_embd, first, n;
    int64_t cols = assay_oracle_count(e->pass, step, sum->input, layer) / T;
    int64_t units = sum->point == ASSAY_POINT_PROJ ? shape->n_head : cols;
    const double *x;
    oracle_matrix w;
    ASSAY_TRY(cut(&first, &n, units, share, sum->point == ASSAY_POINT_PROJ ? "heads" : "channels"));
    ASSAY_TRY(assay_oracle_value(&x, e, step, sum->input, layer));
    ASSAY_TRY(assay_oracle_matrix(&w, e->oracle, layer, sum->weight, 1, D, cols, e->knobs));
    oracle_part part = {.n_rows = D, .col = first * (cols / units), .n_cols = n * (cols / units)};
    ASSAY_TRY(assay_oracle_product(out, D, x + part.col, cols, T, e->oracle, &w, part, e->knobs));
    assay_oracle_round(out, T * D, e->knobs->round_out);
    return ASSAY_OK;
}

/* Vocabulary rows of this rank; other tokens give zeros. */
static assay_status partial_embed(double *out, oracle_eval *e, int step, rank_share share)
{
    const oracle_step *at = &e->pass->steps[step];
    int64_t D = e->oracle->shape.n_embd, first, n;
    const double *x;
    ASSAY_TRY(cut(&first, &n, e->oracle->shape.n_vocab, share, "rows of the vocabulary"));
    ASSAY_TRY(assay_oracle_value(&x, e, step, ASSAY_POINT_EMBED, -1));
    for (int64_t t = 0; t < at->n_tokens; t++)
        if (at->tokens[t] >= first && at->tokens[t] < first + n)
            memcpy(out + t * D, x + t * D, (size_t)D * sizeof *out);
    return ASSAY_OK;
}

/* Whole experts: the sum over the choices that fall on this rank. */
static assay_status routed_experts(double *out, oracle_eval *e, int step, int layer,
                                   rank_share share)
{
    const assay_oracle_shape *s = &e->oracle->shape;
    int64_t T = e->pass->steps[step].n_tokens, U = s->n_expert_used, D = s->n_embd, first, n;
    const double *down, *weights, *ids;
    ASSAY_TRY(cut(&first, &n, s->n_expert, share, "experts"));
    ASSAY_TRY(assay_oracle_value(&ids, e, step, ASSAY_POINT_MOE_TOPK, layer));
    ASSAY_TRY(assay_oracle_value(&weights, e, step, ASSAY_POINT_MOE_WEIGHTS, layer));
    ASSAY_TRY(assay_oracle_value(&down, e, step, ASSAY_POINT_MOE_EXPERT_DOWN, layer));
    for (int64_t i = 0; i < T * U; i++)
        if (ids[i] >= (double)first && ids[i] < (double)(first + n))
            for (int64_t d = 0; d < D; d++)
                out[i / U * D + d] += weights[i] * down[i * D + d];
    return ASSAY_OK;
}

/* Columns of every expert's down projection. */
static assay_status routed_columns(double *out, oracle_eval *e, int step, int layer,
                                   rank_share share)
{
    const assay_oracle_shape *s = &e->oracle->shape;
    int64_t T = e->pass->steps[step].n_tokens, U = s->n_expert_used, D = s->n_embd;
    int64_t M = s->n_ff_expert, first, n;
    const double *act, *weights, *ids;
    double *one;
    oracle_matrix w;
    ASSAY_TRY(cut(&first, &n, M, share, "channels"));
    ASSAY_TRY(assay_oracle_value(&ids, e, step, ASSAY_POINT_MOE_TOPK, layer));
    ASSAY_TRY(assay_oracle_value(&weights, e, step, ASSAY_POINT_MOE_WEIGHTS, layer));
    ASSAY_TRY(assay_oracle_value(&act, e, step, ASSAY_POINT_MOE_EXPERT_ACT, layer));
    ASSAY_TRY(assay_oracle_matrix(&w, e->oracle, layer, "ffn_down_exps.weight", s->n_expert, D, M,
                                  e->knobs));
    ASSAY_TRY(assay_alloc(&one, (size_t)D, sizeof *one, "row of an expert"));
    assay_status status = ASSAY_OK;
    for (int64_t i = 0; i < T * U && status == ASSAY_OK; i++) {
        if (!(ids[i] >= 0 && ids[i] < s->n_expert))
            continue;
        oracle_part part = {.slice = (int64_t)ids[i], .n_rows = D, .col = first, .n_cols = n};
        status =
            assay_oracle_product(one, D, act + i * M + first, M, 1, e->oracle, &w, part, e->knobs);
        for (int64_t d = 0; d < D && status == ASSAY_OK; d++)
            out[i / U * D + d] += weights[i] * one[d];
    }
    free(one);
    return status;
}

static assay_status partial(double *out, oracle_eval *e, int step, assay_point point, int layer,
                            rank_share share)
{
    char name[ASSAY_POINT_NAME_BYTES];
    int64_t n = assay_oracle_count(e->pass, step, point, layer);
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        if (sums[i].point == point)
            return partial_columns(out, e, step, layer, &sums[i], share);
    if (point == ASSAY_POINT_EMBED)
        return partial_embed(out, e, step, share);
    if (point != ASSAY_POINT_MOE_ROUTED && point != ASSAY_POINT_MOE_OUT)
        return assay_fail(ASSAY_MISSING, "point '%s' is no sum over ranks",
                          assay_point_format(name, point, layer));
    ASSAY_TRY(share.kind == ASSAY_PARTIAL_EXPERTS ? routed_experts(out, e, step, layer, share)
                                                  : routed_columns(out, e, step, layer, share));
    assay_oracle_round(out, n, e->knobs->round_out);
    if (point == ASSAY_POINT_MOE_ROUTED || e->oracle->shape.n_ff_shared == 0)
        return ASSAY_OK;
    double *shared;
    ASSAY_TRY(assay_alloc(&shared, (size_t)n, sizeof *shared, "shared expert's part"));
    assay_status s = partial(shared, e, step, ASSAY_POINT_SHARED, layer, share);
    for (int64_t i = 0; i < n; i++)
        out[i] += shared[i];
    assay_oracle_round(out, n, e->knobs->round_out);
    free(shared);
    return s;
}

assay_status assay_pass_expect_partial(double *out, assay_pass *pass, int step, assay_point point,
                                       int layer, int rank, int n_ranks, assay_partial_kind kind,
                                       const assay_knobs *knobs)
{
    oracle_eval e = assay_oracle_eval(pass, knobs);
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS];
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, pass, step, point, layer));
    memset(out, 0, (size_t)assay_oracle_count(pass, step, point, layer) * sizeof *out);
    rank_share share = {.rank = rank, .n_ranks = n_ranks, .kind = kind};
    return partial(out, &e, step, point, layer, share);
}
