/*
 * assay VERB ...: finds the command and hands over. Everything else is in the command's own file.
 */
#include <argp.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/mapping.h"
#include "probes/hdf5.h"
#include "probes/hdf5_guard.h"
#include "tools/command.h"
#include "tools/options.h"

#ifdef __SANITIZE_ADDRESS__
/* What other libraries forget of their own: glibc's argp a byte per empty list of a help text,
 * HDF5 1.10.8 a few bytes when it refuses a file that was cut off. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:argp\nleak:make_hol\nleak:assay_options_help\nleak:libhdf5";
}
#endif

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

/* A JSON value that lacks a member is not shown as if it were whole. */
static void *json_memory(size_t n)
{
    void *at = malloc(n);
    if (!at)
        assay_lack("a JSON value");
    return at;
}

int main(int argc, char **argv)
{
    assay_h5_no_exit_handler();
    json_set_alloc_funcs(json_memory, free);
    assay_mapping_guard(assay_status_exit(ASSAY_IO));
    assay_h5_guard(assay_status_exit(ASSAY_BAD_FILE));
    signal(SIGXFSZ, SIG_IGN); /* a file over the quota is a failed write with a message */
    setenv("ARGP_HELP_FMT", "no-dup-args-note", 0); /* a sentence on short options, in every help */
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
