#include "engine/prefix.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    int64_t page, parent; /* parent -1: the first page of a prefix */
    uint64_t hash;
    int64_t used; /* clock of the last use */
    int32_t *tokens;
    bool is_gone; /* its page was given up (only where evicted pages are still found) */
} entry;

struct assay_prefix {
    assay_kvcache *cache;
    assay_prefix_options options;
    entry *entries;
    int64_t n, room, clock, n_collisions;
};

assay_status assay_prefix_new(assay_prefix **out, assay_kvcache *cache,
                              const assay_prefix_options *options)
{
    ASSAY_BUG_IF(assay_kvcache_page_size(cache) < 1);
    ASSAY_TRY(assay_alloc(out, 1, sizeof **out, "prefixes"));
    (*out)->cache = cache;
    (*out)->options = *options;
    return ASSAY_OK;
}

static void remove_entry(assay_prefix *store, int64_t i)
{
    if (!store->entries[i].is_gone)
        assay_kvcache_release(store->cache, store->entries[i].page);
    free(store->entries[i].tokens);
    store->entries[i] = store->entries[--store->n];
}

void assay_prefix_free(assay_prefix *store)
{
    if (!store)
        return;
    while (store->n)
        remove_entry(store, store->n - 1);
    free(store->entries);
    free(store);
}

/* FNV-1a over the page before and the tokens, cut to the bits in use. */
static uint64_t hash_of(const assay_prefix *store, int64_t parent, const int32_t *tokens)
{
    uint64_t hash = 0xCBF29CE484222325u ^ (uint64_t)(parent + 1);
    int n = assay_kvcache_page_size(store->cache), bits = store->options.hash_bits;
    for (int i = 0; i < n; i++)
        hash = (hash ^ (uint32_t)tokens[i]) * 0x100000001B3u;
    hash ^= hash >> 32;
    if (bits < 0)
        return 0;
    return bits > 0 && bits < 64 ? hash & ((UINT64_C(1) << bits) - 1) : hash;
}

static entry *find(assay_prefix *store, int64_t parent, const int32_t *tokens)
{
    uint64_t hash = hash_of(store, parent, tokens);
    size_t bytes = (size_t)assay_kvcache_page_size(store->cache) * sizeof *tokens;
    for (int64_t i = 0; i < store->n; i++) {
        entry *e = &store->entries[i];
        if (e->hash != hash)
            continue;
        if (e->parent == parent &&
            (store->options.unchecked || !memcmp(e->tokens, tokens, bytes))) {
            e->used = ++store->clock;
            return e;
        }
        store->n_collisions++;
    }
    return NULL;
}

static assay_status add(assay_prefix *store, int64_t page, int64_t parent, const int32_t *tokens)
{
    size_t n = (size_t)assay_kvcache_page_size(store->cache);
    if (store->n == store->room) {
        int64_t room = store->room ? 2 * store->room : 16;
        entry *grown = realloc(store->entries, (size_t)room * sizeof *grown);
        if (!grown)
            return assay_fail(ASSAY_NO_MEMORY, "prefixes: no memory for %lld pages",
                              (long long)room);
        store->entries = grown;
        store->room = room;
    }
    entry e = {page, parent, hash_of(store, parent, tokens), ++store->clock, NULL, false};
    ASSAY_TRY(assay_alloc(&e.tokens, n, sizeof *tokens, "prefixes"));
    memcpy(e.tokens, tokens, n * sizeof *tokens);
    assay_kvcache_hold(store->cache, page);
    store->entries[store->n++] = e;
    return ASSAY_OK;
}

assay_status assay_prefix_keep(assay_prefix *store, int sequence, const int32_t *tokens, int64_t n)
{
    int64_t size = assay_kvcache_page_size(store->cache), parent = -1;
    for (int64_t i = 0; (i + 1) * size <= n; i++) {
        int64_t page = assay_kvcache_page(store->cache, sequence, i);
        entry *known = find(store, parent, tokens + i * size);
        if (page < 0)
            break;
        if (!known)
            ASSAY_TRY(add(store, page, parent, tokens + i * size));
        parent = known ? known->page : page;
    }
    return ASSAY_OK;
}

assay_status assay_prefix_find(int64_t *n_reused, assay_prefix *store, int sequence,
                               const int32_t *tokens, int64_t n)
{
    int64_t size = assay_kvcache_page_size(store->cache), parent = -1, i = 0;
    for (; (i + 1) * size <= n; i++) {
        entry *known = find(store, parent, tokens + i * size);
        if (!known)
            break;
        ASSAY_TRY(assay_kvcache_attach(store->cache, sequence, known->page));
        parent = known->page;
    }
    *n_reused = i * size;
    return ASSAY_OK;
}

static bool is_continued(const assay_prefix *store, int64_t page)
{
    for (int64_t i = 0; i < store->n; i++)
        if (store->entries[i].parent == page && !store->entries[i].is_gone)
            return true;
    return false;
}

void assay_prefix_make_room(assay_prefix *store, int64_t n)
{
    while (assay_kvcache_n_free(store->cache) < n && store->n) {
        int64_t oldest = -1;
        for (int64_t i = 0; i < store->n; i++)
            if (!store->entries[i].is_gone && !is_continued(store, store->entries[i].page) &&
                (oldest < 0 || store->entries[i].used < store->entries[oldest].used))
                oldest = i;
        if (oldest < 0)
            return;
        if (store->options.keeps_evicted) {
            assay_kvcache_release(store->cache, store->entries[oldest].page);
            store->entries[oldest].is_gone = true;
        } else {
            remove_entry(store, oldest);
        }
    }
}

int64_t assay_prefix_n_pages(const assay_prefix *store)
{
    return store->n;
}

int64_t assay_prefix_n_collisions(const assay_prefix *store)
{
    return store->n_collisions;
}
