#include "references/import.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* float32 keeps what float32, bf16 and f16 runs computed exactly, unless a matrix was undone. */
static assay_status put_seen(assay_capture *c, const assay_run *run, const assay_seen *seen)
{
    int64_t n = assay_seen_count(seen);
    bool is_ids = assay_point_at(seen->point)->is_ids;
    double *wide = NULL;
    void *narrow = NULL;
    assay_status s;
    ASSAY_GO(assay_alloc(&wide, (size_t)n, sizeof *wide, seen->source));
    ASSAY_GO(assay_alloc(&narrow, (size_t)n, 4, seen->source));
    ASSAY_GO(assay_run_read(wide, run, seen));
    for (int64_t i = 0; i < n; i++) {
        if (is_ids)
            ((int32_t *)narrow)[i] = (int32_t)wide[i];
        else
            ((float *)narrow)[i] = (float)wide[i];
    }
    char name[ASSAY_POINT_NAME_BYTES], full[ASSAY_POINT_NAME_BYTES + 32];
    assay_point_format(name, seen->point, seen->layer);
    assay_capture_name(full, sizeof full, name, seen->partial, seen->hand_over, seen->rank);
    assay_buffer buffer = assay_buffer_view(narrow, is_ids ? ASSAY_DTYPE_I32 : ASSAY_DTYPE_F32,
                                            seen->n_dims, seen->dims);
    s = assay_capture_value(c, full, NULL, &buffer, is_ids ? ASSAY_DTYPE_I32 : seen->origin, -1);
    if (s == ASSAY_OK && seen->is_rescaled)
        s = assay_capture_rescaled(c, full);
out:
    free(narrow);
    free(wide);
    return s;
}

static assay_status put_step(assay_import_result *result, assay_capture *c, const assay_run *run,
                             int prompt, int step)
{
    const assay_run_step *about = assay_run_step_at(run, prompt, step);
    if (!about->tokens)
        return assay_fail(ASSAY_BAD_FILE, "prompt '%s', step %d: the dump does not say its tokens",
                          assay_run_prompt_at(run, prompt)->name, step);
    ASSAY_TRY(assay_capture_step(c, about->is_prefill, about->first_position, about->tokens,
                                 about->n_tokens));
    for (int i = 0; i < assay_run_n_seen(run, prompt, step); i++) {
        const assay_seen *seen = assay_run_seen_at(run, prompt, step, i);
        if (!seen->has_values)
            continue;
        ASSAY_TRY(put_seen(c, run, seen));
        result->n_values++;
    }
    result->n_steps++;
    return ASSAY_OK;
}

static assay_status put_prompt(assay_import_result *result, assay_capture *c, const assay_run *run,
                               int prompt)
{
    const assay_run_prompt *p = assay_run_prompt_at(run, prompt);
    ASSAY_TRY(assay_capture_prompt(c, p->name, p->text, p->tokens, p->n_tokens));
    if (p->n_greedy)
        ASSAY_TRY(assay_capture_greedy(c, p->greedy, p->n_greedy));
    for (int s = 0; s < p->n_steps; s++)
        ASSAY_TRY(put_step(result, c, run, prompt, s));
    result->n_prompts++;
    return ASSAY_OK;
}

assay_status assay_import_run(assay_import_result *out, const assay_run *run, const char *path,
                              const assay_capture_options *options)
{
    const assay_run_info *info = assay_run_about(run);
    const assay_capture_about about = {.producer = info->producer,
                                       .producer_version = info->producer_version,
                                       .architecture = info->architecture,
                                       .model_sha256 = info->model_sha256,
                                       .model_class = info->model_class,
                                       .dtype = assay_dtype_name(info->dtype),
                                       .path = info->attention_path,
                                       .profile = info->profile->name,
                                       .n_ranks = info->n_ranks};
    assay_import_result result = {0, 0, 0};
    assay_capture *c;
    ASSAY_TRY(assay_capture_create(&c, path, &about, options));
    for (int p = 0; p < assay_run_n_prompts(run); p++) {
        assay_status s = put_prompt(&result, c, run, p);
        if (s != ASSAY_OK) {
            assay_capture_abandon(c);
            return s;
        }
    }
    ASSAY_TRY(assay_capture_finish(c));
    *out = result;
    return ASSAY_OK;
}
