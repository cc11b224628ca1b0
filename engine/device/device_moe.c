/*
 * The mixture of experts on the device; the counterpart of engine/forward_moe.c. Few rows: the
 * choice stays on the device, and every pair (row, place) is a product of its own. Many rows: the
 * choice is read back once a layer, rows are put together by expert, and cuBLAS multiplies.
 *
 * The shared expert runs on a stream of its own beside the routed ones (few rows), and is waited
 * for before the two are added.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_inside.h"

#define LOST_RACE_US 300 /* head start of the reader where the wait is left out */

static assay_status route(assay_engine *e, assay_rows x, int layer)
{
    assay_device *d = e->device;
    assay_routing how = assay_routing_of(e, layer);
    const float *bias = assay_device_vector(e, ASSAY_ROLE_ROUTER_BIAS, layer);
    const float *choice_bias = assay_bent(e, ASSAY_SEAM_ROUTER_BIAS, layer, 0) == 1 ? NULL : bias;
    assay_rows logits, probs;
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_MOE_LOGITS, layer));
    ASSAY_TRY(assay_device_linear(e, assay_device_rows_of(e, ASSAY_POINT_MOE_LOGITS), x,
                                  ASSAY_ROLE_ROUTER, layer, ASSAY_ROLE_COUNT));
    ASSAY_TRY(assay_device_done_exact(e, ASSAY_POINT_MOE_LOGITS, layer));
    ASSAY_TRY(assay_device_read(&logits, e, ASSAY_POINT_MOE_LOGITS, ASSAY_POINT_MOE_PROBS));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_MOE_PROBS, layer));
    probs = assay_device_rows_of(e, ASSAY_POINT_MOE_PROBS);
    ASSAY_RUN(d, assay_device_router_probs(d->at, probs, logits, &how));
    ASSAY_TRY(assay_device_done_exact(e, ASSAY_POINT_MOE_PROBS, layer));
    ASSAY_TRY(assay_device_read(&probs, e, ASSAY_POINT_MOE_PROBS, ASSAY_POINT_MOE_TOPK));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_MOE_TOPK, layer));
    int32_t *ids = assay_device_ids(e, ASSAY_POINT_MOE_TOPK);
    ASSAY_RUN(d, assay_device_router_choose(d->at, ids, probs, choice_bias, &how));
    ASSAY_TRY(assay_device_done_exact(e, ASSAY_POINT_MOE_TOPK, layer));
    ASSAY_TRY(assay_device_read(NULL, e, ASSAY_POINT_MOE_TOPK, ASSAY_POINT_MOE_WEIGHTS));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_MOE_WEIGHTS, layer));
    ASSAY_RUN(d, assay_device_router_weigh(d->at, assay_device_rows_of(e, ASSAY_POINT_MOE_WEIGHTS),
                                           ids, probs, bias, &how));
    return assay_device_done_exact(e, ASSAY_POINT_MOE_WEIGHTS, layer);
}

/* Which rows of which weight a projection of the experts takes. */
typedef struct part {
    const assay_packed *w;
    int64_t expert_rows;
    assay_slice inner;
} part;

/* Experts that this rank computes. */
typedef struct own {
    int first, n;
} own;

/* By the rank's part; a wrong engine counts from another one. */
static own own_of(const assay_engine *e, int layer)
{
    int n_expert = e->hp->n_expert;
    int from = e->part.expert + (int)assay_bent(e, ASSAY_SEAM_RANK_EXPERT_OFFSET, layer, 0);
    int to = from + e->part.n_expert;
    from = from < 0 ? 0 : from < n_expert ? from : n_expert;
    to = to < from ? from : to < n_expert ? to : n_expert;
    return (own){from, to - from};
}

/* Rows of all pairs in the order of experts, known to the host; first NULL: few rows. */
typedef struct grouping {
    int32_t *pair;   /* [n] host: pairs by expert, then the rows of x they take */
    int64_t *first;  /* [n_expert + 1] */
    int32_t *device; /* both lists */
    int64_t n;
} grouping;

static void free_grouping(grouping *g)
{
    free(g->pair);
    free(g->first);
}

/* The one place where a step of many rows waits for the device. */
static assay_status group_pairs(grouping *g, assay_engine *e, const int32_t *device_ids)
{
    assay_device *d = e->device;
    const assay_hparams *hp = e->hp;
    int64_t n = d->n_bucket * hp->n_expert_used;
    int32_t *ids;
    void *lists;
    g->n = n;
    ASSAY_TRY(assay_device_scratch(&lists, d, ASSAY_SCRATCH_INDEX, (size_t)n * 2 * sizeof *ids));
    g->device = lists;
    ASSAY_TRY(assay_alloc(&g->pair, (size_t)n * 3, sizeof *g->pair, "experts"));
    ASSAY_TRY(assay_alloc(&g->first, (size_t)hp->n_expert + 1, sizeof *g->first, "experts"));
    if (d->is_dry)
        return ASSAY_OK;
    ids = g->pair + 2 * n;
    ASSAY_TRY(assay_cuda_to_host(d->stream, ids, device_ids, (size_t)n * sizeof *ids));
    ASSAY_TRY(assay_cuda_sync(d->stream));
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= hp->n_expert)
            return assay_fail(ASSAY_BAD_SHAPE, "expert %d chosen, and there are %d", ids[i],
                              hp->n_expert);
        g->first[ids[i] + 1]++;
    }
    for (int x = 0; x < hp->n_expert; x++)
        g->first[x + 1] += g->first[x];
    int64_t at[hp->n_expert];
    memcpy(at, g->first, (size_t)hp->n_expert * sizeof *at);
    for (int64_t i = 0; i < n; i++)
        g->pair[at[ids[i]]++] = (int32_t)i;
    for (int64_t i = 0; i < n; i++)
        g->pair[n + i] = g->pair[i] / hp->n_expert_used;
    ASSAY_TRY(assay_cuda_to_device(d->stream, g->device, g->pair, (size_t)n * 2 * sizeof *ids));
    return assay_cuda_sync(d->stream); /* the list is the host's own memory */
}

static bool has_others(const own *o, const assay_engine *e)
{
    return o->n < e->hp->n_expert;
}

static assay_status project_few(assay_engine *e, assay_rows y, assay_rows x, const part *w, int per,
                                const own *o)
{
    assay_device *d = e->device;
    bool has_none = o->n == 0;
    assay_packed_product p = {.w = w->w,
                              .y = y.at,
                              .x = x.at,
                              .n = y.n,
                              .y_stride = y.stride,
                              .x_stride = x.stride,
                              .first_row = w->inner.row,
                              .n_out = w->inner.n_rows,
                              .column = w->inner.column,
                              .n_in = w->inner.n_columns,
                              .n_head = 1,
                              .ids = assay_device_ids(e, ASSAY_POINT_MOE_TOPK),
                              .sequences = e->device->rows.sequences,
                              .used = e->hp->n_expert_used,
                              .per = per,
                              .expert_rows = w->expert_rows,
                              .first_own = has_none ? e->hp->n_expert : o->first,
                              .n_own = has_none ? 1 : o->n};
    if (has_others(o, e))
        ASSAY_RUN(d, assay_device_zero_others(d->at, y, &p));
    return has_none ? ASSAY_OK : assay_device_multiply(e, &p);
}

static assay_status one_expert(assay_engine *e, float *y, const float *x, const part *w, int expert,
                               int64_t n)
{
    assay_packed_product p = {.w = w->w,
                              .y = y,
                              .x = x,
                              .n = n,
                              .y_stride = w->inner.n_rows,
                              .x_stride = w->inner.n_columns,
                              .first_row = expert * w->expert_rows + w->inner.row,
                              .n_out = w->inner.n_rows,
                              .column = w->inner.column,
                              .n_in = w->inner.n_columns,
                              .n_head = 1};
    return assay_device_multiply(e, &p);
}

/* Rows of pairs, in the order of experts, that other ranks compute. */
static assay_status zero_others(assay_engine *e, float *out, int64_t width, const grouping *g,
                                const own *o)
{
    assay_device *d = e->device;
    int64_t before = g->first[o->first], to = g->first[o->first + o->n], n = g->n;
    if (before > 0)
        ASSAY_RUN(d, assay_device_fill(d->at, out, 0, before * width));
    if (to < n)
        ASSAY_RUN(d, assay_device_fill(d->at, out + to * width, 0, (n - to) * width));
    return ASSAY_OK;
}

static assay_status project_many(assay_engine *e, assay_rows y, assay_rows x, const part *w,
                                 int per, const grouping *g, const own *o)
{
    assay_device *d = e->device;
    void *in, *out;
    int64_t in_width = w->inner.n_columns, out_width = w->inner.n_rows;
    ASSAY_TRY(assay_device_scratch(&in, d, ASSAY_SCRATCH_IN, (size_t)(g->n * in_width) * 4));
    ASSAY_TRY(assay_device_scratch(&out, d, ASSAY_SCRATCH_OUT, (size_t)(g->n * out_width) * 4));
    ASSAY_RUN(d, assay_device_gather(d->at, assay_rows_of(in, g->n, in_width), x,
                                     per == 1 ? g->device : g->device + g->n));
    if (d->is_dry) /* scratch of the largest product that may come */
        ASSAY_TRY(one_expert(e, out, in, w, 0, g->n));
    if (has_others(o, e))
        ASSAY_TRY(zero_others(e, out, out_width, g, o));
    for (int i = o->first; i < o->first + o->n; i++) {
        int64_t first = g->first[i], n = g->first[i + 1] - first;
        if (n > 0)
            ASSAY_TRY(one_expert(e, (float *)out + first * out_width,
                                 (float *)in + first * in_width, w, i, n));
    }
    ASSAY_RUN(d, assay_device_scatter(d->at, y, assay_rows_of(out, g->n, out_width), g->device));
    return ASSAY_OK;
}

/* The chosen experts as rows of [T * U, width]. */
static assay_rows pairs_of(const assay_engine *e, assay_point point)
{
    assay_rows r = assay_device_rows_of(e, point);
    return assay_rows_of(r.at, r.n * e->hp->n_expert_used, r.width / e->hp->n_expert_used);
}

static assay_status project(assay_engine *e, assay_point to, assay_rows x, const part *w, int per,
                            const grouping *g, int layer)
{
    const own o = own_of(e, layer);
    ASSAY_TRY(assay_device_begin(e, to, layer));
    assay_rows y = pairs_of(e, to);
    if (g->first)
        ASSAY_TRY(project_many(e, y, x, w, per, g, &o));
    else
        ASSAY_TRY(project_few(e, y, x, w, per, &o));
    return assay_device_done(e, to, layer);
}

static void gate_and_up(part of[2], assay_engine *e, int layer)
{
    static const int right[2] = {0, 1};
    int64_t m = e->hp->n_ff_expert;
    const assay_packed *gate = assay_device_weight(e, ASSAY_ROLE_GATE_EXPS, layer);
    const assay_packed *up = assay_device_weight(e, ASSAY_ROLE_UP_EXPS, layer);
    int64_t from = assay_part_of_weight(e, ASSAY_ROLE_GATE_EXPS, layer).ff_expert;
    assay_slice slice = {from, e->part.n_ff_expert, 0, e->hp->n_embd};
    of[0] = (part){gate, m, slice};
    of[1] = (part){up, m, slice};
    if (!gate || !up) { /* gate rows, then up rows, in every expert */
        const assay_packed *merged = assay_device_weight(e, ASSAY_ROLE_GATE_UP_EXPS, layer);
        of[0] = of[1] = (part){merged, 2 * m, slice};
        of[1].inner.row += m;
    }
    if (assay_part_order(e, -1, layer, right, 2)[0] == 1) {
        part first = of[0];
        of[0] = of[1];
        of[1] = first;
    }
}

static assay_status experts(assay_engine *e, assay_rows x, const grouping *g, bool is_aside,
                            int layer)
{
    assay_device *d = e->device;
    const assay_hparams *hp = e->hp;
    int used = hp->n_expert_used;
    assay_rows down, weights;
    part of[2];
    gate_and_up(of, e, layer);
    ASSAY_TRY(project(e, ASSAY_POINT_MOE_EXPERT_GATE, x, &of[0], used, g, layer));
    ASSAY_TRY(project(e, ASSAY_POINT_MOE_EXPERT_UP, x, &of[1], used, g, layer));
    ASSAY_TRY(assay_device_read(NULL, e, ASSAY_POINT_MOE_EXPERT_GATE, ASSAY_POINT_MOE_EXPERT_ACT));
    ASSAY_TRY(assay_device_read(NULL, e, ASSAY_POINT_MOE_EXPERT_UP, ASSAY_POINT_MOE_EXPERT_ACT));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_MOE_EXPERT_ACT, layer));
    ASSAY_RUN(d, assay_device_swiglu(d->at, pairs_of(e, ASSAY_POINT_MOE_EXPERT_ACT),
                                     pairs_of(e, ASSAY_POINT_MOE_EXPERT_GATE),
                                     pairs_of(e, ASSAY_POINT_MOE_EXPERT_UP)));
    ASSAY_TRY(assay_device_done(e, ASSAY_POINT_MOE_EXPERT_ACT, layer));
    ASSAY_TRY(assay_device_read(NULL, e, ASSAY_POINT_MOE_EXPERT_ACT, ASSAY_POINT_MOE_EXPERT_DOWN));
    int64_t from = assay_part_of_weight(e, ASSAY_ROLE_DOWN_EXPS, layer).ff_expert;
    part w = {assay_device_weight(e, ASSAY_ROLE_DOWN_EXPS, layer),
              hp->n_embd,
              {0, hp->n_embd, from, e->part.n_ff_expert}};
    ASSAY_TRY(project(e, ASSAY_POINT_MOE_EXPERT_DOWN, pairs_of(e, ASSAY_POINT_MOE_EXPERT_ACT), &w,
                      1, g, layer));
    ASSAY_TRY(assay_device_read(&down, e, ASSAY_POINT_MOE_EXPERT_DOWN, ASSAY_POINT_MOE_ROUTED));
    ASSAY_TRY(assay_device_read(&weights, e, ASSAY_POINT_MOE_WEIGHTS, ASSAY_POINT_MOE_ROUTED));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_MOE_ROUTED, layer));
    if (is_aside && assay_bent(e, ASSAY_SEAM_LIVE_BUFFER, layer, 0) != 0) {
        ASSAY_TRY(assay_device_join(e));
        assay_device_place_on(e, ASSAY_POINT_MOE_ROUTED, ASSAY_POINT_SHARED);
    }
    ASSAY_RUN(d, assay_device_weighted_sum(d->at, assay_device_rows_of(e, ASSAY_POINT_MOE_ROUTED),
                                           down, weights));
    return assay_device_done(e, ASSAY_POINT_MOE_ROUTED, layer);
}

static assay_status shared(assay_engine *e, assay_rows x, int layer)
{
    static const assay_point points[2] = {ASSAY_POINT_SHARED_GATE, ASSAY_POINT_SHARED_UP};
    static const assay_role roles[2] = {ASSAY_ROLE_GATE_SHEXP, ASSAY_ROLE_UP_SHEXP};
    static const assay_role biases[2] = {ASSAY_ROLE_COUNT, ASSAY_ROLE_COUNT};
    ASSAY_TRY(assay_device_merged(e, ASSAY_SLOT_FUSED_SHARED, points, roles, biases, x, layer));
    ASSAY_TRY(assay_device_gated(e, ASSAY_POINT_SHARED_GATE, ASSAY_POINT_SHARED_ACT, layer));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_SHARED_ACT, ASSAY_POINT_SHARED));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_SHARED, layer));
    ASSAY_TRY(assay_device_linear(e, assay_device_rows_of(e, ASSAY_POINT_SHARED), x,
                                  ASSAY_ROLE_DOWN_SHEXP, layer, ASSAY_ROLE_COUNT));
    return assay_device_done(e, ASSAY_POINT_SHARED, layer);
}

static bool waits(const assay_engine *e, int layer)
{
    return assay_bent(e, ASSAY_SEAM_STREAM_WAIT, layer, 1) != 0;
}

/* The shared expert beside what comes next on the main stream. */
static assay_status shared_aside(assay_engine *e, assay_rows x, int layer)
{
    assay_device *d = e->device;
    ASSAY_TRY(assay_device_fork(e));
    if (!waits(e, layer))
        ASSAY_RUN(d, assay_device_delay(d->side, LOST_RACE_US));
    ASSAY_TRY(shared(e, x, layer));
    return assay_device_unfork(e);
}

/* Routed and shared together; one of them alone where the model has no shared expert. */
static assay_status together(assay_engine *e, int layer)
{
    assay_device *d = e->device;
    assay_rows routed, beside, y;
    ASSAY_TRY(assay_device_read(&routed, e, ASSAY_POINT_MOE_ROUTED, ASSAY_POINT_MOE_OUT));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_MOE_OUT, layer));
    y = assay_device_rows_of(e, ASSAY_POINT_MOE_OUT);
    if (e->hp->n_expert_shared) {
        ASSAY_TRY(assay_device_read(&beside, e, ASSAY_POINT_SHARED, ASSAY_POINT_MOE_OUT));
        ASSAY_RUN(d, assay_device_add(d->at, y, routed, beside));
    } else {
        ASSAY_RUN(d, assay_device_copy(d->at, y, routed));
    }
    return assay_device_done_reduced(e, ASSAY_POINT_MOE_OUT, layer);
}

assay_status assay_device_moe(assay_engine *e, int layer)
{
    bool few = e->device->n_bucket <= ASSAY_DEVICE_FEW, has_shared = e->hp->n_expert_shared > 0;
    bool aside = has_shared && assay_device_has_side(e);
    grouping g = {0};
    assay_rows x;
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_FFN_NORM, ASSAY_POINT_MOE_LOGITS));
    if (aside)
        ASSAY_TRY(shared_aside(e, x, layer));
    ASSAY_TRY(route(e, x, layer));
    ASSAY_TRY(assay_device_read(NULL, e, ASSAY_POINT_MOE_TOPK, ASSAY_POINT_MOE_ROUTED));
    assay_status s = ASSAY_OK;
    if (!few)
        s = group_pairs(&g, e, assay_device_ids(e, ASSAY_POINT_MOE_TOPK));
    if (s == ASSAY_OK)
        s = experts(e, x, &g, aside, layer);
    free_grouping(&g);
    ASSAY_TRY(s);
    if (has_shared && !aside)
        ASSAY_TRY(shared(e, x, layer));
    if (aside && waits(e, layer))
        ASSAY_TRY(assay_device_join(e));
    ASSAY_TRY(together(e, layer));
    return aside && !waits(e, layer) ? assay_device_join(e) : ASSAY_OK;
}
