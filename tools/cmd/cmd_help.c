#include <stdio.h>
#include <string.h>

#include "tools/describe.h"
#include "tools/options.h"
#include "tools/progress.h"

enum { KEY_MAN = 0x400, KEY_BASH };

static const struct argp_option options[] = {
    {"man", KEY_MAN, NULL, 0, "Print the manual page (tools/assay.1)", 0},
    {"bash", KEY_BASH, NULL, 0, "Print the completion for bash (tools/assay.bash)", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    if (key != KEY_MAN && key != KEY_BASH)
        return ARGP_ERR_UNKNOWN;
    *(int *)state->input = key;
    return 0;
}

static void overview(void)
{
    printf("assay %s: is this model, on this engine, right? Where is the first wrong number born, "
           "and why?\n\nUsage: assay COMMAND [OPTION...]\n\n",
           ASSAY_VERSION);
    for (int i = 0; i < assay_command_count(); i++)
        printf("  %-10s %s\n", assay_command_at(i)->name, assay_command_at(i)->help);
    printf("\nEverywhere: --json --quiet --verbose --threads N; `assay help COMMAND` shows the "
           "rest.\n"
           "Exit status: 0 judged, no finding; 1 a finding; 125 cannot judge; 128 broken input, "
           "I/O or device;\n             129 wrong command line.\n");
}

static int help_on(const assay_options *common)
{
    const assay_command *command = assay_command_find(common->args[0]);
    if (!command) {
        const char *nearest = assay_command_nearest(common->args[0]);
        return assay_end_failed(common,
                                assay_fail(ASSAY_USAGE, "'%s' is not a command%s%s%s",
                                           common->args[0], nearest ? "; did you mean '" : "",
                                           nearest ? nearest : "", nearest ? "'?" : ""));
    }
    assay_options_help(command);
    return 0;
}

int assay_cmd_help(int argc, char **argv)
{
    int form = 0, status;
    assay_options common;
    assay_cli cli = {.options = options, .option = parse, .user = &form, .max_args = 1};
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    assay_progress_end();
    if (form == KEY_MAN)
        assay_describe_man(stdout);
    else if (form == KEY_BASH)
        assay_describe_bash(stdout);
    else if (common.n_args)
        return help_on(&common);
    else
        overview();
    return assay_end_printed(&common);
}
