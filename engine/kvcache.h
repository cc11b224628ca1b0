/*
 * The cache of keys and values of one rank: for each kind, layer and sequence a growing table of
 * rows by position.
 *
 *   K       [position, H (N + R)]   expanded path (llama: [position, G d], rotated)
 *   V       [position, H V]
 *   LATENT  [position, L + R]       latent path: [latent | rotated key]
 *   INDEX   [position, J]           rotated index keys, on layers with an indexer
 *
 * Rows that were never written hold poison. Memory grows with use, up to the capacity given.
 */
#ifndef ASSAY_ENGINE_KVCACHE_H
#define ASSAY_ENGINE_KVCACHE_H

#include <stdint.h>

#include "engine/base/status.h"

typedef enum {
    ASSAY_KV_K,
    ASSAY_KV_V,
    ASSAY_KV_LATENT,
    ASSAY_KV_INDEX,
    ASSAY_KV_COUNT
} assay_kv_kind;

typedef struct assay_kvcache assay_kvcache;

assay_status assay_kvcache_new(assay_kvcache **out, int n_layer, int n_sequences,
                               int64_t n_positions, const int64_t width[ASSAY_KV_COUNT]);
void assay_kvcache_free(assay_kvcache *cache);

/* Makes room for positions 0 ... n - 1. Fails: ASSAY_USAGE beyond the capacity, ASSAY_NO_MEMORY. */
assay_status assay_kvcache_reserve(assay_kvcache *cache, assay_kv_kind kind, int layer,
                                   int sequence, int64_t n);
void assay_kvcache_write(assay_kvcache *cache, assay_kv_kind kind, int layer, int sequence,
                         int64_t position, const float *row);
/* Rows 0 ... n - 1; row p at *rows + p * *stride; valid until the next write to this kind and
 * layer. */
void assay_kvcache_read(const float **rows, int64_t *stride, assay_kvcache *cache,
                        assay_kv_kind kind, int layer, int sequence, int64_t n);
/* Forgets one sequence (-1: all): its rows are poison again. */
void assay_kvcache_reset(assay_kvcache *cache, int sequence);

#endif
