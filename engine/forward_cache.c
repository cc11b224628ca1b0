/*
 * Reads and writes of the cache by the rows of a step.
 */
#include <stdlib.h>

#include "engine/forward.h"

static bool is_dropped(const assay_engine *e, int layer, int sequence, int64_t position)
{
    assay_seam_place place = assay_place_of(e, layer);
    place.sequence = sequence;
    const assay_seam_setting *s = assay_seam_at(e->options.seams, ASSAY_SEAM_KV_DROPPED, place);
    return s && s->n_ints > 0 && s->ints[0] == position;
}

/* The block table entry of a position is its own; a wrong engine takes a neighbour's. */
static int64_t slot_of(const assay_engine *e, int layer, int sequence, int64_t position)
{
    int64_t page_size = assay_kvcache_page_size(e->cache);
    int64_t shift = (int64_t)assay_bent(e, ASSAY_SEAM_KV_PAGE, layer, 0);
    int64_t wrap = (int64_t)assay_bent(e, ASSAY_SEAM_KV_WRAP, layer, 0);
    if (page_size && shift)
        position += shift * page_size;
    int64_t slot = assay_kvcache_slot(e->cache, sequence, position);
    return wrap > 0 && slot >= 0 ? slot % wrap : slot;
}

assay_status assay_cache_write(assay_engine *e, assay_kv_kind kind, int layer, assay_rows rows)
{
    int64_t shift = (int64_t)assay_bent_value_of(e, ASSAY_SEAM_KV_SLOT, layer, (int)kind, 0);
    for (int i = 0; i < e->n_spans; i++) {
        const assay_span *s = &e->spans[i];
        for (int64_t r = 0; r < s->n_rows; r++) {
            int64_t slot = assay_kvcache_slot(e->cache, s->sequence, s->first + r);
            if (!is_dropped(e, layer, s->sequence, s->first + r))
                ASSAY_TRY(assay_kvcache_write(e->cache, kind, layer, s->sequence, slot + shift,
                                              rows.at + s->rows[r] * rows.stride));
        }
    }
    return ASSAY_OK;
}

/* What was read, as another codec or scale would have it: rows that are not the cache's own may be
 * changed in place. */
static assay_status bend_read(const float **rows, float **own, const assay_engine *e,
                              assay_kv_kind kind, int layer, int64_t n, int64_t width)
{
    double scale = assay_bent_value_of(e, ASSAY_SEAM_KV_SCALE, layer, (int)kind, 1);
    double codec = assay_bent_value_of(e, ASSAY_SEAM_KV_CODEC, layer, (int)kind, 0);
    float *copy = *own;
    if (scale == 1 && codec == 0)
        return ASSAY_OK;
    if (!copy) {
        ASSAY_TRY(assay_alloc(&copy, (size_t)(n * width), sizeof *copy, "cache"));
        for (int64_t i = 0; i < n * width; i++)
            copy[i] = (*rows)[i];
        *rows = *own = copy;
    }
    for (int64_t i = 0; i < n * width; i++) {
        if (codec == 1) /* bytes of bfloat16 read as float16 */
            copy[i] = assay_f16_to_f32(assay_f32_to_bf16(copy[i]));
        else if (codec == 2) /* bytes of float16 read as bfloat16 */
            copy[i] = assay_bf16_to_f32(assay_f32_to_f16(copy[i]));
        copy[i] *= (float)scale;
    }
    return ASSAY_OK;
}

assay_status assay_cache_read(const float **rows, int64_t *stride, float **own, assay_engine *e,
                              assay_kv_kind kind, int layer, const assay_span *span)
{
    int from = (int)assay_bent(e, ASSAY_SEAM_KV_READ_LAYER, layer, layer);
    int sequence = (int)assay_bent(e, ASSAY_SEAM_KV_READ_SEQUENCE, layer, span->sequence);
    assay_cache_scale scale = (assay_cache_scale)assay_bent_value_of(
        e, ASSAY_SEAM_KV_ROW_SCALE, layer, (int)kind, ASSAY_CACHE_SCALE_RIGHT);
    int64_t *slots;
    if (from < 0 || from >= e->hp->n_layer)
        from = layer;
    if (sequence < 0 || sequence >= e->options.max_sequences)
        sequence = span->sequence;
    ASSAY_TRY(assay_alloc(&slots, (size_t)span->n_keys, sizeof *slots, "cache"));
    for (int64_t i = 0; i < span->n_keys; i++)
        slots[i] = slot_of(e, layer, sequence, i);
    assay_status s = assay_kvcache_read(rows, stride, own, e->cache, kind, from, sequence, slots,
                                        span->n_keys, scale);
    free(slots);
    if (s != ASSAY_OK)
        return s;
    return bend_read(rows, own, e, kind, layer, span->n_keys, *stride);
}
