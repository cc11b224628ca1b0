/*
 * The forced pass over a run: the oracle with every captured value put in place of its own, so that
 * each op is judged on the inputs it really had. One assay_judged per captured value.
 *
 *   added error   got - expected, where expected = the op (or the interval of uncaptured ops) on
 * the captured inputs floor         the error that rounding alone can make here: the same interval
 * with outputs, weights and inputs rounded to the run's formats (oracle knobs round_out,
 *                 round_weight, activations_q8), per row and whole
 *   home          the added error stands out of the floor: a fault is born here
 *
 * The rule for a home stands in references/forced_floor.h, with its reasons in
 * references/README.md; a factor that only the pool of many values shows in forced_pool.h.
 *
 * Hand-overs: where a run shows one thing at two places (the projection's own output, and what the
 * block returned), the earlier one is judged against the op, and the later one against the earlier
 * one, which must be equal to the bit.
 *
 * A non-finite element whose expected value is non-finite on its inputs is inherited, not added.
 * Ops that mix rows (attention) may carry a NaN of a masked row into others (0 * NaN): also
 * inherited.
 */
#ifndef ASSAY_REFERENCES_FORCED_H
#define ASSAY_REFERENCES_FORCED_H

#include "references/oracle/oracle.h"
#include "references/run.h"

typedef struct assay_forced assay_forced;

#define ASSAY_FORCED_INTERVAL 64

typedef struct assay_judged {
    int prompt, step, layer;
    assay_point point;
    const assay_seen *seen;
    const assay_seen *against; /* the hand-over it was compared with; NULL: the op's result */
    int64_t n_rows, n_cols;    /* rows: tokens (probs: head and token); cols: the rest */
    int64_t first_row;         /* row of the step that row 0 of the value is (partial rows) */
    int n_groups;              /* heads in the columns; 1: none */
    double rel, one_minus_cos,
        gain; /* whole: relative L2 of the added error, direction, regression of got on expected */
    double floor_rel; /* of the whole */
    double row_rel_max, row_rel_median, floor_row_max, floor_row_median;
    int64_t worst_row;
    double gain_row_median;  /* median per-row gain (design section 5) */
    double gain_group_worst; /* median per-row gain of the head that is farthest from 1 */
    int worst_group;
    double pooled_gain; /* factor that the pool of all such values shows (forced_pool.h); 0: none */
    int64_t n_nonfinite_added; /* finite expected, non-finite got */
    int64_t n_nonfinite; /* non-finite got, added or inherited; no infinity that is expected */
    int64_t first_bad;   /* flat index of the first bad element; -1: none */
    bool is_home;
    bool is_ids; /* discrete point: flips judged by the score gap */
    int64_t n_flips,
        n_flips_outside; /* ids that differ; those whose gap exceeds the noise of the scores */
    double worst_gap, gap_noise;
    assay_dtype format;     /* of the values, as they show it themselves */
    int n_interval;         /* uncaptured ops behind this value */
    bool discrete_interval; /* one of them chooses experts or keys */
    char why[160];          /* which test made it a home, in words */
} assay_judged;

typedef struct assay_forced_place {
    const char *prompt;
    int step, layer;
    assay_point point;
} assay_forced_place;

typedef struct assay_forced_options {
    const assay_knobs *knobs;    /* NULL: right ones with the run's profile applied */
    int first_layer, last_layer; /* 0, -1: all */
    const bool *layers;  /* of these only those that are set, by number; NULL: all; borrowed */
    bool activations_q8; /* floors with inputs of products rounded to 8-bit blocks, whatever the
                            profile says */
    /* Only these are judged; what else was captured is input all the same. n_only 0: all. */
    const assay_forced_place *only;
    int n_only;
} assay_forced_options;

/* Fails: ASSAY_CANNOT_JUDGE when nothing can be compared (no point in common, other model, tokens
 * out of range). */
assay_status assay_forced_new(assay_forced **out, assay_run *run, assay_oracle *oracle,
                              const assay_forced_options *options);
void assay_forced_free(assay_forced *forced);
int assay_forced_n(const assay_forced *forced);
const assay_judged *assay_forced_at(const assay_forced *forced, int index);
/* Index of the judged value at a point of one step; -1: not judged. Hand-overs: the earliest. */
int assay_forced_find(const assay_forced *forced, int prompt, int step, assay_point point,
                      int layer);
assay_run *assay_forced_run(const assay_forced *forced);
assay_oracle *assay_forced_oracle(const assay_forced *forced);
/* The pass of one prompt, with all captured values put; fault classes ask it for variants. */
assay_pass *assay_forced_pass(const assay_forced *forced, int prompt);
bool assay_forced_is_latent(const assay_forced *forced, int prompt);
const assay_knobs *assay_forced_knobs(const assay_forced *forced);
/* got and expected of one judged value, n_rows * n_cols; borrowed until the next call. */
assay_status assay_forced_values(const double **got, const double **expected, assay_forced *forced,
                                 int index);
/* What the value would be with other knobs at its interval. out: n_rows * n_cols. */
assay_status assay_forced_expect(double *out, assay_forced *forced, int index,
                                 const assay_knobs *knobs);
/*
 * Judges an explanation with the very rule that made the home: would `explained` in place of the
 * expected value have been no home? Fills *judged (a copy of the home with the numbers of the
 * rest). `floor` of an explanation is the home's own, row by row, unless `noise` [rows, cols]
 * (rounded - not rounded, element by element; NaN: the home's) says what rounding makes of the
 * explanation itself.
 */
assay_status assay_forced_rejudge(assay_judged *judged, assay_forced *forced, int index,
                                  const double *explained, const double *noise);
/*
 * What rounding does to the op (or interval) computed with other knobs: a row that sees one key has
 * no noise in its probabilities, the same row without a mask has. variant: the
 * value with these knobs; both n_rows * n_cols.
 */
assay_status assay_forced_noise(double *noise, assay_forced *forced, int index,
                                const assay_knobs *knobs, const double *variant);
/* Uncaptured ops behind a judged value, nearest first; returns how many. */
int assay_forced_interval(assay_point points[ASSAY_FORCED_INTERVAL],
                          int layers[ASSAY_FORCED_INTERVAL], int steps[ASSAY_FORCED_INTERVAL],
                          assay_forced *forced, int index);
/* Oracle passes that the judgement has cost so far: evaluations of an op on a step, over those of
 * one pass of the whole model over all prompts and steps. */
double assay_forced_cost(const assay_forced *forced);
/* Captured values that could not be judged, with the reason. */
int assay_forced_n_unjudged(const assay_forced *forced);
const char *assay_forced_unjudged_at(const assay_forced *forced, int index);
/* Things worth a line that are no fault: flips inside the noise, inherited non-finite values. */
int assay_forced_n_notes(const assay_forced *forced);
const char *assay_forced_note_at(const assay_forced *forced, int index);

#endif
