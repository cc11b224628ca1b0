#include "references/forced_ids.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Marks chosen[id] for every valid id; returns how many distinct ones, or -1 for one out of range
 * or twice. */
static int64_t mark(unsigned char *chosen, const double *ids, int64_t width, int64_t n_visible,
                    bool is_keys)
{
    int64_t n = 0;
    for (int64_t i = 0; i < width; i++) {
        if (is_keys && !(ids[i] >= 0 && ids[i] < (double)n_visible))
            continue; /* padding, or a key that the mask forbids anyway */
        int64_t id = assay_index_of(ids[i], n_visible);
        if (id < 0 || chosen[id])
            return -1;
        chosen[id] = 1;
        n++;
    }
    return n;
}

static double group_score(const double *scores, int64_t n, assay_groups rule)
{
    double first = -INFINITY, second = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += scores[i];
        if (scores[i] > first) {
            second = first;
            first = scores[i];
        } else if (scores[i] > second) {
            second = scores[i];
        }
    }
    return rule == ASSAY_GROUPS_MAX ? first : rule == ASSAY_GROUPS_SUM_ALL ? sum : first + second;
}

/* Gap between groups: best score of a group that no chosen expert belongs to, minus the worst of
 * one that some does. Groups without a chosen expert may still have been allowed, so the gap counts
 * only when more groups are used than allowed, or a used one is beaten. */
static double group_gap(const assay_ids_input *in, const double *scores,
                        const unsigned char *chosen)
{
    int64_t size = in->n_scores / in->n_group;
    double worst_in = INFINITY;
    int n_better = 0;
    double nth = INFINITY;
    for (int g = 0; g < in->n_group; g++) {
        bool used = false;
        for (int64_t i = 0; i < size; i++)
            used = used || chosen[g * size + i];
        if (used)
            worst_in = fmin(worst_in, group_score(scores + g * size, size, in->group_rule));
    }
    double best_out = -INFINITY;
    for (int g = 0; g < in->n_group; g++) {
        double s = group_score(scores + g * size, size, in->group_rule);
        if (s > worst_in) {
            n_better++;
            nth = fmin(nth, s);
        }
    }
    if (n_better >= in->n_group_used)
        best_out = nth;
    return best_out - worst_in;
}

static double row_gap(const assay_ids_input *in, int64_t r, const unsigned char *got,
                      const unsigned char *want, int64_t n_visible)
{
    const double *scores = in->scores + r * in->n_scores;
    if (in->n_group > 1) {
        double gap = group_gap(in, scores, got);
        if (gap > 0)
            return gap;
    }
    double left = -INFINITY, chosen = INFINITY;
    for (int64_t i = 0; i < n_visible; i++) {
        if (want[i] && !got[i])
            left = fmax(left, scores[i]);
        if (got[i] && !want[i])
            chosen = fmin(chosen, scores[i]);
    }
    return left - chosen;
}

static void judge_row(assay_judged *j, const assay_ids_input *in, int64_t r, unsigned char *marks)
{
    bool is_keys = in->n_visible_first > 0;
    int64_t n_visible = is_keys ? in->n_visible_first + r : in->n_scores;
    if (n_visible > in->n_scores)
        n_visible = in->n_scores;
    unsigned char *got = marks, *want = marks + in->n_scores;
    memset(marks, 0, 2 * (size_t)in->n_scores);
    for (int64_t i = 0; i < n_visible; i++)
        if (isnan(in->scores[r * in->n_scores + i]))
            return; /* no order among scores that are no numbers: inherited */
    int64_t n_want = mark(want, in->expected + r * in->width, in->width, n_visible, is_keys);
    int64_t n_got = mark(got, in->got + r * in->width, in->width, n_visible, is_keys);
    int64_t flips = 0;
    for (int64_t i = 0; i < n_visible; i++)
        flips += want[i] && !got[i];
    double gap = n_got != n_want ? INFINITY : 0;
    if (n_got == n_want && flips == 0)
        return;
    if (n_got == n_want)
        gap = row_gap(in, r, got, want, n_visible);
    j->n_flips += flips > 0 ? flips : 1;
    if (gap > in->noise[r] || isnan(gap)) {
        if (j->n_flips_outside == 0)
            j->first_bad = r * in->width;
        j->n_flips_outside += flips > 0 ? flips : 1;
    }
    if (!(gap <= j->worst_gap)) {
        j->worst_gap = gap;
        j->gap_noise = in->noise[r];
        j->worst_row = r;
    }
}

assay_status assay_ids_judge(assay_judged *judged, const assay_ids_input *in)
{
    assay_judged *j = judged;
    unsigned char *marks;
    ASSAY_TRY(assay_alloc(&marks, (size_t)in->n_scores, 2, "marks of chosen ids"));
    j->is_ids = true;
    j->n_rows = in->rows;
    j->n_cols = in->width;
    j->n_groups = 1;
    j->n_flips = j->n_flips_outside = 0;
    j->first_bad = -1;
    j->worst_gap = 0;
    j->is_home = false;
    j->why[0] = '\0';
    for (int64_t r = 0; r < in->rows; r++)
        judge_row(j, in, r, marks);
    int64_t n = 0;
    for (int64_t i = 0; i < in->rows * in->width; i++)
        n += in->expected[i] >= 0;
    j->rel = n ? (double)j->n_flips / (double)n : 0;
    if (j->n_flips_outside > 0) {
        j->is_home = true;
        snprintf(j->why, sizeof j->why,
                 "%lld of %lld chosen ids differ; row %lld by a gap of %.3g, noise %.3g",
                 (long long)j->n_flips, (long long)n, (long long)j->worst_row, j->worst_gap,
                 j->gap_noise);
    }
    free(marks);
    return ASSAY_OK;
}
