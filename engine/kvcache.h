/*
 * The cache of keys and values of one rank. For each kind and layer a table of rows, one per
 * position:
 *
 *   K       H (N + R)   expanded path (llama: G d, rotated)
 *   V       H V
 *   LATENT  L + R       latent path: [latent | rotated key]
 *   INDEX   J           rotated index keys, on layers with an indexer
 *
 * Contiguous (page_size 0): every sequence has tables of its own, row p is position p. Paged: one
 * table for all sequences, cut into pages of page_size rows; a sequence's block table says which
 * page holds its positions i page_size ...; all kinds and layers use the same pages. Pages come
 * back when nobody holds them any more.
 *
 * Rows are stored as `type` says: f32, f16, bf16; q8_0: blocks of 32 with one float16 scale;
 * f8e4m3: one float32 scale per row, the largest magnitude over 448. Rows that were never written,
 * and rows of pages that were given back, hold poison.
 */
#ifndef ASSAY_ENGINE_KVCACHE_H
#define ASSAY_ENGINE_KVCACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef enum {
    ASSAY_KV_K,
    ASSAY_KV_V,
    ASSAY_KV_LATENT,
    ASSAY_KV_INDEX,
    ASSAY_KV_COUNT
} assay_kv_kind;

/* X(id, name) */
#define ASSAY_CACHE_TYPE_TABLE(X)                                                                  \
    X(F32, "f32")                                                                                  \
    X(F16, "f16")                                                                                  \
    X(BF16, "bf16")                                                                                \
    X(Q8_0, "q8_0")                                                                                \
    X(F8E4M3, "f8e4m3")

typedef enum {
#define X(id, name) ASSAY_CACHE_##id,
    ASSAY_CACHE_TYPE_TABLE(X)
#undef X
        ASSAY_CACHE_TYPE_COUNT
} assay_cache_type;

const char *assay_cache_type_name(assay_cache_type type);
/* ASSAY_CACHE_TYPE_COUNT: no such type. */
assay_cache_type assay_cache_type_find(const char *name);

typedef struct assay_kvcache_options {
    int n_layer, n_sequences;
    int64_t n_positions; /* of one sequence, at most */
    int64_t width[ASSAY_KV_COUNT];
    assay_cache_type type;
    int page_size;   /* 0: contiguous */
    int64_t n_pages; /* 0: enough for all sequences */
    bool is_blank;   /* zeros for poison, as engines have it that do not look */
} assay_kvcache_options;

typedef struct assay_kvcache assay_kvcache;

assay_status assay_kvcache_new(assay_kvcache **out, const assay_kvcache_options *options);
void assay_kvcache_free(assay_kvcache *cache);

/* Room for positions 0 ... n - 1. Fails: ASSAY_USAGE beyond the capacity, ASSAY_NO_MEMORY when no
 * page is free. */
assay_status assay_kvcache_extend(assay_kvcache *cache, int sequence, int64_t n);
/* Row of a position in the tables of its sequence (-1: the sequence has no room there). */
int64_t assay_kvcache_slot(const assay_kvcache *cache, int sequence, int64_t position);
/* Writes a row at a slot; one below 0 or beyond the tables is left out (only a wrong slot can be).
 */
assay_status assay_kvcache_write(assay_kvcache *cache, assay_kv_kind kind, int layer, int sequence,
                                 int64_t slot, const float *row);
/* How rows of types with a scale are read (what wrong readers do is for seams). */
typedef enum {
    ASSAY_CACHE_SCALE_RIGHT,
    ASSAY_CACHE_SCALE_ONE,
    ASSAY_CACHE_SCALE_POWER_OF_2, /* its exponent alone */
    ASSAY_CACHE_SCALE_ZERO
} assay_cache_scale;

/* Rows of slots[0 ... n - 1] as float32; row i at *rows + i * *stride. *own: to free, NULL when
 * *rows is the table itself. */
assay_status assay_kvcache_read(const float **rows, int64_t *stride, float **own,
                                assay_kvcache *cache, assay_kv_kind kind, int layer, int sequence,
                                const int64_t *slots, int64_t n, assay_cache_scale scale);

/* Forgets one sequence (-1: all): its pages go back, its rows are poison. */
void assay_kvcache_reset(assay_kvcache *cache, int sequence);

/* Positions n and behind of a sequence are poison again; its pages stay. */
void assay_kvcache_truncate(assay_kvcache *cache, int sequence, int64_t n);

/* ---- pages, for reuse by other sequences (engine/prefix.h) ---- */
int assay_kvcache_page_size(const assay_kvcache *cache);
int64_t assay_kvcache_n_free(const assay_kvcache *cache);
/* Page behind positions index * page_size ... of a sequence; -1: none. */
int64_t assay_kvcache_page(const assay_kvcache *cache, int sequence, int64_t index);
/* One more (one less) holder; at none the page is poisoned and free. */
void assay_kvcache_hold(assay_kvcache *cache, int64_t page);
void assay_kvcache_release(assay_kvcache *cache, int64_t page);
/* Puts a held page into a sequence's block table, which must end there. */
assay_status assay_kvcache_attach(assay_kvcache *cache, int sequence, int64_t page);

#endif
