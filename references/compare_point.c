/* One point over the rows of a group: read, put side by side, judge. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "references/agreement.h"
#include "references/compare_private.h"
#include "references/contrast.h"
#include "references/median.h"
#include "references/metric.h"
#include "references/slab.h"
#include "references/tolerance.h"

enum { MEDIAN_ROWS = 8 };

/* What is known of one row. */
enum { OWN = 1, CONTEXT = 2, TWIN_HERE = 4, TWIN_OWN = 8, TWIN_CONTEXT = 16 };

typedef struct group {
    assay_comparison *c;
    assay_gain *const *gain;
    assay_contrast_room *kept;
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

bool assay_compare_by_expert(assay_point point)
{
    return point == ASSAY_POINT_MOE_WEIGHTS ||
           (point >= ASSAY_POINT_MOE_EXPERT_GATE && point <= ASSAY_POINT_MOE_EXPERT_DOWN);
}

/* ids [2] of the chosen experts of candidate (or twin) and reference; n_cols 0: unknown. */
static assay_status read_choices(assay_slab ids[2], const group *g, const assay_pair *pair,
                                 int side)
{
    const int sides[2] = {side, REFERENCE};
    for (int i = 0; i < 2; i++) {
        const assay_seen *seen =
            assay_run_find(g->c->run[sides[i]], g->match->prompt[sides[i]], pair->step[sides[i]],
                           ASSAY_POINT_MOE_TOPK, g->layer);
        int64_t from = 0, until = -1;
        if (seen && seen->has_values)
            ASSAY_TRY(assay_slab_range(&from, &until, seen, step_of(g, pair, sides[i])));
        if (from <= pair->first && pair->end <= until)
            ASSAY_TRY(assay_slab_read(&ids[i], g->c->run[sides[i]], seen,
                                      step_of(g, pair, sides[i]), pair->first, pair->end, -1));
    }
    return ASSAY_OK;
}

/* Where each slot's expert stands; slots without a partner stay where they are. */
static bool find_order(int32_t *order, const double *mine, const double *wanted, int64_t used)
{
    bool moved = false;
    for (int64_t u = 0; u < used; u++) {
        order[u] = (int32_t)u;
        for (int64_t v = 0; v < used; v++)
            if (mine[v] == wanted[u])
                order[u] = (int32_t)v;
        moved = moved || order[u] != u;
    }
    return moved;
}

/* One number a slot: the values themselves are put in order. */
static assay_status order_columns(assay_rows_seen *rows, const int32_t *order)
{
    double *x, *room;
    int64_t n = rows->n_cols;
    ASSAY_TRY(assay_stored_prove(&rows->values, NULL));
    ASSAY_TRY(assay_alloc(&x, (size_t)((rows->n_tokens + 1) * n), sizeof *x, "slots"));
    room = x + rows->n_tokens * n;
    for (int64_t t = 0; t < rows->n_tokens; t++) {
        const double *row = assay_rows_at(rows, t, 0, room);
        for (int64_t u = 0; u < n; u++)
            x[t * n + u] = row[order[t * n + u]];
    }
    assay_stored_clear(&rows->values);
    rows->values = (assay_stored){.data = x, .dtype = ASSAY_DTYPE_F64, .owned = x};
    rows->first = 0;
    rows->n_t = rows->n_tokens;
    rows->n_inner = n;
    return ASSAY_OK;
}

/* Puts the slots of the chosen experts into the order of the reference's ids: two runs may list the
 * same experts in another order. */
static assay_status order_slots(assay_rows_seen *rows, const group *g, const assay_pair *pair,
                                int side)
{
    assay_slab ids[2] = {{0}, {0}};
    bool moved = false;
    int32_t *order = NULL;
    int64_t used = rows->n_sub > 1 ? rows->n_sub : rows->n_cols;
    assay_status s = read_choices(ids, g, pair, side);
    if (s == ASSAY_OK && ids[0].x && ids[1].x && ids[0].n_cols == used && ids[1].n_cols == used)
        s = assay_alloc(&order, (size_t)(rows->n_tokens * used), sizeof *order, "slots");
    for (int64_t t = 0; order && t < rows->n_tokens; t++)
        moved |= find_order(order + t * used, ids[0].x + t * used, ids[1].x + t * used, used);
    if (s == ASSAY_OK && moved && rows->n_sub == 1)
        s = order_columns(rows, order);
    if (s == ASSAY_OK && moved && rows->n_sub > 1)
        rows->order = order;
    else
        free(order);
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

static assay_status look_at_rows(assay_rows_seen rows[SIDES], const group *g,
                                 const assay_pair *pair, const assay_seen *const *seen)
{
    int64_t keys = -1;
    for (int side = 0; side < SIDES; side++)
        if (seen[side] && assay_slab_keys(seen[side]) >= 0 &&
            (keys < 0 || assay_slab_keys(seen[side]) < keys))
            keys = assay_slab_keys(seen[side]);
    for (int side = 0; side < SIDES; side++) {
        if (!seen[side])
            continue;
        ASSAY_TRY(assay_rows_look_unproven(&rows[side], g->c->run[side], seen[side],
                                           step_of(g, pair, side), pair->first, pair->end, keys));
        if (assay_compare_by_expert(g->point) && side != REFERENCE)
            ASSAY_TRY(order_slots(&rows[side], g, pair, side));
    }
    return ASSAY_OK;
}

static bool same_shape(const assay_rows_seen *a, const assay_rows_seen *b)
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

static void fail_shape(group *g, const assay_rows_seen *got, const assay_rows_seen *ref)
{
    if (g->item.why[0])
        return;
    g->item.passed = false;
    snprintf(g->item.why, sizeof g->item.why,
             "shape: %" PRId64 " x %" PRId64 " numbers a token, expected %" PRId64 " x %" PRId64,
             got->n_sub, got->n_cols, ref->n_sub, ref->n_cols);
}

/* Puts the rows of one pair behind those that are there. */
static assay_status add_rows(group *g, const assay_pair *pair, int index,
                             assay_rows_seen rows[SIDES])
{
    assay_rows_seen *got = &rows[CANDIDATE], *ref = &rows[REFERENCE], *twin = &rows[TWIN];
    int64_t n_rows = got->n_tokens * got->n_sub;
    assay_metrics m, ignored;
    bool has_twin = twin->values.data && same_shape(twin, ref);
    ASSAY_TRY(make_room(g, n_rows));
    double *errors = g->error[CANDIDATE] + g->n, *twin_errors = g->error[TWIN] + g->n;
    uint8_t *state = g->state + g->n;
    for (int64_t t = 0; t < got->n_tokens; t++)
        memset(state + t * got->n_sub, state_of(g, pair->first + t, has_twin), (size_t)got->n_sub);
    for (int64_t r = 0; r < n_rows; r++)
        g->pair_of[g->n + r] = index;
    for (int64_t r = 0; r < n_rows && !has_twin; r++)
        twin_errors[r] = NAN;
    ASSAY_TRY(assay_contrast(&m, errors, g->worst_pair < 0 ? -INFINITY : g->worst,
                             g->gain[CANDIDATE], g->kept, g->point, g->layer, got, ref, state,
                             OWN | CONTEXT));
    if (has_twin)
        ASSAY_TRY(assay_contrast(&ignored, twin_errors, INFINITY, g->gain[TWIN], g->kept, g->point,
                                 g->layer, twin, ref, state, TWIN_OWN | TWIN_CONTEXT));
    if (m.n_mask_differ + m.n_nan && g->mask_pair < 0)
        g->mask_pair = index;
    if (g->worst_pair < 0 || m.row_rel_max > g->worst) {
        g->worst = m.row_rel_max;
        g->worst_pair = index;
        g->item.metrics = m;
        g->item.step = pair->step[CANDIDATE];
    }
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
    assay_rows_seen rows[SIDES] = {{0}, {0}, {0}};
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
    assay_status s = look_at_rows(rows, g, &pair, seen);
    bool same = s == ASSAY_OK && same_shape(&rows[CANDIDATE], &rows[REFERENCE]);
    if (s == ASSAY_OK && !same)
        fail_shape(g, &rows[CANDIDATE], &rows[REFERENCE]);
    else if (s == ASSAY_OK)
        s = add_rows(g, &pair, index, rows);
    if (s == ASSAY_OK && same && g->point == ASSAY_POINT_LOGITS && rows[CANDIDATE].n_sub == 1)
        assay_agreement_add(&g->c->agreement, g->match->prompt[CANDIDATE], pair.step[CANDIDATE],
                            pair.first, &rows[CANDIDATE], &rows[REFERENCE]);
    for (int side = 0; side < SIDES; side++)
        assay_rows_clear(&rows[side]);
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

/* n_rows: of the candidate that are judged. */
static void set_bounds(assay_compared *item, const group *g, const row_errors *twin, int64_t n_rows)
{
    double noise[2] = {0, 0}; /* median, largest: both sides round */
    for (int side = CANDIDATE; side <= REFERENCE; side++) {
        const assay_run_info *about = assay_run_about(g->c->run[side]);
        assay_tolerance t = assay_tolerance_of(g->point, g->layer, g->c->n_layers, about->dtype,
                                               about->profile && about->profile->activations_q8);
        noise[0] = hypot(noise[0], t.row_median);
        noise[1] = hypot(noise[1], t.row_max);
    }
    int64_t n_measured = MEDIAN_ROWS;
    if (twin && twin->n) {
        /* A point that both twins copy exactly still allows what float32 does. */
        double least = assay_tolerance_step(ASSAY_DTYPE_F32, false);
        item->bound_source = ASSAY_BOUND_TWIN;
        item->bound_median = 1.5 * fmax(twin->median, least);
        item->bound_max = 3 * fmax(twin->largest, least);
        n_measured = twin->n;
    } else if (g->floor > 0) {
        item->bound_source = ASSAY_BOUND_FLOOR;
        item->bound_median = 3 * g->floor;
        item->bound_max = 12 * g->floor;
        n_measured = n_rows;
    } else {
        item->bound_source = ASSAY_BOUND_ANALYTIC;
        item->bound_median = noise[0];
        item->bound_max = noise[1];
    }
    /* What was measured on few rows may be small by luck. */
    if (n_measured < MEDIAN_ROWS)
        item->bound_max = fmax(item->bound_max, noise[1]);
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

/* The first element beyond the bound, among the rows of one pair. */
static assay_status find_first_bad(assay_compared *item, const group *g, const assay_pair *pair,
                                   const assay_seen *seen, const assay_rows_seen rows[SIDES],
                                   double bound)
{
    const assay_rows_seen *got = &rows[CANDIDATE], *ref = &rows[REFERENCE];
    int64_t n = got->n_cols, bad = -1;
    double *x;
    ASSAY_TRY(assay_alloc(&x, (size_t)(2 * n), sizeof *x, "values"));
    for (int64_t r = 0; r < got->n_tokens * got->n_sub && bad < 0; r++) {
        int64_t t = r / got->n_sub, sub = r % got->n_sub;
        assay_rows_copy(x, got, t, sub);
        assay_rows_copy(x + n, ref, t, sub);
        bad = assay_row_first_bad(x, x + n, n, bound);
        if (bad < 0)
            continue;
        assay_slab_coordinates(item->bad_at, seen, step_of(g, pair, CANDIDATE), pair->first, t, sub,
                               bad);
        item->metrics.first_bad = r * n + bad;
        item->bad_got = x[bad];
        item->bad_expected = x[n + bad];
    }
    free(x);
    return ASSAY_OK;
}

/* Reads the pair with the largest error again: its numbers and its first bad element. */
static assay_status look_closer(group *g, int index)
{
    assay_pair pair = g->pairs[index];
    const assay_seen *seen[SIDES] = {seen_of(g, &pair, CANDIDATE), seen_of(g, &pair, REFERENCE),
                                     NULL};
    assay_rows_seen rows[SIDES] = {{0}, {0}, {0}};
    assay_compared *item = &g->item;
    double median = item->metrics.row_rel_median, largest = item->metrics.row_rel_max;
    ASSAY_TRY(shared_range(&pair, g, seen));
    assay_status s = look_at_rows(rows, g, &pair, seen);
    if (s == ASSAY_OK)
        s = assay_contrast(&item->metrics, NULL, -INFINITY, NULL, g->kept, g->point, g->layer,
                           &rows[CANDIDATE], &rows[REFERENCE], NULL, 0);
    if (s == ASSAY_OK)
        s = find_first_bad(item, g, &pair, seen[CANDIDATE], rows,
                           median <= item->bound_median ? item->bound_max : item->bound_median);
    item->step = pair.step[CANDIDATE];
    item->candidate = seen[CANDIDATE];
    item->reference = seen[REFERENCE];
    item->metrics.row_rel_median = median;
    item->metrics.row_rel_max = largest;
    for (int side = 0; side < SIDES; side++)
        assay_rows_clear(&rows[side]);
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
    set_bounds(item, g, use_twin ? &twin : NULL, mine.n);
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

assay_status assay_compare_point(assay_compare_place *place, assay_contrast_room *room,
                                 assay_comparison *c, const assay_match *match,
                                 const assay_pair *pairs, int n_pairs)
{
    group g = {.c = c,
               .gain = place->gain,
               .kept = room,
               .match = match,
               .pairs = pairs,
               .n_pairs = n_pairs,
               .point = place->point,
               .layer = place->layer,
               .worst_pair = -1,
               .mask_pair = -1};
    assay_status s = ASSAY_OK;
    g.item = (assay_compared){.prompt = match->prompt[CANDIDATE],
                              .layer = place->layer,
                              .point = place->point,
                              .bad_at = {-1},
                              .bad_got = NAN,
                              .bad_expected = NAN,
                              .passed = true};
    g.item.is_prefill = step_of(&g, &pairs[0], CANDIDATE)->is_prefill;
    for (int i = 0; i < n_pairs && s == ASSAY_OK; i++)
        s = add_pair(&g, i);
    bool is_ids = assay_point_at(place->point)->is_ids;
    if (s == ASSAY_OK && g.item.candidate && !is_ids && g.n)
        s = judge_rows(&g);
    else if (g.item.why[0])
        g.item.judged = true;
    if (s == ASSAY_OK && g.item.candidate && !is_ids) {
        place->has_item = true;
        place->item = g.item;
    }
    for (int side = 0; side < SIDES; side++)
        free(g.error[side]);
    free(g.state);
    free(g.pair_of);
    return s;
}
