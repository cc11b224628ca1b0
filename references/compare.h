/*
 * Two runs side by side, point by point, as design section 5 orders it: same tokens, same model,
 * shape, masks of NaN and infinities, then numbers: per row first, then whole; direction, gain and
 * size side by side. Nothing compared is never a pass.
 *
 * Prompts are matched by name, else by equal tokens; tokens by position, so that a run in chunks
 * can be held against one at once; of prompts that differ in length the equal prefix is compared,
 * and a differing token ends the comparison there. The prefill of a prompt is one group of rows,
 * all its decode steps another.
 *
 * A row (token; token and head; token and expert) is judged when its expert and key choice, and
 * that of all tokens it can see, is the reference's: behind a flip two healthy runs differ by much
 * more than rounding. Flips are notes; the forced pass judges them. Choices of the twin count
 * alike.
 *
 * Bounds, the first that is at hand:
 *   twin      median row error at most 1.5 x, largest at most 3 x that of the twin over the same
 *             rows; if flips leave fewer than a quarter of the rows, over all rows without a flip
 *             of their own
 *   floor     of the reference, if it carries one: median 3 x, largest 12 x
 *   analytic  tolerance.def, of candidate and reference in quadrature
 * Medians are judged from 8 rows on; of fewer rows the largest may also reach the analytic bound.
 * At last the pooled gain of each point is judged (references/gain.h).
 */
#ifndef ASSAY_REFERENCES_COMPARE_H
#define ASSAY_REFERENCES_COMPARE_H

#include "references/run.h"

/* Metrics of one pair of values (rows of metric.def are computed from these in one pass). */
typedef struct assay_metrics {
    int64_t n, n_rows;
    double rel;                 /* |got - ref| / |ref|; ref = 0: |got| > 0 ? inf : 0 */
    double one_minus_cos, gain; /* gain: <got, ref> / <ref, ref> */
    double max_abs;
    double row_rel_max, row_rel_median, gain_row_median;
    int64_t worst_row,
        first_bad;         /* first_bad: first element beyond the bound, or of differing mask; -1 */
    int64_t n_mask_differ; /* NaN, +Inf, -Inf masks differ */
    int64_t n_nan;         /* NaN on either side: such an element never agrees */
} assay_metrics;

/*
 * got, ref: [n_rows, n_cols] float64. bound: relative row bound for first_bad, which is the first
 * element of a row beyond it whose own error is larger than bound x the row's root mean square.
 *
 * Elements that are not finite on both sides alike take no part in the sums; a row with a mask that
 * differs or a NaN has the error infinity. A zero reference row: got zero ? 0 : infinity. Sums per
 * row in eight interleaved parts (metric.h), rows in order, whatever the number of threads.
 */
void assay_metrics_of(assay_metrics *out, const double *got, const double *ref, int64_t n_rows,
                      int64_t n_cols, double bound);

typedef enum { ASSAY_BOUND_TWIN, ASSAY_BOUND_FLOOR, ASSAY_BOUND_ANALYTIC } assay_bound_source;

const char *assay_bound_source_name(assay_bound_source source);

typedef struct assay_compared { /* one point of one group of rows */
    int prompt, step, layer;    /* of the candidate; step: where the largest error is */
    bool is_prefill;
    assay_point point;
    const assay_seen *candidate, *reference;
    assay_metrics metrics; /* of `step`; row_rel_median and row_rel_max: of all judged rows */
    int64_t n_rows, n_rows_judged;
    double bound_median, bound_max; /* of row errors */
    assay_bound_source bound_source;
    bool judged; /* false: every row stands behind a flip */
    bool passed;
    char why[200];                  /* when not passed */
    int64_t bad_at[ASSAY_MAX_DIMS]; /* first bad element in canonical axes; [0] = -1: none */
    double bad_got, bad_expected;
} assay_compared;

typedef struct assay_comparison assay_comparison;

typedef struct assay_agreement { /* of the logits, over all positions both have */
    int64_t n_rows, n_top1_equal, worst_position;
    double kl_mean, kl_max, top5_overlap;
    int prompt, step; /* of the worst token */
} assay_agreement;

/* twin: NULL or a run of the reference's computation in the candidate's precision. Fails:
 * ASSAY_CANNOT_JUDGE. */
assay_status assay_compare_runs(assay_comparison **out, const assay_run *candidate,
                                const assay_run *reference, const assay_run *twin);
void assay_comparison_free(assay_comparison *comparison);
/* In the order of prompts, prefill before decode, then of the forward pass. */
int assay_comparison_n(const assay_comparison *comparison);
const assay_compared *assay_comparison_at(const assay_comparison *comparison, int index);
const assay_agreement *assay_comparison_agreement(const assay_comparison *comparison);
/* Points (one of a layer and a prompt) that could be compared, and those where rows were judged. */
int64_t assay_comparison_n_points(const assay_comparison *comparison);
int64_t assay_comparison_n_judged(const assay_comparison *comparison);
/* Why this can be no pass although nothing failed: a cut-off capture, points that are missing from
 * a step, points without a judged row. NULL: it can. */
const char *assay_comparison_open_reason(const assay_comparison *comparison);
/* Points one side lacks, prompts that end early, unproven identity: lines for the report. */
int assay_comparison_n_notes(const assay_comparison *comparison);
const char *assay_comparison_note_at(const assay_comparison *comparison, int index);

#endif
