#include "suites/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "references/compare.h"
#include "references/tolerance.h"

#define FNV_START 14695981039346656037ULL
#define FNV_PRIME 1099511628211ULL

struct assay_trace {
    bool keep_values;
    int sequence; /* -1: all */
    int n, room;
    assay_trace_item *items;
};

assay_status assay_trace_new(assay_trace **out, bool keep_values, int sequence)
{
    ASSAY_TRY(assay_alloc(out, 1, sizeof **out, "a trace"));
    (*out)->keep_values = keep_values;
    (*out)->sequence = sequence;
    return ASSAY_OK;
}

void assay_trace_free(assay_trace *trace)
{
    if (!trace)
        return;
    for (int i = 0; i < trace->n; i++) {
        free(trace->items[i].values);
        free(trace->items[i].starts);
    }
    free(trace->items);
    free(trace);
}

int assay_trace_n(const assay_trace *trace)
{
    return trace->n;
}

const assay_trace_item *assay_trace_at(const assay_trace *trace, int index)
{
    return &trace->items[index];
}

static assay_trace_item *find(const assay_trace *trace, assay_point point, int layer)
{
    for (int i = 0; i < trace->n; i++)
        if (trace->items[i].point == point && trace->items[i].layer == layer)
            return &trace->items[i];
    return NULL;
}

const assay_trace_item *assay_trace_find(const assay_trace *trace, assay_point point, int layer)
{
    return find(trace, point, layer);
}

static assay_status item_of(assay_trace_item **out, assay_trace *trace, assay_point point,
                            int layer)
{
    *out = find(trace, point, layer);
    if (*out)
        return ASSAY_OK;
    if (trace->n == trace->room) {
        int room = trace->room ? 2 * trace->room : 256;
        assay_trace_item *more = realloc(trace->items, (size_t)room * sizeof *more);
        if (!more)
            return assay_fail(ASSAY_NO_MEMORY, "no memory for %d points of a trace", room);
        trace->items = more;
        trace->room = room;
    }
    *out = &trace->items[trace->n++];
    **out = (assay_trace_item){.point = point,
                               .layer = layer,
                               .checksum = FNV_START,
                               .is_constant = true,
                               .shard_axis = -1};
    return ASSAY_OK;
}

static float element(const assay_buffer *b, int64_t at)
{
    switch (b->dtype) {
    case ASSAY_DTYPE_F32:
        return ((const float *)b->data)[at];
    case ASSAY_DTYPE_F64:
        return (float)((const double *)b->data)[at];
    case ASSAY_DTYPE_F16:
        return assay_f16_to_f32(((const uint16_t *)b->data)[at]);
    case ASSAY_DTYPE_BF16:
        return assay_bf16_to_f32(((const uint16_t *)b->data)[at]);
    case ASSAY_DTYPE_F8E4M3:
        return assay_f8e4m3_to_f32(((const uint8_t *)b->data)[at]);
    case ASSAY_DTYPE_I8:
        return ((const int8_t *)b->data)[at];
    case ASSAY_DTYPE_I32:
        return (float)((const int32_t *)b->data)[at];
    case ASSAY_DTYPE_I64:
        return (float)((const int64_t *)b->data)[at];
    default:
        return NAN;
    }
}

static void sum_up(assay_trace_item *item, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (!item->n_elements++)
        item->first_bits = bits;
    item->is_constant &= bits == item->first_bits;
    item->checksum = (item->checksum ^ bits) * FNV_PRIME;
}

/* All elements in canonical order; out may be NULL. */
static void gather(assay_trace_item *item, float *out, const assay_buffer *b)
{
    int64_t dims[ASSAY_MAX_DIMS] = {1, 1, 1, 1}, strides[ASSAY_MAX_DIMS] = {0};
    for (int i = 0; i < b->n_dims; i++) {
        dims[ASSAY_MAX_DIMS - b->n_dims + i] = b->dims[i];
        strides[ASSAY_MAX_DIMS - b->n_dims + i] = b->strides[i];
    }
    for (int64_t i = 0; i < dims[0]; i++)
        for (int64_t j = 0; j < dims[1]; j++)
            for (int64_t k = 0; k < dims[2]; k++)
                for (int64_t l = 0; l < dims[3]; l++) {
                    float x = element(b, i * strides[0] + j * strides[1] + k * strides[2] +
                                             l * strides[3]);
                    sum_up(item, x);
                    if (out)
                        *out++ = x;
                }
}

static assay_status grow(void *memory, int64_t *room, int64_t needed, size_t size)
{
    void **block = memory;
    if (needed <= *room)
        return ASSAY_OK;
    int64_t more = 2 * *room > needed ? 2 * *room : needed;
    void *bigger = realloc(*block, (size_t)more * size);
    if (!bigger)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for a trace of %lld values", (long long)more);
    *block = bigger;
    *room = more;
    return ASSAY_OK;
}

/* Room for one more row of at most n values; *out: where it goes. */
static assay_status new_row(float **out, assay_trace_item *item, int64_t n)
{
    ASSAY_TRY(grow(&item->starts, &item->rows_room, item->n_rows + 2, sizeof *item->starts));
    if (!item->n_rows)
        item->starts[0] = 0;
    int64_t start = item->starts[item->n_rows];
    ASSAY_TRY(grow(&item->values, &item->values_room, start + n, sizeof *item->values));
    *out = item->values + start;
    return ASSAY_OK;
}

static void end_row(assay_trace_item *item, int64_t n)
{
    item->starts[item->n_rows + 1] = item->starts[item->n_rows] + n;
    item->n_rows++;
    if (n > item->n_cols)
        item->n_cols = n;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The causal part of a row: chosen keys in order of their ids, scores up to the row's position. */
static int64_t causal_part(float *row, int64_t n, char axis, int64_t position)
{
    if (axis == 'S')
        return position + 1 < n ? position + 1 : n;
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (row[i] >= 0 && row[i] <= (float)position)
            row[kept++] = row[i];
    qsort(row, (size_t)kept, sizeof *row, by_value);
    return kept;
}

/* One row of a point that ranks share: their parts side by side along the shared axis. */
static assay_status join_row(assay_trace_item *out, const assay_trace_item *const *parts, int n,
                             int64_t row)
{
    int64_t width = 0;
    float *to;
    for (int r = 0; r < n; r++)
        width += parts[r]->starts[row + 1] - parts[r]->starts[row];
    ASSAY_TRY(new_row(&to, out, width));
    for (int64_t o = 0; o < parts[0]->n_outer; o++)
        for (int r = 0; r < n; r++) {
            int64_t part = (parts[r]->starts[row + 1] - parts[r]->starts[row]) / parts[r]->n_outer;
            memcpy(to, parts[r]->values + parts[r]->starts[row] + o * part,
                   (size_t)part * sizeof *to);
            to += part;
        }
    end_row(out, width);
    return ASSAY_OK;
}

assay_status assay_trace_join(assay_trace **out, assay_trace *const *ranks, int n)
{
    const assay_trace_item *parts[n];
    assay_trace *joined;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(assay_trace_new(&joined, true, -1));
    for (int i = 0; i < ranks[0]->n; i++) {
        const assay_trace_item *first = &ranks[0]->items[i];
        int copies = first->n_copies > 1 ? first->n_copies : 1;
        int n_parts = first->shard_axis < 0 ? 1 : n / copies;
        bool complete = first->values != NULL;
        for (int r = 0; r < n_parts && complete; r++) {
            parts[r] = find(ranks[r * copies], first->point, first->layer);
            complete = parts[r] && parts[r]->values && parts[r]->n_rows == first->n_rows;
        }
        if (!complete)
            continue;
        assay_trace_item *item;
        ASSAY_GO(item_of(&item, joined, first->point, first->layer));
        for (int64_t row = 0; row < first->n_rows; row++)
            ASSAY_GO(join_row(item, parts, n_parts, row));
    }
    *out = joined;
    return ASSAY_OK;
out:
    assay_trace_free(joined);
    return s;
}

static bool is_wanted(const assay_trace *trace, const assay_tap_event *event, int64_t row)
{
    return trace->sequence < 0 || event->rows.sequences[row] == trace->sequence;
}

static assay_status add_rows(assay_trace_item *item, const assay_trace *trace,
                             const assay_tap_event *event)
{
    const char *ragged = strpbrk(assay_point_at(event->point)->axes, "SX");
    assay_buffer row = *event->buffer;
    int64_t n_cols = assay_buffer_count(event->buffer) / row.dims[0], n_rows = row.dims[0];
    row.dims[0] = 1;
    item->shard_axis = event->shard_axis;
    item->n_copies = event->n_copies;
    item->n_outer = 1;
    for (int i = 1; i < event->shard_axis; i++)
        item->n_outer *= row.dims[i];
    for (int64_t r = 0; r < n_rows; r++) {
        float *out;
        if (!is_wanted(trace, event, r))
            continue;
        ASSAY_TRY(new_row(&out, item, n_cols));
        row.data = (char *)event->buffer->data +
                   r * event->buffer->strides[0] * (int64_t)assay_dtype_bytes(row.dtype);
        gather(item, out, &row);
        end_row(item,
                ragged ? causal_part(out, n_cols, *ragged, event->rows.positions[r]) : n_cols);
    }
    return ASSAY_OK;
}

assay_status assay_trace_tap(void *user, const assay_tap_event *event)
{
    assay_trace *trace = user;
    const assay_point_info *info = assay_point_at(event->point);
    const assay_buffer *b = event->buffer;
    assay_trace_item *item;
    if (event->partial || b->place != ASSAY_PLACE_HOST || !assay_buffer_count(b))
        return ASSAY_OK;
    bool by_rows = info->axes[0] == 'T';
    if (!by_rows && trace->sequence >= 0)
        return ASSAY_OK;
    ASSAY_TRY(item_of(&item, trace, event->point, event->layer));
    if (by_rows && trace->keep_values)
        return add_rows(item, trace, event);
    gather(item, NULL, b);
    return ASSAY_OK;
}

static const float *row_of(const assay_trace_item *item, int64_t row, int64_t *n)
{
    *n = item->starts[row + 1] - item->starts[row];
    return item->values + item->starts[row];
}

static int64_t find_id(const float *ids, int64_t n, float id)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] == id)
            return i;
    return -1;
}

/* The same ids; experts in any order (selected keys are sorted). */
static bool same_choice(const assay_trace_item *a, const assay_trace_item *b, int64_t row)
{
    int64_t n, n_b;
    const float *x = row_of(a, row, &n), *y = row_of(b, row, &n_b);
    if (n != n_b)
        return false;
    if (!memcmp(x, y, (size_t)n * sizeof *x))
        return true;
    if (a->point != ASSAY_POINT_MOE_TOPK)
        return false;
    for (int64_t i = 0; i < n; i++)
        if (find_id(y, n, x[i]) < 0)
            return false;
    return true;
}

static void compare_choice(assay_trace_difference *out, int64_t *limit, const assay_trace_item *got,
                           const assay_trace_item *expected, int64_t n_rows)
{
    for (int64_t r = 0; r < n_rows; r++)
        if (!same_choice(got, expected, r)) {
            out->n_flips++;
            *limit = r;
            return;
        }
}

/* Rows side by side as [n_rows, n_cols], short ones filled up with zeros. */
static assay_status to_double(double **out, const assay_trace_item *item, int64_t n_rows,
                              int64_t n_cols)
{
    ASSAY_TRY(assay_alloc(out, (size_t)(n_rows * n_cols), sizeof **out, "values of a trace"));
    for (int64_t r = 0; r < n_rows; r++) {
        int64_t n;
        const float *row = row_of(item, r, &n);
        for (int64_t i = 0; i < n; i++)
            (*out)[r * n_cols + i] = row[i];
    }
    return ASSAY_OK;
}

/* Two experts chosen with nearly equal weight may change places: puts got's blocks in the order of
 * expected's experts. */
static void match_experts(double *got, const assay_trace_item *got_ids,
                          const assay_trace_item *expected_ids, int64_t n_rows, int64_t n_cols)
{
    for (int64_t r = 0; r < n_rows; r++) {
        int64_t n_used, n_other;
        const float *a = row_of(got_ids, r, &n_used), *b = row_of(expected_ids, r, &n_other);
        int64_t width = n_cols / n_used;
        double *row = got + r * n_cols, copy[n_cols];
        if (n_used != n_other || !memcmp(a, b, (size_t)n_used * sizeof *a))
            continue;
        memcpy(copy, row, sizeof copy);
        for (int64_t u = 0; u < n_used; u++) {
            int64_t from = find_id(a, n_used, b[u]);
            if (from >= 0)
                memcpy(row + u * width, copy + from * width, (size_t)width * sizeof *row);
        }
    }
}

static void tell_first(assay_trace_difference *out, const assay_metrics *m,
                       const assay_trace_item *item, const double *got, const double *expected,
                       int64_t n_cols)
{
    int64_t at = m->first_bad >= 0 ? m->first_bad : m->worst_row * n_cols;
    out->failed = true;
    out->point = item->point;
    out->layer = item->layer;
    out->row = at / n_cols;
    out->col = at % n_cols;
    out->got = got[at];
    out->expected = expected[at];
}

typedef struct pair {
    const assay_trace *got_trace, *expected_trace;
    const assay_trace_item *got, *expected;
    int64_t n_rows;
    double bound, row_bound; /* of the median and of the largest row error */
} pair;

static assay_status compare_values(assay_trace_difference *out, const pair *p)
{
    double *a = NULL, *b = NULL;
    int64_t n_cols = p->got->n_cols > p->expected->n_cols ? p->got->n_cols : p->expected->n_cols;
    int layer = p->got->layer;
    assay_metrics m;
    assay_status s;
    ASSAY_GO(to_double(&a, p->got, p->n_rows, n_cols));
    ASSAY_GO(to_double(&b, p->expected, p->n_rows, n_cols));
    const assay_trace_item *ids = find(p->got_trace, ASSAY_POINT_MOE_TOPK, layer),
                           *other = find(p->expected_trace, ASSAY_POINT_MOE_TOPK, layer);
    if (strchr(assay_point_at(p->got->point)->axes, 'U') && ids && other)
        match_experts(a, ids, other, p->n_rows, n_cols);
    assay_metrics_of(&m, a, b, p->n_rows, n_cols, p->row_bound);
    out->n_compared++;
    if (!(m.row_rel_median * out->worst_bound <= out->worst * p->bound) || out->n_compared == 1) {
        out->worst = m.row_rel_median;
        out->worst_bound = p->bound;
        out->worst_point = p->got->point;
        out->worst_layer = layer;
    }
    bool passed = m.row_rel_median <= p->bound && m.row_rel_max <= p->row_bound && !m.n_mask_differ;
    if (!passed && !out->failed) {
        tell_first(out, &m, p->got, a, b, n_cols);
        out->bound = m.row_rel_median <= p->bound ? p->row_bound : p->bound;
        out->rel = m.row_rel_median <= p->bound ? m.row_rel_max : m.row_rel_median;
    }
out:
    free(a);
    free(b);
    return s;
}

assay_status assay_trace_compare(assay_trace_difference *out, const assay_trace *got,
                                 const assay_trace *expected, int n_layers, assay_dtype dtype,
                                 bool activations_q8)
{
    *out = (assay_trace_difference){0};
    int64_t limit = INT64_MAX; /* rows that are still comparable */
    for (int i = 0; i < expected->n; i++) {
        const assay_trace_item *e = &expected->items[i], *g = find(got, e->point, e->layer);
        if (!g || !g->values || !e->values)
            continue;
        int64_t n_rows = g->n_rows < e->n_rows ? g->n_rows : e->n_rows;
        if (n_rows > limit) {
            out->n_left_out += (int)(n_rows - limit);
            n_rows = limit;
        }
        if (!n_rows)
            continue;
        assay_tolerance t = assay_tolerance_of(e->point, e->layer, n_layers, dtype, activations_q8);
        pair p = {got, expected, g, e, n_rows, sqrt(2) * t.row_median, sqrt(2) * t.row_max};
        if (assay_point_at(e->point)->is_ids)
            compare_choice(out, &limit, g, e, n_rows);
        else
            ASSAY_TRY(compare_values(out, &p));
    }
    return ASSAY_OK;
}
