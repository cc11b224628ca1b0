/*
 * A comparison of sketches as part of a result.
 */
#ifndef ASSAY_REPORTS_SKETCHED_H
#define ASSAY_REPORTS_SKETCHED_H

#include "references/sketched.h"
#include "reports/finding.h"

/* Coverage, and one finding of class UNKNOWN at the first value beyond its bound. A choice that
 * differs before it leaves the result inconclusive: what lies behind was not judged. */
assay_status assay_result_add_sketched(assay_result *result, const assay_sketched *sketched,
                                       const assay_run *candidate, const char *reproduce);

#endif
