#include "reports/home_ranks.h"
#include "reports/home_sketch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A fit with a number for every row, head or channel swallows noise that is alike within them, more
 * than its degrees of freedom say. */
#define MANY_NUMBERS 8

/*
 * Where few cells carry the error (one head, the rows of one chunk), a number fitted to all of them
 * is a compromise with those that are right: fits look at these cells alone. Cells whose relative
 * error is below a hundredth of the worst one's are right, or noise.
 */
static assay_status find_focus(assay_home *h)
{
    const assay_judged *j = h->judged;
    int64_t width = j->n_cols / j->n_groups, n_cells = j->n_rows * j->n_groups, n_bad = 0;
    double worst = 0, *rel;
    if (j->is_ids || h->pair.is_noisy)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&h->focus, (size_t)n_cells, sizeof *h->focus, "cells of a home"));
    ASSAY_TRY(assay_alloc(&rel, (size_t)n_cells, sizeof *rel, "cells of a home"));
    for (int64_t c = 0; c < n_cells; c++) {
        double error = 0, size = 0;
        for (int64_t i = c * width; i < (c + 1) * width; i++) {
            double d = h->got[i] - h->expected[i];
            error += isfinite(d) ? d * d : 0;
            size += isfinite(d) ? h->expected[i] * h->expected[i] : 0;
        }
        rel[c] = size > 0 ? error / size : 0;
        worst = fmax(worst, rel[c]);
    }
    for (int64_t c = 0; c < n_cells; c++) {
        h->focus[c] = rel[c] > fmax(9 * j->floor_row_median * j->floor_row_median, 1e-4 * worst);
        n_bad += h->focus[c];
    }
    free(rel);
    if (2 * n_bad >= n_cells || n_bad == 0) {
        free(h->focus);
        h->focus = NULL;
    }
    return ASSAY_OK;
}

assay_status assay_home_new(assay_home **out, assay_forced *forced, int index)
{
    assay_home *h;
    const double *got, *expected;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(assay_alloc(&h, 1, sizeof *h, "a home"));
    h->forced = forced;
    h->index = index;
    h->judged = assay_forced_at(forced, index);
    h->shape = assay_oracle_shape_of(assay_forced_oracle(forced));
    h->knobs = assay_forced_knobs(forced);
    h->n = h->judged->n_rows * h->judged->n_cols;
    h->bound = INFINITY;
    ASSAY_GO(assay_alloc(&h->got, (size_t)h->n, 3 * sizeof *h->got, "values of a home"));
    h->expected = h->got + h->n;
    h->scratch = h->expected + h->n;
    ASSAY_GO(assay_forced_values(&got, &expected, forced, index));
    memcpy(h->got, got, (size_t)h->n * sizeof *got);
    memcpy(h->expected, expected, (size_t)h->n * sizeof *got);
    h->pair = (assay_relation_pair){.got = h->got,
                                    .expected = h->expected,
                                    .rows = h->judged->n_rows,
                                    .cols = h->judged->n_cols};
    if (assay_forced_projection(&h->sketch, forced, index)) {
        h->pair.sketch = &h->sketch;
        h->pair.is_noisy = assay_projection_size(&h->sketch, 0) > ASSAY_SKETCH_N;
        h->sketch_error = assay_projection_rest(NULL, &h->sketch, h->expected);
        for (int64_t k = 0; k < h->sketch.n_groups * ASSAY_SKETCH_N; k++)
            h->sketch_size += (double)h->sketch.y[k] * h->sketch.y[k];
    }
    ASSAY_GO(find_focus(h));
    h->n_interval =
        assay_forced_interval(h->interval, h->interval_layers, h->interval_steps, forced, index);
    *out = h;
    return ASSAY_OK;
out:
    assay_home_free(h);
    return s;
}

void assay_home_free(assay_home *home)
{
    if (!home)
        return;
    for (int i = 0; i < home->n_offers; i++) {
        json_decref(home->offers[i].fitted);
        free(home->offers[i].values);
    }
    free(home->offers);
    free(home->focus);
    free(home->got);
    free(home);
}

bool assay_home_is(const assay_home *home, assay_point point)
{
    return home->judged->point == point && !home->judged->against;
}

bool assay_home_covers(const assay_home *home, assay_point point)
{
    if (home->judged->against)
        return false;
    if (home->judged->point == point)
        return true;
    for (int i = 0; i < home->n_interval; i++)
        if (home->interval[i] == point)
            return true;
    return false;
}

static bool covers_any(const assay_home *home, const assay_point *points, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (assay_home_covers(home, points[i]))
            return true;
    return false;
}

bool assay_home_attends(const assay_home *home)
{
    static const assay_point points[] = {ASSAY_POINT_PROBS, ASSAY_POINT_LSE, ASSAY_POINT_O_LATENT};
    if (covers_any(home, points, sizeof points / sizeof *points))
        return true;
    /* on the latent path the kernel's output is a product with the value half of kv_b */
    return assay_home_covers(home, ASSAY_POINT_KERNEL_OUT) &&
           !assay_forced_is_latent(home->forced, home->judged->prompt);
}

bool assay_home_multiplies(const assay_home *home)
{
    static const assay_point points[] = {ASSAY_POINT_Q_A,           ASSAY_POINT_Q,
                                         ASSAY_POINT_KV_A,          ASSAY_POINT_KV_B,
                                         ASSAY_POINT_Q_LATENT,      ASSAY_POINT_PROJ,
                                         ASSAY_POINT_INDEX_Q_PROJ,  ASSAY_POINT_INDEX_K_PROJ,
                                         ASSAY_POINT_INDEX_WEIGHTS, ASSAY_POINT_FFN_GATE,
                                         ASSAY_POINT_FFN_UP,        ASSAY_POINT_FFN_OUT,
                                         ASSAY_POINT_MOE_LOGITS,    ASSAY_POINT_MOE_EXPERT_GATE,
                                         ASSAY_POINT_MOE_EXPERT_UP, ASSAY_POINT_MOE_EXPERT_DOWN,
                                         ASSAY_POINT_SHARED_GATE,   ASSAY_POINT_SHARED_UP,
                                         ASSAY_POINT_SHARED,        ASSAY_POINT_LOGITS,
                                         ASSAY_POINT_EMBED};
    if (!home->shape->is_mla &&
        (assay_home_covers(home, ASSAY_POINT_K) || assay_home_covers(home, ASSAY_POINT_V)))
        return true;
    if (assay_home_is(home, ASSAY_POINT_KERNEL_OUT) &&
        assay_forced_is_latent(home->forced, home->judged->prompt))
        return true;
    return covers_any(home, points, sizeof points / sizeof *points);
}

bool assay_home_weighs(const assay_home *home)
{
    static const assay_point points[] = {ASSAY_POINT_IN_NORM,    ASSAY_POINT_Q_A_NORM,
                                         ASSAY_POINT_KV_LATENT,  ASSAY_POINT_FFN_NORM,
                                         ASSAY_POINT_FINAL_NORM, ASSAY_POINT_INDEX_K_NORM,
                                         ASSAY_POINT_MOE_TOPK};
    return assay_home_multiplies(home) || covers_any(home, points, sizeof points / sizeof *points);
}

void assay_home_poison(int64_t *own, int64_t *foreign, uint32_t *owner, const assay_home *home)
{
    int64_t written = home->judged->seen->written_owner;
    *own = *foreign = 0;
    for (int64_t i = 0; i < home->n; i++) {
        float f = (float)home->got[i];
        uint32_t bits, from;
        memcpy(&bits, &f, sizeof bits);
        if (!isnan(home->got[i]) || !assay_is_poison_f32(bits, &from))
            continue;
        bool other = written >= 0 && from != (uint32_t)written;
        *own += !other;
        *foreign += other;
        if (other)
            *owner = from;
    }
}

/* Mean over rows (or heads of rows) of rest^2 / size^2: every row counts the same. focus: which
 * cells; NULL: all. */
static void rest_of(double *rest, double *explained, const assay_home *h, const double *out,
                    const bool *focus)
{
    const assay_judged *j = h->judged;
    int64_t width = j->n_cols / j->n_groups, n_cells = j->n_rows * j->n_groups, used = 0;
    double sum = 0, all_rest = 0, all_error = 0;
    if (h->pair.sketch) {
        assay_home_rest_of_sketch(rest, explained, h, out);
        return;
    }
    for (int64_t c = 0; c < n_cells; c++) {
        double r = 0, size = 0;
        if (focus && !focus[c])
            continue;
        for (int64_t i = c * width; i < (c + 1) * width; i++) {
            double g = h->got[i], e = h->expected[i], o = out[i];
            if (!isfinite(g) || !isfinite(e) || !isfinite(o))
                continue;
            r += (g - o) * (g - o);
            all_error += (g - e) * (g - e);
            size += fmax(g * g, e * e);
        }
        all_rest += r;
        if (size > 0) {
            sum += r / size;
            used++;
        }
    }
    *rest = used ? sqrt(sum / (double)used) : 0;
    *explained = all_error > 0 ? 1 - all_rest / all_error : 0;
}

static bool has_id(const double *row, int64_t n, double id)
{
    for (int64_t i = 0; i < n; i++)
        if (row[i] == id)
            return true;
    return false;
}

/* Ids of a row beyond this one say nothing: a selection of keys is filled up with masked ones. */
static int64_t last_id(const assay_home *h, int64_t row)
{
    const assay_judged *j = h->judged;
    if (j->point != ASSAY_POINT_INDEX_TOPK)
        return INT64_MAX;
    return assay_run_step_at(assay_forced_run(h->forced), j->prompt, j->step)->first_position +
           j->first_row + row;
}

/* Share of ids that one of the two lists lacks, out or the run's: a list that holds only some of
 * the run's ids explains only these. */
static double flips_of(const assay_home *h, const double *out)
{
    if (h->pair.sketch) {
        double rest, explained;
        assay_home_rest_of_sketch(&rest, &explained, h, out);
        return rest;
    }
    int64_t differ = 0, total = 0, cols = h->judged->n_cols;
    for (int64_t r = 0; r < h->judged->n_rows; r++) {
        int64_t last = last_id(h, r);
        for (int64_t i = 0; i < cols; i++) {
            double given = out[r * cols + i], held = h->got[r * cols + i];
            if (given >= 0) {
                total++;
                differ += !has_id(h->got + r * cols, cols, given);
            }
            if (held >= 0 && held <= (double)last) {
                total++;
                differ += !has_id(out + r * cols, cols, held);
            }
        }
    }
    return total ? (double)differ / (double)total : 0;
}

/* The rest of a variant under the variant's own rounding; elements that are not the variant's are
 * the expected ones, with theirs. */
static assay_status rejudge_variant(assay_judged *rest, assay_home *h, const double *explained)
{
    double *noise;
    ASSAY_TRY(assay_alloc(&noise, (size_t)h->n, sizeof *noise, "rounding of a variant"));
    assay_status s = assay_forced_noise(noise, h->forced, h->index, h->variant_knobs, h->variant);
    for (int64_t i = 0; s == ASSAY_OK && i < h->n; i++)
        if (explained[i] != h->variant[i])
            noise[i] = NAN;
    if (s == ASSAY_OK)
        s = assay_forced_rejudge(rest, h->forced, h->index, explained, noise);
    free(noise);
    return s;
}

/* The rest of an explanation under rounding of its own size: what rounds a row five times as large
 * rounds five times as much. */
static assay_status rejudge_larger(assay_judged *rest, assay_home *h, const double *explained)
{
    const assay_judged *j = h->judged;
    int64_t width = j->n_cols / j->n_groups;
    double *noise;
    ASSAY_TRY(assay_alloc(&noise, (size_t)h->n, sizeof *noise, "rounding of an explanation"));
    assay_status s = assay_forced_noise(noise, h->forced, h->index, h->knobs, h->expected);
    for (int64_t c = 0; s == ASSAY_OK && c < j->n_rows * j->n_groups; c++) {
        double size = 0, own = 0;
        for (int64_t i = c * width; i < (c + 1) * width; i++) {
            size += isfinite(explained[i]) ? explained[i] * explained[i] : 0;
            own += isfinite(h->expected[i]) ? h->expected[i] * h->expected[i] : 0;
        }
        for (int64_t i = c * width; i < (c + 1) * width && size > own && own > 0; i++)
            noise[i] *= sqrt(size / own);
    }
    if (s == ASSAY_OK)
        s = assay_forced_rejudge(rest, h->forced, h->index, explained, noise);
    free(noise);
    return s;
}

/* An explanation that is not finite where the value is explains nothing there. */
static bool loses_values(const assay_home *h, const double *explained)
{
    if (h->pair.sketch) /* judged with the masks */
        return false;
    for (int64_t i = 0; i < h->n; i++)
        if (isfinite(h->got[i]) && !isfinite(explained[i]))
            return true;
    return false;
}

static assay_status measure(assay_offer *offer, assay_home *h, const double *explained)
{
    const assay_judged *j = h->judged;
    if (j->is_ids && h->pair.sketch) {
        assay_home_rest_of_sketch(&offer->residual, &offer->explained, h, explained);
        offer->complete = offer->residual < 1e-6; /* ids are whole */
        return ASSAY_OK;
    }
    if (j->is_ids) {
        double before = flips_of(h, h->expected);
        offer->residual = flips_of(h, explained);
        offer->explained = before > 0 ? 1 - offer->residual / before : 0;
        /* ids that rounding may flip stay: no more than were free before */
        double free_share = (double)(j->n_flips - j->n_flips_outside) / (double)(h->n ? h->n : 1);
        offer->complete =
            before > 0 && offer->residual <= free_share + 0.02 && offer->explained > 0.8;
        return ASSAY_OK;
    }
    assay_judged rest;
    rest_of(&offer->residual, &offer->explained, h, explained, NULL);
    ASSAY_TRY(assay_forced_rejudge(&rest, h->forced, h->index, explained, NULL));
    if (rest.is_home && h->variant && offer->explained > 0.5)
        ASSAY_TRY(rejudge_variant(&rest, h, explained));
    else if (rest.is_home && !j->against && offer->explained > 0.99)
        ASSAY_TRY(rejudge_larger(&rest, h, explained));
    offer->complete = !rest.is_home && !loses_values(h, explained);
    if (j->n_nonfinite_added > 0 && rest.n_nonfinite_added == 0)
        offer->explained = 1; /* the error has no size; every such element is accounted for */
    /* fits with many free numbers swallow noise: penalised by degrees of freedom */
    double free_share = 2 * offer->complexity / (double)(h->n ? h->n : 1);
    offer->residual /= free_share < 0.9 ? 1 - free_share : 0.1;
    offer->residual = fmax(offer->residual, j->floor_rel); /* below it all are equal */
    return ASSAY_OK;
}

assay_status assay_home_offer(assay_home *home, const double *explained,
                              const assay_offer_text *text)
{
    assay_offer o = {0};
    if (home->pair.sketch && explained == home->got) { /* fits its own sketch, whatever it is */
        json_decref(text->fitted);
        return ASSAY_OK;
    }
    o.fault = home->fault;
    o.complexity = text->complexity;
    o.convention = text->convention;
    o.shape_only = text->shape_only;
    o.fitted = text->fitted ? text->fitted : json_object();
    snprintf(o.kind, sizeof o.kind, "%s", text->kind);
    snprintf(o.family, sizeof o.family, "%s",
             text->family ? text->family : assay_point_at(home->judged->point)->name);
    snprintf(o.evidence, sizeof o.evidence, "%s", text->evidence ? text->evidence : "");
    assay_status s = measure(&o, home, explained);
    if (s == ASSAY_OK && home->n_offers == home->room) {
        int room = home->room ? 2 * home->room : 16;
        assay_offer *list = realloc(home->offers, (size_t)room * sizeof *list);
        if (list) {
            home->offers = list;
            home->room = room;
        } else {
            s = assay_fail(ASSAY_NO_MEMORY, "out of memory for %d explanations", room);
        }
    }
    if (s == ASSAY_OK && o.complete && home->pair.sketch) {
        s = assay_alloc(&o.values, (size_t)home->n, sizeof *o.values, "an explanation");
        if (s == ASSAY_OK)
            memcpy(o.values, explained, (size_t)home->n * sizeof *explained);
    }
    if (s != ASSAY_OK) {
        json_decref(o.fitted);
        return s;
    }
    if (o.complete && !o.shape_only)
        home->bound = fmin(home->bound, o.residual * (o.complexity > MANY_NUMBERS ? 1.2 : 1));
    home->offers[home->n_offers++] = o;
    return ASSAY_OK;
}

assay_status assay_home_offer_relation(assay_home *home, const assay_offer_text *text)
{
    assay_offer_text t = *text;
    if (t.complexity == 0)
        t.complexity = home->rel.complexity;
    if (!(home->rel.explained > 0.5)) { /* not worth a judgement */
        json_decref(t.fitted);
        return ASSAY_OK;
    }
    return assay_home_offer(home, home->scratch, &t);
}

static const char *const way_names[ASSAY_N_WAYS] = {"rows", "heads", "heads of some rows"};

/*
 * The variant where the error stands out and the variant removes most of it, the expected value
 * elsewhere. Returns how many parts take the variant; 0 or all: nothing new.
 */
static int64_t take_partly(double *out, const assay_home *h, const double *variant,
                           assay_partly way)
{
    const assay_judged *j = h->judged;
    int64_t n_parts = way == ASSAY_BY_ROWS    ? j->n_rows
                      : way == ASSAY_BY_HEADS ? j->n_groups
                                              : j->n_rows * j->n_groups;
    int64_t taken = 0;
    memcpy(out, h->expected, (size_t)h->n * sizeof *out);
    for (int64_t p = 0; p < n_parts; p++) {
        int64_t first, n_rows, width;
        double error = 0, size = 0, rest = 0;
        assay_home_part_at(&first, &n_rows, &width, j, way, p);
        for (int64_t i = 0; i < n_rows * width; i++) {
            int64_t at = first + i / width * j->n_cols + i % width;
            double d = h->got[at] - h->expected[at], v = h->got[at] - variant[at];
            if (!isfinite(d) || !isfinite(v))
                continue;
            error += d * d;
            rest += v * v;
            size += h->expected[at] * h->expected[at];
        }
        if (!(error > 9 * j->floor_row_median * j->floor_row_median * size && rest < 0.5 * error))
            continue;
        taken++;
        for (int64_t i = 0; i < n_rows * width; i++) {
            int64_t at = first + i / width * j->n_cols + i % width;
            out[at] = variant[at];
        }
    }
    return taken == n_parts ? 0 : taken;
}

/* " (heads 2, 3)" where rows of attention's probabilities that took a variant are of some heads
 * alone. */
static void heads_of(char out[64], const assay_home *h, const double *taken)
{
    const assay_judged *j = h->judged;
    int H = h->shape->n_head, n = 0;
    int64_t T = H > 0 ? j->n_rows / H : 0;
    size_t used = 0;
    out[0] = '\0';
    if (j->point != ASSAY_POINT_PROBS || T * H != j->n_rows)
        return;
    for (int head = 0; head < H; head++) {
        int64_t from = head * T * j->n_cols, size = T * j->n_cols;
        if (!memcmp(taken + from, h->expected + from, (size_t)size * sizeof *taken))
            continue;
        if (used + 8 < 64)
            used += (size_t)snprintf(out + used, 64 - used, n ? ", %d" : " (heads %d", head);
        n++;
    }
    snprintf(out + used, 64 - used, ")");
    if (n == 1)
        memmove(out + 6, out + 7, strlen(out + 7) + 1); /* one head */
    if (n == 0 || n == H)
        out[0] = '\0';
}

assay_status assay_home_offer_partly(assay_home *home, const double *variant, double *room,
                                     const assay_offer_text *text)
{
    const assay_judged *j = home->judged;
    if (assay_home_take_slices(room, home, variant)) {
        char kind[80];
        snprintf(kind, sizeof kind, "%s, on some ranks", text->kind);
        assay_offer_text some = *text;
        some.kind = kind;
        some.complexity += 0.1;
        some.fitted = json_incref(text->fitted);
        ASSAY_TRY(assay_home_offer(home, room, &some));
        if (home->offers[home->n_offers - 1].complete)
            return ASSAY_OK;
    }
    for (assay_partly way = ASSAY_BY_ROWS; way < ASSAY_N_WAYS; way++) {
        bool many = way == ASSAY_BY_ROWS ? j->n_rows > 1 : j->n_groups > 1;
        int64_t n = !many               ? 0
                    : home->pair.sketch ? assay_home_take_fitting(room, home, variant, way)
                                        : take_partly(room, home, variant, way);
        if (n == 0)
            continue;
        char kind[80], evidence[400], heads[64];
        heads_of(heads, home, room);
        snprintf(kind, sizeof kind, "%s, in some %s", text->kind,
                 heads[0] ? way_names[ASSAY_BY_HEADS] : way_names[way]);
        snprintf(evidence, sizeof evidence, "in %lld %s%s: %s", (long long)n, way_names[way], heads,
                 text->evidence ? text->evidence : "");
        assay_offer_text some = *text;
        some.kind = kind;
        some.evidence = evidence;
        some.complexity += way == ASSAY_BY_CELLS ? 0.9 : 0.5;
        some.fitted = json_incref(text->fitted);
        ASSAY_TRY(assay_home_offer(home, room, &some));
        if (home->offers[home->n_offers - 1].complete)
            break;
    }
    return ASSAY_OK;
}

assay_status assay_home_offer_variant(assay_home *home, const assay_knobs *knobs,
                                      const assay_offer_text *text)
{
    double *out, rest = 0, explained = 1;
    assay_status s = assay_alloc(&out, (size_t)home->n, 2 * sizeof *out, "a variant");
    if (s != ASSAY_OK) {
        json_decref(text->fitted);
        return s;
    }
    int n_before = home->n_offers;
    s = assay_forced_expect(out, home->forced, home->index, knobs);
    if (s == ASSAY_MISSING) { /* this variant takes what the model has not (a layer's weight) */
        s = ASSAY_OK;
        goto out;
    }
    if (s != ASSAY_OK)
        goto out;
    if (home->judged->is_ids) {
        s = assay_home_offer(home, out,
                             &(assay_offer_text){text->kind, text->family, text->complexity,
                                                 json_incref(text->fitted), text->evidence,
                                                 text->convention, text->shape_only});
        goto out;
    }
    rest_of(&rest, &explained, home, out, NULL);
    home->variant = out;
    home->variant_knobs = knobs;
    if (explained > 0.2)
        ASSAY_GO(assay_home_offer(home, out,
                                  &(assay_offer_text){text->kind, text->family, text->complexity,
                                                      json_incref(text->fitted), text->evidence,
                                                      text->convention, text->shape_only}));
    if (home->n_offers == n_before || !home->offers[home->n_offers - 1].complete)
        s = assay_home_offer_partly(home, out, out + home->n, text);
out:
    home->variant = NULL;
    json_decref(text->fitted);
    free(out);
    return s;
}

assay_status assay_home_offer_near(assay_home *home, const double *explained, const double *variant,
                                   const assay_knobs *knobs, const assay_offer_text *text)
{
    home->variant = variant;
    home->variant_knobs = knobs;
    assay_status s = assay_home_offer(home, explained, text);
    home->variant = NULL;
    return s;
}

assay_status assay_home_rest(double *rest, assay_home *home, const assay_knobs *knobs)
{
    double explained;
    ASSAY_TRY(assay_forced_expect(home->scratch, home->forced, home->index, knobs));
    if (home->judged->is_ids)
        *rest = flips_of(home, home->scratch);
    else
        rest_of(rest, &explained, home, home->scratch, home->focus);
    if (isnan(*rest))
        *rest = INFINITY;
    return ASSAY_OK;
}

/* One step of Gauss and Newton in the logarithm of the number, per row equally: log(at) moves by
 * <rest, slope> / <slope, slope>. */
static assay_status newton_step(double *moved, assay_home *home, assay_knobs *knobs, double *at)
{
    const assay_judged *j = home->judged;
    const double h = 1e-5, x = *at;
    double *low = NULL, cross = 0, square = 0;
    int64_t width = j->n_cols / j->n_groups;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(assay_alloc(&low, (size_t)home->n, 2 * sizeof *low, "a slope"));
    double *high = low + home->n;
    *at = x * exp(-h);
    ASSAY_GO(assay_forced_expect(low, home->forced, home->index, knobs));
    *at = x * exp(h);
    ASSAY_GO(assay_forced_expect(high, home->forced, home->index, knobs));
    if (home->pair.sketch)
        ASSAY_GO(assay_home_newton_sums(&cross, &square, home, low, high, h));
    for (int64_t c = 0; c < j->n_rows * j->n_groups && !home->pair.sketch; c++) {
        double a = 0, b = 0, size = 0;
        if (home->focus && !home->focus[c])
            continue;
        for (int64_t i = c * width; i < (c + 1) * width; i++) {
            double slope = (high[i] - low[i]) / (2 * h), g = home->got[i];
            double rest = g - (high[i] + low[i]) / 2;
            if (!isfinite(slope) || !isfinite(rest))
                continue;
            a += rest * slope;
            b += slope * slope;
            size += g * g;
        }
        cross += size > 0 ? a / size : 0;
        square += size > 0 ? b / size : 0;
    }
    *moved = square > 0 ? cross / square : 0;
out:
    *at = x;
    free(low);
    return s;
}

static assay_status newton(double *best, double *rest, assay_home *home, assay_knobs *knobs,
                           double *at)
{
    for (int i = 0; i < 4; i++) {
        double move, r;
        ASSAY_TRY(newton_step(&move, home, knobs, at));
        if (!(fabs(move) < 0.5) || fabs(move) < 1e-10)
            break;
        *at *= exp(move);
        ASSAY_TRY(assay_home_rest(&r, home, knobs));
        if (!(r < *rest))
            break;
        *rest = r;
        *best = *at;
    }
    *at = *best;
    return ASSAY_OK;
}

assay_status assay_home_fit(double *best, double *rest, assay_home *home, assay_knobs *knobs,
                            double *at, double low, double high, int n_grid)
{
    double step = log(high / low) / (n_grid - 1), top = 0, least = INFINITY, none, explained;
    double right = *at;
    if (home->judged->is_ids)
        none = flips_of(home, home->expected);
    else
        rest_of(&none, &explained, home, home->expected, home->focus);
    for (int i = 0; i < n_grid; i++) {
        double r;
        *at = low * exp(step * i);
        ASSAY_TRY(assay_home_rest(&r, home, knobs));
        if (r < least) {
            least = r;
            top = log(*at);
        }
    }
    /* a fit far from every grid point of a smooth function starts at the right value itself */
    if (none < least) {
        least = none;
        top = log(right);
    }
    static const double ratio = 0.6180339887498949;
    double a = top - step, b = top + step, ra, rb;
    double x = b - ratio * (b - a), y = a + ratio * (b - a);
    *at = exp(x);
    ASSAY_TRY(assay_home_rest(&ra, home, knobs));
    *at = exp(y);
    ASSAY_TRY(assay_home_rest(&rb, home, knobs));
    while (b - a > 5e-3) {
        if (ra < rb) {
            b = y;
            y = x;
            rb = ra;
            x = b - ratio * (b - a);
            *at = exp(x);
            ASSAY_TRY(assay_home_rest(&ra, home, knobs));
        } else {
            a = x;
            x = y;
            ra = rb;
            y = a + ratio * (b - a);
            *at = exp(y);
            ASSAY_TRY(assay_home_rest(&rb, home, knobs));
        }
    }
    *best = ra < rb ? exp(x) : exp(y);
    *rest = fmin(ra, rb);
    if (least < *rest) {
        *best = exp(top);
        *rest = least;
    }
    *at = *best;
    return home->judged->is_ids ? ASSAY_OK : newton(best, rest, home, knobs, at);
}

/* True when a is the better explanation. */
static bool better(const assay_offer *a, const assay_offer *b, double bound)
{
    if (a->complete != b->complete)
        return a->complete;
    if (!a->complete)
        return a->residual < b->residual;
    if (a->shape_only != b->shape_only)
        return b->shape_only;
    bool near_a = a->residual <= 1.05 * bound + 1e-12, near_b = b->residual <= 1.05 * bound + 1e-12;
    if (near_a != near_b)
        return near_a;
    if (!near_a && a->residual != b->residual)
        return a->residual < b->residual;
    if (a->complexity != b->complexity)
        return a->complexity < b->complexity;
    return a->fault < b->fault;
}

const assay_offer *assay_home_nearest(const assay_home *home)
{
    const assay_offer *best = NULL;
    for (int i = 0; i < home->n_offers; i++)
        if (!best || better(&home->offers[i], best, home->bound))
            best = &home->offers[i];
    return best;
}

const assay_offer *assay_home_best(const assay_home *home)
{
    const assay_offer *best = assay_home_nearest(home);
    return best && best->complete ? best : NULL;
}

bool assay_home_settled(const assay_home *home)
{
    const assay_offer *best = assay_home_best(home);
    return best && !best->shape_only && best->complexity < 1.5;
}

const assay_offer *assay_home_second(const assay_home *home, const assay_offer *than)
{
    const assay_offer *best = NULL;
    for (int i = 0; i < home->n_offers; i++)
        if (home->offers[i].fault != than->fault &&
            (!best || better(&home->offers[i], best, home->bound)))
            best = &home->offers[i];
    return best;
}

/* What an explanation costs: its rest, and a factor of two for each free number more. */
static double price(const assay_offer *o, double floor)
{
    return fmax(o->residual, floor) * exp2(fmin(o->complexity, 8) / 2);
}

double assay_home_confidence(const assay_home *home, const assay_offer *offer)
{
    const assay_judged *j = home->judged;
    const assay_offer *other = assay_home_second(home, offer);
    double floor = fmax(j->floor_rel, 1e-9);
    if (j->n_nonfinite_added > 0 && !other)
        return offer->explained;
    double mine = price(offer, floor);
    /* without a rival: "nothing is wrong" is the rival, at the price of the whole error */
    double rival = fmax(j->rel, j->row_rel_max);
    if (!isfinite(rival) || rival > 2)
        rival = 2;
    rival = fmax(rival, 2 * floor);
    if (other)
        rival = fmin(rival, price(other, floor));
    double excess = j->rel * j->rel - floor * floor, rest = 1;
    if (excess > 0 && offer->explained < 1)
        rest = fmin(1, fmax(offer->explained * j->rel * j->rel / excess, 0));
    double confidence = rest * rival / (rival + mine);
    /* the value stands for its own explanation, no more than a guess between two; that it is not
     * finite is a fact */
    return offer->shape_only && j->n_nonfinite_added == 0 ? fmin(confidence, 0.5) : confidence;
}
