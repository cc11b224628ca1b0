#include "references/sketched.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probes/capture.h"
#include "probes/recorder.h"
#include "references/run_private.h"
#include "references/tolerance.h"

#define SAME_IDS 1e-6    /* of ids, which are whole numbers, a sketch keeps this much */
#define STATS_COLUMNS 10 /* n nan +inf -inf zero poison min max mean l2 */

/* The tables of one prompt. */
typedef struct table {
    char (*points)[ASSAY_POINT_NAME_BYTES];
    int32_t *steps, *rows; /* rows: row of stats and row group, of each sketch */
    double *stats;         /* [n, STATS_COLUMNS] */
    double *values;
    int64_t n, n_sketches;
} table;

static void table_clear(table *t)
{
    free(t->points);
    free(t->steps);
    free(t->rows);
    free(t->stats);
    free(t->values);
}

static assay_status load_stats(table *t, hid_t file, const char *prompt)
{
    char path[1024];
    assay_h5_info info;
    snprintf(path, sizeof path, "/prompts/%.900s/stats/values", prompt);
    ASSAY_TRY(assay_h5_dataset(&info, file, path));
    if (info.n_dims != 2 || info.dims[0] != t->n || info.dims[1] != STATS_COLUMNS)
        return assay_fail(ASSAY_BAD_FILE, "'%s': expected %lld rows of %d numbers", path,
                          (long long)t->n, STATS_COLUMNS);
    ASSAY_TRY(assay_alloc(&t->stats, (size_t)info.count, sizeof *t->stats, "statistics"));
    return assay_h5_read_f64(t->stats, file, path, &info);
}

static assay_status load(table *t, hid_t file, const char *prompt)
{
    char path[1024];
    int64_t n_rows;
    assay_h5_info info;
    snprintf(path, sizeof path, "/prompts/%.900s/stats/step", prompt);
    ASSAY_TRY(assay_h5_read_ids(&t->steps, &t->n, file, path));
    ASSAY_TRY(assay_alloc(&t->points, (size_t)t->n, sizeof *t->points, "statistics"));
    snprintf(path, sizeof path, "/prompts/%.900s/stats/point", prompt);
    ASSAY_TRY(assay_h5_read_texts((char *)t->points, ASSAY_POINT_NAME_BYTES, t->n, file, path));
    ASSAY_TRY(load_stats(t, file, prompt));
    snprintf(path, sizeof path, "/prompts/%.900s/sketch/row", prompt);
    ASSAY_TRY(assay_h5_read_ids(&t->rows, &n_rows, file, path));
    snprintf(path, sizeof path, "/prompts/%.900s/sketch/values", prompt);
    ASSAY_TRY(assay_h5_dataset(&info, file, path));
    if (info.n_dims != 2 || info.dims[1] != ASSAY_SKETCH_N || n_rows != 2 * info.dims[0])
        return assay_fail(ASSAY_BAD_FILE, "'%s': expected %lld rows of %d numbers", path,
                          (long long)(n_rows / 2), ASSAY_SKETCH_N);
    t->n_sketches = info.dims[0];
    ASSAY_TRY(assay_alloc(&t->values, (size_t)info.count, sizeof *t->values, "sketches"));
    return assay_h5_read_f64(t->values, file, path, &info);
}

/* Selections are padded with -1 or with positions that the row cannot see. */
static void hide_masked(double *ids, const assay_seen *seen, int64_t first_position)
{
    int64_t width = seen->n_dims == 2 ? seen->dims[1] : 0;
    for (int64_t i = 0; i < seen->dims[0] * width; i++)
        if (ids[i] > (double)(first_position + i / width))
            ids[i] = -1;
}

static assay_status sketch_of(float **out, int64_t *n_groups, assay_stats *stats,
                              const assay_run *run, const assay_seen *seen, int64_t first_position)
{
    double *values = NULL;
    int64_t n = assay_seen_count(seen);
    assay_status s;
    *out = NULL;
    *n_groups = assay_sketch_groups(seen->n_dims ? seen->dims[0] : 1);
    ASSAY_TRY(assay_alloc(&values, (size_t)n, sizeof *values, "values of a reference"));
    ASSAY_GO(assay_run_read(values, run, seen));
    if (seen->point == ASSAY_POINT_INDEX_TOPK)
        hide_masked(values, seen, first_position);
    ASSAY_GO(assay_alloc(out, (size_t)*n_groups * ASSAY_SKETCH_N, sizeof **out, "a sketch"));
    assay_buffer view = assay_buffer_view(values, ASSAY_DTYPE_F64, seen->n_dims, seen->dims);
    assay_sketch_of(*out, &view);
    assay_stats_of(stats, &view);
out:
    free(values);
    return s;
}

static double distance(const double *got, const float *want, int64_t n)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += (double)want[i] * want[i];
    }
    if (!isfinite(error))
        return HUGE_VAL;
    return error == 0 ? 0 : size > 0 ? sqrt(error / size) : HUGE_VAL;
}

/* What is not finite counts as 0 in a sketch: it is told by its counts. */
static bool same_masks(const table *t, int32_t row, const assay_stats *want)
{
    const double *got = t->stats + (int64_t)row * STATS_COLUMNS;
    return got[1] == (double)want->n_nan && got[2] == (double)want->n_pos_inf &&
           got[3] == (double)want->n_neg_inf;
}

/* Whether two lists of ids hold the same, in whatever order: by their sum and their sum of squares.
 */
static bool same_ids(const table *t, int32_t row, const assay_stats *want)
{
    const double *got = t->stats + (int64_t)row * STATS_COLUMNS;
    return got[0] == (double)want->n && fabs(got[8] - want->mean) <= 1e-13 * fabs(want->mean) &&
           fabs(got[9] - want->l2) <= 1e-13 * want->l2;
}

typedef struct judging {
    assay_sketched_fn *fn;
    void *user;
    int64_t n_sketches, n_judged;
    const assay_run *run[2]; /* candidate, reference */
    int prompt[2], n_layers;
    const table *t;
    int reordered_step, reordered_layer; /* where the same experts come in another order; -1 */
} judging;

static double bound_of(const judging *j, const assay_seen *seen)
{
    assay_dtype dtype = assay_run_about(j->run[0])->dtype;
    double floor =
        dtype == ASSAY_DTYPE_F32 || dtype == ASSAY_DTYPE_F64 ? seen->floor : seen->floor_bf16;
    if (assay_point_at(seen->point)->is_ids)
        return SAME_IDS;
    return fmax(12 * floor,
                assay_tolerance_of(seen->point, seen->layer, j->n_layers, dtype, false).row_max);
}

/* Choices are sets; what lies in the order of the chosen experts is compared where both have the
 * same one. */
static bool is_comparable(judging *j, double *rel, const assay_seen *seen, int32_t row,
                          const assay_stats *want)
{
    int step = j->t->steps[row];
    bool is_ids = assay_point_at(seen->point)->is_ids, same = is_ids && same_ids(j->t, row, want);
    if (seen->point == ASSAY_POINT_MOE_TOPK && same && *rel > SAME_IDS) {
        j->reordered_step = step;
        j->reordered_layer = seen->layer;
    }
    if (same)
        *rel = 0;
    if (!same_masks(j->t, row, want))
        *rel = HUGE_VAL;
    return is_ids || !strchr(assay_point_at(seen->point)->axes, 'U') || j->reordered_step != step ||
           j->reordered_layer != seen->layer;
}

/* Row `row` of stats, its groups [first, end) of the sketch. */
static assay_status judge(bool *stop, judging *j, const assay_seen *seen, int32_t row,
                          int64_t first, int64_t end)
{
    float *want = NULL;
    int64_t n_groups;
    int step = j->t->steps[row];
    assay_stats stats;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(sketch_of(&want, &n_groups, &stats, j->run[1], seen,
                        assay_run_step_at(j->run[1], j->prompt[1], step)->first_position));
    if (n_groups == end - first) {
        double rel =
            distance(j->t->values + first * ASSAY_SKETCH_N, want, n_groups * ASSAY_SKETCH_N);
        bool judged = is_comparable(j, &rel, seen, row, &stats);
        assay_sketched_value value = {.prompt = j->prompt[0],
                                      .step = step,
                                      .layer = seen->layer,
                                      .point = seen->point,
                                      .rel = rel,
                                      .bound = bound_of(j, seen)};
        j->n_judged += judged;
        s = judged ? j->fn(stop, j->user, &value) : ASSAY_OK;
    }
    free(want);
    return s;
}

/* The reference's value at the place of a row of stats; NULL: none to compare with. */
static const assay_seen *partner(const judging *j, int64_t row)
{
    assay_point point;
    int layer, hand_over, rank, step = j->t->steps[row];
    bool partial;
    const assay_run_prompt *mine = assay_run_prompt_at(j->run[0], j->prompt[0]),
                           *theirs = assay_run_prompt_at(j->run[1], j->prompt[1]);
    if (step < 0 || step >= mine->n_steps || step >= theirs->n_steps ||
        assay_capture_name_parse(&point, &layer, &partial, &hand_over, &rank, j->t->points[row]) !=
            ASSAY_OK ||
        partial || hand_over || rank >= 0)
        return NULL;
    const assay_run_step *a = assay_run_step_at(j->run[0], j->prompt[0], step),
                         *b = assay_run_step_at(j->run[1], j->prompt[1], step);
    if (a->n_tokens != b->n_tokens || a->first_position != b->first_position ||
        memcmp(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof *a->tokens) != 0)
        return NULL;
    const assay_seen *seen = assay_run_find(j->run[1], j->prompt[1], step, point, layer);
    return seen && seen->has_values ? seen : NULL;
}

static assay_status judge_prompt(judging *j)
{
    bool stop = false;
    for (int64_t i = 0, end; i < j->t->n_sketches && !stop; i = end) {
        int32_t row = j->t->rows[2 * i];
        for (end = i + 1; end < j->t->n_sketches && j->t->rows[2 * end] == row; end++)
            ;
        if (row < 0 || row >= j->t->n)
            return assay_fail(ASSAY_BAD_FILE, "sketch %lld is of row %d, and there are %lld",
                              (long long)i, row, (long long)j->t->n);
        const assay_seen *seen = partner(j, row);
        j->n_sketches++;
        if (seen)
            ASSAY_TRY(judge(&stop, j, seen, row, i, end));
    }
    return ASSAY_OK;
}

bool assay_run_is_sketched(const assay_run *run)
{
    char path[1024];
    for (int p = 0; p < run->n_prompts; p++) {
        snprintf(path, sizeof path, "/prompts/%.900s/sketch/values", run->prompts[p].about.name);
        if (run->n_files != 1 || assay_h5_kind(run->files[0].id, path) != 'd')
            return false;
        for (int s = 0; s < run->prompts[p].n_steps; s++)
            for (int i = 0; i < run->prompts[p].steps[s].n_entries; i++)
                if (run->prompts[p].steps[s].entries[i].seen.has_values)
                    return false;
    }
    return run->n_prompts > 0;
}

static int count_layers(const assay_run *run, int prompt)
{
    int n = 0;
    if (!assay_run_prompt_at(run, prompt)->n_steps)
        return 0;
    for (int i = 0; i < assay_run_n_seen(run, prompt, 0); i++)
        if (assay_run_seen_at(run, prompt, 0, i)->layer >= n)
            n = assay_run_seen_at(run, prompt, 0, i)->layer + 1;
    return n;
}

/* Whether sketches of the candidate and values of the reference mean the same. */
static assay_status check_pair(const assay_run *candidate, const assay_run *reference)
{
    const assay_run_info *mine = assay_run_about(candidate), *theirs = assay_run_about(reference);
    const assay_profile *profile = mine->profile;
    if (!profile || strcmp(profile->name, "assay") != 0)
        return assay_fail(ASSAY_CANNOT_JUDGE,
                          "sketches of a layout that is not the reference's: values are needed");
    if (*mine->model_sha256 && *theirs->model_sha256 &&
        strcmp(mine->model_sha256, theirs->model_sha256) != 0)
        return assay_fail(
            ASSAY_CANNOT_JUDGE,
            "other model: SHA-256 %.12s... of the candidate, %.12s... of the reference",
            mine->model_sha256, theirs->model_sha256);
    return ASSAY_OK;
}

assay_status assay_sketched_each(int64_t *n_sketches, const assay_run *candidate,
                                 const assay_run *reference, assay_sketched_fn *fn, void *user)
{
    judging j = {.fn = fn, .user = user, .run = {candidate, reference}};
    ASSAY_TRY(check_pair(candidate, reference));
    for (int p = 0; p < candidate->n_prompts; p++)
        for (int q = 0; q < reference->n_prompts; q++) {
            const char *name = candidate->prompts[p].about.name;
            if (strcmp(name, reference->prompts[q].about.name) != 0)
                continue;
            table t = {0};
            j.prompt[0] = p;
            j.prompt[1] = q;
            j.n_layers = count_layers(reference, q);
            j.t = &t;
            j.reordered_step = j.reordered_layer = -1;
            assay_status s = load(&t, candidate->files[0].id, name);
            if (s == ASSAY_OK)
                s = judge_prompt(&j);
            table_clear(&t);
            ASSAY_TRY(s);
        }
    if (!j.n_judged)
        return assay_fail(ASSAY_CANNOT_JUDGE, "nothing to compare: no sketch has its value in the "
                                              "reference");
    *n_sketches = j.n_sketches;
    return ASSAY_OK;
}

/* Up to the first value beyond its bound. */
static assay_status find_first(bool *stop, void *user, const assay_sketched_value *v)
{
    assay_sketched *out = user;
    bool is_bad = !(v->rel <= v->bound), is_ids = assay_point_at(v->point)->is_ids;
    *stop = is_bad || out->has_bad;
    if (out->has_bad)
        return ASSAY_OK;
    out->n_judged++;
    if (is_bad && is_ids && !out->has_flip) {
        out->has_flip = true;
        out->flip_prompt = v->prompt;
        out->flip_layer = v->layer;
        out->flip_point = v->point;
    } else if (is_bad && !is_ids) {
        out->has_bad = true;
        out->prompt = v->prompt;
        out->step = v->step;
        out->layer = v->layer;
        out->point = v->point;
        out->rel = v->rel;
        out->bound = v->bound;
    }
    return ASSAY_OK;
}

assay_status assay_sketched_compare(assay_sketched *out, const assay_run *candidate,
                                    const assay_run *reference)
{
    *out = (assay_sketched){0};
    return assay_sketched_each(&out->n_sketches, candidate, reference, find_first, out);
}
