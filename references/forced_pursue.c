/*
 * A list of ids that is the right one but for exchanges that rounding can make: found from its
 * sketch by exchanging, again and again, the two whose exchange brings the sketch nearest.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "references/forced_pursue.h"

enum { REACH = 8 }; /* ranks that rounding moves a key by */

typedef struct move {
    double gain;
    int64_t at, other; /* elements that are exchanged; other -1: `at` becomes id */
    double id;
} move;

static double score_of(const assay_pursuit *p, int64_t row, double id)
{
    int64_t i = assay_index_of(id, p->n_scores);
    return i < 0 ? -INFINITY : p->scores[row * p->n_scores + i];
}

static void weigh(move *best, const move *m)
{
    if (m->gain > best->gain)
        *best = *m;
}

/* back: what the rest of the sketch says of each element. */
static void try_row(move *best, const assay_pursuit *p, const double *ids, const double *back,
                    int64_t row)
{
    for (int64_t i = row * p->width; i < (row + 1) * p->width; i++) {
        double own = score_of(p, row, ids[i]);
        if (ids[i] < 0)
            continue;
        for (int64_t k = i + 1; k < (row + 1) * p->width && k <= i + REACH; k++) {
            double delta = ids[k] - ids[i];
            if (ids[k] < 0 || !(fabs(own - score_of(p, row, ids[k])) <= p->noise[row]))
                continue;
            weigh(best, &(move){.gain = 2 * delta * (back[i] - back[k]) - 2 * delta * delta,
                                .at = i,
                                .other = k});
        }
    }
    if (!p->may_replace)
        return;
    for (int64_t id = 0; id < p->n_scores; id++) {
        bool is_chosen = false;
        for (int64_t i = row * p->width; i < (row + 1) * p->width; i++)
            is_chosen = is_chosen || ids[i] == (double)id;
        for (int64_t i = row * p->width; i < (row + 1) * p->width && !is_chosen; i++) {
            double delta = (double)id - ids[i];
            double gap = score_of(p, row, ids[i]) - score_of(p, row, (double)id);
            if (ids[i] >= 0 && fabs(gap) <= p->noise[row])
                weigh(best, &(move){.gain = 2 * delta * back[i] - delta * delta,
                                    .at = i,
                                    .other = -1,
                                    .id = (double)id});
        }
    }
}

static void apply(double *ids, const move *m)
{
    double id = ids[m->at];
    ids[m->at] = m->other < 0 ? m->id : ids[m->other];
    if (m->other >= 0)
        ids[m->other] = id;
}

/* What the rest of the sketch says of every element. */
static assay_status spread(double *back, const assay_projection *p, const double *ids)
{
    double *rest;
    int64_t n = p->n_groups * ASSAY_SKETCH_N;
    ASSAY_TRY(assay_alloc(&rest, (size_t)n, sizeof *rest, "a sketch"));
    assay_project(rest, p, ids);
    for (int64_t k = 0; k < n; k++)
        rest[k] = p->y[k] - rest[k];
    for (int64_t g = 0; g < p->n_groups; g++)
        assay_sketch_back(back + g * ASSAY_SKETCH_ROWS * p->inner, rest + g * ASSAY_SKETCH_N,
                          assay_projection_size(p, g));
    free(rest);
    return ASSAY_OK;
}

assay_status assay_pursue_ids(bool *found, double *ids, const assay_projection *sketch,
                              const assay_pursuit *p, double least)
{
    int64_t n = p->rows * p->width;
    double *back;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(assay_alloc(&back, (size_t)n, sizeof *back, "ids"));
    double rest = assay_projection_rest(NULL, sketch, ids);
    for (int64_t round = 0; round < 4 * n && rest > least; round++) {
        move best = {.gain = 0};
        ASSAY_GO(spread(back, sketch, ids));
        for (int64_t r = 0; r < p->rows; r++)
            try_row(&best, p, ids, back, r);
        if (best.gain <= 0)
            break;
        double before = ids[best.at];
        apply(ids, &best);
        double now = assay_projection_rest(NULL, sketch, ids);
        if (!(now < rest)) {
            best.id = before;
            apply(ids, &best);
            break;
        }
        rest = now;
    }
    *found = rest <= least;
out:
    free(back);
    return s;
}
