/*
 * Several diagnoses of one run, each of some layers, as one result.
 */
#ifndef ASSAY_REPORTS_FINDING_JOIN_H
#define ASSAY_REPORTS_FINDING_JOIN_H

#include "reports/finding.h"

/* Findings from index `first` on that have class, kind and op in common become the first of them,
 * with the places of all; pictures follow their finding. */
assay_status assay_result_join_findings(assay_result *result, int first);
/* Notes from `first` on that are said already go. */
void assay_result_join_notes(assay_result *result, int first);

#endif
