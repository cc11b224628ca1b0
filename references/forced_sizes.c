/*
 * Numbers of a run that differ from the model file's, and that the pass follows.
 */
#include <stdlib.h>

#include "references/forced_private.h"

/* Distinct keys that the last row of a captured selection keeps. */
static assay_status count_kept(int64_t *out, const assay_run *run, const assay_seen *seen,
                               int64_t n_keys)
{
    int64_t width = seen->dims[1], n = seen->dims[0] * width;
    double *ids = NULL;
    unsigned char *kept = NULL;
    assay_status s = ASSAY_OK;
    *out = 0;
    ASSAY_GO(assay_alloc(&ids, (size_t)n, sizeof *ids, "a selection"));
    ASSAY_GO(assay_alloc(&kept, (size_t)n_keys, 1, "a selection"));
    ASSAY_GO(assay_run_read(ids, run, seen));
    for (int64_t i = n - width; i < n; i++)
        if (ids[i] >= 0 && ids[i] < (double)n_keys && !kept[(int64_t)ids[i]]) {
            kept[(int64_t)ids[i]] = 1;
            ++*out;
        }
out:
    free(ids);
    free(kept);
    return s;
}

/*
 * A run that keeps more keys than the model file says is judged with its own number, so that what
 * comes behind the selection is still judged; reports say that the numbers differ.
 */
static assay_status follow_selection_size(assay_forced *f, int prompt, int step)
{
    const assay_run_step *at = assay_run_step_at(f->run, prompt, step);
    int64_t n_keys = at->first_position + at->n_tokens, kept;
    for (int i = 0; i < assay_run_n_seen(f->run, prompt, step); i++) {
        const assay_seen *seen = assay_run_seen_at(f->run, prompt, step, i);
        if (seen->point != ASSAY_POINT_INDEX_TOPK || !seen->has_values || seen->n_dims != 2 ||
            seen->dims[0] < 1 || seen->dims[1] <= f->knobs.index_top_k ||
            n_keys <= f->knobs.index_top_k)
            continue;
        ASSAY_TRY(count_kept(&kept, f->run, seen, n_keys));
        if (kept > f->knobs.index_top_k)
            f->knobs.index_top_k = f->rounding.index_top_k = (int)kept;
    }
    return ASSAY_OK;
}

assay_status assay_forced_follow_sizes(assay_forced *f)
{
    if (!assay_oracle_shape_of(f->oracle)->has_indexer)
        return ASSAY_OK;
    for (int p = 0; p < assay_run_n_prompts(f->run); p++)
        for (int step = 0; step < assay_run_prompt_at(f->run, p)->n_steps; step++)
            ASSAY_TRY(follow_selection_size(f, p, step));
    return ASSAY_OK;
}
