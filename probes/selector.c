#include "probes/selector.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANGES 64

typedef struct ranges {
    int n;
    bool is_set, has_global;
    int64_t first[MAX_RANGES], last[MAX_RANGES];
} ranges;

struct assay_selector {
    ranges layers, steps;
    bool has_points;
    bool points[ASSAY_POINT_COUNT];
};

typedef struct cursor {
    const char *text, *at;
} cursor;

static int column(const cursor *c)
{
    return (int)(c->at - c->text) + 1;
}

static size_t word(const cursor *c)
{
    return strcspn(c->at, ", ");
}

static bool read_number(int64_t *out, const char **at)
{
    if (!isdigit((unsigned char)**at))
        return false;
    char *end;
    *out = strtoll(*at, &end, 10);
    *at = end;
    return *out < INT32_MAX;
}

static assay_status read_range(ranges *r, const cursor *c, size_t n)
{
    int64_t first = 0, last = INT64_MAX;
    const char *p = c->at;
    bool ok = true;
    if (n == 1 && *p == '*') {
        p++;
    } else {
        ok = read_number(&first, &p);
        last = first;
        if (ok && *p == '-') {
            p++;
            ok = read_number(&last, &p) && first <= last;
        }
    }
    if (!ok || p != c->at + n)
        return assay_fail(ASSAY_USAGE,
                          "selector '%s', column %d: '%.*s' is not a number or a range a-b",
                          c->text, column(c), (int)n, c->at);
    if (r->n == MAX_RANGES)
        return assay_fail(ASSAY_USAGE, "selector '%s', column %d: more than %d ranges", c->text,
                          column(c), MAX_RANGES);
    r->first[r->n] = first;
    r->last[r->n++] = last;
    return ASSAY_OK;
}

static assay_status read_layer(assay_selector *s, const cursor *c, size_t n)
{
    if (n == 6 && !strncmp(c->at, "global", 6)) {
        s->layers.has_global = true;
        return ASSAY_OK;
    }
    if (n == 1 && *c->at == '*')
        s->layers.has_global = true;
    return read_range(&s->layers, c, n);
}

static assay_status read_step(assay_selector *s, const cursor *c, size_t n)
{
    return read_range(&s->steps, c, n);
}

static assay_status read_point(assay_selector *s, const cursor *c, size_t n)
{
    char pattern[ASSAY_POINT_NAME_BYTES];
    if (n >= sizeof pattern)
        return assay_fail(ASSAY_USAGE, "selector '%s', column %d: the name is too long", c->text,
                          column(c));
    memcpy(pattern, c->at, n);
    pattern[n] = '\0';
    bool any = false;
    for (int i = 0; i < ASSAY_POINT_COUNT; i++)
        if (!fnmatch(pattern, assay_point_at((assay_point)i)->name, 0))
            any = s->points[i] = true;
    if (any)
        return ASSAY_OK;
    assay_point point;
    int layer;
    char full[ASSAY_POINT_NAME_BYTES + 8] = "blk.0.";
    strcat(full, pattern);
    assay_point_parse(&point, &layer, NULL, full);
    const char *hint = strstr(assay_error_text(), "(nearest");
    char kept[128] = "";
    if (hint)
        strncat(kept, hint, sizeof kept - 1);
    return assay_fail(ASSAY_USAGE, "selector '%s', column %d: no point matches '%s' %s", c->text,
                      column(c), pattern, kept);
}

static assay_status read_clause(assay_selector *s, cursor *c)
{
    static const struct {
        const char *key;
        assay_status (*read)(assay_selector *, const cursor *, size_t);
    } keys[] = {{"layer=", read_layer}, {"point=", read_point}, {"step=", read_step}};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        size_t n = strlen(keys[k].key);
        if (strncmp(c->at, keys[k].key, n))
            continue;
        bool *is_set[] = {&s->layers.is_set, &s->has_points, &s->steps.is_set};
        if (*is_set[k])
            return assay_fail(ASSAY_USAGE, "selector '%s', column %d: a second '%s'", c->text,
                              column(c), keys[k].key);
        *is_set[k] = true;
        c->at += n;
        for (;;) {
            n = word(c);
            if (n == 0)
                return assay_fail(ASSAY_USAGE, "selector '%s', column %d: a value is missing",
                                  c->text, column(c));
            ASSAY_TRY(keys[k].read(s, c, n));
            c->at += n;
            if (*c->at != ',')
                return ASSAY_OK;
            c->at++;
        }
    }
    return assay_fail(ASSAY_USAGE,
                      "selector '%s', column %d: expected layer=, point= or step=, found '%.*s'",
                      c->text, column(c), (int)strcspn(c->at, " "), c->at);
}

assay_status assay_selector_new(assay_selector **out, const char *text)
{
    assay_selector *s;
    ASSAY_TRY(assay_alloc(&s, 1, sizeof *s, "selector"));
    cursor c = {text ? text : "", text ? text : ""};
    for (;;) {
        c.at += strspn(c.at, " ");
        if (!*c.at)
            break;
        assay_status status = read_clause(s, &c);
        if (status != ASSAY_OK) {
            free(s);
            return status;
        }
    }
    *out = s;
    return ASSAY_OK;
}

void assay_selector_free(assay_selector *selector)
{
    free(selector);
}

static bool has(const ranges *r, int64_t value)
{
    if (!r->is_set)
        return true;
    for (int i = 0; i < r->n; i++)
        if (r->first[i] <= value && value <= r->last[i])
            return true;
    return false;
}

bool assay_selector_has(const assay_selector *selector, assay_point point, int layer, int64_t step)
{
    if (selector->has_points && !selector->points[point])
        return false;
    if (!has(&selector->steps, step))
        return false;
    return layer < 0 ? !selector->layers.is_set || selector->layers.has_global
                     : has(&selector->layers, layer);
}
