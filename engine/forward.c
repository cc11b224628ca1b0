/*
 * One layer, and what all architectures share in it: norms, residual adds, dense feed-forward.
 */
#include "engine/forward.h"

#include "engine/ops/pointwise.h"

assay_status assay_forward_norm(assay_engine *e, assay_point to, assay_rows x, assay_role weight,
                                double eps, int layer)
{
    const float *w;
    assay_norm how = {.eps = eps};
    ASSAY_TRY(assay_vector(&w, e, weight, assay_role_at(weight)->per_layer ? layer : -1));
    ASSAY_TRY(assay_point_begin(e, to, layer));
    assay_op_rmsnorm(assay_slots_rows(&e->slots, to), x, w, &how);
    return assay_point_done(e, to, layer);
}

/* to = a + b */
static assay_status residual(assay_engine *e, assay_point to, assay_point a, assay_point b,
                             int layer)
{
    assay_rows stream, part;
    ASSAY_TRY(assay_point_read(&stream, e, a, to));
    ASSAY_TRY(assay_point_read(&part, e, b, to));
    ASSAY_TRY(assay_point_begin(e, to, layer));
    assay_op_add(assay_slots_rows(&e->slots, to), stream, part);
    return assay_point_done(e, to, layer);
}

/*
 * A merged projection of two parts: their outputs side by side, in the order of the part list. The
 * consumers cut it at fixed places, so the order of the list is the order of the outputs.
 */
static assay_status merged(assay_engine *e, int fused, const assay_point points[2],
                           const assay_role roles[2], const assay_role biases[2], assay_rows x,
                           int layer)
{
    static const int right[2] = {0, 1};
    const int *order = right;
    int64_t dims[2][ASSAY_MAX_DIMS], width[2], at = 0;
    for (int i = 0; i < 2; i++) {
        assay_point_dims(dims[i], e, points[i]);
        width[i] = dims[i][1];
    }
    int64_t all[2] = {e->batch.n, width[0] + width[1]};
    ASSAY_TRY(assay_slots_begin(&e->slots, fused, layer, ASSAY_DTYPE_F32, 2, all));
    assay_rows y = assay_slots_rows(&e->slots, fused);
    for (int i = 0; i < 2; i++) {
        int part = order[i];
        ASSAY_TRY(assay_linear_role(e, assay_rows_columns(y, at, width[part]), x, roles[part],
                                    layer, biases[part]));
        at += width[part];
    }
    assay_slots_done(&e->slots, fused);
    assay_slots_no_reader(&e->slots, fused);
    at = 0;
    for (int i = 0; i < 2; i++) {
        ASSAY_TRY(assay_slots_share(&e->slots, points[i], layer, fused, at, 2, dims[i]));
        ASSAY_TRY(assay_point_done(e, points[i], layer));
        at += width[i];
    }
    return ASSAY_OK;
}

static assay_status gated(assay_engine *e, assay_point gate, assay_point act, int layer)
{
    assay_rows g, u;
    ASSAY_TRY(assay_point_read(&g, e, gate, act));
    ASSAY_TRY(assay_point_read(&u, e, (assay_point)(gate + 1), act));
    ASSAY_TRY(assay_point_begin(e, act, layer));
    assay_op_swiglu(assay_slots_rows(&e->slots, act), g, u);
    return assay_point_done(e, act, layer);
}

assay_status assay_forward_ffn(assay_engine *e, int layer)
{
    static const assay_point points[2] = {ASSAY_POINT_FFN_GATE, ASSAY_POINT_FFN_UP};
    static const assay_role roles[2] = {ASSAY_ROLE_FFN_GATE, ASSAY_ROLE_FFN_UP};
    static const assay_role biases[2] = {ASSAY_ROLE_FFN_GATE_BIAS, ASSAY_ROLE_FFN_UP_BIAS};
    assay_rows x;
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_FFN_NORM, ASSAY_POINT_FFN_GATE));
    ASSAY_TRY(merged(e, ASSAY_SLOT_FUSED_GATE_UP, points, roles, biases, x, layer));
    ASSAY_TRY(gated(e, ASSAY_POINT_FFN_GATE, ASSAY_POINT_FFN_ACT, layer));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_FFN_ACT, ASSAY_POINT_FFN_OUT));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_FFN_OUT, layer));
    ASSAY_TRY(assay_linear_role(e, assay_slots_rows(&e->slots, ASSAY_POINT_FFN_OUT), x,
                                ASSAY_ROLE_FFN_DOWN, layer, ASSAY_ROLE_FFN_DOWN_BIAS));
    return assay_point_done(e, ASSAY_POINT_FFN_OUT, layer);
}

assay_status assay_forward_shared(assay_engine *e, assay_rows x, int layer)
{
    static const assay_point points[2] = {ASSAY_POINT_SHARED_GATE, ASSAY_POINT_SHARED_UP};
    static const assay_role roles[2] = {ASSAY_ROLE_GATE_SHEXP, ASSAY_ROLE_UP_SHEXP};
    static const assay_role biases[2] = {ASSAY_ROLE_COUNT, ASSAY_ROLE_COUNT};
    ASSAY_TRY(merged(e, ASSAY_SLOT_FUSED_SHARED, points, roles, biases, x, layer));
    ASSAY_TRY(gated(e, ASSAY_POINT_SHARED_GATE, ASSAY_POINT_SHARED_ACT, layer));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_SHARED_ACT, ASSAY_POINT_SHARED));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_SHARED, layer));
    ASSAY_TRY(assay_linear_role(e, assay_slots_rows(&e->slots, ASSAY_POINT_SHARED), x,
                                ASSAY_ROLE_DOWN_SHEXP, layer, ASSAY_ROLE_COUNT));
    return assay_point_done(e, ASSAY_POINT_SHARED, layer);
}

assay_status assay_forward_fused_qa(assay_engine *e, assay_rows x, int layer)
{
    static const assay_point points[2] = {ASSAY_POINT_Q_A, ASSAY_POINT_KV_A};
    static const assay_role roles[2] = {ASSAY_ROLE_ATTN_Q_A, ASSAY_ROLE_ATTN_KV_A};
    static const assay_role biases[2] = {ASSAY_ROLE_COUNT, ASSAY_ROLE_COUNT};
    return merged(e, ASSAY_SLOT_FUSED_QA, points, roles, biases, x, layer);
}

assay_status assay_forward_layer(assay_engine *e, int layer)
{
    assay_point stream =
        layer == assay_model_first_layer(e->model) ? ASSAY_POINT_EMBED : ASSAY_POINT_OUT;
    bool dense = layer < e->hp->n_layer_dense;
    assay_rows x;
    ASSAY_TRY(assay_point_read(&x, e, stream, ASSAY_POINT_IN_NORM));
    ASSAY_TRY(assay_forward_norm(e, ASSAY_POINT_IN_NORM, x, ASSAY_ROLE_ATTN_NORM, e->hp->eps_norm,
                                 layer));
    ASSAY_TRY(assay_forward_attention(e, layer));
    ASSAY_TRY(residual(e, ASSAY_POINT_ATTN_RESID, stream, ASSAY_POINT_PROJ, layer));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_ATTN_RESID, ASSAY_POINT_FFN_NORM));
    ASSAY_TRY(assay_forward_norm(e, ASSAY_POINT_FFN_NORM, x, ASSAY_ROLE_FFN_NORM, e->hp->eps_norm,
                                 layer));
    ASSAY_TRY(dense ? assay_forward_ffn(e, layer) : assay_forward_moe(e, layer));
    return residual(e, ASSAY_POINT_OUT, ASSAY_POINT_ATTN_RESID,
                    dense ? ASSAY_POINT_FFN_OUT : ASSAY_POINT_MOE_OUT, layer);
}
