/*
 * The shape of an unexplained error: which rows, heads and channels carry it, and how got relates
 * to expected. For an engineer who has to go on without a name.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/diagnose_private.h"

typedef struct axis { /* error energy along one axis */
    double *share;    /* [n] */
    int64_t n;
} axis;

static void put(char *out, size_t room, size_t *at, const char *text)
{
    if (*at < room)
        *at += (size_t)snprintf(out + *at, room - *at, "%s", text);
}

/* "rows 3, 7 (2 of 40) carry 99 % of the error", or that it is spread evenly. */
static void describe_axis(char *out, size_t room, size_t *at, const char *name, const axis *a)
{
    double total = 0, top = 0;
    int64_t n_top = 0, first = -1, last = -1;
    for (int64_t i = 0; i < a->n; i++)
        total += a->share[i];
    if (!(total > 0) || a->n < 2)
        return;
    for (int64_t i = 0; i < a->n; i++)
        if (a->share[i] > 3 * total / (double)a->n || a->share[i] > 0.25 * total) {
            top += a->share[i];
            n_top++;
            first = first < 0 ? i : first;
            last = i;
        }
    char text[160];
    if (n_top == 0)
        snprintf(text, sizeof text, "spread over all %lld %ss; ", (long long)a->n, name);
    else if (n_top == 1)
        snprintf(text, sizeof text, "%s %lld of %lld carries %.0f %% of it; ", name,
                 (long long)first, (long long)a->n, 100 * top / total);
    else
        snprintf(text, sizeof text, "%lld of %lld %ss (%lld to %lld) carry %.0f %% of it; ",
                 (long long)n_top, (long long)a->n, name, (long long)first, (long long)last,
                 100 * top / total);
    put(out, room, at, text);
}

void assay_shape_describe(char *out, size_t room, const assay_home *home)
{
    const assay_judged *j = home->judged;
    size_t at = 0;
    out[0] = '\0';
    if (j->is_ids) {
        snprintf(out, room,
                 "%lld ids differ, %lld of them outside the noise of the scores; worst "
                 "row %lld, gap %.3g against noise %.3g",
                 (long long)j->n_flips, (long long)j->n_flips_outside, (long long)j->worst_row,
                 j->worst_gap, j->gap_noise);
        return;
    }
    int64_t groups = j->n_groups > 1 ? j->n_groups : 0, width = j->n_cols / j->n_groups;
    double *sums = calloc((size_t)(j->n_rows + j->n_cols + j->n_groups), sizeof *sums);
    if (!sums)
        return;
    axis rows = {sums, j->n_rows}, cols = {sums + j->n_rows, j->n_cols},
         heads = {sums + j->n_rows + j->n_cols, groups};
    for (int64_t i = 0; i < home->n; i++) {
        double d = home->got[i] - home->expected[i];
        if (!isfinite(d))
            continue;
        rows.share[i / j->n_cols] += d * d;
        cols.share[i % j->n_cols] += d * d;
        heads.share[i % j->n_cols / width] += d * d;
    }
    put(out, room, &at, "shape of the error: ");
    describe_axis(out, room, &at, "row", &rows);
    describe_axis(out, room, &at, "head", &heads);
    describe_axis(out, room, &at, "channel", &cols);
    free(sums);
    char text[200];
    snprintf(text, sizeof text,
             "cosine %.6f, gain %.6f, median row gain %.6f, size relative to expected %.4f",
             1 - j->one_minus_cos, j->gain, j->gain_row_median,
             j->one_minus_cos < 1 ? j->gain / (1 - j->one_minus_cos) : NAN);
    put(out, room, &at, text);
}
