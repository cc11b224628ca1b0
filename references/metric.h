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

/* assay_metrics_of, and the relative error of each row into row_errors [n_rows] (NULL: not wanted).
 */
void assay_metrics_with_rows(assay_metrics *out, double *row_errors, const double *got,
                             const double *ref, int64_t n_rows, int64_t n_cols, double bound);

#endif
