/*
 * What a reader of a result should know of the runs that it is about: missing ranks, values that a
 * budget left out.
 */
#ifndef ASSAY_REPORTS_RUN_NOTES_H
#define ASSAY_REPORTS_RUN_NOTES_H

#include "references/run.h"
#include "reports/finding.h"

assay_status assay_result_add_run_notes(assay_result *result, const assay_run *run);

#endif
