/*
 * Conventions that the run's profile does not list: roundings that are everywhere, so that no
 * single home shows them (they change the floor, and the pass is made again with it), and matrices
 * that cancel in the scores.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "references/layout.h"
#include "references/median.h"
#include "reports/diagnose_private.h"

/* Points that are the product of an input with a quantized weight. */
static bool is_product(assay_point point)
{
    static const assay_point points[] = {ASSAY_POINT_Q_A,           ASSAY_POINT_Q,
                                         ASSAY_POINT_KV_A,          ASSAY_POINT_PROJ,
                                         ASSAY_POINT_FFN_GATE,      ASSAY_POINT_FFN_UP,
                                         ASSAY_POINT_FFN_OUT,       ASSAY_POINT_MOE_EXPERT_GATE,
                                         ASSAY_POINT_MOE_EXPERT_UP, ASSAY_POINT_MOE_EXPERT_DOWN,
                                         ASSAY_POINT_SHARED_GATE,   ASSAY_POINT_SHARED_UP,
                                         ASSAY_POINT_SHARED,        ASSAY_POINT_LOGITS};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        if (points[i] == point)
            return true;
    return false;
}

typedef struct products {
    int n, n_homes;
    double error, floor; /* medians over products */
} products;

static assay_status look(products *out, const assay_forced *forced)
{
    double *list;
    int n = assay_forced_n(forced);
    *out = (products){0};
    ASSAY_TRY(assay_alloc(&list, (size_t)n, 2 * sizeof *list, "errors of products"));
    for (int i = 0; i < n; i++) {
        const assay_judged *j = assay_forced_at(forced, i);
        if (!is_product(j->point) || j->against || j->n_nonfinite > 0)
            continue;
        list[out->n] = j->rel;
        list[n + out->n++] = j->floor_rel;
        out->n_homes += j->is_home;
    }
    out->error = out->n ? assay_median(list, out->n) : 0;
    out->floor = out->n ? assay_median(list + n, out->n) : 0;
    free(list);
    return ASSAY_OK;
}

/* The share of the error of one product that this rounding of its inputs takes away: the rounding
 * is a function of the inputs, so all of it where it is what the engine does. */
static assay_status explained_share(double *share, assay_forced *forced, int index)
{
    const assay_judged *j = assay_forced_at(forced, index);
    int64_t n = j->n_rows * j->n_cols;
    assay_knobs knobs = *assay_forced_knobs(forced);
    const double *got, *expected;
    double *rounded, rest = 0, error = 0;
    knobs.activations_q8 = true;
    ASSAY_TRY(assay_alloc(&rounded, (size_t)n, sizeof *rounded, "values under a rounding"));
    assay_status s = assay_forced_expect(rounded, forced, index, &knobs);
    if (s == ASSAY_OK)
        s = assay_forced_values(&got, &expected, forced, index);
    for (int64_t i = 0; s == ASSAY_OK && i < n; i++) {
        rest += (got[i] - rounded[i]) * (got[i] - rounded[i]);
        error += (got[i] - expected[i]) * (got[i] - expected[i]);
    }
    free(rounded);
    *share = error > 0 ? 1 - rest / error : 0;
    return s;
}

static assay_status median_share(double *share, assay_forced *forced)
{
    double *list;
    int n = 0;
    assay_status s = ASSAY_OK;
    *share = 0;
    ASSAY_TRY(assay_alloc(&list, (size_t)assay_forced_n(forced), sizeof *list, "shares"));
    for (int i = 0; i < assay_forced_n(forced) && s == ASSAY_OK; i++) {
        const assay_judged *j = assay_forced_at(forced, i);
        if (is_product(j->point) && !j->against && j->step == 0 && j->n_interval == 0)
            s = explained_share(&list[n++], forced, i);
    }
    if (s == ASSAY_OK && n)
        *share = assay_median(list, n);
    free(list);
    return s;
}

/*
 * Inputs of products rounded to 8-bit blocks: most products are homes, hardly one is under that
 * rounding, and the rounding of these very inputs takes their error away.
 */
assay_status assay_diagnosis_conventions(assay_result *result, assay_diagnosis *d, assay_run *run,
                                         assay_oracle *oracle, const assay_forced_options *options)
{
    const assay_profile *profile = assay_run_about(run)->profile;
    assay_forced_options with = *options;
    assay_forced *again;
    products before, after;
    double share;
    ASSAY_TRY(look(&before, d->forced));
    if ((profile && profile->activations_q8) || options->knobs || before.n < 4 ||
        2 * before.n_homes < before.n)
        return ASSAY_OK;
    ASSAY_TRY(median_share(&share, d->forced));
    if (share < 0.9)
        return ASSAY_OK;
    with.activations_q8 = true;
    ASSAY_TRY(assay_diagnosis_view(&again, run, oracle, &with));
    assay_status s = look(&after, again);
    if (s != ASSAY_OK || 10 * after.n_homes > before.n_homes) {
        assay_forced_free(again);
        return s;
    }
    assay_forced_free(d->forced);
    d->forced = again;
    return assay_strings_add(
        &result->notes,
        "convention, not a fault: inputs of matrix products rounded to 8-bit blocks, which the "
        "profile does not list: takes away %.4f of the error of the products, whose median is %.3g "
        "(this rounding: %.3g); %d of %d that stood out are explained",
        share, after.error, after.floor, before.n_homes - after.n_homes, before.n_homes);
}

/* |got - H expected| over |got - expected|, H on every head of every row. */
static double hadamard_rest(double *turned, const double *got, const double *expected, int64_t n,
                            int64_t width)
{
    double rest = 0, error = 0;
    memcpy(turned, expected, (size_t)n * sizeof *turned);
    for (int64_t i = 0; i + width <= n; i += width)
        assay_layout_hadamard(turned + i, width);
    for (int64_t i = 0; i < n; i++) {
        rest += (got[i] - turned[i]) * (got[i] - turned[i]);
        error += (got[i] - expected[i]) * (got[i] - expected[i]);
    }
    return error > 0 ? sqrt(rest / error) : INFINITY;
}

static assay_status try_hadamard(assay_located *l, assay_forced *forced)
{
    const assay_judged *j = assay_forced_at(forced, l->index);
    int64_t width = j->n_cols / j->n_groups, n = j->n_rows * j->n_cols;
    const double *got, *expected;
    double *turned;
    if (width < 2 || (width & (width - 1)))
        return ASSAY_OK;
    ASSAY_TRY(assay_forced_values(&got, &expected, forced, l->index));
    ASSAY_TRY(assay_alloc(&turned, (size_t)n, sizeof *turned, "values under a matrix"));
    double rest = hadamard_rest(turned, got, expected, n, width);
    free(turned);
    if (!(rest < 0.02)) /* of a value turned by an orthogonal matrix: 1.4 x the rounding */
        return ASSAY_OK;
    l->convention = true;
    l->fault = ASSAY_FAULT_SELECT;
    snprintf(l->kind, sizeof l->kind, "Hadamard matrix");
    snprintf(l->family, sizeof l->family, "hadamard");
    snprintf(l->evidence, sizeof l->evidence,
             "the value is the expected one times the Walsh-Hadamard matrix of width %lld in every "
             "head: share of the error left %.2g; queries and keys have it alike, so it cancels in "
             "the scores",
             (long long)width, rest * rest);
    json_decref(l->fitted);
    l->fitted = json_pack("{s:I}", "width", (json_int_t)width);
    return ASSAY_OK;
}

assay_status assay_diagnosis_hadamard(assay_diagnosis *d)
{
    for (int i = 0; i < d->n; i++) {
        assay_point point = assay_forced_at(d->forced, d->homes[i].index)->point;
        if (d->homes[i].merged < 0 &&
            (point == ASSAY_POINT_INDEX_Q || point == ASSAY_POINT_INDEX_K))
            ASSAY_TRY(try_hadamard(&d->homes[i], d->forced));
    }
    return ASSAY_OK;
}
