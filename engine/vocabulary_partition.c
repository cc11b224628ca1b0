#include "engine/vocabulary.h"

#include <stdlib.h>
#include <string.h>

/* A place where a special token's text stands; rank: place in vocabulary->special. */
struct occurrence {
    int32_t rank;
    uint32_t n;
    size_t at;
};

static int by_rank(const void *a, const void *b)
{
    const struct occurrence *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_place(const void *a, const void *b)
{
    const struct occurrence *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static assay_status find_all(struct occurrence **found, int64_t *n, const assay_vocabulary *v,
                             const char *text, size_t n_bytes, bool parse_special)
{
    int64_t capacity = 0;
    for (size_t at = 0; at < n_bytes; at++) {
        unsigned char b = (unsigned char)text[at];
        for (int32_t i = v->first_byte[b]; i < v->first_byte[b + 1]; i++) {
            int32_t rank = v->by_byte[i], id = v->special[rank];
            const assay_string_entry *e = &v->strings.entries[id];
            if (e->n > n_bytes - at || memcmp(e->bytes, text + at, e->n) != 0)
                continue;
            if (!parse_special && v->types[id] != ASSAY_TOKEN_USER_DEFINED)
                continue;
            ASSAY_TRY(assay_grow(found, &capacity, *n + 1, sizeof **found, "special tokens"));
            (*found)[(*n)++] = (struct occurrence){rank, e->n, at};
        }
    }
    return ASSAY_OK;
}

/*
 * Keeps the occurrences that win: in order of rank, then place, unless they overlap a winner. An
 * earlier winner is at least as long, so an overlap covers the first or the last byte.
 */
static assay_status keep_winners(struct occurrence *found, int64_t *n, size_t n_bytes)
{
    unsigned char *taken = NULL;
    ASSAY_TRY(assay_alloc(&taken, n_bytes, 1, "special tokens"));
    qsort(found, (size_t)*n, sizeof *found, by_rank);
    int64_t kept = 0;
    for (int64_t i = 0; i < *n; i++) {
        struct occurrence o = found[i];
        if (taken[o.at] || taken[o.at + o.n - 1])
            continue;
        memset(taken + o.at, 1, o.n);
        found[kept++] = o;
    }
    free(taken);
    qsort(found, (size_t)kept, sizeof *found, by_place);
    *n = kept;
    return ASSAY_OK;
}

assay_status assay_vocabulary_partition(assay_fragment **out, int64_t *n, const assay_vocabulary *v,
                                        const char *text, size_t n_bytes, bool parse_special)
{
    struct occurrence *found = NULL;
    int64_t n_found = 0, n_fragments = 0;
    assay_fragment *fragments = NULL;
    size_t at = 0;
    assay_status s;
    ASSAY_GO(find_all(&found, &n_found, v, text, n_bytes, parse_special));
    if (n_found)
        ASSAY_GO(keep_winners(found, &n_found, n_bytes));
    ASSAY_GO(
        assay_alloc(&fragments, 2 * (size_t)n_found + 1, sizeof *fragments, "fragments of text"));
    for (int64_t i = 0; i < n_found; i++) {
        if (found[i].at > at)
            fragments[n_fragments++] = (assay_fragment){-1, at, found[i].at - at};
        fragments[n_fragments++] =
            (assay_fragment){v->special[found[i].rank], found[i].at, found[i].n};
        at = found[i].at + found[i].n;
    }
    if (at < n_bytes)
        fragments[n_fragments++] = (assay_fragment){-1, at, n_bytes - at};
    *out = fragments;
    *n = n_fragments;
out:
    free(found);
    return s;
}
