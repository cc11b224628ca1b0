#include "engine/point.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GLOBAL, LAYER };
enum { F, I };

static const assay_point_info table[ASSAY_POINT_COUNT] = {
#define X(id, name, scope, axes, kind, made_by, read_by)                                           \
    {name, scope == LAYER, axes, kind == I, made_by, read_by},
#include "engine/point.def"
#undef X
};

/* Of the names: many are parsed where a capture holds many values. */
static const unsigned char lengths[ASSAY_POINT_COUNT] = {
#define X(id, name, scope, axes, kind, made_by, read_by) sizeof name - 1,
#include "engine/point.def"
#undef X
};

const assay_point_info *assay_point_at(assay_point point)
{
    ASSAY_BUG_IF((unsigned)point >= ASSAY_POINT_COUNT);
    return &table[point];
}

char *assay_point_format(char out[ASSAY_POINT_NAME_BYTES], assay_point point, int layer)
{
    const assay_point_info *info = assay_point_at(point);
    if (info->per_layer)
        snprintf(out, ASSAY_POINT_NAME_BYTES, "blk.%d.%s", layer, info->name);
    else
        snprintf(out, ASSAY_POINT_NAME_BYTES, "%s", info->name);
    return out;
}

/* Length of the common beginning and end: enough to offer the likely spelling. */
static size_t likeness(const char *a, const char *b)
{
    size_t n = 0, m = 0, la = strlen(a), lb = strlen(b), least = la < lb ? la : lb;
    while (n < least && a[n] == b[n])
        n++;
    while (m < least - n && a[la - 1 - m] == b[lb - 1 - m])
        m++;
    return n + m;
}

static const char *nearest(const char *name)
{
    size_t best = 0, score = 0;
    for (size_t i = 0; i < ASSAY_POINT_COUNT; i++) {
        size_t s = likeness(name, table[i].name);
        if (s > score) {
            score = s;
            best = i;
        }
    }
    return table[best].name;
}

assay_status assay_point_parse(assay_point *point, int *layer, bool *partial, const char *name)
{
    const char *rest = name;
    long n = -1;
    if (!strncmp(name, "blk.", 4)) {
        char *end;
        n = strtol(name + 4, &end, 10);
        if (end == name + 4 || *end != '.' || n < 0 || n > 100000)
            return assay_fail(ASSAY_MISSING, "point '%s': expected blk.<layer>.<name>", name);
        rest = end + 1;
    }
    size_t length = strlen(rest);
    static const char suffix[] = ".partial";
    bool is_partial =
        length > sizeof suffix - 1 && !strcmp(rest + length - (sizeof suffix - 1), suffix);
    if (is_partial)
        length -= sizeof suffix - 1;
    for (int i = 0; i < ASSAY_POINT_COUNT; i++)
        if (lengths[i] == length && !memcmp(table[i].name, rest, length)) {
            if (table[i].per_layer != (n >= 0))
                return assay_fail(ASSAY_MISSING,
                                  n < 0 ? "point '%s' is one of every layer: blk.<layer>.%s"
                                        : "point '%s' is not of a layer: %s",
                                  name, rest);
            *point = (assay_point)i;
            *layer = (int)n;
            if (partial)
                *partial = is_partial;
            return ASSAY_OK;
        }
    return assay_fail(ASSAY_MISSING, "unknown point '%s' (nearest: %s)", name, nearest(rest));
}
