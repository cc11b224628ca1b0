/*
 * The mixture of experts of one layer: routing, the chosen experts op by op, the shared expert,
 * their sum.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/forward.h"
#include "engine/ops/pointwise.h"
#include "engine/ops/router.h"

/* Pairs (token, place) in the order of experts: pair[first[x]] ... pair[first[x + 1] - 1] belong to
 * expert x. */
typedef struct grouping {
    int32_t *ids; /* [T, U] */
    int64_t *pair, *first;
    float *in, *out; /* rows of all pairs in that order */
} grouping;

/* One row's choice replaced by another expert. */
static void wrong_expert(const assay_engine *e, assay_seam seam, int layer, int32_t *ids)
{
    const assay_seam_setting *s = assay_seam_at(e->options.seams, seam, assay_place_of(e, layer));
    int used = e->hp->n_expert_used;
    if (s && s->n_ints >= 3 && s->ints[0] >= 0 && s->ints[0] < e->batch.n && s->ints[1] >= 0 &&
        s->ints[1] < used && s->ints[2] >= 0 && s->ints[2] < e->hp->n_expert)
        ids[s->ints[0] * used + s->ints[1]] = s->ints[2];
}

/* Ids of the experts that are computed, from the ids that were chosen; the same in a healthy run.
 */
static void computed_ids(int32_t *to, const assay_engine *e, const int32_t *ids, int layer)
{
    int n_expert = e->hp->n_expert;
    int shift = (int)assay_bent(e, ASSAY_SEAM_EXPERT_SHIFT, layer, 0) % n_expert;
    for (int64_t i = 0; i < e->batch.n * e->hp->n_expert_used; i++)
        to[i] = (ids[i] + shift + n_expert) % n_expert;
    wrong_expert(e, ASSAY_SEAM_EXPERT_WRONG, layer, to);
}

static assay_status route(assay_engine *e, assay_rows x, int layer)
{
    assay_routing how = assay_routing_of(e, layer);
    const float *bias = NULL;
    assay_rows logits, probs;
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_MOE_LOGITS, layer));
    ASSAY_TRY(assay_linear_role(e, assay_slots_written(&e->slots, ASSAY_POINT_MOE_LOGITS), x,
                                ASSAY_ROLE_ROUTER, layer, ASSAY_ROLE_COUNT));
    ASSAY_TRY(assay_point_done_exact(e, ASSAY_POINT_MOE_LOGITS, layer));
    ASSAY_TRY(assay_point_read(&logits, e, ASSAY_POINT_MOE_LOGITS, ASSAY_POINT_MOE_PROBS));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_MOE_PROBS, layer));
    assay_op_router_probs(assay_slots_written(&e->slots, ASSAY_POINT_MOE_PROBS), logits, &how);
    ASSAY_TRY(assay_point_done_exact(e, ASSAY_POINT_MOE_PROBS, layer));
    if (assay_model_weight(e->model, ASSAY_ROLE_ROUTER_BIAS, layer))
        ASSAY_TRY(assay_vector(&bias, e, ASSAY_ROLE_ROUTER_BIAS, layer));
    ASSAY_TRY(assay_point_read(&probs, e, ASSAY_POINT_MOE_PROBS, ASSAY_POINT_MOE_TOPK));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_MOE_TOPK, layer));
    int32_t *ids = assay_slots_ids(&e->slots, ASSAY_POINT_MOE_TOPK);
    assay_op_router_choose(
        ids, probs, assay_bent(e, ASSAY_SEAM_ROUTER_BIAS, layer, 0) == 1 ? NULL : bias, &how);
    wrong_expert(e, ASSAY_SEAM_EXPERT_CHOICE_WRONG, layer, ids);
    ASSAY_TRY(assay_point_done_exact(e, ASSAY_POINT_MOE_TOPK, layer));
    ASSAY_TRY(assay_slots_read(&e->slots, ASSAY_POINT_MOE_TOPK, ASSAY_POINT_MOE_WEIGHTS));
    for (int64_t i = 0; i < e->batch.n * how.n_used; i++)
        if (ids[i] < 0 || ids[i] >= how.n_expert)
            return assay_fail(ASSAY_BAD_SHAPE, "layer %d: expert %d chosen, and there are %d",
                              layer, ids[i], how.n_expert);
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_MOE_WEIGHTS, layer));
    assay_op_router_weigh(assay_slots_written(&e->slots, ASSAY_POINT_MOE_WEIGHTS), ids, probs, bias,
                          &how);
    return assay_point_done_exact(e, ASSAY_POINT_MOE_WEIGHTS, layer);
}

static void free_grouping(grouping *g)
{
    free(g->ids);
    free(g->pair);
    free(g->first);
    free(g->in);
    free(g->out);
}

static assay_status group_pairs(grouping *g, const assay_engine *e, const int32_t *chosen,
                                int layer)
{
    const assay_hparams *hp = e->hp;
    int64_t n = e->batch.n * hp->n_expert_used, widest = hp->n_embd;
    if (e->part.n_ff_expert > widest)
        widest = e->part.n_ff_expert;
    ASSAY_TRY(assay_alloc(&g->ids, (size_t)n, sizeof *g->ids, "experts"));
    ASSAY_TRY(assay_alloc(&g->pair, (size_t)n, sizeof *g->pair, "experts"));
    ASSAY_TRY(assay_alloc(&g->first, (size_t)hp->n_expert + 1, sizeof *g->first, "experts"));
    ASSAY_TRY(assay_alloc(&g->in, (size_t)(n * widest), sizeof *g->in, "experts"));
    ASSAY_TRY(assay_alloc(&g->out, (size_t)(n * widest), sizeof *g->out, "experts"));
    const int32_t *ids = g->ids;
    computed_ids(g->ids, e, chosen, layer);
    for (int64_t i = 0; i < n; i++)
        g->first[ids[i] + 1]++;
    for (int x = 0; x < hp->n_expert; x++)
        g->first[x + 1] += g->first[x];
    int64_t at[hp->n_expert];
    memcpy(at, g->first, (size_t)hp->n_expert * sizeof *at);
    for (int64_t i = 0; i < n; i++)
        g->pair[at[ids[i]]++] = i;
    return ASSAY_OK;
}

/* Rows of the pairs, in the order of experts; `per` pairs share one row of x (the token's, or the
 * pair's own). */
static void gather(const grouping *g, assay_rows x, int64_t n, int per)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(g->in + i * x.width, x.at + g->pair[i] / per * x.stride,
               (size_t)x.width * sizeof *x.at);
}

/* An expert that lies on no rank: its output is never computed, and zero. */
static void drop_expert(const assay_engine *e, const grouping *g, assay_point to, int64_t width,
                        int layer)
{
    const assay_seam_setting *s =
        assay_seam_at(e->options.seams, ASSAY_SEAM_EXPERT_DROPPED, assay_place_of(e, layer));
    if (!s || to != ASSAY_POINT_MOE_EXPERT_DOWN || s->n_ints < 1 || s->ints[0] < 0 ||
        s->ints[0] >= e->hp->n_expert)
        return;
    int64_t first = g->first[s->ints[0]], n = g->first[s->ints[0] + 1] - first;
    memset(g->out + first * width, 0, (size_t)(n * width) * sizeof *g->out);
}

/* One projection of all experts that have rows: rows `row` ... of each expert's matrix of `rows`
 * rows. */
static assay_status project(assay_engine *e, const grouping *g, assay_point to, int64_t in_width,
                            const assay_weight *w, int64_t rows, assay_slice inner, double factor,
                            int layer)
{
    ASSAY_TRY(assay_point_begin(e, to, layer));
    float *y = assay_slots_written(&e->slots, to).at; /* [T, U, n_rows], dense */
    int own = e->part.expert + (int)assay_bent(e, ASSAY_SEAM_RANK_EXPERT_OFFSET, layer, 0);
    for (int x = 0; x < e->hp->n_expert; x++) {
        int64_t first = g->first[x], n = g->first[x + 1] - first;
        assay_slice slice = inner;
        slice.row += x * rows;
        if (n > 0 && (x < own || x >= own + e->part.n_expert)) /* on another rank */
            memset(g->out + first * inner.n_rows, 0, (size_t)(n * inner.n_rows) * sizeof *g->out);
        else if (n > 0)
            ASSAY_TRY(assay_linear(e, assay_rows_of(g->out + first * inner.n_rows, n, inner.n_rows),
                                   assay_rows_of(g->in + first * in_width, n, in_width), w, slice,
                                   false));
    }
    drop_expert(e, g, to, inner.n_rows, layer);
    assay_op_scale(assay_rows_of(g->out, e->batch.n * e->hp->n_expert_used, inner.n_rows), factor);
    for (int64_t i = 0; i < e->batch.n * e->hp->n_expert_used; i++)
        memcpy(y + g->pair[i] * inner.n_rows, g->out + i * inner.n_rows,
               (size_t)inner.n_rows * sizeof *y);
    return assay_point_done(e, to, layer);
}

static assay_status gate_and_up(assay_engine *e, const grouping *g, int layer)
{
    const assay_hparams *hp = e->hp;
    const assay_weight *merged = assay_model_weight(e->model, ASSAY_ROLE_GATE_UP_EXPS, layer);
    const assay_weight *gate = assay_model_weight(e->model, ASSAY_ROLE_GATE_EXPS, layer);
    const assay_weight *up = assay_model_weight(e->model, ASSAY_ROLE_UP_EXPS, layer);
    int64_t m = hp->n_ff_expert, rows = m;
    int64_t from = assay_part_of_weight(e, ASSAY_ROLE_GATE_EXPS, layer).ff_expert;
    assay_slice slice = {from, e->part.n_ff_expert, 0, hp->n_embd};
    assay_slice second = slice;
    if (!gate || !up) { /* gate rows, then up rows, in every expert */
        gate = up = merged;
        rows = 2 * m;
        second.row += m;
    }
    static const int right[2] = {0, 1};
    if (assay_part_order(e, -1, layer, right, 2)[0] ==
        1) { /* the consumer finds up where gate belongs */
        const assay_weight *w = gate;
        assay_slice rows_of = slice;
        gate = up;
        up = w;
        slice = second;
        second = rows_of;
    }
    ASSAY_TRY(project(e, g, ASSAY_POINT_MOE_EXPERT_GATE, hp->n_embd, gate, rows, slice, 1, layer));
    return project(e, g, ASSAY_POINT_MOE_EXPERT_UP, hp->n_embd, up, rows, second, 1, layer);
}

/* [T, U * width] as rows of [T * U, width]. */
static assay_rows pairs_of(const assay_engine *e, assay_rows r)
{
    return assay_rows_of(r.at, r.n * e->hp->n_expert_used, r.width / e->hp->n_expert_used);
}

static assay_status act(assay_engine *e, int layer)
{
    assay_rows gate, up;
    bool gelu = assay_bent_value_of(e, ASSAY_SEAM_ACTIVATION_GELU, layer, ASSAY_FFN_ROUTED, 0) != 0;
    ASSAY_TRY(assay_point_read(&gate, e, ASSAY_POINT_MOE_EXPERT_GATE, ASSAY_POINT_MOE_EXPERT_ACT));
    ASSAY_TRY(assay_point_read(&up, e, ASSAY_POINT_MOE_EXPERT_UP, ASSAY_POINT_MOE_EXPERT_ACT));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_MOE_EXPERT_ACT, layer));
    assay_rows y = assay_slots_written(&e->slots, ASSAY_POINT_MOE_EXPERT_ACT);
    (gelu ? assay_op_geglu : assay_op_swiglu)(pairs_of(e, y), pairs_of(e, gate), pairs_of(e, up));
    return assay_point_done(e, ASSAY_POINT_MOE_EXPERT_ACT, layer);
}

/* Weighted sum over the chosen experts, in their order. */
static assay_status weighted_sum(assay_engine *e, int layer)
{
    assay_rows down, weights, y;
    int used = e->hp->n_expert_used;
    int64_t d = e->hp->n_embd;
    ASSAY_TRY(assay_point_read(&down, e, ASSAY_POINT_MOE_EXPERT_DOWN, ASSAY_POINT_MOE_ROUTED));
    ASSAY_TRY(assay_point_read(&weights, e, ASSAY_POINT_MOE_WEIGHTS, ASSAY_POINT_MOE_ROUTED));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_MOE_ROUTED, layer));
    y = assay_slots_written(&e->slots, ASSAY_POINT_MOE_ROUTED);
    for (int64_t t = 0; t < y.n; t++)
        for (int64_t i = 0; i < d; i++) {
            float sum = 0;
            for (int u = 0; u < used; u++)
                sum += weights.at[t * weights.stride + u] * down.at[t * down.stride + u * d + i];
            y.at[t * y.stride + i] = sum;
        }
    return assay_point_done(e, ASSAY_POINT_MOE_ROUTED, layer);
}

/* Inputs of the down projection in float16, times a factor; returns the factor to take out of the
 * product. */
static double to_f16(const assay_engine *e, const grouping *g, int64_t n, int layer)
{
    const assay_seam_setting *s = assay_bent_of(e, ASSAY_SEAM_DOWN_F16, layer, ASSAY_FFN_ROUTED);
    double factor = s && s->value != 0 ? s->value : 1;
    for (int64_t i = 0; s && i < n; i++)
        g->in[i] = assay_f16_to_f32(assay_f32_to_f16(g->in[i] * (float)factor));
    return 1 / factor;
}

static assay_status experts(assay_engine *e, assay_rows x, const grouping *g, int layer)
{
    const assay_hparams *hp = e->hp;
    int64_t n = e->batch.n * hp->n_expert_used, m = e->part.n_ff_expert;
    const assay_weight *down = assay_model_weight(e->model, ASSAY_ROLE_DOWN_EXPS, layer);
    gather(g, x, n, hp->n_expert_used);
    ASSAY_TRY(gate_and_up(e, g, layer));
    ASSAY_TRY(act(e, layer));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_MOE_EXPERT_ACT, ASSAY_POINT_MOE_EXPERT_DOWN));
    gather(g, pairs_of(e, x), n, 1);
    double factor = to_f16(e, g, n * m, layer);
    int64_t from = assay_part_of_weight(e, ASSAY_ROLE_DOWN_EXPS, layer).ff_expert;
    assay_slice slice = {0, hp->n_embd, from, m};
    ASSAY_TRY(
        project(e, g, ASSAY_POINT_MOE_EXPERT_DOWN, m, down, hp->n_embd, slice, factor, layer));
    return weighted_sum(e, layer);
}

/* Routed and shared together; one of them alone where the model has no shared expert. */
static assay_status together(assay_engine *e, int layer)
{
    assay_rows routed, shared;
    ASSAY_TRY(assay_point_read(&routed, e, ASSAY_POINT_MOE_ROUTED, ASSAY_POINT_MOE_OUT));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_MOE_OUT, layer));
    assay_rows y = assay_slots_written(&e->slots, ASSAY_POINT_MOE_OUT);
    if (e->hp->n_expert_shared) {
        ASSAY_TRY(assay_point_read(&shared, e, ASSAY_POINT_SHARED, ASSAY_POINT_MOE_OUT));
        assay_op_add_times(y, routed, shared, assay_bent(e, ASSAY_SEAM_SHARED_TIMES, layer, 1));
    } else {
        memcpy(y.at, routed.at, (size_t)(y.n * y.width) * sizeof *y.at);
    }
    double more = assay_bent(e, ASSAY_SEAM_ROUTED_TIMES, layer, 1) - 1;
    if (more != 0)
        assay_op_add_times(y, y, routed, more);
    return assay_point_done_reduced(e, ASSAY_POINT_MOE_OUT, layer);
}

assay_status assay_forward_moe(assay_engine *e, int layer)
{
    grouping g = {0};
    assay_rows x;
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_FFN_NORM, ASSAY_POINT_MOE_LOGITS));
    ASSAY_TRY(route(e, x, layer));
    ASSAY_TRY(assay_slots_read(&e->slots, ASSAY_POINT_MOE_TOPK, ASSAY_POINT_MOE_ROUTED));
    assay_status s = group_pairs(&g, e, assay_slots_ids(&e->slots, ASSAY_POINT_MOE_TOPK), layer);
    if (s == ASSAY_OK)
        s = experts(e, x, &g, layer);
    free_grouping(&g);
    if (s != ASSAY_OK)
        return s;
    if (e->hp->n_expert_shared)
        ASSAY_TRY(assay_forward_shared(e, x, layer));
    return together(e, layer);
}
