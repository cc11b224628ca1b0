#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probes/capture.h"

void assay_capture_name(char *out, size_t room, const char *point, bool partial, int hand_over,
                        int rank)
{
    size_t at = (size_t)snprintf(out, room, "%s%s", point, partial ? ".partial" : "");
    if (hand_over > 0 && at < room)
        at += (size_t)snprintf(out + at, room - at, ".early%d", hand_over);
    if (rank >= 0 && at < room)
        snprintf(out + at, room - at, ".rank%d", rank);
}

/* Cuts ".<word><number>" off the end; *number stays untouched without it. */
static void cut_number(char *name, const char *word, int *number)
{
    char *dot = strrchr(name, '.');
    size_t n = strlen(word);
    if (!dot || strncmp(dot + 1, word, n) || !dot[1 + n])
        return;
    char *end;
    long value = strtol(dot + 1 + n, &end, 10);
    if (*end || value < 0 || value > 4095)
        return;
    *number = (int)value;
    *dot = '\0';
}

assay_status assay_capture_name_parse(assay_point *point, int *layer, bool *partial, int *hand_over,
                                      int *rank, const char *name)
{
    char rest[128] = "";
    strncat(rest, name, sizeof rest - 1);
    *hand_over = 0;
    *rank = -1;
    cut_number(rest, "rank", rank);
    cut_number(rest, "early", hand_over);
    return assay_point_parse(point, layer, partial, rest);
}
