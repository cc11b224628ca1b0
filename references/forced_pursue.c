/*
 * A list of ids that is the right one but for exchanges that rounding can make: found from its
 * sketch by making, again and again, the exchange that brings the sketch nearest.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "references/forced_pursue.h"

enum { REACH = 64 }; /* ranks that rounding moves a key by: many, where scores are 0 but for it */

typedef struct move {
    double gain;
    enum { EXCHANGE, TO_FRONT, TO_BACK, REPLACE } how;
    int64_t at, other; /* elements that are exchanged; the later one is put before the earlier one,
                          or the earlier behind the later; `at` becomes id */
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
        double own = score_of(p, row, ids[i]), front = 0, front_size = 0, back_sum = 0,
               back_size = 0;
        for (int64_t k = i + 1; k < (row + 1) * p->width && k <= i + REACH && ids[k] >= 0; k++) {
            double delta = ids[k] - ids[i], step = ids[k] - ids[k - 1];
            front -= step * back[k]; /* every element up to k has its neighbour's id */
            back_sum += step * back[k - 1];
            front_size = back_size += step * step;
            if (!(fabs(own - score_of(p, row, ids[k])) <= p->noise[row]))
                continue;
            weigh(best, &(move){.gain = 2 * delta * (back[i] - back[k]) - 2 * delta * delta,
                                .how = EXCHANGE,
                                .at = i,
                                .other = k});
            weigh(best, &(move){.gain = 2 * (front + delta * back[i]) - front_size - delta * delta,
                                .how = TO_FRONT,
                                .at = i,
                                .other = k});
            weigh(best,
                  &(move){.gain = 2 * (back_sum - delta * back[k]) - back_size - delta * delta,
                          .how = TO_BACK,
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
                                    .how = REPLACE,
                                    .at = i,
                                    .id = (double)id});
        }
    }
}

static void apply(double *ids, const move *m)
{
    size_t between = (size_t)(m->other - m->at) * sizeof *ids;
    double first = ids[m->at], last = m->how == REPLACE ? 0 : ids[m->other];
    switch (m->how) {
    case EXCHANGE:
        ids[m->at] = last;
        ids[m->other] = first;
        break;
    case TO_FRONT:
        memmove(ids + m->at + 1, ids + m->at, between);
        ids[m->at] = last;
        break;
    case TO_BACK:
        memmove(ids + m->at, ids + m->at + 1, between);
        ids[m->other] = first;
        break;
    case REPLACE:
        ids[m->at] = m->id;
    }
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
        apply(ids, &best);
        double now = assay_projection_rest(NULL, sketch, ids);
        if (!(now < rest))
            break; /* what was promised was noise */
        rest = now;
    }
    *found = rest <= least;
out:
    free(back);
    return s;
}
