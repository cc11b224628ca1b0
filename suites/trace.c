#include "suites/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "references/compare.h"

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
    for (int i = 0; i < trace->n; i++)
        free(trace->items[i].values);
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
    **out = (assay_trace_item){
        .point = point, .layer = layer, .checksum = FNV_START, .is_constant = true};
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

static assay_status make_room(assay_trace_item *item, int64_t n_rows, int64_t n_cols)
{
    if (item->n_rows && item->n_cols != n_cols)
        return assay_fail(ASSAY_BAD_SHAPE,
                          "%s of layer %d: rows of %lld elements, %lld in earlier steps",
                          assay_point_at(item->point)->name, item->layer, (long long)n_cols,
                          (long long)item->n_cols);
    item->n_cols = n_cols;
    if (item->n_rows + n_rows > item->rows_room) {
        int64_t room = 2 * item->rows_room > item->n_rows + n_rows ? 2 * item->rows_room
                                                                   : item->n_rows + n_rows;
        float *more = realloc(item->values, (size_t)(room * n_cols) * sizeof *more);
        if (!more)
            return assay_fail(ASSAY_NO_MEMORY, "no memory for a trace of %lld rows",
                              (long long)room);
        item->values = more;
        item->rows_room = room;
    }
    return ASSAY_OK;
}

static bool is_wanted(const assay_trace *trace, const assay_tap_event *event, int64_t row)
{
    return trace->sequence < 0 || event->rows.sequences[row] == trace->sequence;
}

static assay_status add_rows(assay_trace_item *item, const assay_trace *trace,
                             const assay_tap_event *event)
{
    assay_buffer row = *event->buffer;
    int64_t n_cols = assay_buffer_count(event->buffer) / row.dims[0], n_rows = row.dims[0];
    row.dims[0] = 1;
    for (int64_t r = 0; r < n_rows; r++) {
        if (!is_wanted(trace, event, r))
            continue;
        ASSAY_TRY(make_room(item, 1, n_cols));
        row.data = (char *)event->buffer->data +
                   r * event->buffer->strides[0] * (int64_t)assay_dtype_bytes(row.dtype);
        gather(item, item->values + item->n_rows++ * n_cols, &row);
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
    bool by_rows = info->axes[0] == 'T' && !strpbrk(info->axes, "SX");
    if (!by_rows && trace->sequence >= 0)
        return ASSAY_OK;
    ASSAY_TRY(item_of(&item, trace, event->point, event->layer));
    if (by_rows && trace->keep_values)
        return add_rows(item, trace, event);
    gather(item, NULL, b);
    return ASSAY_OK;
}

static bool same_choice(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        bool found = false;
        for (int64_t j = 0; j < n && !found; j++)
            found = a[i] == b[j];
        if (!found)
            return false;
    }
    return true;
}

static void compare_choice(assay_trace_difference *out, int64_t *limit, const assay_trace_item *got,
                           const assay_trace_item *expected, int64_t n_rows)
{
    for (int64_t r = 0; r < n_rows; r++)
        if (!same_choice(got->values + r * got->n_cols, expected->values + r * got->n_cols,
                         got->n_cols)) {
            out->n_flips++;
            *limit = r;
            return;
        }
}

static assay_status to_double(double **out, const float *values, int64_t n)
{
    ASSAY_TRY(assay_alloc(out, (size_t)n, sizeof **out, "values of a trace"));
    for (int64_t i = 0; i < n; i++)
        (*out)[i] = values[i];
    return ASSAY_OK;
}

static assay_status compare_values(assay_trace_difference *out, const assay_trace_item *got,
                                   const assay_trace_item *expected, int64_t n_rows, double bound,
                                   double row_bound)
{
    double *a = NULL, *b = NULL;
    assay_metrics m;
    assay_status s;
    ASSAY_GO(to_double(&a, got->values, n_rows * got->n_cols));
    ASSAY_GO(to_double(&b, expected->values, n_rows * got->n_cols));
    assay_metrics_of(&m, a, b, n_rows, got->n_cols, row_bound);
    out->n_compared++;
    bool passed = m.rel <= bound && m.row_rel_max <= row_bound && !m.n_mask_differ;
    if (!(m.rel <= out->worst)) {
        out->worst = m.rel;
        out->worst_point = got->point;
        out->worst_layer = got->layer;
    }
    if (!passed && !out->failed) {
        int64_t at = m.first_bad >= 0 ? m.first_bad : m.worst_row * got->n_cols;
        out->failed = true;
        out->point = got->point;
        out->layer = got->layer;
        out->row = at / got->n_cols;
        out->col = at % got->n_cols;
        out->got = a[at];
        out->expected = b[at];
        out->rel = m.rel;
    }
out:
    free(a);
    free(b);
    return s;
}

assay_status assay_trace_compare(assay_trace_difference *out, const assay_trace *got,
                                 const assay_trace *expected, double bound, double row_bound)
{
    *out = (assay_trace_difference){0};
    int64_t limit = INT64_MAX; /* rows that are still comparable */
    for (int i = 0; i < expected->n; i++) {
        const assay_trace_item *e = &expected->items[i], *g = find(got, e->point, e->layer);
        if (!g || !g->values || !e->values || g->n_cols != e->n_cols)
            continue;
        int64_t n_rows = g->n_rows < e->n_rows ? g->n_rows : e->n_rows;
        if (n_rows > limit) {
            out->n_left_out += (int)(n_rows - limit);
            n_rows = limit;
        }
        if (!n_rows)
            continue;
        if (assay_point_at(e->point)->is_ids)
            compare_choice(out, &limit, g, e, n_rows);
        else
            ASSAY_TRY(compare_values(out, g, e, n_rows, bound, row_bound));
    }
    return ASSAY_OK;
}
