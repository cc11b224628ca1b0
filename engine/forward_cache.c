/*
 * Reads and writes of the cache by the rows of a step.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/forward.h"

static bool is_dropped(const assay_engine *e, int layer, int sequence, int64_t position)
{
    assay_seam_place place = assay_place_of(e, layer);
    place.sequence = sequence;
    const assay_seam_setting *s = assay_seam_at(e->options.seams, ASSAY_SEAM_KV_DROPPED, place);
    return s && s->n_ints > 0 && s->ints[0] == position;
}

/* The slot that a position's row is written to: its own. */
static int64_t slot_of(const assay_engine *e, assay_kv_kind kind, int layer, int64_t position)
{
    double shift = assay_bent_value_of(e, ASSAY_SEAM_KV_SLOT, layer, (int)kind, 0);
    return position + (int64_t)shift;
}

assay_status assay_cache_write(assay_engine *e, assay_kv_kind kind, int layer, assay_rows rows)
{
    for (int i = 0; i < e->n_spans; i++) {
        const assay_span *s = &e->spans[i];
        ASSAY_TRY(assay_kvcache_reserve(e->cache, kind, layer, s->sequence, s->n_keys));
        for (int64_t r = 0; r < s->n_rows; r++) {
            int64_t slot = slot_of(e, kind, layer, s->first + r);
            if (slot < 0 || slot >= e->options.max_positions ||
                is_dropped(e, layer, s->sequence, s->first + r))
                continue;
            ASSAY_TRY(assay_kvcache_reserve(e->cache, kind, layer, s->sequence, slot + 1));
            assay_kvcache_write(e->cache, kind, layer, s->sequence, slot,
                                rows.at + s->rows[r] * rows.stride);
        }
    }
    return ASSAY_OK;
}

static assay_status scaled_copy(const float **rows, float **own, int64_t n, int64_t width,
                                int64_t stride, double scale)
{
    float *copy;
    ASSAY_TRY(assay_alloc(&copy, (size_t)(n * width), sizeof *copy, "cache"));
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < width; c++)
            copy[i * width + c] = (*rows)[i * stride + c] * (float)scale;
    *rows = *own = copy;
    return ASSAY_OK;
}

assay_status assay_cache_read(const float **rows, int64_t *stride, float **own, assay_engine *e,
                              assay_kv_kind kind, int layer, const assay_span *span)
{
    double scale = assay_bent_value_of(e, ASSAY_SEAM_KV_SCALE, layer, (int)kind, 1);
    int from = (int)assay_bent(e, ASSAY_SEAM_KV_READ_LAYER, layer, layer);
    int sequence = (int)assay_bent(e, ASSAY_SEAM_KV_READ_SEQUENCE, layer, span->sequence);
    *own = NULL;
    if (from < 0 || from >= e->hp->n_layer)
        from = layer;
    if (sequence < 0 || sequence >= e->options.max_sequences)
        sequence = span->sequence;
    ASSAY_TRY(assay_kvcache_reserve(e->cache, kind, from, sequence, span->n_keys));
    assay_kvcache_read(rows, stride, e->cache, kind, from, sequence, span->n_keys);
    if (scale == 1)
        return ASSAY_OK;
    return scaled_copy(rows, own, span->n_keys, *stride, *stride, scale);
}
