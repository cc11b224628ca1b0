/*
 * assay VERB ...: finds the command and hands over. Everything else is in the command's own file.
 */
#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "tools/command.h"
#include "tools/options.h"

static int unknown(const char *name)
{
    const char *nearest = assay_command_nearest(name);
    fprintf(stderr, "assay: '%s' is not a command", name);
    if (nearest)
        fprintf(stderr, "; did you mean '%s'?", nearest);
    fprintf(stderr, "\nCommands:");
    for (int i = 0; i < assay_command_count(); i++)
        fprintf(stderr, " %s", assay_command_at(i)->name);
    fprintf(stderr, "\n");
    return ASSAY_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    argp_err_exit_status = ASSAY_EXIT_USAGE;
    argp_program_version = "assay " ASSAY_VERSION;
    if (argc < 2) {
        fputs("Usage: assay COMMAND [OPTION...]; `assay help` lists the commands\n", stderr);
        return ASSAY_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
        puts(argp_program_version);
        return 0;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h"))
        name = "help";
    const assay_command *command = assay_command_find(name);
    if (!command)
        return unknown(name);
    return assay_command_call(command, argc - 1, argv + 1);
}
