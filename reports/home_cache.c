#include "reports/home_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const assay_point cached_points[] = {ASSAY_POINT_K, ASSAY_POINT_V, ASSAY_POINT_K_ROPE,
                                            ASSAY_POINT_KV_LATENT, ASSAY_POINT_INDEX_K};
#define N_CACHED (sizeof cached_points / sizeof *cached_points)

static bool is_index(const assay_home *home)
{
    return home->judged->point == ASSAY_POINT_INDEX_SCORES;
}

static bool is_wanted(const assay_home *home, assay_point point, assay_cached what)
{
    bool latent = assay_forced_is_latent(home->forced, home->judged->prompt);
    if (is_index(home) != (point == ASSAY_POINT_INDEX_K))
        return false;
    if (is_index(home)) /* the same on either path */
        return what != ASSAY_CACHED_VALUES && what != ASSAY_CACHED_LATENT;
    if (what == ASSAY_CACHED_LATENT)
        return point == ASSAY_POINT_KV_LATENT || point == ASSAY_POINT_K_ROPE;
    if (point == ASSAY_POINT_V || (latent && point == ASSAY_POINT_KV_LATENT))
        return point == ASSAY_POINT_V ? !latent && what != ASSAY_CACHED_KEYS : true;
    if (point == ASSAY_POINT_KV_LATENT)
        return false;
    return what != ASSAY_CACHED_VALUES && (!latent || point == ASSAY_POINT_K_ROPE);
}

int64_t assay_home_n_keys(const assay_home *home)
{
    const assay_judged *j = home->judged;
    const assay_run_step *at =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    return at->first_position + at->n_tokens;
}

void assay_home_own_slots(assay_slot *slots, const assay_home *home)
{
    for (int64_t i = 0; i < assay_home_n_keys(home); i++)
        slots[i] = (assay_slot){home->judged->prompt, home->judged->layer, i, 0, 1, false};
}

/* The row that is due in a step where the run shows another; false: it shows that. */
static bool due_row(const double **row, int64_t *width, assay_home *home, assay_slot slot, int step,
                    int64_t in_step, assay_point point)
{
    const double *got, *expected;
    for (int i = 0; slot.due && i < assay_forced_n(home->forced); i++) {
        const assay_judged *j = assay_forced_at(home->forced, i);
        if (!j->is_home || j->prompt != slot.prompt || j->step != step || j->point != point ||
            j->layer != slot.layer || in_step < j->first_row ||
            in_step >= j->first_row + j->n_rows ||
            assay_forced_values(&got, &expected, home->forced, i) != ASSAY_OK)
            continue;
        *width = j->n_cols;
        *row = expected + (in_step - j->first_row) * j->n_cols;
        return true;
    }
    return false;
}

/* The row of a cached tensor at one position of a request; *width: values of it. */
static assay_status row_at(const double **row, int64_t *width, assay_home *home, assay_slot slot,
                           assay_point point)
{
    assay_run *run = assay_forced_run(home->forced);
    assay_pass *pass = assay_forced_pass(home->forced, slot.prompt);
    for (int s = 0; s < assay_run_prompt_at(run, slot.prompt)->n_steps; s++) {
        const assay_run_step *at = assay_run_step_at(run, slot.prompt, s);
        int64_t in_step = slot.position - at->first_position, dims[ASSAY_MAX_DIMS];
        const double *values;
        int n_dims;
        if (in_step < 0 || in_step >= at->n_tokens)
            continue;
        if (!due_row(row, width, home, slot, s, in_step, point)) {
            ASSAY_TRY(assay_pass_dims(&n_dims, dims, pass, s, point, slot.layer));
            ASSAY_TRY(assay_pass_value(&values, pass, s, point, slot.layer));
            *width = 1;
            for (int i = 1; i < n_dims; i++)
                *width *= dims[i];
            *row = values + in_step * *width;
        }
        for (int64_t i = 0; i < *width; i++)
            if (!isfinite((*row)[i])) /* would stand for any NaN */
                return assay_fail(ASSAY_MISSING, "the row is not finite");
        return ASSAY_OK;
    }
    return assay_fail(ASSAY_MISSING, "the request has no such position");
}

static void put_row(double *out, const double *row, int64_t width, int64_t heads, double scale,
                    const assay_slot *slot)
{
    int64_t w = width / heads;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < w; i++)
            out[h * w + i] = row[(h + slot->head_shift + heads) % heads * w + i] * scale;
}

/* One cached tensor of one step under the slots. */
static assay_status put_cached(assay_pass *pass, assay_home *home, int step, assay_point point,
                               const assay_slot *slots, assay_cached what)
{
    const assay_judged *j = home->judged;
    const assay_run_step *at = assay_run_step_at(assay_forced_run(home->forced), j->prompt, step);
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS], width = 1, row_width, heads;
    double *rows;
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, pass, step, point, j->layer));
    for (int i = 1; i < n_dims; i++)
        width *= dims[i];
    heads = n_dims > 2 ? dims[1] : 1;
    bool as_it_is = what == ASSAY_CACHED_LATENT && point == ASSAY_POINT_K_ROPE;
    ASSAY_TRY(assay_alloc(&rows, (size_t)(at->n_tokens * width), sizeof *rows, "slots"));
    assay_status s = ASSAY_OK;
    for (int64_t t = 0; t < at->n_tokens && s == ASSAY_OK; t++) {
        const assay_slot *slot = &slots[at->first_position + t];
        const double *row = NULL;
        if (slot->position < 0)
            continue;
        s = row_at(&row, &row_width, home, *slot, point);
        if (s == ASSAY_OK)
            put_row(rows + t * width, row, width, heads, as_it_is ? 1 : slot->scale, slot);
    }
    if (s == ASSAY_OK)
        s = assay_pass_put(pass, step, point, j->layer, rows, at->n_tokens * width);
    free(rows);
    return s;
}

/* What the home's step itself reads: queries and the selection. */
static assay_status put_own(assay_pass *pass, assay_home *home, int step, assay_point point)
{
    const assay_judged *j = home->judged;
    assay_pass *source = assay_forced_pass(home->forced, j->prompt);
    const double *values;
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS], n = 1;
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, source, step, point, j->layer));
    for (int i = 0; i < n_dims; i++)
        n *= dims[i];
    ASSAY_TRY(assay_pass_value(&values, source, step, point, j->layer));
    return assay_pass_put(pass, step, point, j->layer, values, n);
}

/* Keys and values of the step are made from other latents than its own. */
static bool is_remade(const assay_home *home, int step, assay_point point, const assay_slot *slots,
                      assay_cached what)
{
    const assay_judged *j = home->judged;
    const assay_run_step *at = assay_run_step_at(assay_forced_run(home->forced), j->prompt, step);
    if (what != ASSAY_CACHED_LATENT || (point != ASSAY_POINT_K && point != ASSAY_POINT_V))
        return false;
    for (int64_t i = at->first_position; i < at->first_position + at->n_tokens; i++)
        if (slots[i].position != i || slots[i].layer != j->layer || slots[i].prompt != j->prompt ||
            slots[i].scale != 1)
            return true;
    return false;
}

assay_status assay_home_attend(double *out, assay_home *home, const assay_slot *slots,
                               assay_cached what)
{
    static const assay_point own[] = {ASSAY_POINT_Q, ASSAY_POINT_Q_LATENT, ASSAY_POINT_Q_ROPE,
                                      ASSAY_POINT_INDEX_TOPK};
    static const assay_point own_index[] = {ASSAY_POINT_INDEX_Q, ASSAY_POINT_INDEX_WEIGHTS};
    const assay_judged *j = home->judged;
    assay_run *run = assay_forced_run(home->forced);
    assay_oracle *oracle = assay_forced_oracle(home->forced);
    bool latent = assay_forced_is_latent(home->forced, j->prompt);
    assay_pass_options options = {.latent = latent, .knobs = home->knobs};
    const assay_point *queries = is_index(home) ? own_index : own;
    int n_queries = is_index(home) ? 2 : 4;
    assay_pass *pass;
    assay_slot *unmoved;
    assay_status s;
    ASSAY_TRY(assay_alloc(&unmoved, (size_t)assay_home_n_keys(home), sizeof *unmoved, "slots"));
    assay_home_own_slots(unmoved, home);
    ASSAY_GO(assay_pass_new(&pass, oracle, &options));
    for (int step = 0; step <= j->step && s == ASSAY_OK; step++) {
        const assay_run_step *at = assay_run_step_at(run, j->prompt, step);
        int number;
        s = assay_pass_add_step(&number, pass, at->tokens, at->n_tokens, at->first_position);
        for (size_t i = 0; i < N_CACHED && s == ASSAY_OK; i++)
            if (assay_oracle_has_point(oracle, cached_points[i], j->layer, latent) &&
                !is_remade(home, step, cached_points[i], slots, what))
                s = put_cached(pass, home, step, cached_points[i],
                               is_wanted(home, cached_points[i], what) ? slots : unmoved, what);
        for (int i = 0; i < n_queries && step == j->step && s == ASSAY_OK; i++)
            if (assay_oracle_has_point(oracle, queries[i], j->layer, latent))
                s = put_own(pass, home, step, queries[i]);
    }
    if (s == ASSAY_OK)
        s = assay_pass_expect(out, pass, j->step, j->point, j->layer, home->knobs);
    assay_pass_free(pass);
out:
    free(unmoved);
    return s;
}

/* One cached tensor of an earlier step: as expected where it is a home, else as captured. */
static assay_status put_due(bool *differs, assay_pass *pass, assay_home *home, int step,
                            assay_point point)
{
    const assay_judged *j = home->judged;
    int index = assay_forced_find(home->forced, j->prompt, step, point, j->layer);
    const assay_judged *due = index >= 0 ? assay_forced_at(home->forced, index) : NULL;
    const double *got, *expected;
    if (!due || !due->is_home || due->first_row > 0 || due->n_nonfinite > 0)
        return put_own(pass, home, step, point);
    *differs = true;
    ASSAY_TRY(assay_forced_values(&got, &expected, home->forced, index));
    return assay_pass_put(pass, step, point, j->layer, expected, due->n_rows * due->n_cols);
}

assay_status assay_home_attend_due(double *out, bool *differs, assay_home *home)
{
    /* keys of latent attention follow from their parts */
    static const assay_point parts[] = {ASSAY_POINT_KV_LATENT, ASSAY_POINT_K_ROPE, ASSAY_POINT_V};
    static const assay_point own[] = {ASSAY_POINT_Q, ASSAY_POINT_Q_LATENT, ASSAY_POINT_Q_ROPE,
                                      ASSAY_POINT_INDEX_TOPK, ASSAY_POINT_K};
    const assay_judged *j = home->judged;
    assay_run *run = assay_forced_run(home->forced);
    assay_oracle *oracle = assay_forced_oracle(home->forced);
    bool latent = assay_forced_is_latent(home->forced, j->prompt);
    assay_pass_options options = {.latent = latent, .knobs = home->knobs};
    assay_pass *pass;
    *differs = false;
    if (is_index(home))
        return assay_fail(ASSAY_MISSING, "the indexer's keys are no part of it");
    ASSAY_TRY(assay_pass_new(&pass, oracle, &options));
    assay_status s = ASSAY_OK;
    for (int step = 0; step <= j->step && s == ASSAY_OK; step++) {
        const assay_run_step *at = assay_run_step_at(run, j->prompt, step);
        int number;
        s = assay_pass_add_step(&number, pass, at->tokens, at->n_tokens, at->first_position);
        for (size_t i = 0; i < sizeof parts / sizeof *parts && s == ASSAY_OK; i++)
            if (assay_oracle_has_point(oracle, parts[i], j->layer, latent))
                s = step < j->step ? put_due(differs, pass, home, step, parts[i])
                                   : put_own(pass, home, step, parts[i]);
        for (size_t i = 0; i < sizeof own / sizeof *own && step == j->step && s == ASSAY_OK; i++)
            if (assay_oracle_has_point(oracle, own[i], j->layer, latent))
                s = put_own(pass, home, step, own[i]);
    }
    if (s == ASSAY_OK && *differs)
        s = assay_pass_expect(out, pass, j->step, j->point, j->layer, home->knobs);
    assay_pass_free(pass);
    return s;
}

typedef struct marks {      /* [n_head, n]: logarithms of the last row's probabilities */
    double *got, *expected; /* expected: one column more, of a key of zeros */
    int n_head;
    int64_t n;
} marks;

static assay_status read_marks(marks *m, assay_home *home)
{
    const assay_judged *j = home->judged;
    double *got = home->got, *expected = home->expected, *lse = NULL;
    int64_t n = home->judged->n_cols, n_lse, H = home->shape->n_head, T;
    bool own = j->point == ASSAY_POINT_PROBS;
    *m = (marks){0};
    if (!own && assay_home_partner(&expected, &got, &n, home, ASSAY_POINT_PROBS) != ASSAY_OK)
        return ASSAY_OK;
    assay_status s = ASSAY_OK;
    if (n != assay_home_n_keys(home) || n < 2 ||
        assay_home_value(&lse, &n_lse, home, ASSAY_POINT_LSE, j->layer) != ASSAY_OK)
        goto out;
    T = n_lse / H;
    ASSAY_GO(assay_alloc(&m->got, (size_t)(H * (2 * n + 1)), sizeof *m->got, "marks of keys"));
    m->expected = m->got + H * n;
    m->n_head = (int)H;
    m->n = n;
    for (int64_t h = 0; h < H; h++) {
        int64_t row = h * T + T - 1;
        for (int64_t i = 0; i < n; i++) {
            m->got[h * n + i] = log(got[row * n + i]);
            m->expected[h * (n + 1) + i] = log(expected[row * n + i]);
        }
        m->expected[h * (n + 1) + n] = -lse[(T - 1) * H + h];
    }
out:
    free(lse);
    if (!own) {
        free(got);
        free(expected);
    }
    return s;
}

/* log-sum-exp of the other keys shifts all marks of a head alike: by how much, if slot `anchor`
 * holds its own key, or (-1) if the slots hold all keys in any order. */
static double shift_of(const marks *m, int h, int64_t anchor)
{
    double sum = 0;
    if (anchor >= 0)
        return m->expected[h * (m->n + 1) + anchor] - m->got[h * m->n + anchor];
    for (int64_t i = 0; i < m->n; i++)
        sum += m->expected[h * (m->n + 1) + i] - m->got[h * m->n + i];
    return sum / (double)m->n;
}

/* Nearest key of every slot; returns the sum of squares that is left (infinite: a mark is not
 * finite). */
static double assign(int64_t *key, const marks *m, int64_t anchor)
{
    double total = 0;
    for (int64_t slot = 0; slot < m->n; slot++) {
        double best = INFINITY;
        for (int64_t i = 0; i <= m->n; i++) {
            double rest = 0;
            for (int h = 0; h < m->n_head; h++) {
                double d = m->expected[h * (m->n + 1) + i] - m->got[h * m->n + slot] -
                           shift_of(m, h, anchor);
                rest += d * d;
            }
            if (rest < best) {
                best = rest;
                key[slot] = i < m->n ? i : -1;
            }
        }
        total += best;
    }
    return total;
}

assay_status assay_home_assign_slots(assay_slot *slots, int64_t *moved, assay_home *home)
{
    marks m;
    int64_t *key;
    double least = INFINITY;
    *moved = 0;
    assay_home_own_slots(slots, home);
    ASSAY_TRY(read_marks(&m, home));
    if (!m.got || m.n > 512) {
        free(m.got);
        return ASSAY_OK;
    }
    assay_status s = assay_alloc(&key, (size_t)m.n, sizeof *key, "keys of slots");
    for (int way = 0; s == ASSAY_OK && way < 4; way++) {
        int64_t anchor = way == 0 ? -1 : way == 1 ? 0 : way == 2 ? m.n - 1 : m.n / 2;
        double rest = assign(key, &m, anchor);
        if (!(rest < 0.9 * least))
            continue;
        least = rest;
        *moved = 0;
        for (int64_t i = 0; i < m.n; i++) {
            slots[i].position = key[i];
            *moved += key[i] != i;
        }
    }
    if (s == ASSAY_OK)
        free(key);
    free(m.got);
    return s;
}
