/*
 * One step on the device: embedding, layers, head; the op by op counterpart of engine/forward.c.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_inside.h"

bool assay_device_has_side(const assay_engine *e)
{
    return e->device->n_bucket <= ASSAY_DEVICE_FEW && !e->options.inject;
}

assay_status assay_device_fork(assay_engine *e)
{
    assay_device *d = e->device;
    if (!d->is_dry) {
        ASSAY_TRY(assay_cuda_record(d->fork, d->stream));
        ASSAY_TRY(assay_cuda_wait(d->side, d->fork));
    }
    d->at = d->side;
    return ASSAY_OK;
}

assay_status assay_device_unfork(assay_engine *e)
{
    assay_device *d = e->device;
    d->at = d->stream;
    return d->is_dry ? ASSAY_OK : assay_cuda_record(d->join, d->side);
}

assay_status assay_device_join(assay_engine *e)
{
    assay_device *d = e->device;
    return d->is_dry ? ASSAY_OK : assay_cuda_wait(d->stream, d->join);
}

assay_status assay_device_norm(assay_engine *e, assay_point to, assay_rows x, assay_role weight,
                               int which, int layer)
{
    assay_device *d = e->device;
    assay_norm how = assay_norm_of(e, layer, which);
    ASSAY_TRY(assay_device_begin(e, to, layer));
    ASSAY_RUN(d, assay_device_rmsnorm(d->at, assay_device_rows_of(e, to), x,
                                      assay_device_vector(e, weight, layer), &how));
    return assay_device_done(e, to, layer);
}

static assay_status residual(assay_engine *e, assay_point to, assay_point a, assay_point b,
                             int layer)
{
    assay_device *d = e->device;
    assay_rows stream, part;
    ASSAY_TRY(assay_device_read(&stream, e, a, to));
    ASSAY_TRY(assay_device_read(&part, e, b, to));
    ASSAY_TRY(assay_device_begin(e, to, layer));
    ASSAY_RUN(d, assay_device_add(d->at, assay_device_rows_of(e, to), stream, part));
    return assay_device_done(e, to, layer);
}

assay_status assay_device_merged(assay_engine *e, int fused, const assay_point points[2],
                                 const assay_role roles[2], const assay_role biases[2],
                                 assay_rows x, int layer)
{
    static const int right[2] = {0, 1};
    const int *order = assay_part_order(e, fused, layer, right, 2);
    int64_t dims[ASSAY_MAX_DIMS], width[2], at = 0;
    for (int i = 0; i < 2; i++) {
        assay_point_dims(dims, e, points[i]);
        width[i] = dims[1];
    }
    ASSAY_TRY(assay_device_begin_shape(e, fused, layer, width[0] + width[1]));
    assay_rows y = assay_device_rows_of(e, fused);
    for (int i = 0; i < 2; i++) {
        int part = order[i];
        ASSAY_TRY(assay_device_linear(e, assay_rows_columns(y, at, width[part]), x, roles[part],
                                      layer, biases[part]));
        at += width[part];
    }
    assay_device_mark(e, fused);
    assay_device_no_reader(e, fused);
    at = 0;
    for (int i = 0; i < 2; i++) {
        ASSAY_TRY(assay_device_share(e, points[i], layer, fused, at));
        ASSAY_TRY(assay_device_done(e, points[i], layer));
        at += width[i];
    }
    return ASSAY_OK;
}

assay_status assay_device_gated(assay_engine *e, assay_point gate, assay_point act, int layer)
{
    assay_device *d = e->device;
    assay_rows g, u;
    ASSAY_TRY(assay_device_read(&g, e, gate, act));
    ASSAY_TRY(assay_device_read(&u, e, gate + 1, act));
    ASSAY_TRY(assay_device_begin(e, act, layer));
    ASSAY_RUN(d, assay_device_swiglu(d->at, assay_device_rows_of(e, act), g, u));
    return assay_device_done(e, act, layer);
}

static assay_status dense(assay_engine *e, int layer)
{
    static const assay_point points[2] = {ASSAY_POINT_FFN_GATE, ASSAY_POINT_FFN_UP};
    static const assay_role roles[2] = {ASSAY_ROLE_FFN_GATE, ASSAY_ROLE_FFN_UP};
    static const assay_role biases[2] = {ASSAY_ROLE_FFN_GATE_BIAS, ASSAY_ROLE_FFN_UP_BIAS};
    assay_rows x;
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_FFN_NORM, ASSAY_POINT_FFN_GATE));
    ASSAY_TRY(assay_device_merged(e, ASSAY_SLOT_FUSED_GATE_UP, points, roles, biases, x, layer));
    ASSAY_TRY(assay_device_gated(e, ASSAY_POINT_FFN_GATE, ASSAY_POINT_FFN_ACT, layer));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_FFN_ACT, ASSAY_POINT_FFN_OUT));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_FFN_OUT, layer));
    ASSAY_TRY(assay_device_linear(e, assay_device_rows_of(e, ASSAY_POINT_FFN_OUT), x,
                                  ASSAY_ROLE_FFN_DOWN, layer, ASSAY_ROLE_FFN_DOWN_BIAS));
    return assay_device_done_reduced(e, ASSAY_POINT_FFN_OUT, layer);
}

static assay_status one_layer(assay_engine *e, int layer)
{
    bool first = layer == assay_model_first_layer(e->model);
    bool is_dense = layer < e->hp->n_layer_dense;
    assay_point stream = first ? ASSAY_POINT_EMBED : ASSAY_POINT_OUT;
    assay_rows x;
    ASSAY_TRY(assay_device_read(&x, e, stream, ASSAY_POINT_IN_NORM));
    ASSAY_TRY(
        assay_device_norm(e, ASSAY_POINT_IN_NORM, x, ASSAY_ROLE_ATTN_NORM, ASSAY_NORM_IN, layer));
    ASSAY_TRY(assay_device_attention_layer(e, layer));
    ASSAY_TRY(residual(e, ASSAY_POINT_ATTN_RESID, stream, ASSAY_POINT_PROJ, layer));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_ATTN_RESID, ASSAY_POINT_FFN_NORM));
    ASSAY_TRY(
        assay_device_norm(e, ASSAY_POINT_FFN_NORM, x, ASSAY_ROLE_FFN_NORM, ASSAY_NORM_FFN, layer));
    ASSAY_TRY(is_dense ? dense(e, layer) : assay_device_moe(e, layer));
    return residual(e, ASSAY_POINT_OUT, ASSAY_POINT_ATTN_RESID,
                    is_dense ? ASSAY_POINT_FFN_OUT : ASSAY_POINT_MOE_OUT, layer);
}

static assay_status embed(assay_engine *e)
{
    assay_device *d = e->device;
    const assay_part part = assay_part_of_weight(e, ASSAY_ROLE_TOKEN_EMBD, -1);
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_EMBED, -1));
    ASSAY_RUN(d,
              assay_device_embed(d->at, assay_device_rows_of(e, ASSAY_POINT_EMBED),
                                 assay_device_weight(e, ASSAY_ROLE_TOKEN_EMBD, -1), &d->rows,
                                 part.vocab, part.n_vocab, e->options.dtype == ASSAY_DTYPE_BF16));
    return assay_device_done_reduced(e, ASSAY_POINT_EMBED, -1);
}

static assay_status head(assay_engine *e, bool with_logits)
{
    assay_device *d = e->device;
    assay_rows x;
    assay_role role =
        assay_device_weight(e, ASSAY_ROLE_OUTPUT, -1) ? ASSAY_ROLE_OUTPUT : ASSAY_ROLE_TOKEN_EMBD;
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_OUT, ASSAY_POINT_FINAL_NORM));
    ASSAY_TRY(assay_device_norm(e, ASSAY_POINT_FINAL_NORM, x, ASSAY_ROLE_OUTPUT_NORM,
                                ASSAY_NORM_FINAL, -1));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_FINAL_NORM, ASSAY_POINT_LOGITS));
    if (!with_logits)
        return ASSAY_OK;
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_LOGITS, -1));
    assay_rows y = assay_device_rows_of(e, ASSAY_POINT_LOGITS);
    ASSAY_TRY(e->part.n_ranks > 1 ? assay_device_gathered_logits(e, y, x, role)
                                  : assay_device_linear(e, y, x, role, -1, ASSAY_ROLE_COUNT));
    ASSAY_TRY(assay_device_done(e, ASSAY_POINT_LOGITS, -1));
    assay_device_no_reader(e, ASSAY_POINT_LOGITS);
    if (y.n <= ASSAY_DEVICE_FEW)
        ASSAY_RUN(d, assay_device_greedy(d->at, d->greedy, y));
    return ASSAY_OK;
}

/* Where layers share cells, what a layer made is shown before the next one takes its place. */
static assay_status deliver_layer(assay_engine *e, int *from, int layer)
{
    assay_device *d = e->device;
    int to = *from;
    if (d->owns_layers || d->is_dry)
        return ASSAY_OK;
    while (to < d->plan->n_shown && d->plan->shown[to].event.layer <= layer)
        to++;
    ASSAY_TRY(assay_plan_deliver(e, *from, to));
    *from = to;
    return ASSAY_OK;
}

assay_status assay_device_run(assay_engine *e, bool with_logits)
{
    assay_device *d = e->device;
    int last = assay_model_last_layer(e->model), from = 0;
    d->at = d->stream;
    ASSAY_TRY(assay_plan_poison(e));
    ASSAY_TRY(assay_device_angles(e));
    ASSAY_TRY(assay_device_count_keys(e));
    ASSAY_TRY(embed(e));
    ASSAY_TRY(deliver_layer(e, &from, -1));
    for (int layer = assay_model_first_layer(e->model); layer <= last; layer++) {
        assay_status s = one_layer(e, layer);
        if (s != ASSAY_OK)
            return assay_within(s, "layer %d", layer);
        ASSAY_TRY(deliver_layer(e, &from, layer));
    }
    if (last == e->hp->n_layer - 1) {
        ASSAY_TRY(head(e, with_logits));
        return d->owns_layers || d->is_dry ? ASSAY_OK
                                           : assay_plan_deliver(e, from, d->plan->n_shown);
    }
    assay_device_no_reader(e, ASSAY_POINT_OUT);
    return with_logits
               ? assay_fail(ASSAY_USAGE, "logits need the last layer, and layers end at %d", last)
               : ASSAY_OK;
}
