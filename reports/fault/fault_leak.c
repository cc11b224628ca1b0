/*
 * LEAK: some rows are the expected ones times a factor of their own, the others are right: a
 * statistic (amax, group scale) was taken over foreign rows.
 */
#include <math.h>
#include <stdio.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_leak[] = {{0}};

assay_status assay_fault_match_leak(assay_home *home)
{
    const assay_judged *j = home->judged;
    char text[320];
    if (j->against || j->is_ids || j->n_rows < 2 || j->n_cols < 16 ||
        j->point == ASSAY_POINT_PROBS) /* of a softmax: its denominator */
        return ASSAY_OK;
    assay_relation_scale_rows(&home->rel, home->scratch, &home->pair);
    if (home->rel.spread < 1e-3)
        return ASSAY_OK; /* one factor for all */
    snprintf(text, sizeof text,
             "every row is the expected one times a factor of its own (they differ by %.3g %%)",
             100 * home->rel.spread);
    return assay_home_offer_relation(
        home, &(assay_offer_text){.kind = "rows scaled each by its own factor",
                                  .complexity = (double)j->n_rows,
                                  .fitted = json_pack("{s:f}", "spread", home->rel.spread),
                                  .evidence = text});
}
