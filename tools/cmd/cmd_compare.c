/*
 * assay compare: two captures side by side, point by point.
 */
#include <jansson.h>

#include "references/compare.h"
#include "reports/compared.h"
#include "reports/sketched.h"
#include "tools/options.h"
#include "tools/progress.h"

enum { KEY_TWIN = 0x400 };

static const struct argp_option options[] = {
    {"twin", KEY_TWIN, "REF", 0,
     "The reference's computation in the candidate's precision: its noise sets the bounds", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    if (key != KEY_TWIN)
        return ARGP_ERR_UNKNOWN;
    *(const char **)state->input = arg;
    return 0;
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
                                     assay_run *runs[3])
{
    assay_sketched sketched;
    ASSAY_TRY(assay_sketched_compare(&sketched, runs[0], runs[1]));
    ASSAY_TRY(assay_result_add_sketched(result, &sketched, runs[0], common->again));
    if (sketched.has_bad)
        return assay_next_full(result, sketched.point, sketched.layer);
    return sketched.has_flip ? assay_next_full(result, sketched.flip_point, sketched.flip_layer)
                             : ASSAY_OK;
}

static assay_status compare(assay_result *result, assay_options *common, assay_run *runs[3],
                            const char *twin)
{
    int n = common->n_args - 1; /* the candidate is one file, or the files of its ranks */
    const char *const *paths[] = {common->args, common->args + n, &twin};
    const int counts[] = {n, 1, twin ? 1 : 0};
    static const char *const members[] = {"candidate", "reference", "twin"};
    assay_comparison *comparison = NULL;
    ASSAY_TRY(assay_options_result(result, common));
    for (int i = 0; i < 3 && counts[i]; i++) {
        ASSAY_TRY(assay_options_run(&runs[i], common, paths[i], counts[i]));
        ASSAY_TRY(describe(result, members[i], runs[i]));
    }
    if (assay_run_is_sketched(runs[0]))
        return compare_sketches(result, common, runs);
    ASSAY_TRY(assay_compare_runs(&comparison, runs[0], runs[1], runs[2]));
    assay_status s = assay_result_add_comparison(result, comparison, runs[0], common->again);
    assay_comparison_free(comparison);
    if (s == ASSAY_OK)
        s = assay_next(result, common, common->args, n, common->args[n], NULL);
    return s;
}

int assay_cmd_compare(int argc, char **argv)
{
    const char *twin = NULL;
    assay_options common;
    assay_cli cli = {.groups = ASSAY_OPTIONS_CAPTURE | ASSAY_OPTIONS_REPORT,
                     .options = options,
                     .option = parse,
                     .user = &twin,
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
    assay_status s = compare(&result, &common, runs, twin);
    for (int i = 0; i < 3; i++)
        assay_run_close(runs[i]);
    if (s == ASSAY_OK)
        return assay_end(&common, &result);
    assay_result_clear(&result);
    return assay_end_failed(&common, s);
}
