/*
 * Selectors: which points of which layers and steps are kept.
 *
 *   "layer=0-3 point=attn.*"
 *   "layer=0,7,global point=attn.q*,moe.topk step=0-1"
 *
 * Clauses are separated by spaces and must all hold; the alternatives of a clause by commas, one of
 * which must hold. An absent clause holds always; the empty text selects everything.
 *
 *   layer=  numbers, ranges a-b, '*', and `global` for points that belong to no layer
 *   point=  names of point.def without "blk.N."; '*' stands for any text, '?' for one character
 *   step=   numbers, ranges a-b, '*': forward calls from 0
 *
 * Errors name the column (from 1). A point pattern that no point matches is an error with the
 * nearest name.
 */
#ifndef ASSAY_PROBES_SELECTOR_H
#define ASSAY_PROBES_SELECTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/point.h"

typedef struct assay_selector assay_selector;

/* text NULL: everything. Fails: ASSAY_USAGE. */
assay_status assay_selector_new(assay_selector **out, const char *text);
void assay_selector_free(assay_selector *selector);
/* layer -1: global point. */
bool assay_selector_has(const assay_selector *selector, assay_point point, int layer, int64_t step);

#endif
