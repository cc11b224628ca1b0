/*
 * Everything that is asked of one value beside its reference, in one pass over both: sums of every
 * row, the checksums that are still to be proven, and per channel the sums behind the pooled gains
 * (gain.h; where columns are keys, which are no channels but other tokens, per head). Rows of
 * float32 and of 16-bit formats are added up from float32 (row_f32.h), others are widened to
 * float64; nothing that lies in float32 is copied.
 *
 * Tokens are dealt out to threads in at most 32 blocks (8, where tokens are very wide) whose number
 * depends on nothing but the shape; channel sums are added block by block, in order: the same bits
 * with any number of threads.
 */
#ifndef ASSAY_REFERENCES_CONTRAST_H
#define ASSAY_REFERENCES_CONTRAST_H

#include "references/compare.h"
#include "references/gain.h"
#include "references/slab.h"

/* Memory that is kept from one value to the next: it need not be had from the system each time.
 * Zeroed at first; freed by its owner. */
typedef struct assay_contrast_room {
    double *numbers;
    int64_t n;
} assay_contrast_room;

/*
 * got and ref have the same shape. row_errors: [n_tokens, n_sub], or NULL. The median of rows'
 * gains is taken where the largest row error is above `worst`, that of rows' errors never. Tokens
 * whose state (of their first row, state[t * n_sub]) has a bit of `dirty` stay out of the gains.
 * gain NULL: no gains. Afterwards the values of both sides are proven. Fails: ASSAY_NO_MEMORY,
 * ASSAY_BAD_FILE (they are not those that were written; nothing was added).
 */
assay_status assay_contrast(assay_metrics *out, double *row_errors, double worst, assay_gain *gain,
                            assay_contrast_room *room, assay_point point, int layer,
                            assay_rows_seen *got, assay_rows_seen *ref, const uint8_t *state,
                            uint8_t dirty);

#endif
