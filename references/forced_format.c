/*
 * The number format of a run's arithmetic. Mixed precision keeps parameters and the stream in
 * float32 and computes its products in 16 bits: such a run says float32 of itself, and its values
 * say what they are.
 */
#include "references/forced_private.h"

assay_dtype assay_forced_format(bool *mixed, const assay_run *run)
{
    assay_dtype own = assay_run_about(run)->dtype, small = own;
    int n_small = 0, n = 0;
    *mixed = false;
    if (own != ASSAY_DTYPE_F32 || assay_run_n_prompts(run) == 0 ||
        assay_run_prompt_at(run, 0)->n_steps == 0)
        return own;
    for (int i = 0; i < assay_run_n_seen(run, 0, 0); i++) {
        const assay_seen *seen = assay_run_seen_at(run, 0, 0, i);
        if (assay_point_at(seen->point)->is_ids)
            continue;
        n++;
        if (seen->origin == ASSAY_DTYPE_BF16 || seen->origin == ASSAY_DTYPE_F16) {
            small = seen->origin;
            n_small++;
        }
    }
    *mixed = n_small > 0 && 3 * n_small >= n;
    return *mixed ? small : own;
}
