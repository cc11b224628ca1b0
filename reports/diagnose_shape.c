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

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Spectrum of got over expected, of the elements that are not small. */
static void describe_ratios(char *out, size_t room, size_t *at, const assay_home *home)
{
    double *ratios = assay_alloc_or_lack((size_t)home->n, sizeof *ratios, "ratios"), square = 0;
    int64_t n = 0;
    char text[120];
    if (!ratios)
        return;
    for (int64_t i = 0; i < home->n; i++)
        square += isfinite(home->expected[i]) ? home->expected[i] * home->expected[i] : 0;
    double least = 0.3 * sqrt(square / (double)home->n);
    for (int64_t i = 0; i < home->n; i++)
        if (fabs(home->expected[i]) > least && isfinite(home->expected[i]) &&
            isfinite(home->got[i]))
            ratios[n++] = home->got[i] / home->expected[i];
    qsort(ratios, (size_t)n, sizeof *ratios, by_value);
    if (n >= 10) {
        snprintf(text, sizeof text, "got/expected %.3g, %.3g, %.3g at 10, 50, 90 %% of elements; ",
                 ratios[n / 10], ratios[n / 2], ratios[n - 1 - n / 10]);
        put(out, room, at, text);
    }
    free(ratios);
}

/* Experts that every wrong row chose, where the op is one of the experts'. */
static void describe_experts(char *out, size_t room, size_t *at, const assay_home *home)
{
    const assay_judged *j = home->judged;
    int E = home->shape->n_expert, U = home->shape->n_expert_used, n_common = 0, first = -1;
    int64_t n;
    double *ids;
    char text[80];
    if (j->point < ASSAY_POINT_MOE_EXPERT_GATE || j->point > ASSAY_POINT_MOE_ROUTED || E == 0 ||
        assay_home_value(&ids, &n, (assay_home *)home, ASSAY_POINT_MOE_TOPK, j->layer) != ASSAY_OK)
        return;
    for (int e = 0; e < E && n == j->n_rows * U; e++) {
        bool common = true, any = false;
        for (int64_t r = 0; r < j->n_rows && common; r++) {
            double error = 0, size = 0;
            bool chosen = false;
            for (int64_t i = r * j->n_cols; i < (r + 1) * j->n_cols; i++) {
                double d = home->got[i] - home->expected[i];
                error += isfinite(d) ? d * d : 0;
                size += isfinite(d) ? home->expected[i] * home->expected[i] : 0;
            }
            for (int u = 0; u < U; u++)
                chosen = chosen || ids[r * U + u] == e;
            bool wrong = error > 36 * j->floor_row_median * j->floor_row_median * size;
            common = !wrong || chosen;
            any = any || wrong;
        }
        if (common && any && n_common++ == 0)
            first = e;
    }
    free(ids);
    if (n_common == 0)
        return;
    snprintf(text, sizeof text, "every wrong row chose expert %d; ", first);
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
    double *sums =
        assay_alloc_or_lack((size_t)(j->n_rows + j->n_cols + j->n_groups), sizeof *sums, "shares");
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
    describe_ratios(out, room, &at, home);
    describe_experts(out, room, &at, home);
    char text[200];
    snprintf(text, sizeof text,
             "cosine %.6f, gain %.6f, median row gain %.6f, size relative to expected %.4f",
             1 - j->one_minus_cos, j->gain, j->gain_row_median,
             j->one_minus_cos < 1 ? j->gain / (1 - j->one_minus_cos) : NAN);
    put(out, room, &at, text);
}
