/*
 * Other values that a home's explanations ask for: of experts, of inputs, of partners.
 */
#include <stdlib.h>
#include <string.h>

#include "reports/home.h"

assay_status assay_home_expert_outputs(double *out, assay_home *home, const assay_knobs *knobs)
{
    const assay_judged *j = home->judged;
    assay_pass *pass = assay_forced_pass(home->forced, j->prompt);
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS];
    double *all;
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, pass, j->step, ASSAY_POINT_MOE_EXPERT_DOWN, j->layer));
    int64_t row = dims[1] * dims[2];
    ASSAY_TRY(assay_alloc(&all, (size_t)(dims[0] * row), sizeof *all, "outputs of experts"));
    assay_status s =
        assay_pass_expect(all, pass, j->step, ASSAY_POINT_MOE_EXPERT_DOWN, j->layer, knobs);
    if (s == ASSAY_OK)
        memcpy(out, all + (dims[0] - j->n_rows) * row, (size_t)(j->n_rows * row) * sizeof *out);
    free(all);
    return s;
}

assay_status assay_home_expect_from(double *out, assay_home *home, assay_point input,
                                    const double *values, int64_t n)
{
    const assay_judged *j = home->judged;
    const assay_run_step *at =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    assay_pass_options options = {.latent = assay_forced_is_latent(home->forced, j->prompt),
                                  .knobs = home->knobs};
    assay_pass *pass;
    int step;
    if (j->n_rows != at->n_tokens)
        return assay_fail(ASSAY_MISSING, "not all rows of the step were captured");
    ASSAY_TRY(assay_pass_new(&pass, assay_forced_oracle(home->forced), &options));
    assay_status s = assay_pass_add_step(&step, pass, at->tokens, at->n_tokens, at->first_position);
    if (s == ASSAY_OK)
        s = assay_pass_put(pass, step, input, j->layer, values, n);
    if (s == ASSAY_OK)
        s = assay_pass_expect(out, pass, step, j->point, j->layer, home->knobs);
    assay_pass_free(pass);
    return s;
}

bool assay_home_is_zeroed(const assay_home *home)
{
    double zeroed = 0, all = 0;
    for (int64_t i = 0; i < home->n; i++) {
        const double d = home->got[i] - home->expected[i];
        all += d * d;
        zeroed += home->got[i] == 0 ? d * d : 0;
    }
    return all > 0 && zeroed >= 0.999 * all;
}

bool assay_home_was_due(const assay_home *home, int step, int64_t n)
{
    const assay_judged *j = home->judged;
    const double *got, *expected;
    int before = assay_forced_find(home->forced, j->prompt, step, j->point, j->layer);
    double apart = 0, size = 0;
    if (before < 0)
        return false;
    const assay_judged *b = assay_forced_at(home->forced, before);
    if (b->n_rows * b->n_cols < n ||
        assay_forced_values(&got, &expected, home->forced, before) != ASSAY_OK)
        return false;
    for (int64_t i = 0; i < n; i++) {
        apart += (expected[i] - home->expected[i]) * (expected[i] - home->expected[i]);
        size += home->expected[i] * home->expected[i];
    }
    return apart <= 1e-12 * size;
}

assay_status assay_home_value(double **out, int64_t *n, assay_home *home, assay_point point,
                              int layer)
{
    const assay_judged *j = home->judged;
    assay_pass *pass = assay_forced_pass(home->forced, j->prompt);
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS];
    const double *values;
    if (!assay_oracle_has_point(assay_forced_oracle(home->forced), point, layer,
                                assay_forced_is_latent(home->forced, j->prompt)))
        return assay_fail(ASSAY_MISSING, "no such point in this model");
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, pass, j->step, point, layer));
    ASSAY_TRY(assay_pass_value(&values, pass, j->step, point, layer));
    int64_t cols = 1, rows = dims[0];
    for (int i = 1; i < n_dims; i++)
        cols *= dims[i];
    if (assay_point_at(point)->axes[0] == 'T' && j->n_rows < rows) { /* the last rows only */
        values += (rows - j->n_rows) * cols;
        rows = j->n_rows;
    }
    *n = rows * cols;
    ASSAY_TRY(assay_alloc(out, (size_t)*n, sizeof **out, "values of a point"));
    memcpy(*out, values, (size_t)*n * sizeof **out);
    return ASSAY_OK;
}

/* A partner that the walk over sketches has not come to: what is expected of it. */
static assay_status partner_ahead(double **expected, double **got, int64_t *cols, assay_home *home,
                                  assay_point point)
{
    const assay_judged *j = home->judged;
    assay_pass *pass = assay_forced_pass(home->forced, j->prompt);
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS];
    if (!assay_oracle_has_point(assay_forced_oracle(home->forced), point, j->layer,
                                assay_forced_is_latent(home->forced, j->prompt)))
        return assay_fail(ASSAY_MISSING, "no such point in this model");
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, pass, j->step, point, j->layer));
    if (dims[0] != j->n_rows)
        return assay_fail(ASSAY_MISSING, "not all rows of the step were captured");
    *cols = 1;
    for (int i = 1; i < n_dims; i++)
        *cols *= dims[i];
    size_t n = (size_t)(dims[0] * *cols);
    double *list;
    ASSAY_TRY(assay_alloc(&list, n, sizeof *list, "values of a point"));
    assay_status s = assay_pass_expect(list, pass, j->step, point, j->layer, NULL);
    if (s == ASSAY_OK && got)
        s = assay_alloc(got, n, sizeof **got, "values of a point");
    if (s != ASSAY_OK) {
        free(list);
        return s;
    }
    if (got)
        memcpy(*got, list, n * sizeof *list);
    *expected = list;
    return ASSAY_OK;
}

assay_status assay_home_partner(double **expected, double **got, int64_t *cols, assay_home *home,
                                assay_point point)
{
    const assay_judged *j = home->judged;
    const double *g, *e;
    int index = assay_forced_find(home->forced, j->prompt, j->step, point, j->layer);
    if (index < 0 && home->pair.sketch)
        return partner_ahead(expected, got, cols, home, point);
    if (index < 0)
        return assay_fail(ASSAY_MISSING, "partner point was not captured");
    const assay_judged *p = assay_forced_at(home->forced, index);
    size_t n = (size_t)(p->n_rows * p->n_cols);
    ASSAY_TRY(assay_forced_values(&g, &e, home->forced, index));
    ASSAY_TRY(assay_alloc(expected, n, sizeof **expected, "values of a point"));
    memcpy(*expected, e, n * sizeof *e);
    *cols = p->n_cols;
    if (!got)
        return ASSAY_OK;
    assay_status s = assay_alloc(got, n, sizeof **got, "values of a point");
    if (s != ASSAY_OK) {
        free(*expected);
        return s;
    }
    memcpy(*got, g, n * sizeof *g);
    return ASSAY_OK;
}
