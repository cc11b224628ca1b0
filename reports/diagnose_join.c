/*
 * Homes that are one fault seen twice: where the class was told at one of them, the other is no
 * finding of its own.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/diagnose_private.h"
#include "reports/home_cache.h"

static const assay_judged *judged_of(const assay_diagnosis *d, int position)
{
    return assay_forced_at(d->forced, d->homes[position].index);
}

static bool same_place(const assay_judged *a, const assay_judged *b)
{
    return a->prompt == b->prompt && a->step == b->step && a->layer == b->layer;
}

/* sum_j p[h, t, j] v[j]: what attention makes of the probabilities that it had; out: [T, H, V]. */
static assay_status values_of(double *out, const assay_diagnosis *d, const assay_judged *kernel,
                              const double *probs, int64_t n_keys)
{
    const assay_oracle_shape *shape = assay_oracle_shape_of(assay_forced_oracle(d->forced));
    assay_pass *pass = assay_forced_pass(d->forced, kernel->prompt);
    int64_t T = kernel->n_rows, H = shape->n_head, V = kernel->n_cols / H, first = 0;
    int64_t G = shape->is_mla ? H : shape->n_head_kv;
    memset(out, 0, (size_t)(T * kernel->n_cols) * sizeof *out);
    for (int step = 0; step <= kernel->step; step++) {
        const assay_run_step *at =
            assay_run_step_at(assay_forced_run(d->forced), kernel->prompt, step);
        const double *v;
        ASSAY_TRY(assay_pass_value(&v, pass, step, ASSAY_POINT_V, kernel->layer));
        for (int64_t h = 0; h < H; h++)
            for (int64_t t = 0; t < T; t++)
                for (int64_t j = 0; j < at->n_tokens && first + j < n_keys; j++) {
                    double p = probs[(h * T + t) * n_keys + first + j];
                    const double *from = v + (j * G + h / (H / G)) * V;
                    for (int64_t i = 0; p != 0 && i < V; i++)
                        out[(t * H + h) * V + i] += p * from[i];
                }
        first += at->n_tokens;
    }
    return ASSAY_OK;
}

/* The kernel's output is judged on queries and keys, as if its probabilities were right; where they
 * are known to be wrong, it may be right on these. */
static assay_status follows_probs(bool *follows, const assay_diagnosis *d, int kernel, int probs)
{
    const assay_judged *k = judged_of(d, kernel), *p = judged_of(d, probs);
    int64_t H = assay_oracle_shape_of(assay_forced_oracle(d->forced))->n_head;
    const double *got, *expected;
    double *out;
    *follows = false;
    if (p->n_rows != H * k->n_rows || assay_forced_is_latent(d->forced, k->prompt))
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&out, (size_t)(k->n_rows * k->n_cols + p->n_rows * p->n_cols),
                          sizeof *out, "values under the run's probabilities"));
    double *seen = out + k->n_rows * k->n_cols;
    assay_judged rest;
    assay_status s = assay_forced_values(&got, &expected, d->forced, d->homes[probs].index);
    if (s == ASSAY_OK)
        memcpy(seen, got, (size_t)(p->n_rows * p->n_cols) * sizeof *seen);
    if (s == ASSAY_OK)
        s = values_of(out, d, k, seen, p->n_cols);
    if (s == ASSAY_OK)
        s = assay_forced_rejudge(&rest, d->forced, d->homes[kernel].index, out, NULL);
    *follows = s == ASSAY_OK && !rest.is_home;
    free(out);
    return s;
}

static assay_status join_attention(assay_diagnosis *d)
{
    for (int k = 0; k < d->n; k++)
        for (int p = 0; p < d->n && d->homes[k].merged < 0; p++) {
            bool follows;
            if (judged_of(d, k)->point != ASSAY_POINT_KERNEL_OUT || judged_of(d, k)->against ||
                judged_of(d, p)->point != ASSAY_POINT_PROBS || d->homes[p].merged >= 0 ||
                !same_place(judged_of(d, k), judged_of(d, p)))
                continue;
            ASSAY_TRY(follows_probs(&follows, d, k, p));
            if (follows)
                d->homes[k].merged = p;
        }
    return ASSAY_OK;
}

/* The same op of the same layer, told in a step with at least as many rows: a single row often fits
 * several explanations or none; of one class, the kind that more rows say stands. */
static void join_shorter(assay_diagnosis *d)
{
    for (int i = 0; i < d->n; i++) {
        const assay_judged *a = judged_of(d, i);
        for (int k = 0; k < d->n && d->homes[i].merged < 0; k++) {
            const assay_judged *b = judged_of(d, k);
            bool open = d->homes[i].fault == ASSAY_FAULT_UNKNOWN && a->n_rows <= b->n_rows;
            bool tie = d->homes[i].confidence < 0.6,
                 one_class = d->homes[i].fault == d->homes[k].fault;
            bool vague = a->n_rows < b->n_rows && (one_class || tie) &&
                         (!one_class || strcmp(d->homes[i].kind, d->homes[k].kind) != 0);
            if ((open || vague) && d->homes[k].fault != ASSAY_FAULT_UNKNOWN &&
                d->homes[k].merged < 0 && !d->homes[k].convention && !d->homes[i].convention &&
                a->point == b->point && a->layer == b->layer && !a->against == !b->against)
                d->homes[i].merged = k;
        }
    }
}

/* Whether the two values are made by a common op that was not captured. */
static bool share_an_op(const assay_diagnosis *d, int h, int g)
{
    assay_point points[2][ASSAY_FORCED_INTERVAL];
    int layers[ASSAY_FORCED_INTERVAL], steps[ASSAY_FORCED_INTERVAL], n[2];
    n[0] = assay_forced_interval(points[0], layers, steps, d->forced, d->homes[h].index);
    n[1] = assay_forced_interval(points[1], layers, steps, d->forced, d->homes[g].index);
    for (int i = 0; i < n[0]; i++)
        for (int k = 0; k < n[1]; k++)
            if (points[0][i] == points[1][k])
                return true;
    return false;
}

/* One class at two readers of one uncaptured value: the earlier one's words stand for both. */
static void join_readers(assay_diagnosis *d)
{
    for (int h = 0; h < d->n; h++)
        for (int g = 0; g < h && d->homes[h].merged < 0; g++)
            if (d->homes[g].merged < 0 && d->homes[g].fault == d->homes[h].fault &&
                d->homes[g].fault != ASSAY_FAULT_UNKNOWN &&
                same_place(judged_of(d, g), judged_of(d, h)) &&
                strcmp(d->homes[g].family, d->homes[h].family) != 0 && share_an_op(d, h, g))
                d->homes[h].merged = g;
}

/* Whether an earlier step of the layer has a home among the tensors that attention caches; its
 * position. */
static int cached_home(const assay_diagnosis *d, const assay_judged *reader)
{
    static const assay_point cached[] = {ASSAY_POINT_K_ROPE, ASSAY_POINT_KV_LATENT, ASSAY_POINT_V};
    for (int i = 0; i < d->n; i++) {
        const assay_judged *j = judged_of(d, i);
        bool is_cached = false;
        for (size_t k = 0; k < sizeof cached / sizeof *cached; k++)
            is_cached = is_cached || j->point == cached[k];
        if (is_cached && d->homes[i].merged < 0 && j->prompt == reader->prompt &&
            j->layer == reader->layer && j->step < reader->step)
            return i;
    }
    return -1;
}

/* A step showed a wrong key and cached the right one: later steps that read the right one are no
 * fault of their own. */
static assay_status join_cached(assay_diagnosis *d)
{
    for (int i = 0; i < d->n; i++) {
        const assay_judged *j = judged_of(d, i);
        int of = cached_home(d, j);
        if (of < 0 || d->homes[i].merged >= 0 || j->against || j->seen->known ||
            (j->point != ASSAY_POINT_PROBS && j->point != ASSAY_POINT_KERNEL_OUT &&
             j->point != ASSAY_POINT_LSE))
            continue;
        assay_home *home;
        double *out;
        bool differs;
        assay_judged rest;
        ASSAY_TRY(assay_home_new(&home, d->forced, d->homes[i].index));
        assay_status s = assay_alloc(&out, (size_t)home->n, sizeof *out, "attention");
        if (s == ASSAY_OK) {
            s = assay_home_attend_due(out, &differs, home);
            if (s == ASSAY_OK && differs)
                s = assay_forced_rejudge(&rest, d->forced, d->homes[i].index, out, NULL);
            if (s == ASSAY_OK && differs && !rest.is_home) {
                d->homes[i].merged = of;
                d->homes[of].cached_right = true;
            }
            free(out);
        }
        assay_home_free(home);
        if (s != ASSAY_OK && s != ASSAY_MISSING)
            return s;
    }
    return ASSAY_OK;
}

static bool all_zero(const assay_diagnosis *d, int position)
{
    const assay_judged *j = judged_of(d, position);
    const double *got, *expected;
    if (assay_forced_values(&got, &expected, d->forced, d->homes[position].index) != ASSAY_OK)
        return false;
    for (int64_t i = 0; i < j->n_rows * j->n_cols; i++)
        if (got[i] != 0)
            return false;
    return true;
}

/* Whether the explanation says that this slot of the cache holds nothing. */
static bool is_empty_slot(const assay_located *l, int64_t slot)
{
    const json_t *slots = json_object_get(l->fitted, "slots");
    for (size_t i = 0; i < json_array_size(slots); i++) {
        const json_t *pair = json_array_get(slots, i);
        if (json_integer_value(json_array_get(pair, 0)) == slot &&
            json_integer_value(json_array_get(pair, 1)) < 0)
            return true;
    }
    return false;
}

/* A run that shows keys and values as its cache has them shows zeros in a slot that was written
 * elsewhere: that is what attention's finding says. */
static void join_empty_slots(assay_diagnosis *d)
{
    static const assay_point cached[] = {ASSAY_POINT_K, ASSAY_POINT_K_ROPE, ASSAY_POINT_V,
                                         ASSAY_POINT_KV_LATENT, ASSAY_POINT_KV_B};
    for (int i = 0; i < d->n; i++)
        for (int k = 0; k < d->n; k++) {
            const assay_judged *j = judged_of(d, k);
            bool is_cached = false;
            for (size_t c = 0; c < sizeof cached / sizeof *cached; c++)
                is_cached = is_cached || j->point == cached[c];
            const assay_run_step *at =
                assay_run_step_at(assay_forced_run(d->forced), j->prompt, j->step);
            if (i != k && is_cached && d->homes[i].fault == ASSAY_FAULT_KV_ADDR &&
                d->homes[k].merged < 0 && d->homes[i].merged < 0 && j->n_rows == 1 &&
                same_place(judged_of(d, i), j) && is_empty_slot(&d->homes[i], at->first_position) &&
                all_zero(d, k))
                d->homes[k].merged = i;
        }
}

assay_status assay_diagnosis_join(assay_diagnosis *diagnosis)
{
    join_empty_slots(diagnosis);
    ASSAY_TRY(join_cached(diagnosis));
    ASSAY_TRY(join_attention(diagnosis));
    join_readers(diagnosis);
    join_shorter(diagnosis);
    for (int i = 0; i < diagnosis->n; i++) /* chains end at a home that belongs to none */
        for (int hops = 0; diagnosis->homes[i].merged >= 0 && hops < diagnosis->n; hops++) {
            int next = diagnosis->homes[diagnosis->homes[i].merged].merged;
            if (next < 0)
                break;
            diagnosis->homes[i].merged = next;
        }
    return ASSAY_OK;
}
