#include <stdlib.h>
#include <string.h>

#include "engine/comm.h"
#include "engine/forward.h"
#include "engine/ops/pointwise.h"

assay_seam_place assay_place_of(const assay_engine *e, int layer)
{
    return (assay_seam_place){layer, -1, e->part.rank, (int)e->step, -1};
}

/* This rank's size of one axis. */
static int64_t axis(const assay_engine *e, char letter)
{
    const assay_part *p = &e->part;
    int64_t top_k = e->hp->index_top_k;
    switch (letter) {
    case 'T':
        return e->batch.n;
    case 'S':
        return e->n_keys_most;
    case 'X':
        return top_k < e->n_keys_most ? top_k : e->n_keys_most;
    case 'H':
        return p->n_head;
    case 'G':
        return p->n_head_kv;
    case 'F':
        return p->n_ff;
    case 'M':
        return p->n_ff_expert;
    case 'Z':
        return p->n_ff_shared;
    case 'R':
        return e->hp->d_rope;
    default:
        return assay_hparams_axis(e->hp, letter);
    }
}

int assay_point_dims(int64_t dims[ASSAY_MAX_DIMS], const assay_engine *e, assay_point point)
{
    const char *axes = assay_point_at(point)->axes;
    if (!e->hp->is_mla) { /* key and value heads of their own, and a rotated key per head */
        if (point == ASSAY_POINT_K)
            axes = "TGK";
        else if (point == ASSAY_POINT_V)
            axes = "TGV";
        else if (point == ASSAY_POINT_K_ROPE)
            axes = "TGR";
    }
    int n = (int)strlen(axes);
    for (int i = 0; i < n; i++)
        dims[i] = axis(e, axes[i]);
    return n;
}

/* Mode of an op's hand-over, and the count that goes with it. */
static int divert_of(const assay_engine *e, assay_point point, int layer, int64_t *n)
{
    const assay_seams *seams = e->options.seams;
    const assay_seam_setting *s;
    assay_seam_place place = assay_place_of(e, layer);
    if (point == ASSAY_POINT_OUT_ATTN) {
        s = assay_seam_at(seams, ASSAY_SEAM_ATTN_OUT_BUFFER, place);
        *n = s && s->n_ints > 0 ? s->ints[0] : 0;
    } else {
        s = assay_seam_of(seams, ASSAY_SEAM_OUTPUT_BUFFER, place, (int)point);
        s = s && s->n_ints > 0 ? s : NULL;
        *n = s && s->n_ints > 1 ? s->ints[1] : 0;
    }
    return s && s->value >= ASSAY_DIVERT_ZEROED && s->value <= ASSAY_DIVERT_HEADS
               ? (int)s->value
               : ASSAY_DIVERT_NONE;
}

assay_status assay_point_begin(assay_engine *e, assay_point point, int layer)
{
    int64_t dims[ASSAY_MAX_DIMS], unused;
    int n = assay_point_dims(dims, e, point);
    bool ids = assay_point_at(point)->is_ids;
    return assay_slots_begin_diverted(
        &e->slots, point, layer, ids ? ASSAY_DTYPE_I32 : ASSAY_DTYPE_F32, n, dims,
        ids ? ASSAY_DIVERT_NONE : divert_of(e, point, layer, &unused));
}

assay_status assay_point_settle(assay_engine *e, assay_point point, int layer)
{
    int64_t n;
    divert_of(e, point, layer, &n);
    return assay_slots_settle(&e->slots, point, n, e->part.n_head);
}

bool assay_point_is_partial(const assay_engine *e, assay_point point)
{
    switch (point) {
    case ASSAY_POINT_MOE_EXPERT_GATE:
    case ASSAY_POINT_MOE_EXPERT_UP:
    case ASSAY_POINT_MOE_EXPERT_ACT: /* zero where another rank has the expert */
        return e->part.n_ranks > 1 && e->options.whole_experts;
    case ASSAY_POINT_MOE_EXPERT_DOWN:
    case ASSAY_POINT_MOE_ROUTED:
    case ASSAY_POINT_SHARED:
        return e->part.n_ranks > 1;
    default:
        return false;
    }
}

int assay_point_shard_axis(const assay_engine *e, assay_point point)
{
    int64_t dims[ASSAY_MAX_DIMS];
    const char *axes = assay_point_at(point)->axes;
    if (e->part.n_ranks == 1)
        return -1;
    int n = assay_point_dims(dims, e, point);
    if (!e->hp->is_mla &&
        (point == ASSAY_POINT_K || point == ASSAY_POINT_V || point == ASSAY_POINT_K_ROPE))
        return e->part.n_head_kv < e->hp->n_head_kv ? 1 : -1;
    for (int i = 0; i < n; i++)
        if (axes[i] == 'H' || axes[i] == 'F' || axes[i] == 'Z' ||
            (axes[i] == 'M' && !e->options.whole_experts))
            return i;
    return -1;
}

/* More ranks than key heads: neighbours hold the same one. */
int assay_point_n_copies(const assay_engine *e, assay_point point)
{
    bool by_key_head = !e->hp->is_mla && (point == ASSAY_POINT_K || point == ASSAY_POINT_V ||
                                          point == ASSAY_POINT_K_ROPE);
    return by_key_head ? e->part.n_ranks * e->part.n_head_kv / e->hp->n_head_kv : 1;
}

bool assay_point_wanted(const assay_engine *e, assay_point point, int layer)
{
    const assay_engine_options *o = &e->options;
    if (o->inject)
        return true;
    return o->tap && (!o->wants || o->wants(o->tap_user, point, layer));
}

static assay_status show(assay_engine *e, assay_point point, int layer, const assay_buffer *shown,
                         const assay_buffer *written, const assay_buffer *read, bool partial)
{
    const assay_engine_options *o = &e->options;
    if (!assay_point_wanted(e, point, layer))
        return ASSAY_OK;
    assay_tap_event event = {
        .point = point,
        .layer = layer,
        .buffer = shown,
        .rows = {e->batch.n, e->batch.tokens, e->positions, e->sequences},
        .step = e->step,
        .is_prefill = e->is_prefill,
        .rank = e->part.rank,
        .n_ranks = e->part.n_ranks,
        .partial = partial,
        .shard_axis = partial ? -1 : assay_point_shard_axis(e, point),
        .n_copies = assay_point_n_copies(e, point),
        .written_address = written->data,
        .read_address = read->data,
        .written_owner = written->owner,
        .read_owner = read->owner,
        .written_generation = written->generation,
        .read_generation = read->generation,
    };
    if (o->inject)
        ASSAY_TRY(o->inject(o->inject_user, &event));
    if (o->tap && (!o->wants || o->wants(o->tap_user, point, layer)))
        ASSAY_TRY(o->tap(o->tap_user, &event));
    return ASSAY_OK;
}

assay_status assay_point_show(assay_engine *e, assay_point point, int layer,
                              const assay_buffer *shown, const assay_buffer *written,
                              const assay_buffer *read)
{
    return show(e, point, layer, shown, written, read, assay_point_is_partial(e, point));
}

/* values = sum over ranks, as often as the seam says (once). */
static assay_status reduce(assay_engine *e, assay_point point, int layer, assay_rows y)
{
    const assay_seam_setting *late = assay_bent_of(e, ASSAY_SEAM_REDUCE_LATE, layer, (int)point);
    double times = assay_bent_value_of(e, ASSAY_SEAM_REDUCE_TIMES, layer, (int)point, 1);
    int64_t n = y.n * y.width, kept = times < 1                  ? y.n
                                      : late && late->n_ints > 1 ? late->ints[1]
                                                                 : 0;
    float *own = NULL;
    ASSAY_BUG_IF(y.stride != y.width);
    kept = kept < y.n ? kept : y.n;
    if (kept > 0) {
        ASSAY_TRY(assay_alloc(&own, (size_t)(kept * y.width), sizeof *own, "reduction"));
        memcpy(own, y.at, (size_t)(kept * y.width) * sizeof *own);
    }
    assay_status s = assay_comm_sum(e->options.comm, y.at, n);
    if (kept > 0)
        memcpy(y.at, own, (size_t)(kept * y.width) * sizeof *own);
    for (double again = 1; again < times; again++)
        assay_op_scale(y, e->part.n_ranks);
    free(own);
    return s;
}

assay_status assay_point_done_reduced(assay_engine *e, assay_point point, int layer)
{
    const assay_slot *slot = &e->slots.slots[point];
    assay_rows y = assay_slots_written(&e->slots, point);
    if (e->part.n_ranks > 1) {
        if (e->options.dtype == ASSAY_DTYPE_BF16)
            assay_op_round_bf16(y);
        ASSAY_TRY(show(e, point, layer, &slot->written, &slot->written, &slot->written, true));
        ASSAY_TRY(reduce(e, point, layer, y));
    }
    return assay_point_done(e, point, layer);
}

assay_status assay_point_done_exact(assay_engine *e, assay_point point, int layer)
{
    const assay_slot *slot = &e->slots.slots[point];
    if (!assay_point_at(point)->is_ids)
        assay_bend_rows(e, point, layer, assay_slots_written(&e->slots, point));
    ASSAY_TRY(assay_point_settle(e, point, layer));
    assay_slots_done(&e->slots, point);
    return assay_point_show(e, point, layer, &slot->buffer, &slot->written, &slot->buffer);
}

assay_status assay_point_done(assay_engine *e, assay_point point, int layer)
{
    if (e->options.dtype == ASSAY_DTYPE_BF16)
        assay_op_round_bf16(assay_slots_written(&e->slots, point));
    return assay_point_done_exact(e, point, layer);
}

assay_status assay_point_read(assay_rows *rows, assay_engine *e, assay_point point,
                              assay_point reader)
{
    ASSAY_TRY(assay_slots_read(&e->slots, point, reader));
    *rows = assay_slots_rows(&e->slots, point);
    if (e->options.seams && assay_bent_value_of(e, ASSAY_SEAM_VIEW_STRIDE,
                                                e->slots.slots[point].layer, (int)point, 0) != 0)
        rows->stride = rows->width;
    return ASSAY_OK;
}
