#include "forge_watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double value_at(const assay_buffer *b, int64_t i)
{
    int64_t at = 0;
    for (int d = b->n_dims - 1; d >= 0; d--) {
        at += i % b->dims[d] * b->strides[d];
        i /= b->dims[d];
    }
    return b->dtype == ASSAY_DTYPE_I32 ? ((const int32_t *)b->data)[at]
                                       : (double)((const float *)b->data)[at];
}

static void *copy_of(const void *from, size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        abort();
    return memcpy(p, from, bytes);
}

assay_status watch_tap(void *user, const assay_tap_event *event)
{
    watch *w = user;
    if (w->n == w->room) {
        w->room = w->room ? 2 * w->room : 256;
        w->all = realloc(w->all, (size_t)w->room * sizeof *w->all);
        if (!w->all)
            abort();
    }
    watched *at = &w->all[w->n++];
    *at = (watched){.point = event->point,
                    .layer = event->layer,
                    .step = event->step,
                    .partial = event->partial,
                    .rank = event->rank,
                    .n_dims = event->buffer->n_dims,
                    .n = assay_buffer_count(event->buffer)};
    memcpy(at->dims, event->buffer->dims, sizeof at->dims);
    int *last = &w->last[at->point][at->layer + 1];
    *(*last ? &w->all[*last - 1].next : &w->first[at->point][at->layer + 1]) = w->n;
    *last = w->n;
    at->values = malloc((size_t)at->n * sizeof *at->values + 1);
    if (!at->values)
        abort();
    for (int64_t i = 0; i < at->n; i++)
        at->values[i] = value_at(event->buffer, i);
    at->positions = copy_of(event->rows.positions, (size_t)event->rows.n * sizeof(int32_t));
    at->sequences = copy_of(event->rows.sequences, (size_t)event->rows.n * sizeof(int32_t));
    return ASSAY_OK;
}

void watch_clear(watch *w)
{
    for (int i = 0; i < w->n; i++) {
        free(w->all[i].values);
        free(w->all[i].positions);
        free(w->all[i].sequences);
    }
    free(w->all);
    *w = (watch){0};
}

const watched *watch_find(const watch *w, int64_t step, assay_point point, int layer)
{
    for (int i = w->first[point][layer + 1]; i; i = w->all[i - 1].next)
        if (w->all[i - 1].step == step && !w->all[i - 1].partial)
            return &w->all[i - 1];
    return NULL;
}

double watch_error(const double *a, const double *b, int64_t n)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isinf(b[i]) && a[i] == b[i])
            continue;
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return difference == 0 ? 0 : sqrt(difference / (size > 0 ? size : 1e-300));
}

double watch_row_error(const double *a, const double *b, int64_t n_rows, int64_t width)
{
    double worst = 0;
    for (int64_t t = 0; t < n_rows; t++) {
        double error = watch_error(a + t * width, b + t * width, width);
        if (!(error <= worst))
            worst = error;
    }
    return worst;
}

const double *watch_row(const watch *w, int64_t *width, assay_point point, int layer, int sequence,
                        int32_t position)
{
    for (int i = w->first[point][layer + 1]; i; i = w->all[i - 1].next) {
        const watched *at = &w->all[i - 1];
        if (at->partial)
            continue;
        for (int64_t t = 0; t < at->dims[0]; t++)
            if (at->positions[t] == position && at->sequences[t] == sequence) {
                *width = at->n / at->dims[0];
                return at->values + t * *width;
            }
    }
    return NULL;
}
