/*
 * How a command ends: the result on stdout, the reports, the exit status.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reports/render.h"
#include "tools/options.h"
#include "tools/progress.h"

assay_status assay_options_result(assay_result *out, const assay_options *options)
{
    ASSAY_TRY(assay_result_init(out, options->command->name));
    free(out->command_line);
    out->command_line = strdup(options->line);
    if (out->command_line)
        return ASSAY_OK;
    assay_result_clear(out);
    return assay_fail(ASSAY_NO_MEMORY, "no memory for a command line");
}

static assay_status flush(void)
{
    if (fflush(stdout) || ferror(stdout))
        return assay_fail(ASSAY_IO, "the result cannot be written to standard output: %s",
                          strerror(errno));
    return assay_lacked();
}

int assay_end_printed(const assay_options *options)
{
    assay_status s = flush();
    return s == ASSAY_OK ? 0 : assay_end_failed(options, s);
}

static assay_status print(const assay_options *options, const assay_result *result)
{
    const char *name = options->json ? "json" : "text";
    const assay_renderer *renderer = assay_renderer_find(name);
    assay_render_options how = {.color = isatty(STDOUT_FILENO) && !getenv("NO_COLOR"),
                                .quiet = options->quiet,
                                .verbose = options->verbose};
    ASSAY_BUG_IF(!renderer);
    ASSAY_TRY(assay_lacked());
    ASSAY_TRY(renderer->render(stdout, result, &how));
    ASSAY_TRY(flush());
    if (options->report_dir)
        ASSAY_TRY(assay_render_folder(options->report_dir, result, &how));
    return ASSAY_OK;
}

/* A library that lacked memory may have no other word for it than broken input or a failed write.
 */
static assay_status with_lack(assay_status status)
{
    char text[2048];
    snprintf(text, sizeof text, "%s", assay_error_text());
    if (status == ASSAY_OK || status == ASSAY_NO_MEMORY || assay_lacked() == ASSAY_OK)
        return status;
    return assay_within(ASSAY_NO_MEMORY, "%s", text);
}

int assay_end(const assay_options *options, assay_result *result)
{
    assay_progress_end();
    result->seconds = assay_now_s() - options->started_s;
    assay_status s = with_lack(print(options, result));
    int status = s == ASSAY_OK ? assay_result_exit(result) : assay_status_exit(s);
    if (s != ASSAY_OK)
        fprintf(stderr, "assay %s: %s\n", options->command->name, assay_error_text());
    assay_result_clear(result);
    return status;
}

int assay_end_failed(const assay_options *options, assay_status status)
{
    assay_progress_end();
    status = with_lack(status);
    fprintf(stderr, "assay %s: %s\n", options->command->name, assay_error_text());
    if (status == ASSAY_USAGE)
        fprintf(stderr, "Try `assay help %s' for more information.\n", options->command->name);
    if (options->json) {
        json_t *object = json_pack("{s:s, s:s, s:{s:s, s:s}}", "assay", ASSAY_VERSION, "command",
                                   options->command->name, "error", "status",
                                   assay_status_text(status), "message", assay_error_text());
        if (object) {
            json_dumpf(object, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
            putchar('\n');
        }
        json_decref(object);
    }
    return assay_status_exit(status);
}
