/*
 * The scores behind a choice, on the inputs that the run really had, and their noise.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "references/forced_floor.h"
#include "references/forced_ids.h"

typedef struct choice {
    double *got, *expected, *scores, *rounded, *noise, *all;
    int64_t rows, width, n_scores;
} choice;

static void choice_clear(choice *c)
{
    free(c->got);
    free(c->scores);
    free(c->noise);
    free(c->all);
}

static assay_status make_room(choice *c, int64_t all_rows)
{
    ASSAY_TRY(assay_alloc(&c->got, (size_t)(c->rows * c->width), 2 * sizeof *c->got, "ids"));
    ASSAY_TRY(
        assay_alloc(&c->scores, (size_t)(c->rows * c->n_scores), 2 * sizeof *c->scores, "scores"));
    ASSAY_TRY(assay_alloc(&c->noise, (size_t)c->rows, sizeof *c->noise, "noise of scores"));
    ASSAY_TRY(assay_alloc(&c->all, (size_t)(all_rows * c->n_scores), sizeof *c->all, "scores"));
    c->expected = c->got + c->rows * c->width;
    c->rounded = c->scores + c->rows * c->n_scores;
    return ASSAY_OK;
}

/* Scores at `point` for the captured rows: the values of the pass, and again with rounding. A
 * captured score carries no noise but its own format's. */
static assay_status read_scores(choice *c, const assay_part *at, assay_point point, int layer,
                                const assay_knobs *rounding, int64_t all_rows)
{
    size_t bytes = (size_t)(c->rows * c->n_scores) * sizeof *c->scores;
    const double *tail = c->all + (all_rows - c->rows) * c->n_scores;
    ASSAY_TRY(assay_part_value(c->scores, at, point, layer, c->rows));
    if (assay_pass_is_put(at->pass, at->step, point, layer)) {
        memcpy(c->rounded, c->scores, bytes);
        return ASSAY_OK;
    }
    ASSAY_TRY(assay_pass_expect(c->all, at->pass, at->step, point, layer, rounding));
    memcpy(c->rounded, tail, bytes);
    return ASSAY_OK;
}

/* Four times the root mean square of what rounding does to a row's scores, and at least two units
 * of the format at the largest score. */
static void measure_noise(choice *c, double unit, int64_t first_visible, double unsure)
{
    for (int64_t r = 0; r < c->rows; r++) {
        int64_t n = first_visible > 0 ? first_visible + r : c->n_scores;
        double sum = 0, top = 0, size = 0;
        int64_t finite = 0;
        for (int64_t i = 0; i < n && i < c->n_scores; i++) {
            double a = c->scores[r * c->n_scores + i], b = c->rounded[r * c->n_scores + i];
            if (!isfinite(a) || !isfinite(b))
                continue;
            sum += (a - b) * (a - b);
            size += a * a;
            top = fmax(top, fabs(a));
            finite++;
        }
        double rms = finite ? sqrt((sum + unsure * unsure * size) / (double)finite) : 0;
        c->noise[r] = fmax(4 * rms, 2 * unit * top);
    }
}

assay_status assay_ids_add_bias(double *scores, int64_t rows, int64_t n_scores,
                                assay_oracle *oracle, int layer)
{
    char name[64];
    const double *bias;
    int64_t dims[4];
    snprintf(name, sizeof name, "blk.%d.exp_probs_b.bias", layer);
    assay_status s = assay_oracle_weight(&bias, dims, oracle, name);
    if (s == ASSAY_MISSING)
        return ASSAY_OK; /* this model has no bias */
    ASSAY_TRY(s);
    for (int64_t i = 0; i < rows * n_scores; i++)
        scores[i] += bias[i % n_scores];
    return ASSAY_OK;
}

/* By how much captured scores may be off that are known by their sketch. */
static double known_within(const assay_part *at, assay_point point, int layer)
{
    const assay_seen *seen = assay_run_find(at->run, at->prompt, at->step, point, layer);
    return seen && seen->has_values ? seen->unsure : 0;
}

assay_status assay_ids_judge_seen(assay_judged *judged, const assay_part *at,
                                  const assay_knobs *knobs, const assay_knobs *rounding,
                                  assay_oracle *oracle)
{
    assay_judged *j = judged;
    bool experts = j->point == ASSAY_POINT_MOE_TOPK;
    assay_point from = experts ? ASSAY_POINT_MOE_PROBS : ASSAY_POINT_INDEX_SCORES;
    const assay_run_step *step = assay_run_step_at(at->run, at->prompt, at->step);
    const assay_oracle_shape *shape = assay_oracle_shape_of(oracle);
    choice c = {0};
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS], n = assay_part_count(at, j->seen);
    assay_status s = ASSAY_OK;
    if (n < 0)
        return ASSAY_CANNOT_JUDGE;
    c.rows = j->seen->dims[0];
    c.width = n / c.rows;
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, at->pass, at->step, from, j->layer));
    c.n_scores = dims[1];
    ASSAY_GO(make_room(&c, dims[0]));
    ASSAY_GO(assay_part_read(c.got, at, j->seen));
    ASSAY_GO(assay_part_expect(c.expected, at, j->seen, NULL));
    ASSAY_GO(read_scores(&c, at, from, j->layer, rounding, dims[0]));
    j->first_row = step->n_tokens - c.rows;
    int64_t first_visible = experts ? 0 : step->first_position + j->first_row + 1;
    /* a captured score shows its own precision; else that of the run */
    assay_dtype format = rounding->round_out;
    if (assay_pass_is_put(at->pass, at->step, from, j->layer)) {
        assay_dtype shown = assay_floor_format(c.scores, c.rows * c.n_scores);
        format = shown == ASSAY_DTYPE_BF16 ? format : ASSAY_DTYPE_F32;
    }
    double terms = assay_dtype_mantissa(format) >= 24 ? sqrt((double)shape->index_d_head) : 1;
    measure_noise(&c, ldexp(experts ? 1 : terms, -assay_dtype_mantissa(format)), first_visible,
                  known_within(at, from, j->layer));
    if (experts && knobs->bias != ASSAY_BIAS_LEFT_OUT)
        ASSAY_GO(assay_ids_add_bias(c.scores, c.rows, c.n_scores, oracle, j->layer));
    assay_ids_input in = {.got = c.got,
                          .expected = c.expected,
                          .rows = c.rows,
                          .width = c.width,
                          .scores = c.scores,
                          .noise = c.noise,
                          .n_scores = c.n_scores,
                          .n_visible_first = first_visible,
                          .n_group =
                              experts && knobs->groups != ASSAY_GROUPS_NONE ? shape->n_group : 0,
                          .n_group_used = knobs->n_group_used,
                          .group_rule = knobs->groups};
    ASSAY_GO(assay_ids_judge(j, &in));
out:
    choice_clear(&c);
    return s;
}
