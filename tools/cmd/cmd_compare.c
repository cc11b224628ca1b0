/*
 * assay compare: two captures side by side, point by point.
 */
#include <jansson.h>

#include "references/compare.h"
#include "reports/compared.h"
#include "reports/run_notes.h"
#include "reports/sketched.h"
#include "tools/options.h"
#include "tools/progress.h"

enum { KEY_TWIN = 0x400, KEY_MODEL };

static const struct argp_option options[] = {
    {"twin", KEY_TWIN, "REF", 0,
     "The reference's computation in the candidate's precision: its noise sets the bounds", 0},
    {"model", KEY_MODEL, "MODEL", 0, "The model that was run: named in the commands that lead on",
     0},
    {0}};

typedef struct own {
    const char *twin, *model;
} own;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    own *o = state->input;
    switch (key) {
    case KEY_TWIN:
        o->twin = arg;
        return 0;
    case KEY_MODEL:
        o->model = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static assay_status describe(assay_result *result, const char *member, const assay_run *run)
{
    const assay_run_info *info = assay_run_about(run);
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:s, s:b}", "path", info->path, "producer", info->producer,
                  "dtype", assay_dtype_name(info->dtype), "profile",
                  info->profile ? info->profile->name : "", "complete", info->is_complete);
    if (!json || json_object_set_new(result->extra, member, json))
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the description of the %s", member);
    return ASSAY_OK;
}

/* A capture of sketches: where values differ, and how to get those that say why. */
static assay_status compare_sketches(assay_result *result, const assay_options *common,
                                     assay_run *runs[3], const char *model)
{
    assay_sketched sketched;
    ASSAY_TRY(assay_sketched_compare(&sketched, runs[0], runs[1]));
    ASSAY_TRY(assay_result_add_run_notes(result, runs[0]));
    ASSAY_TRY(assay_result_add_sketched(result, &sketched, runs[0], common->again));
    if (!sketched.has_bad && !sketched.has_flip)
        return ASSAY_OK;
    int prompt = sketched.has_bad ? sketched.prompt : sketched.flip_prompt;
    return assay_next_full(result, model, assay_run_about(runs[0])->path,
                           assay_run_prompt_at(runs[0], prompt)->name,
                           sketched.has_bad ? sketched.point : sketched.flip_point,
                           sketched.has_bad ? sketched.layer : sketched.flip_layer);
}

static assay_status compare(assay_result *result, assay_options *common, assay_run *runs[3],
                            const own *o)
{
    const char *twin = o->twin;
    int n = common->n_args - 1; /* the candidate is one file, or the files of its ranks */
    const char *const *paths[] = {common->args, common->args + n, &twin};
    const int counts[] = {n, 1, twin ? 1 : 0};
    static const char *const members[] = {"candidate", "reference", "twin"};
    assay_comparison *comparison = NULL;
    ASSAY_TRY(assay_options_result(result, common));
    for (int i = 0; i < 3 && counts[i]; i++) {
        ASSAY_TRY(assay_options_run(&runs[i], common, paths[i], counts[i]));
        ASSAY_TRY(describe(result, members[i], runs[i]));
        if (i > 0) /* the candidate's come with the comparison */
            ASSAY_TRY(assay_result_add_run_notes(result, runs[i]));
    }
    if (assay_run_is_sketched(runs[0]))
        return compare_sketches(result, common, runs, o->model);
    ASSAY_TRY(assay_compare_runs(&comparison, runs[0], runs[1], runs[2]));
    assay_status s = assay_result_add_comparison(result, comparison, runs[0], common->again);
    assay_comparison_free(comparison);
    if (s == ASSAY_OK)
        s = assay_next(result, common, common->args, n, common->args[n], o->model);
    return s;
}

int assay_cmd_compare(int argc, char **argv)
{
    own o = {0};
    assay_options common;
    assay_cli cli = {.groups = ASSAY_OPTIONS_CAPTURE | ASSAY_OPTIONS_REPORT,
                     .options = options,
                     .option = parse,
                     .user = &o,
                     .min_args = 2,
                     .max_args = ASSAY_MAX_ARGS,
                     .about = "Finds the first value of CANDIDATE that differs from REFERENCE by "
                              "more than rounding, and how far the logits agree. Several "
                              "candidates are the ranks of one run."};
    int status;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    assay_result result = {0};
    assay_run *runs[3] = {NULL, NULL, NULL};
    assay_progress_begin("compare");
    assay_status s = compare(&result, &common, runs, &o);
    for (int i = 0; i < 3; i++)
        assay_run_close(runs[i]);
    if (s == ASSAY_OK)
        return assay_end(&common, &result);
    assay_result_clear(&result);
    return assay_end_failed(&common, s);
}
