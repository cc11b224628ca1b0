/*
 * Diagnosis: homes of the forced pass -> findings. Every home is offered to every fault class; the
 * best explanation that leaves no residual above the floor wins, simpler ones win ties; what
 * nothing explains is reported as UNKNOWN with its shape.
 */
#ifndef ASSAY_REPORTS_DIAGNOSE_H
#define ASSAY_REPORTS_DIAGNOSE_H

#include "references/forced.h"
#include "reports/finding.h"

typedef struct assay_diagnose_options {
    const char *reproduce; /* the command that shows it again, put into every finding */
    assay_forced_options forced;
} assay_diagnose_options;

/* Runs the forced pass over the run and adds findings, notes and coverage to the result. */
assay_status assay_diagnose(assay_result *result, assay_run *run, assay_oracle *oracle,
                            const assay_diagnose_options *options);

#endif
