/* Results made by hand, for the suites of findings and renderers. */
#ifndef ASSAY_SUITES_TESTS_FORGE_RESULT_H
#define ASSAY_SUITES_TESTS_FORGE_RESULT_H

#include "reports/finding.h"

/* `assay diagnose` of a capture with both founding faults. */
void forge_result_two(assay_result *result);
/* `assay check` that passes, with one row skipped. */
void forge_result_clean(assay_result *result);
/* Texts of a hostile dump: markup, control characters, bytes that are not UTF-8. */
void forge_result_hostile(assay_result *result);

/* What a renderer writes; yours to free. */
char *forge_rendered(const char *renderer, const assay_result *result, int width);

#endif
