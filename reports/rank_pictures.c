/*
 * The faulty value by rank and part. A value that is split over ranks: which part of the expected
 * one each rank's part is most like (right: bright on the diagonal). A value of which every rank
 * has a copy: how far each rank's copy is off, part by part.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "reports/diagnose_pictures.h"
#include "reports/series.h"

enum { MOST_RANKS = 64, PARTS = 16 };

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

static double error(const ranks *r, const double *own, int part)
{
    double dd = 0, ee = 0;
    int64_t all = r->size * r->behind, n = all / r->n_parts;
    for (int64_t b = 0; b < r->before; b++)
        for (int64_t i = 0; i < n; i++) {
            int64_t at = b * all + part * n + i;
            dd += (own[at] - r->expected[at]) * (own[at] - r->expected[at]);
            ee += r->expected[at] * r->expected[at];
        }
    return isnan(dd) ? INFINITY : ee > 0 ? sqrt(dd / ee) : dd > 0 ? INFINITY : 0;
}

static assay_status fill(double *map, const ranks *r)
{
    double *own;
    int64_t n = r->before * r->part * r->behind;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(assay_alloc(&own, (size_t)n, sizeof *own, "a rank's part"));
    for (int k = 0; k < r->n_ranks && s == ASSAY_OK; k++) {
        s = assay_run_read(own, r->run, r->seen[k]);
        for (int p = 0; p < r->n_parts && s == ASSAY_OK; p++)
            map[k * r->n_parts + p] = r->part < r->size ? cosine(r, own, p) : error(r, own, p);
    }
    free(own);
    return s;
}

static int parts_of(const ranks *r)
{
    if (r->part < r->size)
        return (int)(r->size / r->part);
    for (int n = PARTS; n > 1; n--)
        if (r->size * r->behind % n == 0)
            return n;
    return 1;
}

assay_status assay_rank_picture(bool *split, assay_result *result, int finding,
                                assay_forced *forced, int index)
{
    ranks r = {.run = assay_forced_run(forced), .judged = assay_forced_at(forced, index)};
    const double *got;
    double *map;
    char title[240], name[ASSAY_POINT_NAME_BYTES];
    *split = false;
    if (!find_ranks(&r))
        return ASSAY_OK;
    ASSAY_TRY(assay_forced_values(&got, &r.expected, forced, index));
    r.n_parts = parts_of(&r);
    assay_point_format(name, r.judged->point, r.judged->layer);
    *split = r.part < r.size;
    snprintf(title, sizeof title,
             *split ? "%s by rank and part: which part of the expected value each rank's part is "
                      "like; right ones are on the diagonal"
                    : "%s by rank and part: relative error of each rank's copy",
             name);
    ASSAY_TRY(assay_alloc(&map, (size_t)(r.n_ranks * r.n_parts), sizeof *map, "map of the ranks"));
    assay_status s = fill(map, &r);
    assay_series_map entry = {.title = title,
                              .x = *split ? "expected part" : "part of the channels",
                              .y = "rank",
                              .unit = *split ? "cosine" : "relative error",
                              .finding = finding,
                              .n_x = r.n_parts,
                              .n_y = r.n_ranks,
                              .values = map};
    if (s == ASSAY_OK)
        s = assay_series_add_map(result, &entry);
    free(map);
    return s;
}
