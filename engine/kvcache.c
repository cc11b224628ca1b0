#include "engine/kvcache.h"

#include <stdlib.h>
#include <string.h>

#include "engine/cache_row.h"

#define FIRST_ROWS 64

typedef struct table {
    uint8_t *rows;
    int64_t n; /* rows there is memory for */
} table;

typedef struct block_table {
    int64_t *pages;
    int64_t n;
} block_table;

struct assay_kvcache {
    assay_kvcache_options o;
    table *tables;       /* [kind][layer][sequence, or one for all when paged] */
    block_table *blocks; /* [sequence] */
    int *holders;        /* [n_pages] */
    int64_t n_free;
};

static const char *const type_names[] = {
#define X(id, name) name,
    ASSAY_CACHE_TYPE_TABLE(X)
#undef X
};

const char *assay_cache_type_name(assay_cache_type type)
{
    ASSAY_BUG_IF((unsigned)type >= ASSAY_CACHE_TYPE_COUNT);
    return type_names[type];
}

assay_cache_type assay_cache_type_find(const char *name)
{
    int i = 0;
    while (i < ASSAY_CACHE_TYPE_COUNT && strcmp(type_names[i], name))
        i++;
    return (assay_cache_type)i;
}

static size_t n_tables(const assay_kvcache *c)
{
    size_t owners = c->o.page_size ? 1 : (size_t)c->o.n_sequences;
    return (size_t)ASSAY_KV_COUNT * (size_t)c->o.n_layer * owners;
}

static table *table_of(assay_kvcache *c, int kind, int layer, int sequence)
{
    ASSAY_BUG_IF(layer < 0 || layer >= c->o.n_layer || sequence < 0 ||
                 sequence >= c->o.n_sequences);
    size_t at = (size_t)kind * (size_t)c->o.n_layer + (size_t)layer;
    return &c->tables[c->o.page_size ? at : at * (size_t)c->o.n_sequences + (size_t)sequence];
}

static size_t row_bytes(const assay_kvcache *c, int kind)
{
    return assay_cache_row_bytes(c->o.type, c->o.width[kind]);
}

static void poison(assay_kvcache *c, int kind, table *t, int64_t first, int64_t n)
{
    for (int64_t i = first; i < first + n && i < t->n; i++) {
        uint8_t *row = t->rows + (size_t)i * row_bytes(c, kind);
        if (c->o.is_blank)
            memset(row, 0, row_bytes(c, kind));
        else
            assay_cache_row_poison(row, c->o.type, c->o.width[kind]);
    }
}

assay_status assay_kvcache_new(assay_kvcache **out, const assay_kvcache_options *options)
{
    assay_kvcache *c;
    assay_status s;
    ASSAY_TRY(assay_alloc(&c, 1, sizeof *c, "cache"));
    c->o = *options;
    if (c->o.page_size && c->o.n_pages == 0)
        c->o.n_pages = (c->o.n_positions + c->o.page_size - 1) / c->o.page_size * c->o.n_sequences;
    c->n_free = c->o.page_size ? c->o.n_pages : 0;
    ASSAY_GO(assay_alloc(&c->tables, n_tables(c), sizeof *c->tables, "cache"));
    ASSAY_GO(assay_alloc(&c->blocks, (size_t)c->o.n_sequences, sizeof *c->blocks, "cache"));
    ASSAY_GO(assay_alloc(&c->holders, (size_t)c->n_free, sizeof *c->holders, "cache"));
    *out = c;
    return ASSAY_OK;
out:
    assay_kvcache_free(c);
    return s;
}

void assay_kvcache_free(assay_kvcache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; cache->tables && i < n_tables(cache); i++)
        free(cache->tables[i].rows);
    for (int q = 0; cache->blocks && q < cache->o.n_sequences; q++)
        free(cache->blocks[q].pages);
    free(cache->tables);
    free(cache->blocks);
    free(cache->holders);
    free(cache);
}

int assay_kvcache_page_size(const assay_kvcache *cache)
{
    return cache->o.page_size;
}

int64_t assay_kvcache_n_free(const assay_kvcache *cache)
{
    return cache->n_free;
}

int64_t assay_kvcache_page(const assay_kvcache *cache, int sequence, int64_t index)
{
    const block_table *b = &cache->blocks[sequence];
    return index >= 0 && index < b->n ? b->pages[index] : -1;
}

void assay_kvcache_hold(assay_kvcache *cache, int64_t page)
{
    ASSAY_BUG_IF(page < 0 || page >= cache->o.n_pages);
    if (cache->holders[page]++ == 0)
        cache->n_free--;
}

void assay_kvcache_release(assay_kvcache *cache, int64_t page)
{
    ASSAY_BUG_IF(page < 0 || page >= cache->o.n_pages || cache->holders[page] < 1);
    if (--cache->holders[page])
        return;
    cache->n_free++;
    for (int kind = 0; kind < ASSAY_KV_COUNT; kind++)
        for (int layer = 0; layer < cache->o.n_layer; layer++)
            poison(cache, kind, table_of(cache, kind, layer, 0), page * cache->o.page_size,
                   cache->o.page_size);
}

static assay_status append(block_table *b, int64_t page)
{
    int64_t *grown = realloc(b->pages, (size_t)(b->n + 1) * sizeof *grown);
    if (!grown)
        return assay_fail(ASSAY_NO_MEMORY, "cache: no memory for a block table of %lld pages",
                          (long long)b->n + 1);
    b->pages = grown;
    b->pages[b->n++] = page;
    return ASSAY_OK;
}

assay_status assay_kvcache_attach(assay_kvcache *cache, int sequence, int64_t page)
{
    ASSAY_TRY(append(&cache->blocks[sequence], page));
    assay_kvcache_hold(cache, page);
    return ASSAY_OK;
}

assay_status assay_kvcache_extend(assay_kvcache *cache, int sequence, int64_t n)
{
    if (n > cache->o.n_positions)
        return assay_fail(ASSAY_USAGE, "position %lld is beyond the cache of %lld positions",
                          (long long)n - 1, (long long)cache->o.n_positions);
    block_table *b = &cache->blocks[sequence];
    for (int64_t page = 0; cache->o.page_size && b->n * cache->o.page_size < n;) {
        while (page < cache->o.n_pages && cache->holders[page])
            page++;
        if (page == cache->o.n_pages)
            return assay_fail(ASSAY_NO_MEMORY, "cache: all %lld pages are in use",
                              (long long)cache->o.n_pages);
        ASSAY_TRY(assay_kvcache_attach(cache, sequence, page));
    }
    return ASSAY_OK;
}

int64_t assay_kvcache_slot(const assay_kvcache *cache, int sequence, int64_t position)
{
    if (position < 0 || position >= cache->o.n_positions)
        return -1;
    if (!cache->o.page_size)
        return position;
    int64_t page = assay_kvcache_page(cache, sequence, position / cache->o.page_size);
    return page < 0 ? -1 : page * cache->o.page_size + position % cache->o.page_size;
}

static assay_status make_room(assay_kvcache *c, int kind, table *t, int64_t n)
{
    int64_t most = c->o.page_size ? c->o.n_pages * c->o.page_size : c->o.n_positions;
    int64_t room = t->n ? t->n : FIRST_ROWS;
    while (room < n)
        room *= 2;
    room = room < most ? room : most;
    uint8_t *rows = realloc(t->rows, (size_t)room * row_bytes(c, kind));
    if (!rows)
        return assay_fail(ASSAY_NO_MEMORY, "cache: no memory for %lld rows of %lld",
                          (long long)room, (long long)c->o.width[kind]);
    int64_t before = t->n;
    t->rows = rows;
    t->n = room;
    poison(c, kind, t, before, room - before);
    return ASSAY_OK;
}

assay_status assay_kvcache_write(assay_kvcache *cache, assay_kv_kind kind, int layer, int sequence,
                                 int64_t slot, const float *row)
{
    table *t = table_of(cache, kind, layer, sequence);
    int64_t most =
        cache->o.page_size ? cache->o.n_pages * cache->o.page_size : cache->o.n_positions;
    if (slot < 0 || slot >= most)
        return ASSAY_OK;
    if (slot >= t->n)
        ASSAY_TRY(make_room(cache, kind, t, slot + 1));
    assay_cache_row_store(t->rows + (size_t)slot * row_bytes(cache, kind), cache->o.type, row,
                          cache->o.width[kind]);
    return ASSAY_OK;
}

/* The table itself can be read: plain float32 rows, one behind the other. */
static bool is_plain(const assay_kvcache *c, const table *t, const int64_t *slots, int64_t n)
{
    bool in_order = c->o.type == ASSAY_CACHE_F32;
    for (int64_t i = 0; i < n && in_order; i++)
        in_order = slots[i] == slots[0] + i && slots[i] >= 0 && slots[i] < t->n;
    return in_order && n > 0;
}

assay_status assay_kvcache_read(const float **rows, int64_t *stride, float **own,
                                assay_kvcache *cache, assay_kv_kind kind, int layer, int sequence,
                                const int64_t *slots, int64_t n, assay_cache_scale scale)
{
    table *t = table_of(cache, kind, layer, sequence);
    int64_t width = cache->o.width[kind];
    float *copy;
    *own = NULL;
    *stride = width;
    if (is_plain(cache, t, slots, n)) {
        *rows = (const float *)(const void *)t->rows + slots[0] * width;
        return ASSAY_OK;
    }
    ASSAY_TRY(assay_alloc(&copy, (size_t)(n * width), sizeof *copy, "cache"));
    for (int64_t i = 0; i < n; i++)
        if (slots[i] >= 0 && slots[i] < t->n)
            assay_cache_row_load(copy + i * width, cache->o.type,
                                 t->rows + (size_t)slots[i] * row_bytes(cache, kind), width, scale);
        else
            assay_cache_row_poison(copy + i * width, ASSAY_CACHE_F32, width);
    *rows = *own = copy;
    return ASSAY_OK;
}

void assay_kvcache_reset(assay_kvcache *cache, int sequence)
{
    for (int q = 0; q < cache->o.n_sequences; q++) {
        block_table *b = &cache->blocks[q];
        if (sequence >= 0 && q != sequence)
            continue;
        for (int64_t i = 0; i < b->n; i++)
            assay_kvcache_release(cache, b->pages[i]);
        free(b->pages);
        *b = (block_table){NULL, 0};
        for (int kind = 0; kind < ASSAY_KV_COUNT && !cache->o.page_size; kind++)
            for (int layer = 0; layer < cache->o.n_layer; layer++) {
                table *t = table_of(cache, kind, layer, q);
                poison(cache, kind, t, 0, t->n);
            }
    }
}

void assay_kvcache_truncate(assay_kvcache *cache, int sequence, int64_t n)
{
    int64_t end = cache->o.n_positions;
    if (cache->o.page_size)
        end = cache->blocks[sequence].n * cache->o.page_size;
    for (int64_t position = n; position < end; position++) {
        int64_t slot = assay_kvcache_slot(cache, sequence, position);
        for (int kind = 0; slot >= 0 && kind < ASSAY_KV_COUNT; kind++)
            for (int layer = 0; layer < cache->o.n_layer; layer++)
                poison(cache, kind, table_of(cache, kind, layer, sequence), slot, 1);
    }
}
