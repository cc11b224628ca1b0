/* The metrics of metric.def as a table, for lists and reports. */
#ifndef ASSAY_REFERENCES_METRIC_H
#define ASSAY_REFERENCES_METRIC_H

#include "references/compare.h"

typedef struct assay_metric {
    const char *name, *meaning;
    double (*get)(const assay_metrics *metrics);
} assay_metric;

int assay_metric_count(void);
const assay_metric *assay_metric_at(int index);

/* Sums of one row over the elements that are finite on both sides; d = got - ref. */
typedef struct assay_row_sums {
    double gg, rr, dd, dr, max_abs;
    int64_t n, n_mask_differ, n_nan;
} assay_row_sums;

/* Eight interleaved partial sums, added pairwise at the end, then what is left of the row. An
 * element that is not finite on either side stands as a zero. */
assay_row_sums assay_row_sums_of(const double *got, const double *ref, int64_t n);
/* What a further part of a row, or a further row, adds. */
void assay_row_sums_add(assay_row_sums *sums, const assay_row_sums *more);
/* Relative error and gain (NaN: none) of a row. */
double assay_row_rel(const assay_row_sums *sums);
double assay_row_gain(const assay_row_sums *sums);
/* First element of a row that is off by more than bound x the row's root mean square, or whose mask
 * differs; -1: none, or the row is within the bound as a whole. */
int64_t assay_row_first_bad(const double *got, const double *ref, int64_t n, double bound);

/* Median of the gains of rows that have one; NaN: none has. work: [n_rows]. */
double assay_row_gain_median(double *work, const assay_row_sums *rows, int64_t n_rows);

/* Metrics of n_rows rows of n_cols elements from their sum; what is asked of single rows, and
 * first_bad, stay NaN and -1. whole NULL (there was no memory): every number stays NaN, which no
 * bound lets pass. */
void assay_metrics_of_whole(assay_metrics *out, const assay_row_sums *whole, int64_t n_rows,
                            int64_t n_cols);

#endif
