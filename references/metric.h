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

#endif
