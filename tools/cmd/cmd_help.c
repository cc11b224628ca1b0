#include <stdio.h>
#include <string.h>

#include "tools/options.h"
#include "tools/progress.h"

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

int assay_cmd_help(int argc, char **argv)
{
    assay_options common;
    assay_cli cli = {.max_args = 1};
    int status;
    if (!assay_options_parse(&common, &status, &cli, argc, argv))
        return status;
    assay_progress_end();
    if (!common.n_args) {
        overview();
        return 0;
    }
    const assay_command *command = assay_command_find(common.args[0]);
    if (!command)
        return assay_end_failed(&common,
                                assay_fail(ASSAY_USAGE, "'%s' is not a command", common.args[0]));
    assay_options_help(command);
    return 0;
}
