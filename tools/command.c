#include "tools/command.h"

#include <stddef.h>
#include <string.h>

#include "tools/misspelt.h"

static const assay_command commands[] = {
#define X(id, name, function, synopsis, help) {name, function, synopsis, help},
#include "tools/command.def"
#undef X
};

#define N_COMMANDS ((int)(sizeof commands / sizeof *commands))

int assay_command_count(void)
{
    return N_COMMANDS;
}

const assay_command *assay_command_at(int index)
{
    return index >= 0 && index < N_COMMANDS ? &commands[index] : NULL;
}

const assay_command *assay_command_find(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    return NULL;
}

static const char *command_name(int index)
{
    return index < N_COMMANDS ? commands[index].name : NULL;
}

const char *assay_command_nearest(const char *name)
{
    return assay_nearest(name, command_name);
}
