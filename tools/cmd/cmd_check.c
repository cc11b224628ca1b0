/*
 * assay check: the list before serving.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suites/check.h"
#include "suites/checklist.h"
#include "tools/options.h"
#include "tools/progress.h"

enum { KEY_REFERENCE = 0x400, KEY_TWIN, KEY_LIST, KEY_AGAINST };

static const struct argp_option options[] = {
    {"reference", KEY_REFERENCE, "REF", 0, "A trusted capture of this model, ours or imported", 0},
    {"twin", KEY_TWIN, "REF", 0, "The reference's computation in the engine's precision", 0},
    {"against", KEY_AGAINST, "DIR", 0,
     "Compare every weight with this safetensors checkpoint (folder, file or index)", 0},
    {"list", KEY_LIST, "FILE", 0,
     "A checklist in YAML: which rows on which models, what is required, what is accepted", 0},
    {0}};

typedef struct own {
    const char *reference, *twin, *list, *against;
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
    case ARGP_KEY_END:
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
    c.engine.n_threads = common->n_threads;
    c.plants = common->plants;
    c.n_plants = common->n_plants;
    c.n_ranks = common->n_ranks;
    c.chunk = common->chunk;
    c.reproduce = common->line;
    c.progress = show;
    if (!o->list)
        return assay_check_run(result, &c);
    assay_checklist *list;
    ASSAY_TRY(assay_checklist_read(&list, o->list));
    assay_status s = assay_checklist_check(result, list, &c, NULL);
    assay_checklist_free(list);
    return s;
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
        return assay_end(&common, &result);
    if (result.n_checks && !common.json) { /* the rows tell what could still be judged */
        char line[1024];
        snprintf(line, sizeof line, "%s", assay_error_text());
        assay_end(&common, &result);
        assay_error_set(line);
    } else {
        assay_result_clear(&result);
    }
    return assay_end_failed(&common, s);
}
