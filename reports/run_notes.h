/*
 * What a reader of a result should know of the runs that it is about: steps that were left out,
 * ranks that are missing, rows, values beyond a budget. Each is said once.
 */
#ifndef ASSAY_REPORTS_RUN_NOTES_H
#define ASSAY_REPORTS_RUN_NOTES_H

#include "references/run.h"
#include "reports/finding.h"

assay_status assay_result_add_run_notes(assay_result *result, const assay_run *run);

#endif
