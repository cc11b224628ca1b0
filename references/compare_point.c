/* One point over the rows of a group: read, put side by side, judge. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "references/agreement.h"
#include "references/compare_private.h"
#include "references/median.h"
#include "references/metric.h"
#include "references/slab.h"
#include "references/tolerance.h"

enum { MEDIAN_ROWS = 8 };

/* What is known of one row. */
enum { OWN = 1, CONTEXT = 2, TWIN_HERE = 4, TWIN_OWN = 8, TWIN_CONTEXT = 16 };

typedef struct group {
    assay_comparison *c;
    const assay_match *match;
    const assay_pair *pairs;
    int n_pairs;
    assay_point point;
    int layer;
    assay_compared item;
    /* rows of all pairs one behind the other */
    double *error[SIDES];
    uint8_t *state;
    int *pair_of;
    int64_t n, room;
    double worst; /* largest error of a pair so far, judged or not */
    int worst_pair, mask_pair;
    double floor;
} group;

static const assay_run_step *step_of(const group *g, const assay_pair *pair, int side)
{
    return assay_run_step_at(g->c->run[side], g->match->prompt[side], pair->step[side]);
}

static const assay_seen *seen_of(const group *g, const assay_pair *pair, int side)
{
    if (pair->step[side] < 0)
        return NULL;
    const assay_seen *seen = assay_run_find(g->c->run[side], g->match->prompt[side],
                                            pair->step[side], g->point, g->layer);
    return seen && seen->has_values ? seen : NULL;
}

static bool by_expert(assay_point point)
{
    return point == ASSAY_POINT_MOE_WEIGHTS ||
           (point >= ASSAY_POINT_MOE_EXPERT_GATE && point <= ASSAY_POINT_MOE_EXPERT_DOWN);
}

/* Puts the slots of the chosen experts into the order of the reference's ids: two runs may list the
 * same experts in another order. Slots without a partner stay where they are. */
static assay_status order_slots(assay_slab *slab, const group *g, const assay_pair *pair, int side)
{
    assay_slab ids[2] = {{0}, {0}};
    const int sides[2] = {side, REFERENCE};
    assay_status s = ASSAY_OK;
    for (int i = 0; i < 2 && s == ASSAY_OK; i++) {
        const assay_seen *seen =
            assay_run_find(g->c->run[sides[i]], g->match->prompt[sides[i]], pair->step[sides[i]],
                           ASSAY_POINT_MOE_TOPK, g->layer);
        int64_t from = 0, until = -1;
        if (seen && seen->has_values)
            s = assay_slab_range(&from, &until, seen, step_of(g, pair, sides[i]));
        if (s == ASSAY_OK && from <= pair->first && pair->end <= until)
            s = assay_slab_read(&ids[i], g->c->run[sides[i]], seen, step_of(g, pair, sides[i]),
                                pair->first, pair->end, -1);
    }
    int64_t used = slab->n_sub > 1 ? slab->n_sub : slab->n_cols,
            width = slab->n_sub * slab->n_cols / (used ? used : 1);
    double *row = NULL;
    if (s == ASSAY_OK && ids[0].x && ids[1].x && ids[0].n_cols == used && ids[1].n_cols == used)
        s = assay_alloc(&row, (size_t)(used * width), sizeof *row, "slots");
    for (int64_t t = 0; row && t < slab->n_tokens; t++) {
        double *x = slab->x + t * used * width, *mine = ids[0].x + t * used,
               *wanted = ids[1].x + t * used;
        memcpy(row, x, (size_t)(used * width) * sizeof *row);
        for (int64_t u = 0; u < used; u++)
            for (int64_t v = 0; v < used; v++)
                if (mine[v] == wanted[u])
                    memcpy(x + u * width, row + v * width, (size_t)width * sizeof *row);
    }
    free(row);
    assay_slab_clear(&ids[0]);
    assay_slab_clear(&ids[1]);
    return s;
}

/* Positions of a pair that all the given values have. */
static assay_status shared_range(assay_pair *pair, const group *g, const assay_seen *const *seen)
{
    for (int side = 0; side < SIDES; side++) {
        int64_t from, until;
        if (!seen[side])
            continue;
        ASSAY_TRY(assay_slab_range(&from, &until, seen[side], step_of(g, pair, side)));
        pair->first = from > pair->first ? from : pair->first;
        pair->end = until < pair->end ? until : pair->end;
    }
    return ASSAY_OK;
}

static assay_status read_slabs(assay_slab slabs[SIDES], const group *g, const assay_pair *pair,
                               const assay_seen *const *seen)
{
    int64_t keys = -1;
    for (int side = 0; side < SIDES; side++)
        if (seen[side] && assay_slab_keys(seen[side]) >= 0 &&
            (keys < 0 || assay_slab_keys(seen[side]) < keys))
            keys = assay_slab_keys(seen[side]);
    for (int side = 0; side < SIDES; side++) {
        if (!seen[side])
            continue;
        ASSAY_TRY(assay_slab_read(&slabs[side], g->c->run[side], seen[side], step_of(g, pair, side),
                                  pair->first, pair->end, keys));
        if (by_expert(g->point) && side != REFERENCE)
            ASSAY_TRY(order_slots(&slabs[side], g, pair, side));
    }
    return ASSAY_OK;
}

static bool same_shape(const assay_slab *a, const assay_slab *b)
{
    return a->n_sub == b->n_sub && a->n_cols == b->n_cols;
}

static assay_status make_room(group *g, int64_t more)
{
    if (g->n + more <= g->room)
        return ASSAY_OK;
    int64_t room = 2 * g->room + more;
    double *candidate = realloc(g->error[CANDIDATE], (size_t)room * sizeof *candidate);
    if (candidate)
        g->error[CANDIDATE] = candidate;
    double *twin = realloc(g->error[TWIN], (size_t)room * sizeof *twin);
    if (twin)
        g->error[TWIN] = twin;
    uint8_t *state = realloc(g->state, (size_t)room);
    if (state)
        g->state = state;
    int *pair_of = realloc(g->pair_of, (size_t)room * sizeof *pair_of);
    if (pair_of)
        g->pair_of = pair_of;
    if (!candidate || !twin || !state || !pair_of)
        return assay_fail(ASSAY_NO_MEMORY, "comparison: no memory for %" PRId64 " rows", room);
    g->room = room;
    return ASSAY_OK;
}

static uint8_t state_of(const group *g, int64_t position, bool twin)
{
    const assay_choices *mine = g->match->choices[CANDIDATE], *other = g->match->choices[TWIN];
    uint8_t state = 0;
    if (assay_choices_own(mine, g->point, g->layer, position))
        state |= OWN;
    if (assay_choices_context(mine, g->point, g->layer, position))
        state |= CONTEXT;
    if (!twin)
        return state;
    state |= TWIN_HERE;
    if (assay_choices_own(other, g->point, g->layer, position))
        state |= TWIN_OWN;
    if (assay_choices_context(other, g->point, g->layer, position))
        state |= TWIN_CONTEXT;
    return state;
}

/* Gains of the tokens that stand behind no flip. */
static assay_status add_gains(const group *g, int side, const assay_slab *got,
                              const assay_slab *ref, const uint8_t *state)
{
    uint8_t dirty = side == TWIN ? TWIN_OWN | TWIN_CONTEXT : OWN | CONTEXT;
    int64_t width = got->n_sub * got->n_cols, kept = 0;
    double *x, *y;
    ASSAY_TRY(assay_alloc(&x, (size_t)(2 * got->n_tokens * width), sizeof *x, "gains"));
    y = x + got->n_tokens * width;
    for (int64_t t = 0; t < got->n_tokens; t++) {
        if (state[t * got->n_sub] & dirty)
            continue;
        memcpy(x + kept * width, got->x + t * width, (size_t)width * sizeof *x);
        memcpy(y + kept * width, ref->x + t * width, (size_t)width * sizeof *x);
        kept++;
    }
    assay_status s =
        assay_gain_add(g->c->gain[side], g->point, g->layer, x, y, kept, got->n_sub, got->n_cols);
    free(x);
    return s;
}

static void fail_shape(group *g, const assay_slab *got, const assay_slab *ref)
{
    if (g->item.why[0])
        return;
    g->item.passed = false;
    snprintf(g->item.why, sizeof g->item.why,
             "shape: %" PRId64 " x %" PRId64 " numbers a token, expected %" PRId64 " x %" PRId64,
             got->n_sub, got->n_cols, ref->n_sub, ref->n_cols);
}

/* Puts the rows of one pair behind those that are there. */
static assay_status add_rows(group *g, const assay_pair *pair, int index, assay_slab slabs[SIDES])
{
    assay_slab *got = &slabs[CANDIDATE], *ref = &slabs[REFERENCE], *twin = &slabs[TWIN];
    int64_t n_rows = got->n_tokens * got->n_sub;
    assay_metrics m, ignored;
    bool has_twin = twin->x && same_shape(twin, ref);
    ASSAY_TRY(make_room(g, n_rows));
    double *errors = g->error[CANDIDATE] + g->n, *twin_errors = g->error[TWIN] + g->n;
    assay_metrics_with_rows(&m, errors, got->x, ref->x, n_rows, got->n_cols, INFINITY);
    if (has_twin)
        assay_metrics_with_rows(&ignored, twin_errors, twin->x, ref->x, n_rows, got->n_cols,
                                INFINITY);
    for (int64_t r = 0; r < n_rows; r++) {
        g->state[g->n + r] = state_of(g, pair->first + r / got->n_sub, has_twin);
        g->pair_of[g->n + r] = index;
        if (!has_twin)
            twin_errors[r] = NAN;
    }
    if (m.n_mask_differ + m.n_nan && g->mask_pair < 0)
        g->mask_pair = index;
    if (g->worst_pair < 0 || m.row_rel_max > g->worst) {
        g->worst = m.row_rel_max;
        g->worst_pair = index;
        g->item.metrics = m;
        g->item.step = pair->step[CANDIDATE];
    }
    ASSAY_TRY(add_gains(g, CANDIDATE, got, ref, g->state + g->n));
    if (has_twin)
        ASSAY_TRY(add_gains(g, TWIN, twin, ref, g->state + g->n));
    g->n += n_rows;
    return ASSAY_OK;
}

/* The reference's floor in the candidate's precision; 0: not recorded. */
static double floor_for(const assay_seen *reference, assay_dtype candidate)
{
    if (candidate == ASSAY_DTYPE_BF16)
        return reference->floor_bf16;
    if (candidate == ASSAY_DTYPE_F16) /* three bits more than bfloat16 */
        return reference->floor_bf16 / 8;
    return reference->floor;
}

static assay_status add_pair(group *g, int index)
{
    assay_pair pair = g->pairs[index];
    const assay_seen *seen[SIDES];
    assay_slab slabs[SIDES] = {{0}, {0}, {0}};
    for (int side = 0; side < SIDES; side++)
        seen[side] = seen_of(g, &pair, side);
    if (!seen[CANDIDATE] || !seen[REFERENCE])
        return ASSAY_OK;
    if (assay_point_at(g->point)->is_ids) { /* as sets, in choices.c */
        g->item.candidate = seen[CANDIDATE];
        g->item.reference = seen[REFERENCE];
        return ASSAY_OK;
    }
    ASSAY_TRY(shared_range(&pair, g, seen));
    if (pair.first >= pair.end)
        return ASSAY_OK;
    if (!g->item.candidate) {
        g->item.candidate = seen[CANDIDATE];
        g->item.reference = seen[REFERENCE];
    }
    double floor = floor_for(seen[REFERENCE], assay_run_about(g->c->run[CANDIDATE])->dtype);
    g->floor = floor > g->floor ? floor : g->floor;
    assay_status s = read_slabs(slabs, g, &pair, seen);
    if (s == ASSAY_OK && !same_shape(&slabs[CANDIDATE], &slabs[REFERENCE]))
        fail_shape(g, &slabs[CANDIDATE], &slabs[REFERENCE]);
    else if (s == ASSAY_OK)
        s = add_rows(g, &pair, index, slabs);
    if (s == ASSAY_OK && g->point == ASSAY_POINT_LOGITS && slabs[CANDIDATE].n_sub == 1 &&
        same_shape(&slabs[CANDIDATE], &slabs[REFERENCE]))
        assay_agreement_add(&g->c->agreement, g->match->prompt[CANDIDATE], pair.step[CANDIDATE],
                            pair.first, slabs[CANDIDATE].x, slabs[REFERENCE].x,
                            slabs[CANDIDATE].n_tokens, slabs[CANDIDATE].n_cols);
    for (int side = 0; side < SIDES; side++)
        assay_slab_clear(&slabs[side]);
    return s;
}

typedef struct row_errors {
    double *x;
    int64_t n;
    double median, largest;
    int worst_pair;
} row_errors;

/* Errors of one side over rows with all bits of `with` and none of `without`. */
static assay_status collect(row_errors *out, const group *g, int side, uint8_t with,
                            uint8_t without)
{
    *out = (row_errors){.median = NAN, .largest = -1, .worst_pair = -1};
    ASSAY_TRY(assay_alloc(&out->x, (size_t)g->n, sizeof *out->x, "row errors"));
    for (int64_t r = 0; r < g->n; r++) {
        if ((g->state[r] & with) != with || g->state[r] & without)
            continue;
        double error = isnan(g->error[side][r]) ? INFINITY : g->error[side][r];
        out->x[out->n++] = error;
        if (error > out->largest) {
            out->largest = error;
            out->worst_pair = g->pair_of[r];
        }
    }
    out->median = assay_median(out->x, out->n);
    free(out->x);
    out->x = NULL;
    return ASSAY_OK;
}

static void set_bounds(assay_compared *item, const group *g, const row_errors *twin)
{
    double noise[2] = {0, 0}; /* median, largest: both sides round */
    for (int side = CANDIDATE; side <= REFERENCE; side++) {
        const assay_run_info *about = assay_run_about(g->c->run[side]);
        assay_tolerance t = assay_tolerance_of(g->point, g->layer, g->c->n_layers, about->dtype,
                                               about->profile && about->profile->activations_q8);
        noise[0] = hypot(noise[0], t.row_median);
        noise[1] = hypot(noise[1], t.row_max);
    }
    if (twin && twin->n) {
        /* A point that both twins copy exactly still allows what float32 does. */
        double least = assay_tolerance_step(ASSAY_DTYPE_F32, false);
        item->bound_source = ASSAY_BOUND_TWIN;
        item->bound_median = 1.5 * fmax(twin->median, least);
        item->bound_max = 3 * fmax(twin->largest, least);
        if (twin->n < MEDIAN_ROWS)
            item->bound_max = fmax(item->bound_max, noise[1]);
    } else if (g->floor > 0) {
        item->bound_source = ASSAY_BOUND_FLOOR;
        item->bound_median = 3 * g->floor;
        item->bound_max = 12 * g->floor;
    } else {
        item->bound_source = ASSAY_BOUND_ANALYTIC;
        item->bound_median = noise[0];
        item->bound_max = noise[1];
    }
}

/* Median and largest against the bounds; NaN passes nothing. */
static void judge(assay_compared *item, const row_errors *mine)
{
    bool median = mine->n >= MEDIAN_ROWS;
    item->judged = mine->n > 0;
    item->n_rows_judged = mine->n;
    item->metrics.row_rel_median = mine->median;
    item->metrics.row_rel_max = mine->largest;
    if (item->why[0] || !mine->n)
        return;
    bool largest_good = mine->largest <= item->bound_max,
         median_good = !median || mine->median <= item->bound_median;
    item->passed = largest_good && median_good;
    if (!largest_good)
        snprintf(item->why, sizeof item->why, "largest row error %.3g is above %.3g (%s)",
                 mine->largest, item->bound_max, assay_bound_source_name(item->bound_source));
    else if (!median_good)
        snprintf(item->why, sizeof item->why, "median row error %.3g is above %.3g (%s)",
                 mine->median, item->bound_median, assay_bound_source_name(item->bound_source));
}

/* Reads the pair with the largest error again: its numbers and its first bad element. */
static assay_status look_closer(group *g, int index)
{
    assay_pair pair = g->pairs[index];
    const assay_seen *seen[SIDES] = {seen_of(g, &pair, CANDIDATE), seen_of(g, &pair, REFERENCE),
                                     NULL};
    assay_slab slabs[SIDES] = {{0}, {0}, {0}};
    assay_compared *item = &g->item;
    double median = item->metrics.row_rel_median, largest = item->metrics.row_rel_max;
    ASSAY_TRY(shared_range(&pair, g, seen));
    assay_status s = read_slabs(slabs, g, &pair, seen);
    if (s == ASSAY_OK) {
        const assay_slab *got = &slabs[CANDIDATE];
        assay_metrics_of(&item->metrics, got->x, slabs[REFERENCE].x, got->n_tokens * got->n_sub,
                         got->n_cols,
                         median <= item->bound_median ? item->bound_max : item->bound_median);
        int64_t bad = item->metrics.first_bad;
        if (bad >= 0) {
            assay_slab_coordinates(item->bad_at, seen[CANDIDATE], step_of(g, &pair, CANDIDATE),
                                   pair.first, bad / got->n_cols / got->n_sub,
                                   bad / got->n_cols % got->n_sub, bad % got->n_cols);
            item->bad_got = got->x[bad];
            item->bad_expected = slabs[REFERENCE].x[bad];
        }
        item->step = pair.step[CANDIDATE];
        item->candidate = seen[CANDIDATE];
        item->reference = seen[REFERENCE];
        item->metrics.row_rel_median = median;
        item->metrics.row_rel_max = largest;
    }
    for (int side = 0; side < SIDES; side++)
        assay_slab_clear(&slabs[side]);
    return s;
}

static assay_status judge_rows(group *g)
{
    row_errors mine, twin = {0};
    int64_t n_twin = 0, n_clean = 0;
    assay_compared *item = &g->item;
    for (int64_t r = 0; r < g->n; r++) {
        n_twin += (g->state[r] & TWIN_HERE) != 0;
        n_clean += !(g->state[r] & ~TWIN_HERE);
    }
    bool use_twin = 2 * n_twin >= g->n && n_twin > 0;
    /* Where flips are everywhere, twin and candidate see alike many of them. */
    uint8_t without = OWN | CONTEXT | TWIN_OWN | TWIN_CONTEXT;
    if (use_twin && 4 * n_clean < g->n)
        without = OWN | TWIN_OWN;
    if (!use_twin)
        without = OWN | CONTEXT;
    ASSAY_TRY(collect(&mine, g, CANDIDATE, 0, without));
    if (use_twin)
        ASSAY_TRY(collect(&twin, g, TWIN, TWIN_HERE, without));
    item->n_rows = g->n;
    set_bounds(item, g, use_twin ? &twin : NULL);
    judge(item, &mine);
    if (g->mask_pair >= 0) {
        item->judged = true;
        item->passed = false;
        ASSAY_TRY(look_closer(g, g->mask_pair));
        snprintf(item->why, sizeof item->why,
                 "%" PRId64 " elements are NaN or infinite on one side only, %" PRId64
                 " are NaN on either side",
                 item->metrics.n_mask_differ, item->metrics.n_nan);
    } else if (item->judged && !item->passed && mine.worst_pair >= 0) {
        ASSAY_TRY(look_closer(g, mine.worst_pair));
    }
    return ASSAY_OK;
}

static assay_status add_item(assay_comparison *c, const assay_compared *item)
{
    if (c->n == c->room) {
        int room = c->room ? 2 * c->room : 256;
        assay_compared *items = realloc(c->items, (size_t)room * sizeof *items);
        if (!items)
            return assay_fail(ASSAY_NO_MEMORY, "comparison: no memory");
        c->items = items;
        c->room = room;
    }
    c->items[c->n++] = *item;
    return ASSAY_OK;
}

assay_status assay_compare_point(assay_comparison *c, const assay_match *match,
                                 const assay_pair *pairs, int n_pairs, assay_point point, int layer)
{
    group g = {.c = c,
               .match = match,
               .pairs = pairs,
               .n_pairs = n_pairs,
               .point = point,
               .layer = layer,
               .worst_pair = -1,
               .mask_pair = -1};
    assay_status s = ASSAY_OK;
    g.item = (assay_compared){.prompt = match->prompt[CANDIDATE],
                              .layer = layer,
                              .point = point,
                              .bad_at = {-1},
                              .bad_got = NAN,
                              .bad_expected = NAN,
                              .passed = true};
    g.item.is_prefill = step_of(&g, &pairs[0], CANDIDATE)->is_prefill;
    for (int i = 0; i < n_pairs && s == ASSAY_OK; i++)
        s = add_pair(&g, i);
    bool is_ids = assay_point_at(point)->is_ids;
    if (s == ASSAY_OK && g.item.candidate && !is_ids && g.n)
        s = judge_rows(&g);
    else if (g.item.why[0])
        g.item.judged = true;
    if (s == ASSAY_OK && g.item.candidate && !is_ids)
        s = add_item(c, &g.item);
    for (int side = 0; side < SIDES; side++)
        free(g.error[side]);
    free(g.state);
    free(g.pair_of);
    return s;
}
