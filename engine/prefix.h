/*
 * Reuse of prefixes: pages of the cache that ended sequences have filled, found again by their
 * tokens.
 *
 * A page's identity is its tokens and the page before it (so a chain of pages is a prefix). It is
 * looked up by a hash, and the tokens are compared on every hit: a collision is noticed, counted,
 * and never used. The store holds its pages; the one used longest ago that no other continues is
 * given up when the cache needs pages.
 */
#ifndef ASSAY_ENGINE_PREFIX_H
#define ASSAY_ENGINE_PREFIX_H

#include "engine/kvcache.h"

typedef struct assay_prefix assay_prefix;

typedef struct assay_prefix_options {
    int hash_bits; /* bits of the hash that are used; 0: all 64, -1: none */
    /* what wrong engines do */
    bool unchecked;     /* tokens are not compared */
    bool keeps_evicted; /* a page that was given up is still found */
} assay_prefix_options;

assay_status assay_prefix_new(assay_prefix **out, assay_kvcache *cache,
                              const assay_prefix_options *options);
void assay_prefix_free(assay_prefix *store);

/* Keeps the full pages of a sequence whose tokens are given; it may be reset afterwards. */
assay_status assay_prefix_keep(assay_prefix *store, int sequence, const int32_t *tokens, int64_t n);
/* Attaches the pages of the longest known prefix of at most n tokens to an empty sequence;
 * *n_reused tokens. */
assay_status assay_prefix_find(int64_t *n_reused, assay_prefix *store, int sequence,
                               const int32_t *tokens, int64_t n);
/* Gives up pages until n are free, or none is left. */
void assay_prefix_make_room(assay_prefix *store, int64_t n);
int64_t assay_prefix_n_pages(const assay_prefix *store);
/* Lookups that met another page's tokens under the same hash. */
int64_t assay_prefix_n_collisions(const assay_prefix *store);

#endif
