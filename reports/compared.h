/* A comparison of two runs as part of a result: coverage, one finding, notes, agreement, series. */
#ifndef ASSAY_REPORTS_COMPARED_H
#define ASSAY_REPORTS_COMPARED_H

#include "references/compare.h"
#include "reports/finding.h"

/*
 * Adds points and judged points to the coverage, notes, extra.agreement and extra.series.depth, and
 * one finding when something failed: its home is the first failing point in the order of the
 * forward pass; what fails behind it may be inherited and is listed with it. Its class is UNKNOWN:
 * a comparison sees differences, the forced pass names causes. Marks the result inconclusive when
 * the comparison is open.
 *
 * candidate: the run that was compared. reproduce: the command that shows it again.
 */
assay_status assay_result_add_comparison(assay_result *result, const assay_comparison *comparison,
                                         const assay_run *candidate, const char *reproduce);

/* Only extra.agreement, where there are logits. */
void assay_result_add_agreement(assay_result *result, const assay_comparison *comparison,
                                const assay_run *candidate);

#endif
