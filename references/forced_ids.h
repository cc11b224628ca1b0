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

/*
 * Where the choice of experts was not captured, it is the oracle's own, and rounding may have made
 * the run choose otherwise at a near tie. For every row of `seen` whose error stands out and whose
 * scores have a left-out expert within their noise, that expert is put in place of the worst chosen
 * one; what brings the row nearer to `got` stays in the pass. *n_changed: rows whose choice was
 * inferred.
 */
assay_status assay_ids_infer(int64_t *n_changed, const assay_part *at, const assay_judged *judged,
                             const double *got, const double *expected, const assay_knobs *knobs,
                             const assay_knobs *rounding, assay_oracle *oracle);

/* Adds the router's selection bias, where the model has one. */
assay_status assay_ids_add_bias(double *scores, int64_t rows, int64_t n_scores,
                                assay_oracle *oracle, int layer);

/* Fills the counts, the worst gap and the verdict. Fails: ASSAY_NO_MEMORY. */
assay_status assay_ids_judge(assay_judged *judged, const assay_ids_input *in);

#endif
