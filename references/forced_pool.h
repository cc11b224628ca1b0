/*
 * The pooled gain test of the forced pass (gain.h; design section 5): a factor on everything that
 * an op gives may be far below the noise of a single value, and stand out of many of them pooled
 * over layers, steps and prompts.
 *
 * Only points where no value is a home take part: what was found needs no pool. The median row gain
 * must deviate by the rule of gain.h, and by more than 3 x what the oracle's own rounding does to
 * the same gains. The home is then, in each layer, the value with most rows; its added error is the
 * factor itself, its floor the standard error of the median.
 */
#ifndef ASSAY_REFERENCES_FORCED_POOL_H
#define ASSAY_REFERENCES_FORCED_POOL_H

#include "references/forced.h"

typedef struct assay_forced_pool assay_forced_pool;

assay_status assay_forced_pool_new(assay_forced_pool **out);
void assay_forced_pool_free(assay_forced_pool *pool);
/* One judged value: got, expected and rounded (as the oracle rounds it), [rows, cols]. */
assay_status assay_forced_pool_add(assay_forced_pool *pool, const assay_judged *judged,
                                   const double *got, const double *expected,
                                   const double *rounded);
/* Makes homes among the values that were added. */
assay_status assay_forced_pool_judge(assay_forced_pool *pool, assay_judged *judged, int n);

#endif
