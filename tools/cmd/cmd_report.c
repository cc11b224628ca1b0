/*
 * assay report: a saved result in another form.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "reports/render.h"
#include "tools/options.h"
#include "tools/progress.h"

enum { KEY_HTML = 0x400, KEY_FORMAT };

static const struct argp_option options[] = {
    {"html", KEY_HTML, "DIR", 0,
     "Write the page index.html into this folder (--report DIR: every form)", 0},
    {"format", KEY_FORMAT, "NAME", 0,
     "Print this form: text (default), json, junit, sarif, markdown, html", 0},
    {0}};

typedef struct own {
    const char *folder;
    const assay_renderer *renderer;
} own;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    own *o = state->input;
    switch (key) {
    case KEY_HTML:
        o->folder = arg;
        return 0;
    case KEY_FORMAT:
        o->renderer = assay_renderer_find(arg);
        if (!o->renderer)
            argp_error(state,
                       "--format: there is no form '%s' (text, json, junit, sarif, "
                       "markdown, html)",
                       arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static assay_status report(const own *o, const assay_options *common, const assay_result *result)
{
    const assay_renderer *renderer =
        o->renderer ? o->renderer : assay_renderer_find(common->json ? "json" : "text");
    assay_render_options how = {
        .color = isatty(STDOUT_FILENO), .quiet = common->quiet, .verbose = common->verbose};
    if (o->folder)
        ASSAY_TRY(assay_render_into(o->folder, assay_renderer_find("html"), result, &how));
    if (common->report_dir)
        ASSAY_TRY(assay_render_folder(common->report_dir, result, &how));
    if ((!o->folder && !common->report_dir) || o->renderer || common->json)
        ASSAY_TRY(renderer->render(stdout, result, &how));
    if (fflush(stdout) || ferror(stdout))
        return assay_fail(ASSAY_IO, "the report cannot be written to standard output");
    return ASSAY_OK;
}

int assay_cmd_report(int argc, char **argv)
{
    own o = {0};
    assay_options common;
    assay_result result = {0};
    assay_cli cli = {.groups = ASSAY_OPTIONS_REPORT,
                     .options = options,
                     .option = parse,
                     .user = &o,
                     .min_args = 1,
                     .max_args = 1,
                     .about =
                         "RESULT.json is what `--json` printed or a --report folder holds. The "
                         "exit status is the result's own: 0, 1 or 125."};
    int status;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    assay_status s = assay_result_from_json(&result, common.args[0]);
    if (s == ASSAY_OK)
        s = report(&o, &common, &result);
    status = s == ASSAY_OK ? assay_result_exit(&result) : 0;
    assay_result_clear(&result);
    return s == ASSAY_OK ? status : assay_end_failed(&common, s);
}
