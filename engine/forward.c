/*
 * One layer, and what all architectures share in it: norms, residual adds, dense feed-forward.
 */
#include "engine/forward.h"

#include "engine/ops/pointwise.h"

assay_status assay_forward_norm(assay_engine *e, assay_point to, assay_rows x, assay_role weight,
                                int which, int layer)
{
    const float *w;
    assay_norm how = assay_norm_of(e, layer, which);
    ASSAY_TRY(assay_vector(&w, e, weight, assay_role_at(weight)->per_layer ? layer : -1));
    ASSAY_TRY(assay_point_begin(e, to, layer));
    assay_op_rmsnorm(assay_slots_written(&e->slots, to), x, w, &how);
    return assay_point_done(e, to, layer);
}

/* to = a + b; `which`: 0 attention's output, 1 feed-forward's */
static assay_status residual(assay_engine *e, assay_point to, assay_point a, assay_point b,
                             int which, int layer)
{
    double times = assay_bent_value_of(e, ASSAY_SEAM_RESIDUAL_TIMES, layer, which, 1);
    assay_rows stream, part;
    ASSAY_TRY(assay_point_read(&stream, e, a, to));
    ASSAY_TRY(assay_point_read(&part, e, b, to));
    ASSAY_TRY(assay_point_begin(e, to, layer));
    assay_op_add_times(assay_slots_written(&e->slots, to), stream, part, times);
    return assay_point_done(e, to, layer);
}

/* A consumer that takes columns 2i for the first part and 2i + 1 for the second. */
static assay_status riffled(assay_engine *e, int fused, const assay_point points[2],
                            int64_t dims[2][ASSAY_MAX_DIMS], int layer)
{
    assay_rows all = assay_slots_rows(&e->slots, fused);
    for (int part = 0; part < 2; part++) {
        ASSAY_TRY(
            assay_slots_begin(&e->slots, points[part], layer, ASSAY_DTYPE_F32, 2, dims[part]));
        assay_rows y = assay_slots_rows(&e->slots, points[part]);
        for (int64_t t = 0; t < y.n; t++)
            for (int64_t i = 0; i < y.width; i++)
                y.at[t * y.stride + i] = all.at[t * all.stride + 2 * i + part];
        ASSAY_TRY(assay_point_done(e, points[part], layer));
    }
    return ASSAY_OK;
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
    const int *order = assay_part_order(e, fused, layer, right, 2);
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
    if (fused != ASSAY_SLOT_FUSED_QA && assay_bent(e, ASSAY_SEAM_GATE_UP_RIFFLE, layer, 0) != 0)
        return riffled(e, fused, points, dims, layer);
    at = 0;
    for (int i = 0; i < 2; i++) {
        ASSAY_TRY(assay_slots_share(&e->slots, points[i], layer, fused, at, 2, dims[i]));
        ASSAY_TRY(assay_point_done(e, points[i], layer));
        at += width[i];
    }
    return ASSAY_OK;
}

static assay_status gated(assay_engine *e, assay_point gate, assay_point act, int which, int layer)
{
    assay_rows g, u;
    bool gelu = assay_bent_value_of(e, ASSAY_SEAM_ACTIVATION_GELU, layer, which, 0) != 0;
    ASSAY_TRY(assay_point_read(&g, e, gate, act));
    ASSAY_TRY(assay_point_read(&u, e, (assay_point)(gate + 1), act));
    ASSAY_TRY(assay_point_begin(e, act, layer));
    (gelu ? assay_op_geglu : assay_op_swiglu)(assay_slots_written(&e->slots, act), g, u);
    return assay_point_done(e, act, layer);
}

/* The input in float16, times a factor that is taken out of the product again. */
static assay_status down_in_f16(assay_engine *e, assay_rows y, assay_rows x, assay_role role,
                                int layer, assay_role bias, double factor)
{
    float *memory;
    ASSAY_TRY(assay_cat(&memory, e, (size_t)(x.n * x.width)));
    for (int64_t t = 0; t < x.n; t++)
        for (int64_t i = 0; i < x.width; i++)
            memory[t * x.width + i] =
                assay_f16_to_f32(assay_f32_to_f16(x.at[t * x.stride + i] * (float)factor));
    ASSAY_TRY(assay_linear_role(e, y, assay_rows_of(memory, x.n, x.width), role, layer, bias));
    assay_op_scale(y, 1 / factor);
    return ASSAY_OK;
}

assay_status assay_forward_down(assay_engine *e, assay_rows y, assay_rows x, assay_role role,
                                int layer, assay_role bias)
{
    int which = role == ASSAY_ROLE_FFN_DOWN ? ASSAY_FFN_DENSE : ASSAY_FFN_SHARED;
    const assay_seam_setting *s = assay_bent_of(e, ASSAY_SEAM_DOWN_F16, layer, which);
    if (s)
        return down_in_f16(e, y, x, role, layer, bias, s->value == 0 ? 1 : s->value);
    return assay_linear_role(e, y, x, role, layer, bias);
}

assay_status assay_forward_ffn(assay_engine *e, int layer)
{
    static const assay_point points[2] = {ASSAY_POINT_FFN_GATE, ASSAY_POINT_FFN_UP};
    static const assay_role roles[2] = {ASSAY_ROLE_FFN_GATE, ASSAY_ROLE_FFN_UP};
    static const assay_role biases[2] = {ASSAY_ROLE_FFN_GATE_BIAS, ASSAY_ROLE_FFN_UP_BIAS};
    assay_rows x;
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_FFN_NORM, ASSAY_POINT_FFN_GATE));
    ASSAY_TRY(merged(e, ASSAY_SLOT_FUSED_GATE_UP, points, roles, biases, x, layer));
    ASSAY_TRY(gated(e, ASSAY_POINT_FFN_GATE, ASSAY_POINT_FFN_ACT, ASSAY_FFN_DENSE, layer));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_FFN_ACT, ASSAY_POINT_FFN_OUT));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_FFN_OUT, layer));
    ASSAY_TRY(assay_forward_down(e, assay_slots_written(&e->slots, ASSAY_POINT_FFN_OUT), x,
                                 ASSAY_ROLE_FFN_DOWN, layer, ASSAY_ROLE_FFN_DOWN_BIAS));
    return assay_point_done_reduced(e, ASSAY_POINT_FFN_OUT, layer);
}

assay_status assay_forward_shared(assay_engine *e, assay_rows x, int layer)
{
    static const assay_point points[2] = {ASSAY_POINT_SHARED_GATE, ASSAY_POINT_SHARED_UP};
    static const assay_role roles[2] = {ASSAY_ROLE_GATE_SHEXP, ASSAY_ROLE_UP_SHEXP};
    static const assay_role biases[2] = {ASSAY_ROLE_COUNT, ASSAY_ROLE_COUNT};
    ASSAY_TRY(merged(e, ASSAY_SLOT_FUSED_SHARED, points, roles, biases, x, layer));
    ASSAY_TRY(gated(e, ASSAY_POINT_SHARED_GATE, ASSAY_POINT_SHARED_ACT, ASSAY_FFN_SHARED, layer));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_SHARED_ACT, ASSAY_POINT_SHARED));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_SHARED, layer));
    ASSAY_TRY(assay_forward_down(e, assay_slots_written(&e->slots, ASSAY_POINT_SHARED), x,
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
    assay_point stream = layer >= e->hp->n_layer                      ? ASSAY_POINT_NEXTN_IN
                         : layer == assay_model_first_layer(e->model) ? ASSAY_POINT_EMBED
                                                                      : ASSAY_POINT_OUT;
    bool dense = layer < e->hp->n_layer_dense;
    assay_rows x;
    ASSAY_TRY(assay_point_read(&x, e, stream, ASSAY_POINT_IN_NORM));
    ASSAY_TRY(
        assay_forward_norm(e, ASSAY_POINT_IN_NORM, x, ASSAY_ROLE_ATTN_NORM, ASSAY_NORM_IN, layer));
    ASSAY_TRY(assay_forward_attention(e, layer));
    ASSAY_TRY(residual(e, ASSAY_POINT_ATTN_RESID, stream, ASSAY_POINT_PROJ, 0, layer));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_ATTN_RESID, ASSAY_POINT_FFN_NORM));
    ASSAY_TRY(
        assay_forward_norm(e, ASSAY_POINT_FFN_NORM, x, ASSAY_ROLE_FFN_NORM, ASSAY_NORM_FFN, layer));
    ASSAY_TRY(dense ? assay_forward_ffn(e, layer) : assay_forward_moe(e, layer));
    return residual(e, ASSAY_POINT_OUT, ASSAY_POINT_ATTN_RESID,
                    dense ? ASSAY_POINT_FFN_OUT : ASSAY_POINT_MOE_OUT, 1, layer);
}
