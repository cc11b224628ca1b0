#include "references/forced_sketched.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/number.h"
#include "references/forced_ids.h"
#include "references/forced_keys.h"
#include "references/forced_private.h"
#include "references/forced_pursue.h"

#ifdef __FAST_MATH__
#error "isnan() must mean what it says"
#endif

#define LOST 0.2    /* floor of a value that says nothing any more */
#define SOLVED 1e-4 /* least squares with at most so many unknowns is as good as that */
#define MOST_SOLVED 224
#define SAME_IDS 1e-13 /* square of what is left of the sketch of the very list */

static double size_of(const assay_projection *p)
{
    double size = 0;
    for (int64_t k = 0; k < p->n_groups * ASSAY_SKETCH_N; k++)
        size += (double)p->y[k] * p->y[k];
    return size;
}

bool assay_forced_projection(assay_projection *out, const assay_forced *forced, int index)
{
    const assay_seen *seen = assay_forced_at(forced, index)->seen;
    if (seen->has_values || !seen->has_sketch)
        return false;
    assay_forced_sketch_of(out, seen);
    return true;
}

assay_status assay_forced_guess(assay_forced *f, const assay_judged *j, int64_t n)
{
    assay_projection p;
    bool found = false, exact;
    assay_forced_sketch_of(&p, j->seen);
    if (j->is_ids) {
        memcpy(f->got, f->expected, (size_t)n * sizeof *f->got);
        return ASSAY_OK;
    }
    if (j->is_home)
        ASSAY_TRY(assay_forced_fact(&found, f, j, n));
    return found ? ASSAY_OK : assay_projection_approach(f->got, &exact, &p, f->expected);
}

/* Where a walk is. */
typedef struct walk {
    assay_forced *f;
    assay_sketch_walk *count;
    assay_forced_explain_fn *explain;
    void *user;
    bool lost;    /* what follows in the step depends on ids that nothing tells */
    bool *ended;  /* by prompt: nothing behind is judged */
    double *room; /* values of a point */
    int64_t room_n;
} walk;

static assay_status make_room(walk *w, int64_t n)
{
    if (n <= w->room_n)
        return ASSAY_OK;
    free(w->room);
    w->room = NULL;
    w->room_n = 0;
    ASSAY_TRY(assay_alloc(&w->room, (size_t)n, sizeof *w->room, "values of a point"));
    w->room_n = n;
    return ASSAY_OK;
}

/* The point's shape in this step with the statistics' number of elements: fewer rows (the last
 * ones), or a last axis of another length. *fits false: neither. */
static assay_status shape_of(bool *fits_it, int *n_dims, int64_t dims[ASSAY_MAX_DIMS], walk *w,
                             int prompt, int step, const assay_seen *seen)
{
    const char *axes = assay_point_at(seen->point)->axes;
    int64_t n = 1, have = assay_seen_count(seen);
    ASSAY_TRY(assay_pass_dims(n_dims, dims, w->f->passes[prompt], step, seen->point, seen->layer));
    for (int d = 0; d < *n_dims; d++)
        n *= dims[d];
    int last = *n_dims - 1;
    bool open_end = axes[strlen(axes) - 1] == 'S' || axes[strlen(axes) - 1] == 'X';
    if (n != have && open_end && n > 0 && have % (n / dims[last]) == 0) {
        dims[last] = have / (n / dims[last]);
        n = have;
    }
    if (n != have && axes[0] == 'T' && n > 0 && have < n && have % (n / dims[0]) == 0) {
        dims[0] = have / (n / dims[0]);
        n = have;
    }
    *fits_it = n == have && n > 0;
    return ASSAY_OK;
}

/* In the order in which values are computed: the latent output is among the projections in the
 * enum, and comes out of attention. */
static int64_t flow_of(const assay_seen *s)
{
    int64_t layer = s->layer >= 0 ? s->layer : s->point == ASSAY_POINT_EMBED ? -1 : 1 << 20;
    int64_t point =
        s->point == ASSAY_POINT_O_LATENT ? 2 * ASSAY_POINT_INDEX_TOPK + 1 : 2 * s->point;
    return layer * 4 * ASSAY_POINT_COUNT + point;
}

static int by_flow(const void *a, const void *b)
{
    int64_t x = flow_of(*(const assay_seen *const *)a), y = flow_of(*(const assay_seen *const *)b);
    return (x > y) - (x < y);
}

/* Shows values in the run and puts them into both passes; shadow: into the second one. */
static assay_status take(walk *w, const assay_judged *j, const double *values, const double *shadow,
                         assay_known how)
{
    assay_forced *f = w->f;
    const assay_seen *seen = j->seen;
    assay_part at = {f->passes[j->prompt], f->run, j->prompt, j->step}, other = at;
    int64_t dims[ASSAY_MAX_DIMS];
    other.pass = f->shadows[j->prompt];
    memcpy(dims, seen->dims, sizeof dims);
    ASSAY_TRY(assay_run_show(f->run, seen, seen->n_dims, dims, shadow, j->floor_rel, how));
    ASSAY_TRY(assay_part_put(&other, seen));
    if (shadow != values) {
        ASSAY_TRY(assay_run_show(f->run, seen, seen->n_dims, dims, values, j->floor_rel, how));
    }
    return assay_part_put(&at, seen);
}

/* The second pass's value beside `value`: as far off as rounding is, times `stretch`. */
static void displace(double *out, const double *value, const assay_forced *f, int64_t n,
                     double stretch)
{
    for (int64_t i = 0; i < n; i++) {
        double d = f->rounded[i] - f->expected[i];
        out[i] = value[i] + (isfinite(d) ? stretch * d : 0);
    }
}

static void round_to(double *x, int64_t n, assay_dtype format)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = format == ASSAY_DTYPE_F16 ? assay_f16_to_f32(assay_f32_to_f16((float)x[i]))
                                         : assay_bf16_to_f32(assay_f32_to_bf16((float)x[i]));
}

/*
 * What a 16-bit engine gives that computes in float32 and rounds each output once: from weights as
 * they are, or rounded too. The nearer one, where it is nearer than `rest`; into w->room.
 */
static assay_status round_once(double *rest, walk *w, const assay_judged *j,
                               const assay_projection *p, int64_t n)
{
    assay_forced *f = w->f;
    assay_dtype format = f->format;
    assay_part at = {f->passes[j->prompt], f->run, j->prompt, j->step};
    assay_knobs knobs = f->knobs;
    double *other;
    if (format != ASSAY_DTYPE_BF16 && format != ASSAY_DTYPE_F16)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&other, (size_t)n, sizeof *other, "values of a point"));
    knobs.round_weight = knobs.round_probs = format;
    assay_status s = ASSAY_OK;
    for (int weights = 0; weights < 2 && s == ASSAY_OK; weights++) {
        if (weights)
            s = assay_part_expect(other, &at, j->seen, &knobs);
        else
            memcpy(other, f->expected, (size_t)n * sizeof *other);
        if (s != ASSAY_OK)
            break;
        round_to(other, n, format);
        double now = assay_projection_rest(NULL, p, other);
        if (now < *rest) {
            *rest = now;
            memcpy(w->room, other, (size_t)n * sizeof *other);
        }
    }
    free(other);
    return s;
}

/* Signs that depend on nothing. */
static double sign_of(int64_t i)
{
    return (assay_mix((uint64_t)i) & 1) ? -1 : 1;
}

/* A value that is not quite the run's: the second pass is moved away by what is left. */
static assay_status take_near(walk *w, const assay_judged *j, const assay_projection *p,
                              const double *values)
{
    assay_forced *f = w->f;
    double off = 1.2 * sqrt(assay_projection_rest(NULL, p, values) / fmax(size_of(p), 1e-300));
    for (int64_t r = 0; r < j->n_rows; r++) {
        double size = 0;
        for (int64_t i = r * j->n_cols; i < (r + 1) * j->n_cols; i++)
            size += isfinite(values[i]) ? values[i] * values[i] : 0;
        size = off * sqrt(size / (double)j->n_cols);
        for (int64_t i = r * j->n_cols; i < (r + 1) * j->n_cols; i++)
            f->got[i] = values[i] + size * sign_of(i);
    }
    return take(w, j, values, f->got, ASSAY_KNOWN_ACCEPTED);
}

/*
 * The nearest of the exact value and of rounded ones. A rounded one that fits much better is what
 * the run has: both passes go on with it. Where all are far off for what least squares can tell,
 * that is taken.
 */
static assay_status accept(walk *w, const assay_judged *j, int64_t n)
{
    assay_forced *f = w->f;
    assay_projection p;
    bool is_exact;
    assay_forced_sketch_of(&p, j->seen);
    double exact = assay_projection_rest(NULL, &p, f->expected),
           rounded = assay_projection_rest(NULL, &p, f->rounded), once = fmin(exact, rounded);
    w->count->n_known++;
    ASSAY_TRY(round_once(&once, w, j, &p, n));
    if (once > SOLVED * SOLVED * size_of(&p) && assay_projection_size(&p, 0) <= MOST_SOLVED) {
        ASSAY_TRY(assay_projection_approach(w->room, &is_exact, &p, f->rounded));
        return take_near(w, j, &p, w->room);
    }
    if (once < fmin(rounded, 0.25 * exact))
        return take_near(w, j, &p, w->room);
    if (rounded < 0.25 * exact)
        return take_near(w, j, &p, f->rounded);
    double stretch = j->floor_rel > 0 ? fmax(1, 1.1 * j->rel / j->floor_rel) : 1;
    displace(w->room, f->expected, f, n, stretch);
    return take(w, j, f->expected, w->room, ASSAY_KNOWN_ACCEPTED);
}

/* The second pass is moved away by as much as the sketch is off, spread over all elements. */
static assay_status estimate(walk *w, const assay_judged *j, int64_t n)
{
    assay_forced *f = w->f;
    assay_projection p;
    bool exact;
    assay_forced_sketch_of(&p, j->seen);
    ASSAY_TRY(assay_projection_approach(f->got, &exact, &p, f->expected));
    if (exact) {
        w->count->n_known++;
        displace(w->room, f->got, f, n, 1);
        return take(w, j, f->got, w->room, ASSAY_KNOWN_FOUND);
    }
    w->count->n_estimated++;
    double off = sqrt(assay_projection_rest(NULL, &p, f->expected) / (double)n);
    /* a length of its own: noise of every element would only make the value larger */
    for (int64_t i = 0; i < n; i++) {
        w->room[i] = f->expected[i] + off * sign_of(i);
        f->got[i] = f->expected[i] + (f->got[i] - f->expected[i]) *
                                         sqrt(256.0 / (double)assay_projection_size(&p, 0));
    }
    return take(w, j, f->got, w->room, ASSAY_KNOWN_ESTIMATE);
}

static assay_status take_home(walk *w, const assay_judged *j, int index, int64_t n)
{
    assay_forced *f = w->f;
    bool found;
    ASSAY_TRY(assay_forced_fact(&found, f, j, n));
    if (!found) {
        f->held = -1;
        ASSAY_TRY(w->explain(w->room, &found, w->user, f, index));
        ASSAY_TRY(assay_forced_hold(f, index)); /* classes look at other values, too */
        if (found)
            memcpy(f->got, w->room, (size_t)n * sizeof *f->got);
    }
    if (!found)
        return estimate(w, j, n);
    w->count->n_known++;
    displace(w->room, f->got, f, n, 1);
    return take(w, j, f->got, w->room, ASSAY_KNOWN_FOUND);
}

/*
 * Where a cache keeps less than the run computes in, a value within d of the border between two
 * stored ones, u apart, may be stored as either: of every element d / u, each by u, which is
 * sqrt(2 d u) of the whole, and different elements in the run and in both passes here; never more
 * than storing it makes, 0.3 u.
 */
static double jumps_of_cache(const assay_forced *f, const assay_judged *j)
{
    static const double q8_0 = 1 / 127.0, f8e4m3 = 1 / 8.0;
    const assay_knobs *k = &f->knobs;
    double unit = k->codec == ASSAY_STORED_Q8_0     ? q8_0
                  : k->codec == ASSAY_STORED_F8E4M3 ? f8e4m3
                  : k->round_cache != ASSAY_DTYPE_F64
                      ? ldexp(1, -assay_dtype_mantissa(k->round_cache))
                      : 0;
    if (assay_dtype_mantissa(f->format) < 24 ||
        !assay_covers_attention(f->passes[j->prompt], j->step, j->point, j->layer))
        return 0;
    return fmin(sqrt(2 * fmax(j->floor_rel, ldexp(1, -22)) * unit), 0.3 * unit);
}

/*
 * Weights are a few of the probabilities, of which the second pass tells how far all are off
 * together: by chance it may have hardly moved just these.
 */
static double unsure_of_choice(const assay_forced *f, const assay_judged *j)
{
    if (j->point != ASSAY_POINT_MOE_WEIGHTS)
        return 0;
    const assay_seen *probs =
        assay_run_find(f->run, j->prompt, j->step, ASSAY_POINT_MOE_PROBS, j->layer);
    return probs ? probs->unsure : 0;
}

static assay_status visit_values(walk *w, assay_judged *j, int64_t n)
{
    assay_forced *f = w->f;
    int index = f->n_judged;
    f->n_judged++;
    ASSAY_TRY(assay_forced_hold(f, index));
    ASSAY_TRY(assay_forced_judge_sketch(j, f, f->expected, f->rounded));
    double more = hypot(jumps_of_cache(f, j), unsure_of_choice(f, j));
    if (more > 0) {
        assay_forced_widen(f, j, n, more);
        ASSAY_TRY(assay_forced_judge_sketch(j, f, f->expected, f->rounded));
    }
    int64_t n_nan = 0;
    for (int64_t i = 0; i < n; i++)
        n_nan += isnan(f->expected[i]) != 0;
    bool inherits = n_nan > 0 && n_nan != j->seen->n_nan;
    if (inherits || !(j->floor_rel < LOST)) {
        w->count->n_behind++;
        f->n_judged--;
        f->held = -1;
        return ASSAY_OK;
    }
    if (!j->is_home)
        return accept(w, j, n);
    return take_home(w, j, index, n);
}

/* A list that the sketch determines: whole numbers, at most 256 in a group; or the right one. */
static bool known_ids(double *out, const assay_projection *p, const double *right, int64_t n)
{
    bool exact;
    double size = size_of(p);
    memcpy(out, right, (size_t)n * sizeof *out);
    if (assay_projection_rest(NULL, p, out) <= SAME_IDS * size)
        return true;
    if (assay_projection_approach(out, &exact, p, right) != ASSAY_OK || !exact)
        return false;
    for (int64_t i = 0; i < n; i++)
        out[i] = nearbyint(out[i]);
    return assay_projection_rest(NULL, p, out) <= SAME_IDS * size;
}

static assay_point scores_of(assay_point ids)
{
    return ids == ASSAY_POINT_MOE_TOPK ? ASSAY_POINT_MOE_PROBS : ASSAY_POINT_INDEX_SCORES;
}

static assay_status decided_by_nan(bool *found, walk *w, const assay_judged *j)
{
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS];
    const double *scores;
    assay_pass *pass = w->f->passes[j->prompt];
    assay_point from = scores_of(j->point);
    *found = false;
    if (!assay_oracle_has_point(w->f->oracle, from, j->layer, w->f->latent[j->prompt]))
        return ASSAY_OK; /* a selection that another layer made */
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, pass, j->step, from, j->layer));
    ASSAY_TRY(assay_pass_value(&scores, pass, j->step, from, j->layer));
    for (int64_t i = 0; i < dims[0] * dims[1]; i++)
        *found = *found || isnan(scores[i]);
    return ASSAY_OK;
}

/* How far the scores of each row may be off: 4 times what all roundings so far do to them. unsure:
 * how far they are at least, of their size. */
static void noise_of_rows(double *noise, const double *a, const double *b, int64_t rows, int64_t n,
                          double unsure)
{
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0, top = 0;
        int64_t finite = 0;
        for (int64_t i = r * n; i < (r + 1) * n; i++)
            if (isfinite(a[i]) && isfinite(b[i])) {
                sum += (a[i] - b[i]) * (a[i] - b[i]) + unsure * unsure * a[i] * a[i];
                top = fmax(top, fabs(a[i]));
                finite++;
            }
        noise[r] = fmax(4 * sqrt(sum / (double)(finite ? finite : 1)), ldexp(top, -20));
    }
}

/* The right ids, exchanged within the noise of the scores that decided. */
static assay_status pursue(bool *found, walk *w, const assay_judged *j, const assay_projection *p,
                           int64_t n)
{
    assay_forced *f = w->f;
    bool experts = j->point == ASSAY_POINT_MOE_TOPK;
    assay_point from = scores_of(j->point);
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS];
    const double *a, *b;
    double *scores = NULL, *noise = NULL;
    assay_status s;
    if (!assay_oracle_has_point(f->oracle, from, j->layer, f->latent[j->prompt]))
        return ASSAY_OK;
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, f->passes[j->prompt], j->step, from, j->layer));
    ASSAY_TRY(assay_pass_value(&a, f->passes[j->prompt], j->step, from, j->layer));
    ASSAY_TRY(assay_pass_value(&b, f->shadows[j->prompt], j->step, from, j->layer));
    if (dims[0] != j->n_rows)
        return ASSAY_OK;
    int64_t n_scores = dims[0] * dims[1];
    ASSAY_GO(assay_alloc(&scores, (size_t)n_scores, sizeof *scores, "scores"));
    ASSAY_GO(assay_alloc(&noise, (size_t)dims[0], sizeof *noise, "noise of scores"));
    memcpy(scores, a, (size_t)n_scores * sizeof *a);
    const assay_seen *seen = assay_run_find(f->run, j->prompt, j->step, from, j->layer);
    noise_of_rows(noise, a, b, dims[0], dims[1], seen ? seen->unsure : 0);
    if (experts && f->knobs.bias != ASSAY_BIAS_LEFT_OUT)
        ASSAY_GO(assay_ids_add_bias(scores, dims[0], dims[1], f->oracle, j->layer));
    const assay_pursuit pursuit = {.rows = j->n_rows,
                                   .width = j->n_cols,
                                   .n_scores = dims[1],
                                   .scores = scores,
                                   .noise = noise,
                                   .may_replace = true};
    /* the fewer exchanges there are to choose from, the surer is each: the likeliest ones first.
     * How far the search goes decides nothing: the sketch says whether the list is found, and a
     * flip is judged by its gap. */
    for (int64_t r = 0; r < dims[0]; r++)
        noise[r] /= 64;
    for (int round = 0; round < 6 && !*found; round++) {
        memcpy(w->room, f->expected, (size_t)n * sizeof *w->room);
        ASSAY_GO(assay_pursue_ids(found, w->room, p, &pursuit, SAME_IDS * size_of(p)));
        for (int64_t r = 0; r < dims[0]; r++)
            noise[r] *= 4;
    }
out:
    free(scores);
    free(noise);
    return s;
}

/* The scores that decided were not judged. */
static bool depends_on_estimate(const walk *w, const assay_judged *j)
{
    const assay_seen *seen =
        assay_run_find(w->f->run, j->prompt, j->step, scores_of(j->point), j->layer);
    return seen && seen->has_sketch && !seen->has_values;
}

/* Nothing tells which experts or keys there were: what is behind cannot be judged. */
static assay_status end_prompt(walk *w, const assay_judged *j)
{
    w->ended[j->prompt] = true;
    w->count->n_estimated++;
    return assay_run_show(w->f->run, j->seen, j->seen->n_dims, j->seen->dims, w->f->expected, 0,
                          true);
}

static assay_status visit_ids(walk *w, assay_judged *j, int64_t n)
{
    assay_forced *f = w->f;
    assay_part at = {f->passes[j->prompt], f->run, j->prompt, j->step};
    assay_projection p;
    int index = f->n_judged;
    bool found;
    assay_forced_sketch_of(&p, j->seen);
    ASSAY_TRY(decided_by_nan(&found, w, j));
    if (found) { /* no order among scores that are no numbers */
        w->count->n_behind++;
        w->lost = true;
        return ASSAY_OK;
    }
    f->n_judged++;
    j->n_rows = j->seen->dims[0];
    j->n_cols = n / j->n_rows;
    j->n_groups = 1;
    j->is_home = true;
    ASSAY_TRY(assay_forced_hold(f, index));
    found = known_ids(w->room, &p, f->expected, n);
    if (!found)
        ASSAY_TRY(pursue(&found, w, j, &p, n));
    if (found) {
        ASSAY_TRY(take(w, j, w->room, w->room, ASSAY_KNOWN_FOUND));
        w->count->n_known++;
        f->held = -1;
        ASSAY_TRY(assay_ids_judge_seen(j, &at, &f->knobs, &f->rounding, f->oracle));
        if (j->is_home && !depends_on_estimate(w, j))
            return ASSAY_OK;
        return assay_run_show(f->run, j->seen, j->seen->n_dims, j->seen->dims, w->room, 0,
                              ASSAY_KNOWN_ACCEPTED);
    }
    snprintf(j->why, sizeof j->why, "the sketch is of another list of ids");
    ASSAY_TRY(w->explain(w->room, &found, w->user, f, index));
    if (!found)
        return end_prompt(w, j);
    w->count->n_known++;
    return take(w, j, w->room, w->room, ASSAY_KNOWN_FOUND);
}

static assay_status visit(walk *w, int prompt, int step, const assay_seen *seen)
{
    assay_forced *f = w->f;
    assay_judged *j;
    bool fits_it;
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS] = {0};
    ASSAY_TRY(shape_of(&fits_it, &n_dims, dims, w, prompt, step, seen));
    int64_t n_groups;
    assay_run_sketch(&n_groups, seen);
    if (!fits_it || n_groups != assay_sketch_groups(dims[0]))
        return ASSAY_OK; /* rows of several requests: it stays unjudged */
    ASSAY_TRY(assay_run_show(f->run, seen, n_dims, dims, NULL, 0, ASSAY_KNOWN_AS_KEPT));
    ASSAY_TRY(assay_forced_next(&j, f, prompt, step, seen));
    assay_part at = {f->passes[prompt], f->run, prompt, step};
    int64_t n = assay_part_count(&at, seen);
    if (n < 0)
        return assay_within(ASSAY_CANNOT_JUDGE, "the capture is of another model");
    w->count->n_sketches++;
    ASSAY_TRY(make_room(w, n));
    assay_forced_describe_interval(j, f);
    assay_forced_shape_of(j, f, n);
    return j->is_ids ? visit_ids(w, j, n) : visit_values(w, j, n);
}

static assay_status walk_step(walk *w, int prompt, int step)
{
    assay_forced *f = w->f;
    int total = assay_run_n_seen(f->run, prompt, step), n = 0;
    w->lost = false;
    const assay_seen **list;
    ASSAY_TRY(assay_alloc(&list, (size_t)total, sizeof *list, "values of a step"));
    for (int i = 0; i < total; i++) {
        const assay_seen *seen = assay_run_seen_at(f->run, prompt, step, i);
        if (seen->has_sketch && !seen->partial && seen->rank < 0 && seen->hand_over == 0 &&
            assay_oracle_has_point(f->oracle, seen->point, seen->layer, f->latent[prompt]))
            list[n++] = seen;
    }
    qsort(list, (size_t)n, sizeof *list, by_flow);
    assay_status s = ASSAY_OK;
    for (int i = 0; i < n && s == ASSAY_OK; i++) {
        char name[ASSAY_POINT_NAME_BYTES];
        if (w->ended[prompt] || w->lost) {
            w->count->n_behind++;
            continue;
        }
        s = visit(w, prompt, step, list[i]);
        if (s != ASSAY_OK)
            s = assay_within(s, "prompt '%s' step %d %s", assay_run_prompt_at(f->run, prompt)->name,
                             step, assay_point_format(name, list[i]->point, list[i]->layer));
    }
    free(list);
    return s;
}

static assay_status start_shadow(assay_forced *f, int prompt)
{
    assay_pass_options options = {.latent = f->latent[prompt], .knobs = &f->rounding};
    ASSAY_TRY(assay_pass_new(&f->shadows[prompt], f->oracle, &options));
    for (int step = 0; step < assay_run_prompt_at(f->run, prompt)->n_steps; step++) {
        const assay_run_step *at = assay_run_step_at(f->run, prompt, step);
        int index;
        ASSAY_TRY(assay_pass_add_step(&index, f->shadows[prompt], at->tokens, at->n_tokens,
                                      at->first_position));
    }
    return ASSAY_OK;
}

assay_status assay_forced_walk(assay_sketch_walk *out, assay_run *run, assay_oracle *oracle,
                               const assay_forced_options *options,
                               assay_forced_explain_fn *explain, void *user)
{
    walk w = {.count = out, .explain = explain, .user = user};
    int n_prompts = assay_run_n_prompts(run);
    assay_status s = ASSAY_OK;
    *out = (assay_sketch_walk){0};
    ASSAY_TRY(assay_forced_start(&w.f, run, oracle, options));
    ASSAY_GO(assay_alloc(&w.ended, (size_t)n_prompts, sizeof *w.ended, "prompts"));
    ASSAY_GO(assay_alloc(&w.f->shadows, (size_t)n_prompts, sizeof *w.f->shadows, "passes"));
    for (int p = 0; p < n_prompts; p++)
        ASSAY_GO(start_shadow(w.f, p));
    for (int p = 0; p < n_prompts; p++)
        for (int step = 0; step < assay_run_prompt_at(run, p)->n_steps; step++)
            if (!assay_run_step_at(run, p, step)->is_found)
                ASSAY_GO(walk_step(&w, p, step));
out:
    free(w.ended);
    free(w.room);
    assay_forced_free(w.f);
    return s;
}
