#include <stdio.h>

#include "reports/text.h"
#include "tools/inspect.h"

static json_t *dims_of(const assay_seen *seen)
{
    json_t *dims = json_array();
    for (int d = 0; d < seen->n_dims; d++)
        json_array_append_new(dims, json_integer(seen->dims[d]));
    return dims;
}

static json_t *seen_row(const assay_seen *seen)
{
    char name[ASSAY_POINT_NAME_BYTES];
    json_t *row = json_pack("{s:s, s:o, s:s, s:b, s:s?}", "point",
                            assay_point_format(name, seen->point, seen->layer), "dims",
                            dims_of(seen), "origin", assay_dtype_name(seen->origin), "values",
                            seen->has_values, "source", seen->source);
    if (seen->rank >= 0)
        json_object_set_new(row, "rank", json_integer(seen->rank));
    if (seen->hand_over)
        json_object_set_new(row, "hand_over", json_integer(seen->hand_over));
    if (seen->n_nan > 0 || seen->n_pos_inf > 0 || seen->n_neg_inf > 0)
        json_object_set_new(row, "nonfinite",
                            json_integer(seen->n_nan + seen->n_pos_inf + seen->n_neg_inf));
    return row;
}

static json_t *prompt_row(const assay_run *run, int index)
{
    const assay_run_prompt *p = assay_run_prompt_at(run, index);
    json_t *steps = json_array();
    for (int s = 0; s < p->n_steps; s++) {
        const assay_run_step *step = assay_run_step_at(run, index, s);
        json_t *points = json_array();
        for (int i = 0; i < assay_run_n_seen(run, index, s); i++)
            json_array_append_new(points, seen_row(assay_run_seen_at(run, index, s, i)));
        json_array_append_new(steps,
                              json_pack("{s:s, s:I, s:I, s:o}", "phase",
                                        step->is_prefill ? "prefill" : "decode", "first_position",
                                        (json_int_t)step->first_position, "n_tokens",
                                        (json_int_t)step->n_tokens, "points", points));
    }
    return json_pack("{s:s, s:s?, s:I, s:I, s:s?, s:o}", "name", p->name, "text", p->text,
                     "n_tokens", (json_int_t)p->n_tokens, "n_greedy", (json_int_t)p->n_greedy,
                     "greedy_text", p->greedy_text, "steps", steps);
}

assay_status assay_inspect_capture(json_t **out, const assay_options *options)
{
    assay_run *run;
    ASSAY_TRY(assay_options_run(&run, options, options->args, 1));
    const assay_run_info *a = assay_run_about(run);
    json_t *prompts = json_array();
    for (int i = 0; i < assay_run_n_prompts(run); i++)
        json_array_append_new(prompts, prompt_row(run, i));
    json_t *notes = json_array();
    for (int i = 0; i < assay_run_n_notes(run); i++)
        json_array_append_new(notes, assay_text_json(assay_run_note_at(run, i)));
    *out = json_pack(
        "{s:s, s:s, s:s, s:s?, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:b, s:i, s:s?, s:i, s:o, s:o}",
        "assay", ASSAY_VERSION, "command", "inspect", "kind", "capture", "path", a->path,
        "producer", a->producer, "producer_version", a->producer_version, "architecture",
        a->architecture, "model_sha256", a->model_sha256, "dtype", assay_dtype_name(a->dtype),
        "attention_path", a->attention_path, "complete", a->is_complete, "reference",
        a->is_reference, "ranks", a->n_ranks, "profile", a->profile ? a->profile->name : NULL,
        "unmapped", a->n_unmapped, "prompts", prompts, "notes", notes);
    assay_run_close(run);
    return *out ? ASSAY_OK
                : assay_fail(ASSAY_NO_MEMORY, "'%s': no memory to list it", options->args[0]);
}
