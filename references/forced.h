/*
 * The forced pass over a run: the oracle with every captured value put in place of its own, so that
 * each op is judged on the inputs it really had. One assay_judged per captured value.
 *
 *   added error    got - expected, where expected = the op (or the interval of uncaptured ops) on
 * the captured inputs floor          the error that rounding alone can make here: the same interval
 * with outputs, weights and inputs rounded to the run's formats (oracle knobs round_out,
 * round_weight, activations_q8), per row and whole home           the added error stands out of the
 * floor: a fault is born here
 *
 * A non-finite element whose expected value is non-finite on its inputs is inherited, not added.
 */
#ifndef ASSAY_REFERENCES_FORCED_H
#define ASSAY_REFERENCES_FORCED_H

#include "references/oracle/oracle.h"
#include "references/run.h"

typedef struct assay_forced assay_forced;

typedef struct assay_judged {
    int prompt, step, layer;
    assay_point point;
    const assay_seen *seen;
    int64_t n_rows, n_cols; /* rows: tokens; cols: the rest (probs: per head) */
    double rel, one_minus_cos,
        gain; /* whole: relative L2 of the added error, direction, regression of got on expected */
    double floor_rel; /* of the whole */
    double row_rel_max, row_rel_median, floor_row_max, floor_row_median;
    int64_t worst_row;
    double gain_row_median;    /* median per-row gain (design section 5) */
    int64_t n_nonfinite_added; /* finite expected, non-finite got (or the other way round) */
    int64_t first_bad;         /* flat index of the first bad element; -1: none */
    bool is_home;
    bool is_ids; /* discrete point: flips judged by the score gap */
    int64_t n_flips,
        n_flips_outside; /* ids that differ; those whose gap exceeds the noise of the scores */
    double worst_gap;
    int n_interval; /* uncaptured ops behind this value */
    char why[160];  /* which test made it a home, in words */
} assay_judged;

typedef struct assay_forced_options {
    const assay_knobs *knobs;    /* NULL: right ones with the run's profile applied */
    int first_layer, last_layer; /* 0, -1: all */
} assay_forced_options;

/* Fails: ASSAY_CANNOT_JUDGE when nothing can be compared (no point in common, other model, tokens
 * out of range). */
assay_status assay_forced_new(assay_forced **out, assay_run *run, assay_oracle *oracle,
                              const assay_forced_options *options);
void assay_forced_free(assay_forced *forced);
int assay_forced_n(const assay_forced *forced);
const assay_judged *assay_forced_at(const assay_forced *forced, int index);
assay_run *assay_forced_run(const assay_forced *forced);
assay_oracle *assay_forced_oracle(const assay_forced *forced);
/* The pass of one prompt, with all captured values put; fault classes ask it for variants. */
assay_pass *assay_forced_pass(const assay_forced *forced, int prompt);
const assay_knobs *assay_forced_knobs(const assay_forced *forced);
/* got and expected of one judged value, n_rows * n_cols; borrowed until the next call. */
assay_status assay_forced_values(const double **got, const double **expected, assay_forced *forced,
                                 int index);
/* Captured values that could not be judged, with the reason. */
int assay_forced_n_unjudged(const assay_forced *forced);
const char *assay_forced_unjudged_at(const assay_forced *forced, int index);

#endif
