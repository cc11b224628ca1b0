#include "references/shelf.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* In front of a piece's bytes, as many as they are aligned to. */
typedef struct piece {
    struct piece *next; /* on the shelf: the next larger one */
    size_t n;
} piece;

enum { ALIGNED = 64 };
#define MOST_KEPT ((size_t)1 << 28)

struct assay_shelf {
    piece *smallest;
    size_t n; /* bytes of all pieces that lie there */
};

assay_status assay_shelf_new(assay_shelf **out)
{
    return assay_alloc(out, 1, sizeof **out, "shelf");
}

static piece *take_off(assay_shelf *shelf, piece **at)
{
    piece *p = *at;
    if (p) {
        *at = p->next;
        shelf->n -= p->n;
    }
    return p;
}

void assay_shelf_free(assay_shelf *shelf)
{
    if (!shelf)
        return;
    while (shelf->smallest)
        free(take_off(shelf, &shelf->smallest));
    free(shelf);
}

/* The smallest piece of n bytes at least; NULL: none, and *in_place, the smallest, makes room. */
static piece *find(piece **in_place, assay_shelf *shelf, size_t n)
{
    piece **at = &shelf->smallest;
    while (*at && (*at)->n < n)
        at = &(*at)->next;
    piece *p = take_off(shelf, at);
    *in_place = p ? NULL : take_off(shelf, &shelf->smallest);
    return p;
}

static piece *make(size_t n)
{
    if (n > SIZE_MAX - 2 * ALIGNED)
        return NULL;
    piece *p = aligned_alloc(ALIGNED, ALIGNED + (n + ALIGNED - 1) / ALIGNED * ALIGNED);
    if (p)
        p->n = n;
    return p;
}

assay_status assay_shelf_take(void **out, assay_shelf *shelf, size_t n, const char *what)
{
    piece *p, *in_place;
#pragma omp critical(assay_shelf)
    p = find(&in_place, shelf, n);
    free(in_place);
    if (!p && !(p = make(n)))
        return assay_fail(ASSAY_NO_MEMORY, "no memory for %zu bytes of %s", n, what);
    *out = (char *)p + ALIGNED;
    return ASSAY_OK;
}

static bool put(assay_shelf *shelf, piece *p)
{
    if (p->n > MOST_KEPT - shelf->n)
        return false;
    piece **at = &shelf->smallest;
    while (*at && (*at)->n < p->n)
        at = &(*at)->next;
    p->next = *at;
    *at = p;
    shelf->n += p->n;
    return true;
}

void assay_shelf_give(assay_shelf *shelf, void *bytes)
{
    bool kept;
    if (!bytes)
        return;
    piece *p = (piece *)(void *)((char *)bytes - ALIGNED);
#pragma omp critical(assay_shelf)
    kept = put(shelf, p);
    if (!kept)
        free(p);
}
