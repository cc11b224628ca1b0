/*
 * Discrete points: chosen experts and keys. A flip is judged by its gap: the best score that was
 * left out minus the worst that was chosen, against the noise of the scores. Ties are free, order
 * is free, keys that the causal mask forbids do not count.
 */
#ifndef ASSAY_REFERENCES_FORCED_IDS_H
#define ASSAY_REFERENCES_FORCED_IDS_H

#include "references/forced_part.h"

typedef struct assay_ids_input {
    const double *got, *expected; /* [rows, width]; -1: no id */
    int64_t rows, width;
    const double *scores; /* [rows, n_scores]: selection scores (bias included) */
    const double *noise;  /* [rows]: what rounding can do to a score of this row */
    int64_t n_scores;
    int64_t n_visible_first;   /* keys: row r sees n_visible_first + r of them; 0: all are seen */
    int n_group, n_group_used; /* experts: 0 or 1 group: none */
    assay_groups group_rule;
} assay_ids_input;

/*
 * Judges a captured choice in a pass: scores and their noise are those of the oracle on the
 * captured inputs. Place and seen of *judged are set.
 */
assay_status assay_ids_judge_seen(assay_judged *judged, const assay_part *at,
                                  const assay_knobs *knobs, const assay_knobs *rounding,
                                  assay_oracle *oracle);

/* Fills the counts, the worst gap and the verdict. Fails: ASSAY_NO_MEMORY. */
assay_status assay_ids_judge(assay_judged *judged, const assay_ids_input *in);

#endif
