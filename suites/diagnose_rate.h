/*
 * What a diagnosis costs: time for each judged value, and how many of the hypotheses were tried.
 */
#ifndef ASSAY_SUITES_DIAGNOSE_RATE_H
#define ASSAY_SUITES_DIAGNOSE_RATE_H

#include "reports/diagnose.h"

typedef struct assay_diagnose_rate {
    double seconds, cpu_s; /* of all threads */
    int64_t n_judged;
    int n_findings;
    double passes;
    assay_diagnose_cost cost;
} assay_diagnose_rate;

/* One diagnosis of a capture against a GGUF file, from opening both to the findings. */
assay_status assay_diagnose_rate_measure(assay_diagnose_rate *out, const char *capture,
                                         const char *model);

#endif
