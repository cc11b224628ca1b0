#include "tools/command.h"

#include <stddef.h>
#include <string.h>

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

/* Letters that the longer name has beyond the common start and the common end of both. */
static size_t difference(const char *a, const char *b)
{
    size_t n_a = strlen(a), n_b = strlen(b), shorter = n_a < n_b ? n_a : n_b, head = 0, tail = 0;
    while (head < shorter && a[head] == b[head])
        head++;
    while (tail < shorter - head && a[n_a - 1 - tail] == b[n_b - 1 - tail])
        tail++;
    return (n_a > n_b ? n_a : n_b) - head - tail;
}

const char *assay_nearest(const char *name, assay_name_at_fn *name_at)
{
    const char *best = NULL, *known;
    size_t least = 3; /* further away than two letters is no likeness */
    for (int i = 0; (known = name_at(i)); i++) {
        size_t d = difference(name, known);
        if (d < least) {
            least = d;
            best = known;
        }
    }
    return best;
}

static const char *command_name(int index)
{
    return index < N_COMMANDS ? commands[index].name : NULL;
}

const char *assay_command_nearest(const char *name)
{
    return assay_nearest(name, command_name);
}
