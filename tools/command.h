/*
 * Commands of the tool: one row in command.def and one file cmd/cmd_<name>.c each.
 *     X(id, "name", function, "synopsis", "one line of help")
 * Only tools/ prints or exits. A command returns its exit status (0, 1, 125, 128, 129).
 */
#ifndef ASSAY_TOOLS_COMMAND_H
#define ASSAY_TOOLS_COMMAND_H

typedef int assay_command_fn(int argc, char **argv);

typedef struct assay_command {
    const char *name;
    assay_command_fn *run;
    const char *synopsis, *help;
} assay_command;

int assay_command_count(void);
const assay_command *assay_command_at(int index);
const assay_command *assay_command_find(const char *name);

#endif
