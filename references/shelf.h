/*
 * Memory for one value after the other: what was given back is taken again, so that its pages need
 * not be had from the system, and zeroed by it, each time. Several threads may take and give.
 */
#ifndef ASSAY_REFERENCES_SHELF_H
#define ASSAY_REFERENCES_SHELF_H

#include <stddef.h>

#include "engine/base/status.h"

typedef struct assay_shelf assay_shelf;

/* Fails: ASSAY_NO_MEMORY. */
assay_status assay_shelf_new(assay_shelf **out);
/* Frees what lies there; what is out still must not be given back any more. NULL is fine. */
void assay_shelf_free(assay_shelf *shelf);

/* n bytes that hold anything, aligned to 64. There are never more pieces than were out at once: a
 * larger one takes the place of the smallest that lies there. Fails: ASSAY_NO_MEMORY. */
assay_status assay_shelf_take(void **out, assay_shelf *shelf, size_t n, const char *what);
/* Gives a piece back (NULL is fine); beyond 256 MB on the shelf it is freed. */
void assay_shelf_give(assay_shelf *shelf, void *piece);

#endif
