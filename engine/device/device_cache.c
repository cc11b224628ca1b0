/*
 * Caches of keys and values in device memory, contiguous or in pages, in the stored types of
 * engine/cache_row.h. Ops read float32: rows of another type are decoded, one layer at a time, to
 * contiguous scratch memory, as many as their sequences have.
 */
#include <stdlib.h>

#include "engine/cache_row.h"
#include "engine/device/device_inside.h"

#define CACHE_OWNER 0xCAC4Eu /* of rows never written, as on the host (engine/cache_row.c) */

/* Kinds that this model and path write. */
static bool is_cached(const assay_engine *e, int kind, int layer)
{
    bool latent = e->hp->is_mla && e->options.path == ASSAY_PATH_LATENT;
    if (kind == ASSAY_KV_INDEX)
        return e->hp->has_indexer && e->hp->index_full[layer];
    return kind == ASSAY_KV_LATENT ? latent : !latent;
}

static bool is_plain(const assay_engine *e)
{
    return e->options.cache_type == ASSAY_CACHE_F32;
}

static int64_t n_rows(const assay_engine *e)
{
    const assay_engine_options *o = &e->options;
    if (!o->page_size)
        return (int64_t)o->max_positions * o->max_sequences;
    return (o->n_pages ? o->n_pages : (int64_t)e->device->n_pages * o->max_sequences) *
           o->page_size;
}

static int64_t row_bytes(const assay_engine *e, int kind)
{
    return (int64_t)assay_cache_row_bytes(e->options.cache_type, e->device->cache_width[kind]);
}

static size_t cache_bytes(const assay_engine *e, int kind)
{
    return (size_t)(n_rows(e) * row_bytes(e, kind));
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

static assay_status open_memory(assay_engine *e)
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
    ASSAY_TRY(assay_cuda_alloc((void **)&d->n_keys_at,
                               (size_t)e->options.max_sequences * sizeof *d->n_keys_at, "caches"));
    for (int kind = 0; kind < ASSAY_KV_COUNT; kind++) {
        ASSAY_TRY(assay_alloc(&d->caches[kind], n_layer, sizeof *d->caches[kind], "caches"));
        for (int layer = assay_model_first_layer(e->model);
             layer <= assay_model_last_layer(e->model); layer++)
            if (is_cached(e, kind, layer))
                ASSAY_TRY(assay_cuda_alloc(&d->caches[kind][layer], cache_bytes(e, kind), "cache"));
    }
    return ASSAY_OK;
}

static assay_status tell_bases(assay_engine *e)
{
    assay_device *d = e->device;
    size_t n = (size_t)e->hp->n_layer;
    for (int kind = 0; kind < ASSAY_KV_COUNT; kind++)
        ASSAY_TRY(assay_cuda_to_device(d->stream, d->bases + (size_t)kind * n, d->caches[kind],
                                       n * sizeof(void *)));
    return assay_cuda_sync(d->stream);
}

/* n rows of a cache from row `first` on. */
static assay_status poison(assay_engine *e, int kind, void *cache, int64_t first, int64_t n)
{
    return assay_device_cache_poison(e->device->stream, (char *)cache + first * row_bytes(e, kind),
                                     e->options.cache_type, row_bytes(e, kind), n,
                                     assay_poison_f32(CACHE_OWNER));
}

static assay_status poison_caches(assay_engine *e, int sequence)
{
    int64_t capacity = e->options.max_positions;
    for (int kind = 0; kind < ASSAY_KV_COUNT; kind++)
        for (int layer = 0; layer < e->hp->n_layer; layer++) {
            void *at = e->device->caches[kind][layer];
            if (at && sequence < 0)
                ASSAY_TRY(poison(e, kind, at, 0, n_rows(e)));
            else if (at)
                ASSAY_TRY(poison(e, kind, at, sequence * capacity, capacity));
        }
    return assay_cuda_sync(e->device->stream);
}

assay_status assay_device_open_caches(assay_engine *e)
{
    ASSAY_TRY(open_pages(e));
    ASSAY_TRY(open_memory(e));
    ASSAY_TRY(tell_bases(e));
    return poison_caches(e, -1);
}

void assay_device_close_caches(assay_engine *e)
{
    assay_device *d = e->device;
    for (int kind = 0; kind < ASSAY_KV_COUNT; kind++) {
        for (int layer = 0; d->caches[kind] && layer < e->hp->n_layer; layer++)
            assay_cuda_free(d->caches[kind][layer]);
        free(d->caches[kind]);
    }
    assay_cuda_free(d->bases);
    assay_cuda_free(d->n_keys_at);
    assay_cuda_free(d->pages_at);
    free(d->pages);
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
            void *old = d->caches[kind][layer], *fresh;
            if (!old)
                continue;
            ASSAY_TRY(assay_cuda_alloc(&fresh, cache_bytes(e, kind), "cache"));
            ASSAY_TRY(assay_cuda_within(d->stream, fresh, old, cache_bytes(e, kind)));
            /* What still reads the old place shall find nothing that looks right. */
            ASSAY_TRY(poison(e, kind, old, 0, n_rows(e)));
            ASSAY_TRY(assay_cuda_sync(d->stream));
            assay_cuda_free(old);
            d->caches[kind][layer] = fresh;
        }
    return tell_bases(e);
}

static assay_device_cache cache_of(const assay_engine *e, assay_kv_kind kind, int layer)
{
    const assay_device *d = e->device;
    return (assay_device_cache){.base = d->bases + (size_t)kind * (size_t)e->hp->n_layer +
                                        (size_t)layer,
                                .type = e->options.cache_type,
                                .capacity = e->options.max_positions,
                                .width = d->cache_width[kind],
                                .row_bytes = row_bytes(e, kind),
                                .pages = d->pages_at,
                                .page = e->options.page_size,
                                .n_pages = d->n_pages};
}

assay_status assay_device_write_cache(assay_engine *e, assay_kv_kind kind, int layer, assay_rows a,
                                      assay_rows b)
{
    assay_device *d = e->device;
    assay_device_cache cache = cache_of(e, kind, layer);
    ASSAY_RUN(d, assay_device_cache_write(d->at, &cache, a, b, &d->rows));
    return ASSAY_OK;
}

assay_status assay_device_count_keys(assay_engine *e)
{
    assay_device *d = e->device;
    if (!is_plain(e))
        ASSAY_RUN(
            d, assay_device_cache_lengths(d->at, d->n_keys_at, e->options.max_sequences, &d->rows));
    return ASSAY_OK;
}

assay_status assay_device_read_cache(assay_device_cache *out, assay_engine *e, assay_kv_kind kind,
                                     int layer)
{
    static const int scratch[ASSAY_KV_COUNT] = {[ASSAY_KV_K] = ASSAY_SCRATCH_KEYS,
                                                [ASSAY_KV_V] = ASSAY_SCRATCH_VALUES,
                                                [ASSAY_KV_LATENT] = ASSAY_SCRATCH_KEYS,
                                                [ASSAY_KV_INDEX] = ASSAY_SCRATCH_INDEX_KEYS};
    assay_device *d = e->device;
    assay_device_cache cache = cache_of(e, kind, layer);
    int n_sequences = e->options.max_sequences;
    void *decoded;
    *out = cache;
    if (is_plain(e))
        return ASSAY_OK;
    ASSAY_TRY(
        assay_device_scratch(&decoded, d, scratch[kind],
                             (size_t)(n_sequences * cache.capacity * cache.width) * sizeof(float)));
    ASSAY_RUN(d, assay_device_cache_decode(d->at, decoded, &cache, d->n_keys_at, n_sequences));
    *out = (assay_device_cache){.decoded = decoded,
                                .type = ASSAY_CACHE_F32,
                                .capacity = cache.capacity,
                                .width = cache.width,
                                .row_bytes = cache.width * (int64_t)sizeof(float)};
    return ASSAY_OK;
}
