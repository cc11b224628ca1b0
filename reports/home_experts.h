/*
 * Experts one by one: what each adds to a row, which of them the wrong rows have in common, and an
 * explanation that holds for some of them alone.
 */
#ifndef ASSAY_REPORTS_HOME_EXPERTS_H
#define ASSAY_REPORTS_HOME_EXPERTS_H

#include "reports/home.h"

/* What these knobs make of every place of the choice, [rows, U, width]; with the router's weights
 * [rows, U] (of a sum over experts), each place's part of the sum. */
assay_status assay_home_expert_places(double *out, assay_home *home, const assay_knobs *knobs,
                                      const double *weights);

/* Experts that were chosen in every row that stands out, `most` at most; returns how many. */
int assay_home_suspect_experts(int *list, int most, const assay_home *home, const double *ids);

/* Something explains all rows and places alike: experts need not be looked at one by one. */
bool assay_home_whole(const assay_home *home);

/* Offers what these knobs make of the experts that are wrong wherever they were chosen, all others
 * right; at moe.routed and the points of single experts. text->fitted is not taken. */
assay_status assay_home_offer_in_experts(assay_home *home, const assay_knobs *knobs,
                                         const assay_offer_text *text);

#endif
