/*
 * Opening and closing an engine on a device: weights, caches, streams.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_inside.h"

#define CACHE_OWNER 0xCAC4Eu /* of rows never written, as on the host (engine/kvcache.c) */
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

/* Kinds that this model and path write. */
static bool is_cached(const assay_engine *e, int kind, int layer)
{
    bool latent = e->hp->is_mla && e->options.path == ASSAY_PATH_LATENT;
    if (kind == ASSAY_KV_INDEX)
        return e->hp->has_indexer && e->hp->index_full[layer];
    return kind == ASSAY_KV_LATENT ? latent : !latent;
}

static int64_t cache_floats(const assay_engine *e, int kind)
{
    const assay_engine_options *o = &e->options;
    int64_t rows = (int64_t)o->max_positions * o->max_sequences;
    if (o->page_size)
        rows = (o->n_pages ? o->n_pages : (int64_t)e->device->n_pages * o->max_sequences) *
               o->page_size;
    return e->device->cache_width[kind] * rows;
}

/* Pages are given and taken by the host's bookkeeping (engine/kvcache.c). A change waits for the
 * steps that are under way. */
assay_status assay_device_send_pages(assay_engine *e)
{
    assay_device *d = e->device;
    bool is_new = false;
    for (int s = 0; s < e->options.max_sequences && d->n_pages; s++)
        for (int i = 0; i < d->n_pages; i++) {
            int32_t page = (int32_t)assay_kvcache_page(e->cache, s, i);
            is_new = is_new || d->pages[s * d->n_pages + i] != page;
            d->pages[s * d->n_pages + i] = page;
        }
    if (!is_new)
        return ASSAY_OK;
    ASSAY_TRY(assay_cuda_to_device(d->stream, d->pages_at, d->pages,
                                   (size_t)e->options.max_sequences * (size_t)d->n_pages *
                                       sizeof *d->pages));
    return assay_cuda_sync(d->stream);
}

static assay_status open_pages(assay_engine *e)
{
    assay_device *d = e->device;
    const assay_engine_options *o = &e->options;
    if (!o->page_size)
        return ASSAY_OK;
    d->n_pages = (o->max_positions + o->page_size - 1) / o->page_size;
    size_t n = (size_t)o->max_sequences * (size_t)d->n_pages;
    ASSAY_TRY(assay_alloc(&d->pages, n, sizeof *d->pages, "block tables"));
    return assay_cuda_alloc((void **)&d->pages_at, n * sizeof *d->pages, "block tables");
}

static assay_status open_caches(assay_engine *e)
{
    assay_device *d = e->device;
    const assay_hparams *hp = e->hp;
    size_t n_layer = (size_t)hp->n_layer;
    d->cache_width[ASSAY_KV_K] = (int64_t)e->part.n_head_kv * hp->d_head;
    d->cache_width[ASSAY_KV_V] = (int64_t)e->part.n_head_kv * hp->d_value;
    d->cache_width[ASSAY_KV_LATENT] = hp->n_rank_kv + hp->d_rope;
    d->cache_width[ASSAY_KV_INDEX] = hp->index_d_head;
    ASSAY_TRY(
        assay_cuda_alloc((void **)&d->bases, ASSAY_KV_COUNT * n_layer * sizeof(void *), "caches"));
    for (int kind = 0; kind < ASSAY_KV_COUNT; kind++) {
        ASSAY_TRY(assay_alloc(&d->caches[kind], n_layer, sizeof *d->caches[kind], "caches"));
        for (int layer = assay_model_first_layer(e->model);
             layer <= assay_model_last_layer(e->model); layer++)
            if (is_cached(e, kind, layer))
                ASSAY_TRY(assay_cuda_alloc((void **)&d->caches[kind][layer],
                                           (size_t)cache_floats(e, kind) * 4, "cache"));
    }
    return ASSAY_OK;
}

static assay_status tell_bases(assay_engine *e)
{
    assay_device *d = e->device;
    size_t n = (size_t)e->hp->n_layer;
    for (int kind = 0; kind < ASSAY_KV_COUNT; kind++)
        ASSAY_TRY(assay_cuda_to_device(d->stream, d->bases + (size_t)kind * n, d->caches[kind],
                                       n * sizeof(float *)));
    return assay_cuda_sync(d->stream);
}

static assay_status poison_caches(assay_engine *e, int sequence)
{
    assay_device *d = e->device;
    uint32_t word = assay_poison_f32(CACHE_OWNER);
    for (int kind = 0; kind < ASSAY_KV_COUNT; kind++) {
        int64_t n = d->cache_width[kind] * e->options.max_positions;
        for (int layer = 0; layer < e->hp->n_layer; layer++) {
            float *at = d->caches[kind][layer];
            if (at && sequence < 0)
                ASSAY_TRY(assay_device_fill(d->stream, at, word, cache_floats(e, kind)));
            else if (at)
                ASSAY_TRY(assay_device_fill(d->stream, at + sequence * n, word, n));
        }
    }
    return assay_cuda_sync(d->stream);
}

/* Pages that are given back keep their rows: a prefix may be found again, and who gets a page for
 * something else writes a row before it is read. */
assay_status assay_device_reset(assay_engine *e, int sequence)
{
    return e->device->n_pages ? ASSAY_OK : poison_caches(e, sequence);
}

assay_status assay_device_move_cache(assay_engine *e)
{
    assay_device *d = e->device;
    ASSAY_TRY(assay_cuda_sync(d->stream));
    for (int kind = 0; kind < ASSAY_KV_COUNT; kind++)
        for (int layer = 0; layer < e->hp->n_layer; layer++) {
            size_t bytes = (size_t)cache_floats(e, kind) * 4;
            float *old = d->caches[kind][layer];
            void *fresh;
            if (!old)
                continue;
            ASSAY_TRY(assay_cuda_alloc(&fresh, bytes, "cache"));
            ASSAY_TRY(assay_cuda_within(d->stream, fresh, old, bytes));
            /* What still reads the old place shall find nothing that looks right. */
            ASSAY_TRY(assay_device_fill(d->stream, old, assay_poison_f32(CACHE_OWNER),
                                        cache_floats(e, kind)));
            ASSAY_TRY(assay_cuda_sync(d->stream));
            assay_cuda_free(old);
            d->caches[kind][layer] = fresh;
        }
    return tell_bases(e);
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
    ASSAY_TRY(open_pages(e));
    ASSAY_TRY(open_caches(e));
    ASSAY_TRY(tell_bases(e));
    ASSAY_TRY(poison_caches(e, -1));
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
    for (int kind = 0; kind < ASSAY_KV_COUNT; kind++) {
        for (int layer = 0; d->caches[kind] && layer < e->hp->n_layer; layer++)
            assay_cuda_free(d->caches[kind][layer]);
        free(d->caches[kind]);
    }
    assay_cuda_free(d->bases);
    assay_cuda_free(d->pages_at);
    free(d->pages);
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
