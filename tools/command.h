/*
 * Commands of the tool: one row in command.def and one file cmd/cmd_<name>.c each.
 *     X(id, "name", function, "synopsis", "one line of help")
 * Only tools/ prints or exits. A command gets argv from its own name on, reads it with
 * assay_options_parse (tools/options.h) and returns its exit status (0, 1, 125, 128, 129).
 */
#ifndef ASSAY_TOOLS_COMMAND_H
#define ASSAY_TOOLS_COMMAND_H

typedef int assay_command_fn(int argc, char **argv);

typedef struct assay_command {
    const char *name;
    assay_command_fn *run;
    const char *synopsis, *help;
} assay_command;

#define X(id, name, function, synopsis, help) assay_command_fn function;
#include "tools/command.def"
#undef X

int assay_command_count(void);
const assay_command *assay_command_at(int index);
/* NULL: no such command. */
const assay_command *assay_command_find(const char *name);
/* The known name that looks most like this one; NULL when none does. */
const char *assay_command_nearest(const char *name);

#endif
