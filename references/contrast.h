/*
 * Everything that is asked of one value beside its reference, in one pass over both: sums of every
 * row, and per channel the sums behind the pooled gains (gain.h). Rows are widened to float64 where
 * they are added up; nothing is copied.
 *
 * Tokens are dealt out to threads in at most 32 blocks whose number depends on nothing but the
 * number of tokens; channel sums are added block by block, in order: the same bits with any number
 * of threads.
 */
#ifndef ASSAY_REFERENCES_CONTRAST_H
#define ASSAY_REFERENCES_CONTRAST_H

#include "references/compare.h"
#include "references/gain.h"
#include "references/slab.h"

/*
 * got and ref have the same shape. row_errors: [n_tokens, n_sub]. Tokens whose state (of their
 * first row, state[t * n_sub]) has a bit of `dirty` stay out of the gains. gain NULL: no gains.
 * Fails: ASSAY_NO_MEMORY.
 */
assay_status assay_contrast(assay_metrics *out, double *row_errors, assay_gain *gain,
                            assay_point point, int layer, const assay_rows_seen *got,
                            const assay_rows_seen *ref, const uint8_t *state, uint8_t dirty);

#endif
