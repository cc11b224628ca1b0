/*
 * A faulty value by rank and part, where that says whose part is wrong and how:
 *
 *   what each rank holds   the finding says where each rank's slice begins and ends: own parts on
 *                          the diagonal, another's beside it, missing ends
 *   likeness               else, of a value that is split: which rank's part another rank has
 *   error                  else: where each rank's own part is wrong, or its copy, piece by piece;
 *                          not where no copy is right (the map of the value shows that)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "reports/diagnose_pictures.h"
#include "reports/series.h"

enum { MOST_RANKS = 64, PARTS = 16, MOST_CELLS = 64 };

#define ALIKE 0.9 /* cosine of a rank's part with the part that it is */

typedef struct ranks {
    const assay_run *run;
    const assay_judged *judged;
    const double *expected;       /* of the whole */
    int64_t before, size, behind; /* around the split axis; of a copy: rows, columns, 1 */
    int64_t part;                 /* of the axis that one rank holds; = size: a copy */
    int n_ranks, n_parts;         /* rows and columns of the map */
    const assay_seen *seen[MOST_RANKS];
} ranks;

static int64_t product(const int64_t *dims, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= dims[d];
    return n;
}

/* False: not the value of several ranks, or split unevenly. */
static bool find_ranks(ranks *r)
{
    const assay_judged *j = r->judged;
    const assay_seen *whole = j->seen;
    int axis = -1;
    r->n_ranks = assay_run_about(r->run)->n_ranks;
    if (r->n_ranks < 2 || r->n_ranks > MOST_RANKS || whole->n_dims < 2 ||
        product(whole->dims, 0, whole->n_dims) != j->n_rows * j->n_cols)
        return false;
    for (int k = 0; k < r->n_ranks; k++) {
        const assay_seen *s = assay_run_find_part(r->run, j->prompt, j->step, j->point, j->layer, k,
                                                  whole->hand_over);
        if (!s || !s->has_values || s->n_dims != whole->n_dims)
            return false;
        for (int d = 0; d < s->n_dims; d++) {
            if (k > 0 && s->dims[d] != r->seen[0]->dims[d])
                return false;
            if (s->dims[d] != whole->dims[d] && axis >= 0 && axis != d)
                return false;
            if (s->dims[d] != whole->dims[d])
                axis = d;
        }
        r->seen[k] = s;
    }
    if (axis < 0)
        axis = whole->n_dims - 1;
    r->before = product(whole->dims, 0, axis);
    r->size = whole->dims[axis];
    r->behind = product(whole->dims, axis + 1, whole->n_dims);
    r->part = r->seen[0]->dims[axis];
    return r->part > 0 && r->size % r->part == 0;
}

/* --- what the finding says --- */

/* States of a cell; the largest of those in it is shown. */
enum { NOT_HELD, OWN, MISSING, OF_ANOTHER };

typedef struct held {
    json_int_t from, end;
} held;

static int state_at(const held *slice, const held *right, json_int_t at)
{
    bool is_held = at >= slice->from && at < slice->end;
    bool is_own = at >= right->from && at < right->end;
    return is_held ? is_own ? OWN : OF_ANOTHER : is_own ? MISSING : NOT_HELD;
}

/* False: the finding does not say it, or not of every rank. */
static bool read_held(held *slices, int *n, json_int_t *size, const json_t *fitted)
{
    json_t *starts = json_object_get(fitted, "starts"), *counts = json_object_get(fitted, "counts");
    *size = json_integer_value(json_object_get(fitted, "size"));
    *n = (int)json_array_size(starts);
    if (*n < 2 || *n > MOST_RANKS || json_array_size(counts) != (size_t)*n || *size % *n)
        return false;
    for (int r = 0; r < *n; r++) {
        json_t *count = json_array_get(counts, (size_t)r);
        if (!json_is_integer(count))
            return false;
        slices[r].from = json_integer_value(json_array_get(starts, (size_t)r));
        slices[r].end = slices[r].from + json_integer_value(count);
    }
    return true;
}

static assay_status add_held(bool *drawn, assay_result *result, int finding, const char *name)
{
    held slices[MOST_RANKS];
    json_int_t size;
    int n, per, n_x;
    double *map;
    char title[240], (*names)[24], *labels[MOST_CELLS];
    *drawn = false;
    if (!read_held(slices, &n, &size, result->findings[finding].fitted))
        return ASSAY_OK;
    for (per = PARTS; per > 1 && (per * n > MOST_CELLS || size % (per * n)); per--)
        ;
    n_x = per * n;
    json_int_t cell = size / n_x, each = size / n;
    ASSAY_TRY(assay_alloc(&map, (size_t)(n * n_x), sizeof *map, "map of the ranks"));
    assay_status s = assay_alloc(&names, (size_t)n_x, sizeof *names, "map of the ranks");
    if (s == ASSAY_OK) {
        for (int i = 0; i < n_x; i++) {
            labels[i] = names[i];
            snprintf(names[i], sizeof names[i], "%lld", (long long)(i * cell));
        }
        for (int r = 0; r < n; r++)
            for (json_int_t at = 0; at < n_x * cell; at++) {
                const held right = {r * each, (r + 1) * each};
                double *shown = &map[r * n_x + at / cell];
                *shown = fmax(*shown, state_at(&slices[r], &right, at));
            }
        snprintf(title, sizeof title,
                 "%s by rank and part: what each rank holds of the axis that is split (0 nothing, "
                 "1 its own, 2 its own but missing, 3 another's)",
                 name);
        assay_series_map entry = {.title = title,
                                  .x = "along the axis that is split",
                                  .y = "rank",
                                  .unit = "what it holds",
                                  .finding = finding,
                                  .n_x = n_x,
                                  .n_y = n,
                                  .x_labels = (const char *const *)labels,
                                  .values = map};
        s = assay_series_add_map(result, &entry);
        *drawn = s == ASSAY_OK;
        free(names);
    }
    free(map);
    return s;
}

/* --- what the numbers say --- */

static double cosine(const ranks *r, const double *own, int part)
{
    double gg = 0, ee = 0, ge = 0;
    int64_t n = r->part * r->behind;
    for (int64_t b = 0; b < r->before; b++)
        for (int64_t i = 0; i < n; i++) {
            double g = own[b * n + i],
                   e = r->expected[(b * r->size + part * r->part) * r->behind + i];
            gg += g * g;
            ee += e * e;
            ge += g * e;
        }
    return gg > 0 && ee > 0 ? ge / sqrt(gg * ee) : 0;
}

/* Of one piece of a rank's own part, or of its copy. */
static double error(const ranks *r, const double *own, int rank, int piece)
{
    double dd = 0, ee = 0;
    bool is_split = r->part < r->size;
    int64_t all = r->part * r->behind, n = all / r->n_parts;
    for (int64_t b = 0; b < r->before; b++)
        for (int64_t i = 0; i < n; i++) {
            int64_t at = piece * n + i;
            double e = r->expected[b * r->size * r->behind + (is_split ? rank * all : 0) + at];
            dd += (own[b * all + at] - e) * (own[b * all + at] - e);
            ee += e * e;
        }
    return isnan(dd) ? INFINITY : ee > 0 ? sqrt(dd / ee) : dd > 0 ? INFINITY : 0;
}

static assay_status fill(double *map, const ranks *r, bool by_likeness)
{
    double *own;
    int64_t n = r->before * r->part * r->behind;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(assay_alloc(&own, (size_t)n, sizeof *own, "a rank's part"));
    for (int k = 0; k < r->n_ranks && s == ASSAY_OK; k++) {
        s = assay_run_read(own, r->run, r->seen[k]);
        for (int p = 0; p < r->n_parts && s == ASSAY_OK; p++)
            map[k * r->n_parts + p] = by_likeness ? cosine(r, own, p) : error(r, own, k, p);
    }
    free(own);
    return s;
}

/* Whether a rank has the part of another, and not its own. */
static bool some_are_exchanged(const double *map, const ranks *r)
{
    for (int k = 0; k < r->n_ranks && r->n_parts == r->n_ranks; k++)
        for (int p = 0; p < r->n_parts; p++)
            if (p != k && map[k * r->n_parts + p] > ALIKE && map[k * r->n_parts + k] < ALIKE)
                return true;
    return false;
}

/* Whether the copies of some ranks are much nearer than those of others. */
static bool some_are_right(const double *map, const ranks *r)
{
    double least = INFINITY, most = 0;
    for (int k = 0; k < r->n_ranks; k++) {
        double sum = 0;
        for (int p = 0; p < r->n_parts; p++)
            sum += map[k * r->n_parts + p];
        least = fmin(least, sum);
        most = fmax(most, sum);
    }
    return least < most / 4;
}

static int pieces_of(const ranks *r)
{
    for (int n = PARTS; n > 1; n--)
        if (r->part * r->behind % n == 0)
            return n;
    return 1;
}

static assay_status add_map(assay_result *result, int finding, const ranks *r, const char *title,
                            const char *x, const char *unit, const double *values)
{
    assay_series_map entry = {.title = title,
                              .x = x,
                              .y = "rank",
                              .unit = unit,
                              .finding = finding,
                              .n_x = r->n_parts,
                              .n_y = r->n_ranks,
                              .values = values};
    return assay_series_add_map(result, &entry);
}

static assay_status add_numbers(bool *whose, assay_result *result, int finding, ranks *r,
                                const char *name)
{
    double *map;
    char title[240];
    bool is_split = r->part < r->size;
    int most = (int)(r->size / r->part) > PARTS ? (int)(r->size / r->part) : PARTS;
    ASSAY_TRY(
        assay_alloc(&map, (size_t)r->n_ranks * (size_t)most, sizeof *map, "map of the ranks"));
    assay_status s = ASSAY_OK;
    r->n_parts = (int)(r->size / r->part);
    if (is_split)
        ASSAY_GO(fill(map, r, true));
    *whose = is_split && some_are_exchanged(map, r);
    if (*whose) {
        snprintf(title, sizeof title,
                 "%s by rank and part: which part of the expected value each rank's part is like; "
                 "right ones are on the diagonal",
                 name);
        s = add_map(result, finding, r, title, "expected part", "cosine", map);
        goto out;
    }
    r->n_parts = pieces_of(r);
    ASSAY_GO(fill(map, r, false));
    snprintf(title, sizeof title, "%s by rank and part: relative error of each rank's %s", name,
             is_split ? "own part, piece by piece" : "copy");
    if (is_split || some_are_right(map, r))
        s = add_map(result, finding, r, title,
                    is_split ? "piece of the rank's part" : "part of the channels",
                    "relative error", map);
out:
    free(map);
    return s;
}

assay_status assay_rank_picture(bool *whose, assay_result *result, int finding,
                                assay_forced *forced, int index)
{
    ranks r = {.run = assay_forced_run(forced), .judged = assay_forced_at(forced, index)};
    const double *got;
    char name[ASSAY_POINT_NAME_BYTES];
    assay_point_format(name, r.judged->point, r.judged->layer);
    ASSAY_TRY(add_held(whose, result, finding, name));
    if (*whose || !find_ranks(&r))
        return ASSAY_OK;
    ASSAY_TRY(assay_forced_values(&got, &r.expected, forced, index));
    return add_numbers(whose, result, finding, &r, name);
}
