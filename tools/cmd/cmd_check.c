/*
 * assay check: the list before serving.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/render.h"
#include "suites/check.h"
#include "suites/checklist.h"
#include "suites/record.h"
#include "tools/options.h"
#include "tools/progress.h"

enum { KEY_REFERENCE = 0x400, KEY_TWIN, KEY_LIST, KEY_AGAINST, KEY_SIGN, KEY_REPRO, KEY_BUDGET };

static const struct argp_option options[] = {
    {"reference", KEY_REFERENCE, "REF", 0, "A trusted capture of this model, ours or imported", 0},
    {"twin", KEY_TWIN, "REF", 0, "The reference's computation in the engine's precision", 0},
    {"against", KEY_AGAINST, "DIR", 0,
     "Compare every weight with this safetensors checkpoint (folder, file or index)", 0},
    {"list", KEY_LIST, "FILE", 0,
     "A checklist in YAML: which rows on which models, what is required, what is accepted", 0},
    {"sign", KEY_SIGN, "NAME", 0,
     "With --report: also file record.h5, who let what pass, with hashes, tool and machine", 0},
    {"repro", KEY_REPRO, "DIR", 0,
     "Write a bundle into this folder for each finding of an op: it shows the fault without the "
     "model",
     0},
    {"budget", KEY_BUDGET, "SIZE", 0,
     "Bytes of values that one run may leave behind (default 1G): a run with more is checked in "
     "two "
     "stages, sketches of every point and then the values of the layers that matter",
     0},
    {0}};

typedef struct own {
    const char *reference, *twin, *list, *against, *sign, *repro;
    int64_t budget_bytes; /* 0: the default */
} own;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    own *o = state->input;
    switch (key) {
    case KEY_REFERENCE:
        o->reference = arg;
        return 0;
    case KEY_TWIN:
        o->twin = arg;
        return 0;
    case KEY_LIST:
        o->list = arg;
        return 0;
    case KEY_AGAINST:
        o->against = arg;
        return 0;
    case KEY_REPRO:
        o->repro = arg;
        return 0;
    case KEY_BUDGET:
        o->budget_bytes = assay_option_size(state, "budget", arg);
        return 0;
    case KEY_SIGN:
        o->sign = arg;
        return 0;
    case ARGP_KEY_END:
        if (o->sign && !o->sign[0])
            argp_error(state, "--sign needs a name");
        if (o->twin && !o->reference)
            argp_error(state, "--twin needs --reference");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void show(void *user, const char *row, int done, int total)
{
    (void)user;
    assay_progress_step(row, done, total);
}

static assay_status check(assay_result *result, const own *o, assay_options *common)
{
    assay_check_options c = assay_check_options_default();
    c.model_path = common->n_args ? common->args[0] : NULL;
    c.reference_path = o->reference;
    c.twin_path = o->twin;
    c.against_path = o->against;
    c.profile = common->profile;
    c.engine.backend = common->backend;
    c.engine.path = common->path;
    c.engine.dtype = common->dtype;
    c.engine.products = common->products;
    c.engine.n_threads = common->n_threads;
    c.engine.whole_experts = common->whole_experts;
    c.plants = common->plants;
    c.n_plants = common->n_plants;
    c.n_ranks = common->n_ranks;
    c.chunk = common->chunk;
    c.reproduce = common->again;
    c.bundles = o->repro;
    if (o->budget_bytes)
        c.budget_bytes = o->budget_bytes;
    c.progress = show;
    if (!o->list)
        return assay_check_run(result, &c);
    assay_checklist *list;
    ASSAY_TRY(assay_checklist_read(&list, o->list));
    assay_status s = assay_checklist_check(result, list, &c, NULL);
    assay_checklist_free(list);
    return s;
}

/* record.h5 in the report's folder. */
static assay_status sign(const assay_result *result, const own *o, const assay_options *common)
{
    char path[4200], reference[4096] = "", twin[4096] = "";
    if (!common->report_dir)
        return assay_fail(ASSAY_USAGE, "--sign needs --report DIR, where the record is filed");
    ASSAY_TRY(assay_render_make_folder(common->report_dir));
    if (o->reference) /* FILE:PROMPT */
        snprintf(reference, sizeof reference, "%.*s", (int)strcspn(o->reference, ":"),
                 o->reference);
    if (o->twin)
        snprintf(twin, sizeof twin, "%.*s", (int)strcspn(o->twin, ":"), o->twin);
    const assay_record_input inputs[] = {
        {"model", json_string_value(json_object_get(result->model, "path")),
         json_string_value(json_object_get(result->model, "sha256"))},
        {"reference", reference[0] ? reference : NULL, NULL},
        {"twin", twin[0] ? twin : NULL, NULL},
        {"checklist", o->list, NULL}};
    snprintf(path, sizeof path, "%s/record.h5", common->report_dir);
    return assay_record_write(path, result, o->sign, inputs, (int)(sizeof inputs / sizeof *inputs));
}

/* Whether a row beside the one that failed to read the file has been judged. */
static bool judged_any(const assay_result *result)
{
    for (int i = 1; i < result->n_checks; i++)
        if (result->checks[i].verdict != ASSAY_VERDICT_SKIP)
            return true;
    return result->n_findings > 0;
}

int assay_cmd_check(int argc, char **argv)
{
    own o = {0};
    assay_options common;
    assay_cli cli = {.groups = ASSAY_OPTIONS_ENGINE | ASSAY_OPTIONS_CAPTURE | ASSAY_OPTIONS_REPORT,
                     .options = options,
                     .option = parse,
                     .user = &o,
                     .min_args = 0,
                     .max_args = 1,
                     .about = "Rows that cannot apply are SKIP with their reason. `assay list "
                              "checks` shows all rows."};
    int status;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    if (!common.n_args && !o.list)
        return assay_end_failed(
            &common, assay_fail(ASSAY_USAGE, "a MODEL is missing, or a checklist that names some "
                                             "(--list FILE)"));
    assay_result result;
    assay_status s = assay_options_result(&result, &common);
    if (s != ASSAY_OK)
        return assay_end_failed(&common, s);
    s = check(&result, &o, &common);
    if (s == ASSAY_OK)
        s = assay_next(&result, &common, NULL, 0, NULL, o.list ? NULL : common.args[0]);
    if (s == ASSAY_OK && o.sign)
        s = sign(&result, &o, &common);
    if (s == ASSAY_OK)
        return assay_end(&common, &result);
    if (!judged_any(&result) && !common.report_dir) { /* a path mistyped: its line says it all */
        assay_result_clear(&result);
    } else if (result.n_checks && !common.json) { /* the rows tell what could still be judged */
        char line[1024];
        common.quiet = common.quiet || !judged_any(&result);
        snprintf(line, sizeof line, "%s", assay_error_text());
        assay_end(&common, &result);
        assay_error_set(line);
    } else {
        assay_result_clear(&result);
    }
    return assay_end_failed(&common, s);
}
