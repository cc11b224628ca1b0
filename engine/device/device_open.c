/*
 * Opening and closing an engine on a device: weights, caches, streams.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_inside.h"

#define OWN_BYTES ((int64_t)12 << 30)
#define POSITIONS_PER_SPLIT 128
#define MOST_SPLIT 8

int assay_device_count(const char **why)
{
    return assay_cuda_count(why);
}

const char *assay_device_name(char out[128])
{
    return assay_cuda_name(out);
}

static assay_status no_device(void)
{
    const char *why;
    if (assay_cuda_count(&why) > 0)
        return ASSAY_OK;
    return assay_fail(ASSAY_NO_DEVICE, "backend cuda: %s", why);
}

static assay_status open_streams(assay_device *d)
{
    ASSAY_TRY(assay_cuda_use(d->ordinal));
    ASSAY_TRY(assay_cuda_stream_new(&d->stream));
    ASSAY_TRY(assay_cuda_stream_new(&d->side));
    ASSAY_TRY(assay_cuda_event_new(&d->fork, false));
    ASSAY_TRY(assay_cuda_event_new(&d->join, false));
    ASSAY_TRY(assay_cuda_event_new(&d->before, true));
    ASSAY_TRY(assay_cuda_event_new(&d->after, true));
    for (int i = 0; i < ASSAY_DEVICE_RING; i++)
        ASSAY_TRY(assay_cuda_event_new(&d->ring_done[i], false));
    d->at = d->stream;
    return assay_device_quant_tables();
}

static assay_status open_parts(assay_engine *e)
{
    assay_device *d = e->device;
    size_t n_cells = (size_t)(e->hp->n_layer + 1) * ASSAY_DEVICE_CELLS;
    ASSAY_TRY(open_streams(d));
    ASSAY_TRY(assay_device_open_ranks(e));
    ASSAY_TRY(assay_alloc(&d->cells, n_cells, sizeof *d->cells, "buffers"));
    ASSAY_TRY(assay_device_upload(e));
    ASSAY_TRY(assay_device_open_caches(e));
    d->owns_layers = true;
    d->own_bytes = OWN_BYTES;
    int part = e->options.key_split ? e->options.key_split : POSITIONS_PER_SPLIT;
    d->n_split = e->options.max_positions / part;
    d->n_split = d->n_split < 1 ? 1 : d->n_split > MOST_SPLIT ? MOST_SPLIT : d->n_split;
    return ASSAY_OK;
}

assay_status assay_device_open(assay_engine *e)
{
    ASSAY_TRY(no_device());
    ASSAY_TRY(assay_alloc(&e->device, 1, sizeof *e->device, "device"));
    e->device->ordinal = assay_device_ordinal(e);
    return open_parts(e); /* assay_engine_free closes what is there */
}

void assay_device_free_cells(assay_engine *e)
{
    assay_device *d = e->device;
    size_t n = (size_t)(e->hp->n_layer + 1) * ASSAY_DEVICE_CELLS;
    for (size_t i = 0; d->cells && i < n; i++) {
        assay_cuda_free(d->cells[i].memory);
        d->cells[i] = (assay_cell){0};
    }
    d->cell_bytes = 0;
}

static void free_scratch(assay_device *d)
{
    for (int i = 0; i < ASSAY_SCRATCH_COUNT; i++)
        assay_cuda_free(d->scratch[i].memory);
    for (int i = 0; i < d->n_turns; i++) {
        free(d->turns[i].f);
        assay_cuda_free(d->turns[i].f_at);
        assay_cuda_free(d->turns[i].table);
    }
}

void assay_device_close(assay_engine *e)
{
    assay_device *d = e->device;
    if (!d)
        return;
    if (d->stream)
        assay_cuda_sync(d->stream);
    assay_plan_drop_all(d);
    assay_device_free_cells(e);
    free(d->cells);
    free_scratch(d);
    assay_device_drop_weights(e);
    assay_device_close_caches(e);
    assay_cuda_free(d->rows.tokens);
    assay_cuda_free(d->greedy);
    assay_cuda_free(d->captured_positions);
    assay_cuda_free(d->counts_device);
    assay_cuda_pinned_free(d->counts);
    assay_cuda_pinned_free(d->ring);
    assay_cuda_pinned_free(d->shown_memory);
    assay_cuda_pinned_free(d->logits);
    for (int i = 0; i < ASSAY_DEVICE_RING; i++)
        assay_cuda_event_free(d->ring_done[i]);
    assay_device_close_ranks(d);
    assay_cuda_blas_free(d->blas);
    assay_cuda_event_free(d->fork);
    assay_cuda_event_free(d->join);
    assay_cuda_event_free(d->before);
    assay_cuda_event_free(d->after);
    assay_cuda_stream_free(d->side);
    assay_cuda_stream_free(d->stream);
    free(d);
    e->device = NULL;
}
