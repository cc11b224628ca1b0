/*
 * The merging that byte-level BPE and SentencePiece share: over a row of symbols, merge the
 * adjacent pair of lowest order, ties to the leftmost, until no pair has a rule. A heap of
 * candidates makes it O(n log n) in the number of symbols.
 */
#ifndef ASSAY_ENGINE_MERGE_H
#define ASSAY_ENGINE_MERGE_H

#include "engine/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct assay_symbol {
    int32_t id;             /* whatever the rule means by it */
    uint32_t at, n;         /* span of the text; n = 0: merged into its left neighbour */
    int32_t previous, next; /* indices; -1 at the ends */
} assay_symbol;

/* Says whether the two may merge: *order (lower merges first), *id of the merged symbol. */
typedef bool (*assay_merge_rule)(double *order, int32_t *id, const void *context,
                                 const assay_symbol *left, const assay_symbol *right);

typedef struct assay_merge_candidate {
    double order;
    int32_t left, right, id;
    uint32_t n_left, n_right; /* spans when it was found: a later merge makes it stale */
} assay_merge_candidate;

/* Memory that is kept between calls. Zero-initialise; free with assay_merge_clear. */
typedef struct assay_merge_space {
    assay_symbol *symbols;
    int64_t n_symbols, symbol_capacity;
    assay_merge_candidate *heap;
    int64_t n_heap, heap_capacity;
} assay_merge_space;

void assay_merge_clear(assay_merge_space *space);

/* Appends a symbol at the right end of the row; set n_symbols to 0 for a new row. */
assay_status assay_merge_push(assay_merge_space *space, int32_t id, uint32_t at, uint32_t n);

/* Merges in place. Survivors: symbols[0] and what follows it by next (symbol 0 always survives). */
assay_status assay_merge_run(assay_merge_space *space, assay_merge_rule rule, const void *context);

#endif
