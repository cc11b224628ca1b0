/*
 * Judging a choice: chosen experts and keys against the scores that decide.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "references/oracle/oracle_private.h"

/* Scores of all rows and, for experts, of the groups. */
typedef struct decision {
    int64_t rows, n, k; /* n candidates, k chosen at most */
    double *scores;     /* [rows, n]; -inf: not allowed */
    double *groups;     /* [rows, n_group]; NULL: no groups */
    double *biased;     /* scratch of n */
    int n_group;
} decision;

static void decision_clear(decision *d)
{
    free(d->scores);
    free(d->groups);
    free(d->biased);
}

static assay_status decide_experts(decision *d, oracle_eval *e, int step, int layer)
{
    const assay_oracle *o = e->oracle;
    const assay_knobs *k = e->knobs;
    const double *probs, *bias;
    d->n = o->shape.n_expert;
    d->k = k->n_expert_used < o->shape.n_expert_used ? k->n_expert_used : o->shape.n_expert_used;
    d->n_group = k->groups == ASSAY_GROUPS_NONE ? 1 : o->shape.n_group;
    ASSAY_TRY(assay_oracle_value(&probs, e, step, ASSAY_POINT_MOE_PROBS, layer));
    ASSAY_TRY(assay_oracle_route_bias(&bias, e, layer));
    ASSAY_TRY(assay_alloc(&d->scores, (size_t)(d->rows * d->n), sizeof(double), "scores"));
    ASSAY_TRY(assay_alloc(&d->biased, (size_t)d->n, sizeof(double), "scores"));
    if (d->n_group > 1)
        ASSAY_TRY(assay_alloc(&d->groups, (size_t)(d->rows * d->n_group), sizeof(double),
                              "scores of groups"));
    for (int64_t t = 0; t < d->rows; t++) {
        const double *p = probs + t * d->n;
        assay_oracle_route_scores(d->scores + t * d->n, p, bias, d->n, o->shape.n_group, k);
        for (int64_t i = 0; i < d->n; i++)
            d->biased[i] = p[i] + assay_oracle_choice_bias(bias, i, k);
        if (d->groups)
            assay_oracle_group_scores(d->groups + t * d->n_group, d->biased, d->n, d->n_group,
                                      k->groups);
    }
    return ASSAY_OK;
}

static assay_status decide_keys(decision *d, oracle_eval *e, int step, int layer)
{
    const oracle_step *at = &e->pass->steps[step];
    const double *scores;
    int from = assay_oracle_source_layer(e->oracle, layer);
    d->n = at->first_key + at->n_tokens;
    d->k = e->knobs->index_top_k < d->n ? e->knobs->index_top_k : d->n;
    ASSAY_TRY(assay_oracle_value(&scores, e, step, ASSAY_POINT_INDEX_SCORES, from));
    ASSAY_TRY(assay_alloc(&d->scores, (size_t)(d->rows * d->n), sizeof(double), "scores"));
    memcpy(d->scores, scores, (size_t)(d->rows * d->n) * sizeof(double));
    return ASSAY_OK;
}

static assay_status decide(decision *d, oracle_eval *e, int step, assay_point point, int layer)
{
    char name[ASSAY_POINT_NAME_BYTES];
    *d = (decision){.rows = e->pass->steps[step].n_tokens};
    if (point == ASSAY_POINT_MOE_TOPK)
        return decide_experts(d, e, step, layer);
    if (point == ASSAY_POINT_INDEX_TOPK)
        return decide_keys(d, e, step, layer);
    return assay_fail(ASSAY_MISSING, "point '%s' is no choice",
                      assay_point_format(name, point, layer));
}

/* What one row's choice amounts to. */
typedef struct row_choice {
    double gap, scale;
    int64_t n_flips;
} row_choice;

/* Distance from the groups that may be used to the group of a forbidden expert. */
static double group_gap(const decision *d, int64_t row, int64_t id)
{
    const double *group = d->groups + row * d->n_group, *s = d->scores + row * d->n;
    int64_t width = d->n / d->n_group;
    double worst_allowed = HUGE_VAL;
    for (int64_t i = 0; i < d->n; i++)
        if (s[i] > -HUGE_VAL && group[i / width] < worst_allowed)
            worst_allowed = group[i / width];
    return worst_allowed - group[id / width];
}

/* mark: scratch [n], 1 the right choice, 2 chosen. */
static row_choice judge_row(const decision *d, int64_t row, const double *chosen, int64_t width,
                            uint8_t *mark, int32_t *right)
{
    const double *s = d->scores + row * d->n;
    double worst_in = HUGE_VAL, best_out = -HUGE_VAL, forbidden = 0;
    int64_t n_right = 0, n_chosen = 0;
    row_choice r = {0};
    memset(mark, 0, (size_t)d->n);
    assay_oracle_top(right, s, d->n, d->k);
    while (n_right < d->k && right[n_right] >= 0)
        mark[right[n_right++]] = 1;
    double threshold = n_right ? s[right[n_right - 1]] : -HUGE_VAL;
    for (int64_t i = 0; i < width; i++) {
        int64_t id = chosen[i] >= 0 && chosen[i] < (double)d->n ? (int64_t)chosen[i] : -1;
        if (id < 0 || mark[id] & 2)
            continue;
        mark[id] |= 2;
        if (!(s[id] > -HUGE_VAL)) {
            if (d->groups) {
                forbidden = fmax(forbidden, group_gap(d, row, id));
                n_chosen++;
                r.n_flips++;
            }
            continue; /* a masked key pads a list; it counts as missing below where it took a place
                       */
        }
        n_chosen++;
        if (s[id] < threshold) {
            r.n_flips++;
            worst_in = fmin(worst_in, s[id]);
        }
    }
    for (int64_t i = 0; i < n_right; i++)
        if (!(mark[right[i]] & 2))
            best_out = fmax(best_out, s[right[i]]);
    if (worst_in < HUGE_VAL && best_out > -HUGE_VAL)
        r.gap = best_out - worst_in;
    r.gap = fmax(r.gap, forbidden);
    if (n_chosen < n_right) {
        r.n_flips += n_right - n_chosen;
        r.gap = HUGE_VAL;
    }
    r.scale = fmax(fabs(best_out > -HUGE_VAL ? best_out : threshold),
                   worst_in < HUGE_VAL ? fabs(worst_in) : 0);
    return r;
}

static assay_status judge_rows(double *gap, int64_t *n_flips, double *scale, const decision *d,
                               const double *chosen, int64_t width)
{
    int32_t *right;
    ASSAY_TRY(assay_alloc(&right, (size_t)(d->k + d->n), sizeof *right, "choice of a row"));
    for (int64_t t = 0; t < d->rows; t++) {
        row_choice r = judge_row(d, t, chosen + t * width, width, (uint8_t *)(right + d->k), right);
        if (gap)
            gap[t] = r.gap;
        if (n_flips)
            n_flips[t] = r.n_flips;
        if (scale)
            scale[t] = r.scale;
    }
    free(right);
    return ASSAY_OK;
}

assay_status assay_pass_selection_gap(double *gap, int64_t *n_flips, double *scale,
                                      assay_pass *pass, int step, assay_point point, int layer,
                                      const assay_knobs *knobs)
{
    oracle_eval e = assay_oracle_eval(pass, knobs);
    decision d = {0};
    const double *chosen;
    assay_status s;
    ASSAY_GO(decide(&d, &e, step, point, layer));
    chosen = assay_oracle_put_at(pass, step, point, layer);
    if (!chosen)
        ASSAY_GO(assay_oracle_value(&chosen, &e, step, point, layer));
    s = judge_rows(gap, n_flips, scale, &d, chosen,
                   assay_oracle_count(pass, step, point, layer) / d.rows);
out:
    decision_clear(&d);
    return s;
}

assay_status assay_pass_selection_scores(double *out, assay_pass *pass, int step, assay_point point,
                                         int layer, const assay_knobs *knobs)
{
    oracle_eval e = assay_oracle_eval(pass, knobs);
    decision d = {0};
    assay_status s = decide(&d, &e, step, point, layer);
    if (s == ASSAY_OK)
        memcpy(out, d.scores, (size_t)(d.rows * d.n) * sizeof *out);
    decision_clear(&d);
    return s;
}
