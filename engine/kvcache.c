#include "engine/kvcache.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/number.h"

#define OWNER 0xCAC4Eu /* of the poison in rows never written */
#define FIRST_ROWS 64

typedef struct table {
    float *rows;
    int64_t capacity;
} table;

struct assay_kvcache {
    int n_layer, n_sequences;
    int64_t n_positions;
    int64_t width[ASSAY_KV_COUNT];
    table *tables; /* [kind][layer][sequence] */
};

static table *table_of(assay_kvcache *c, assay_kv_kind kind, int layer, int sequence)
{
    ASSAY_BUG_IF(layer < 0 || layer >= c->n_layer || sequence < 0 || sequence >= c->n_sequences);
    return &c->tables[((size_t)kind * (size_t)c->n_layer + (size_t)layer) * (size_t)c->n_sequences +
                      (size_t)sequence];
}

static void poison(float *at, int64_t n)
{
    uint32_t word = assay_poison_f32(OWNER);
    for (int64_t i = 0; i < n; i++)
        memcpy(at + i, &word, sizeof word);
}

assay_status assay_kvcache_new(assay_kvcache **out, int n_layer, int n_sequences,
                               int64_t n_positions, const int64_t width[ASSAY_KV_COUNT])
{
    assay_kvcache *c;
    ASSAY_TRY(assay_alloc(&c, 1, sizeof *c, "cache"));
    *c =
        (assay_kvcache){.n_layer = n_layer, .n_sequences = n_sequences, .n_positions = n_positions};
    memcpy(c->width, width, sizeof c->width);
    assay_status s =
        assay_alloc(&c->tables, (size_t)ASSAY_KV_COUNT * (size_t)n_layer * (size_t)n_sequences,
                    sizeof *c->tables, "cache");
    if (s != ASSAY_OK) {
        free(c);
        return s;
    }
    *out = c;
    return ASSAY_OK;
}

void assay_kvcache_free(assay_kvcache *cache)
{
    if (!cache)
        return;
    size_t n = (size_t)ASSAY_KV_COUNT * (size_t)cache->n_layer * (size_t)cache->n_sequences;
    for (size_t i = 0; i < n; i++)
        free(cache->tables[i].rows);
    free(cache->tables);
    free(cache);
}

assay_status assay_kvcache_reserve(assay_kvcache *cache, assay_kv_kind kind, int layer,
                                   int sequence, int64_t n)
{
    table *t = table_of(cache, kind, layer, sequence);
    int64_t width = cache->width[kind], capacity = t->capacity ? t->capacity : FIRST_ROWS;
    if (n > cache->n_positions)
        return assay_fail(ASSAY_USAGE, "position %lld is beyond the cache of %lld positions",
                          (long long)n - 1, (long long)cache->n_positions);
    if (n <= t->capacity)
        return ASSAY_OK;
    while (capacity < n)
        capacity *= 2;
    if (capacity > cache->n_positions)
        capacity = cache->n_positions;
    float *rows = realloc(t->rows, (size_t)capacity * (size_t)width * sizeof *rows);
    if (!rows)
        return assay_fail(ASSAY_NO_MEMORY, "cache: no memory for %lld rows of %lld",
                          (long long)capacity, (long long)width);
    poison(rows + t->capacity * width, (capacity - t->capacity) * width);
    t->rows = rows;
    t->capacity = capacity;
    return ASSAY_OK;
}

void assay_kvcache_write(assay_kvcache *cache, assay_kv_kind kind, int layer, int sequence,
                         int64_t position, const float *row)
{
    table *t = table_of(cache, kind, layer, sequence);
    ASSAY_BUG_IF(position < 0 || position >= t->capacity);
    memcpy(t->rows + position * cache->width[kind], row, (size_t)cache->width[kind] * sizeof *row);
}

void assay_kvcache_read(const float **rows, int64_t *stride, assay_kvcache *cache,
                        assay_kv_kind kind, int layer, int sequence, int64_t n)
{
    table *t = table_of(cache, kind, layer, sequence);
    ASSAY_BUG_IF(n > t->capacity);
    *rows = t->rows;
    *stride = cache->width[kind];
}

void assay_kvcache_reset(assay_kvcache *cache, int sequence)
{
    for (int kind = 0; kind < ASSAY_KV_COUNT; kind++)
        for (int layer = 0; layer < cache->n_layer; layer++)
            for (int q = 0; q < cache->n_sequences; q++) {
                table *t = table_of(cache, (assay_kv_kind)kind, layer, q);
                if (t->rows && (sequence < 0 || q == sequence))
                    poison(t->rows, t->capacity * cache->width[kind]);
            }
}
