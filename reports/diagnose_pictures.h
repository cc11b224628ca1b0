/* Numbers for the pictures of a diagnosis (reports/series.h). */
#ifndef ASSAY_REPORTS_DIAGNOSE_PICTURES_H
#define ASSAY_REPORTS_DIAGNOSE_PICTURES_H

#include "references/forced.h"
#include "reports/finding.h"

/*
 * Of one finding and its home (index of the judged value): map of heads, or blocks of channels, by
 * tokens of the relative error; candidate against expected; likeness of the candidate's blocks
 * with the expected ones, which shows a permutation as a line off the diagonal. Ids have none.
 */
assay_status assay_diagnosis_pictures(assay_result *result, int finding, assay_forced *forced,
                                      int index);

/* Expert load: tokens that each expert of each layer got, over all captured steps. Nothing for a
 * run without expert ids. */
assay_status assay_series_expert_load(assay_result *result, const assay_run *run);

/* In a run of several ranks: the value by rank and part, where that says something; *whose: it says
 * whose part each rank has. */
assay_status assay_rank_picture(bool *whose, assay_result *result, int finding,
                                assay_forced *forced, int index);

#endif
