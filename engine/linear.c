#include "engine/ops/linear.h"

#include <stdlib.h>
#include <string.h>

#include "engine/forward.h"

static assay_status grow(float **memory, size_t *room, size_t n)
{
    if (n > *room) {
        float *grown;
        ASSAY_TRY(assay_alloc(&grown, n, sizeof *grown, "scratch"));
        free(*memory);
        *memory = grown;
        *room = n;
    }
    return ASSAY_OK;
}

assay_status assay_scratch(float **out, assay_engine *e, size_t n)
{
    ASSAY_TRY(grow(&e->scratch, &e->n_scratch, n));
    *out = e->scratch;
    return ASSAY_OK;
}

assay_status assay_cat(float **out, assay_engine *e, size_t n)
{
    ASSAY_TRY(grow(&e->cat, &e->n_cat, n));
    *out = e->cat;
    return ASSAY_OK;
}

assay_status assay_rounded(float **out, assay_engine *e, size_t n)
{
    ASSAY_TRY(grow(&e->rounded, &e->n_rounded, n));
    *out = e->rounded;
    return ASSAY_OK;
}

void assay_product(const assay_engine *e, assay_rows y, assay_rows x, const float *w,
                   int64_t w_stride, bool add)
{
    (void)e; /* steady in any case */
    assay_op_linear(y, x, w, w_stride, add);
}

void assay_product_t(const assay_engine *e, assay_rows y, assay_rows x, const float *w,
                     int64_t w_stride, bool add)
{
    (e->options.batch_invariant ? assay_op_linear_t_steady : assay_op_linear_t)(y, x, w, w_stride,
                                                                                add);
}

static bool is_shared(assay_role role)
{
    return role == ASSAY_ROLE_GATE_SHEXP || role == ASSAY_ROLE_UP_SHEXP ||
           role == ASSAY_ROLE_DOWN_SHEXP;
}

assay_part assay_part_of_weight(const assay_engine *e, assay_role role, int layer)
{
    assay_part p = e->part;
    const assay_seam_setting *s = assay_bent_of(e, ASSAY_SEAM_RANK_SLICE, layer, (int)role);
    if (s && s->value >= 0 && s->value < p.n_ranks &&
        assay_part_of(&p, e->hp, e->options.whole_experts, (int)s->value, e->part.n_ranks) !=
            ASSAY_OK)
        return e->part;
    return p;
}

/* The slice starts late: at most at the end of the weight. */
static void shift_slice(const assay_engine *e, assay_slice *s, const assay_weight *w)
{
    int64_t by =
        (int64_t)assay_bent_value_of(e, ASSAY_SEAM_RANK_SLICE_SHIFT, w->layer, (int)w->role, 0);
    if (s->n_columns != w->width) {
        if (s->column + by >= 0 && s->column + by + s->n_columns <= w->width)
            s->column += by;
    } else if (s->row + by >= 0 && s->row + by + s->n_rows <= w->n_rows) {
        s->row += by;
    }
}

/* Experts' weights are sliced inside the expert: see forward_moe.c. */
assay_slice assay_slice_of(const assay_engine *e, const assay_weight *w)
{
    const assay_part part = assay_part_of_weight(e, w->role, w->layer), *p = &part;
    const assay_hparams *hp = e->hp;
    assay_slice s = {0, w->n_rows, 0, w->width};
    int64_t per_head;
    switch (assay_role_at(w->role)->kind) {
    case ASSAY_SHARD_HEADS:
        per_head = w->n_rows / hp->n_head;
        s.row = p->head * per_head;
        s.n_rows = p->n_head * per_head;
        break;
    case ASSAY_SHARD_KV_HEADS:
        per_head = w->n_rows / hp->n_head_kv;
        s.row = p->kv_head * per_head;
        s.n_rows = p->n_head_kv * per_head;
        break;
    case ASSAY_SHARD_ROW_HEADS:
        per_head = w->width / hp->n_head;
        s.column = p->head * per_head;
        s.n_columns = p->n_head * per_head;
        break;
    case ASSAY_SHARD_COLUMN:
        s.row = is_shared(w->role) ? p->ff_shared : p->ff;
        s.n_rows = is_shared(w->role) ? p->n_ff_shared : p->n_ff;
        break;
    case ASSAY_SHARD_ROW:
        s.column = is_shared(w->role) ? p->ff_shared : p->ff;
        s.n_columns = is_shared(w->role) ? p->n_ff_shared : p->n_ff;
        break;
    case ASSAY_SHARD_VOCAB:
        s.row = p->vocab;
        s.n_rows = p->n_vocab;
        break;
    default:
        break;
    }
    if (e->options.seams)
        shift_slice(e, &s, w);
    return s;
}

/* The last rows of the slice were never loaded: their outputs are zero. */
static void short_slice(const assay_engine *e, assay_rows y, const assay_weight *w)
{
    int64_t n =
        (int64_t)assay_bent_value_of(e, ASSAY_SEAM_RANK_SLICE_SHORT, w->layer, (int)w->role, 0);
    n = n < y.width ? n : y.width;
    for (int64_t t = 0; t < y.n && n > 0; t++)
        memset(y.at + t * y.stride + y.width - n, 0, (size_t)n * sizeof *y.at);
}

assay_status assay_weight_values(const float **out, assay_engine *e, const assay_weight *weight)
{
    bool bent;
    *out = e->options.seams ? NULL : assay_model_plain(weight, e->options.dtype);
    if (*out)
        return ASSAY_OK;
    ASSAY_TRY(assay_bent_weight(&bent, out, e, weight));
    if (bent || !assay_model_keeps(e->model))
        return ASSAY_OK;
    return assay_model_decoded(out, e->model, weight, e->options.dtype);
}

/* What products that run over the ends of their rows add: the next rows' first elements. */
static void read_beyond(assay_rows y, assay_rows x, const float *w, int64_t w_stride, int64_t n)
{
    n = n < x.width ? n : x.width;
    for (int64_t t = 0; t + 1 < x.n; t++)
        for (int64_t r = 0; r + 1 < y.width; r++)
            for (int64_t i = 0; i < n; i++)
                y.at[t * y.stride + r] += x.at[(t + 1) * x.stride + i] * w[(r + 1) * w_stride + i];
}

/* A kernel that goes by tiles of rows and is wrong in an incomplete one: half of the inputs are
 * left out. */
static void tile_rest(const assay_engine *e, assay_rows y, assay_rows x, const float *w,
                      int64_t w_stride, int64_t tile)
{
    int64_t rest = x.n % tile, first = x.n - rest;
    assay_rows to = {y.at + first * y.stride, rest, y.width, y.stride};
    assay_rows from = {x.at + first * x.stride, rest, x.width / 2, x.stride};
    if (rest && first && from.width > 0)
        assay_product(e, to, from, w, w_stride, false);
}

/* A product of row and width that wraps: what goes to row `n` and behind lands on the first rows.
 */
static void wrap_rows(assay_rows y, int64_t n)
{
    for (int64_t t = n; t < y.n; t++) {
        memcpy(y.at + t % n * y.stride, y.at + t * y.stride, (size_t)y.width * sizeof *y.at);
        memset(y.at + t * y.stride, 0, (size_t)y.width * sizeof *y.at);
    }
}

/* What wrong kernels do to a product that is done. */
static void bend_product(const assay_engine *e, assay_rows y, assay_rows x, const float *w,
                         const assay_weight *weight)
{
    int layer = weight->layer, role = (int)weight->role;
    double beyond = assay_bent_value_of(e, ASSAY_SEAM_READ_BEYOND, layer, role, 0);
    double tile = assay_bent_value_of(e, ASSAY_SEAM_TILE_REST, layer, role, 0);
    int64_t wrap = (int64_t)assay_bent_value_of(e, ASSAY_SEAM_ROW_WRAP, layer, role, 0);
    if (beyond >= 1)
        read_beyond(y, x, w, weight->width, (int64_t)beyond);
    if (tile >= 1)
        tile_rest(e, y, x, w, weight->width, (int64_t)tile);
    if (wrap >= 1)
        wrap_rows(y, wrap);
}

assay_status assay_linear(assay_engine *e, assay_rows y, assay_rows x, const assay_weight *weight,
                          assay_slice slice, bool add)
{
    const float *values;
    ASSAY_BUG_IF(y.width != slice.n_rows || x.width != slice.n_columns);
    if (assay_is_integer(e, weight, slice)) {
        if (!e->options.seams)
            return assay_linear_integer(e, y, x, weight, slice, add);
        ASSAY_TRY(assay_round_rows(&x, e, weight)); /* seams bend values, not codes */
    }
    if (assay_streams(e, weight))
        return assay_linear_streaming(e, y, x, weight, slice, add);
    ASSAY_TRY(assay_weight_values(&values, e, weight));
    if (!values)
        return assay_linear_streaming(e, y, x, weight, slice, add);
    if (e->options.seams &&
        slice.n_columns != weight->width) { /* columns that were not loaded meet no input */
        int64_t n = (int64_t)assay_bent_value_of(e, ASSAY_SEAM_RANK_SLICE_SHORT, weight->layer,
                                                 (int)weight->role, 0);
        x.width -= n > 0 && n < x.width ? n : 0;
    }
    assay_product(e, y, x, values + slice.row * weight->width + slice.column, weight->width, add);
    if (e->options.seams)
        bend_product(e, y, x, values + slice.row * weight->width + slice.column, weight);
    if (e->options.seams && slice.n_columns == weight->width)
        short_slice(e, y, weight);
    return ASSAY_OK;
}

assay_status assay_vector(const float **out, assay_engine *e, assay_role role, int layer)
{
    const assay_weight *w = assay_model_weight(e->model, role, layer);
    float *memory;
    ASSAY_TRY(assay_weight_values(out, e, w));
    if (*out)
        return ASSAY_OK;
    ASSAY_TRY(assay_scratch(&memory, e, (size_t)(w->n_rows * w->width)));
    *out = memory;
    return assay_model_decode_rows(memory, w, 0, w->n_rows, e->options.dtype);
}

assay_status assay_pair_of_vectors(const float **a, const float **b, assay_engine *e,
                                   assay_role role_a, assay_role role_b, int layer)
{
    const assay_weight *wa = assay_model_weight(e->model, role_a, layer);
    const assay_weight *wb = assay_model_weight(e->model, role_b, layer);
    float *memory;
    if (assay_model_keeps(e->model)) {
        ASSAY_TRY(assay_vector(a, e, role_a, layer));
        return assay_vector(b, e, role_b, layer);
    }
    ASSAY_TRY(assay_scratch(&memory, e, (size_t)(wa->width + wb->width)));
    *a = memory;
    *b = memory + wa->width;
    ASSAY_TRY(assay_model_decode_rows(memory, wa, 0, wa->n_rows, e->options.dtype));
    return assay_model_decode_rows(memory + wa->width, wb, 0, wb->n_rows, e->options.dtype);
}

assay_status assay_linear_role(assay_engine *e, assay_rows y, assay_rows x, assay_role role,
                               int layer, assay_role bias)
{
    const assay_weight *w = assay_model_weight(e->model, role, layer);
    assay_slice slice = assay_slice_of(e, w);
    bool reduced = slice.n_columns != w->width;
    bool once = !reduced || e->part.rank == 0 || assay_bent(e, ASSAY_SEAM_RANK_BIAS, layer, 0) != 0;
    ASSAY_TRY(assay_linear(e, y, x, w, slice, false));
    if (bias != ASSAY_ROLE_COUNT && once && assay_model_weight(e->model, bias, layer)) {
        const float *b;
        ASSAY_TRY(assay_vector(&b, e, bias, layer));
        assay_op_bias(y, b + slice.row);
    }
    return e->options.seams ? assay_bend_epilogue(e, y, x, role, layer) : ASSAY_OK;
}
