/*
 * RANGE: the first element that is not finite. Two sub-kinds: an operand or the true value exceeds
 * the working format, or everything is in range and the op itself made it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_range[] = {
    {.name = "nan",
     .about = "one NaN from operands in range",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_VALUE_NAN,
     .value = 1,
     .n_ints = 3,
     .ints = {ASSAY_POINT_MOE_OUT, 3, 17},
     .needs = ASSAY_NEEDS_MOE,
     .home = "moe.out"},
    {.name = "f16-overflow",
     .about = "inputs of down projections kept in float16 after a large factor",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_DOWN_F16,
     .value = 10000000.0,
     .home = "ffn.act ffn.out moe.shared.act moe.shared moe.expert.act moe.expert.down moe.routed"},
    {0}};

assay_status assay_fault_match_range(assay_home *home)
{
    const assay_judged *j = home->judged;
    if (j->is_ids || j->n_nonfinite_added == 0 || j->seen->n_poison > 0)
        return ASSAY_OK;
    double largest = 0;
    for (int64_t i = 0; i < home->n; i++) {
        home->scratch[i] = isfinite(home->got[i]) ? home->expected[i] : home->got[i];
        if (isfinite(home->expected[i]))
            largest = fmax(largest, fabs(home->expected[i]));
    }
    double want = home->expected[j->first_bad];
    bool over = fabs(want) > 65504 || largest > 65504;
    char text[320];
    snprintf(text, sizeof text,
             "first: row %lld column %lld is %s where %.6g is expected; largest expected value of "
             "the tensor %.4g (float16 holds 65504)",
             (long long)(j->first_bad / j->n_cols), (long long)(j->first_bad % j->n_cols),
             isnan(home->got[j->first_bad]) ? "NaN" : "infinite", want, largest);
    return assay_home_offer(
        home, home->scratch,
        &(assay_offer_text){
            .kind = over ? "value beyond the working format" : "not finite, operands in range",
            .complexity = 0.05,
            .shape_only = !over, /* a cause of the NaN, where one is known, says more */
            .fitted = json_pack("{s:f,s:I}", "largest expected", largest, "elements",
                                (json_int_t)j->n_nonfinite_added),
            .evidence = text});
}
