/*
 * EXPERT-MAP: ids and weights right, the expert that is computed another one: shifted, local for
 * global, or a single wrong one.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_expert_map[] = {
    {.name = "expert-shift",
     .about = "the expert computed is the next one",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_EXPERT_SHIFT,
     .value = 1,
     .needs = ASSAY_NEEDS_MOE,
     .home = "moe.expert.gate moe.routed"},
    {.name = "expert-wrong",
     .about = "row 2 computes expert 5 for its first choice",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_EXPERT_WRONG,
     .value = 1,
     .n_ints = 3,
     .ints = {2, 0, 5},
     .needs = ASSAY_NEEDS_MOE,
     .home = "moe.expert.gate moe.routed"},
    {.name = "expert-dropped",
     .about = "one expert gives zero",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_EXPERT_DROPPED,
     .value = 1,
     .n_ints = 1,
     .ints = {1},
     .needs = ASSAY_NEEDS_MOE,
     .home = "moe.expert.down moe.routed moe.expert.gate"},
    {.name = "expert-offset",
     .about = "a rank takes the experts value ids behind its own (whole experts per rank)",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_RANK_EXPERT_OFFSET,
     .value = 2,
     .needs = ASSAY_NEEDS_MOE,
     .ranks = true,
     .home = "moe.out"},
    {0}};

static assay_status try_maps(assay_home *home)
{
    int n = home->shape->n_expert;
    char text[320];
    for (int shift = 1; shift < n; shift++) {
        if (n > 16 && shift > 2 && shift != n - 1 && n % shift)
            continue;
        assay_knobs knobs = *home->knobs;
        knobs.expert_shift = shift;
        snprintf(text, sizeof text, "expert (id + %d) mod %d computed for id gives the value",
                 shift, n);
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){.kind = "expert ids shifted",
                                .family = "experts",
                                .complexity = 0.3,
                                .fitted = json_pack("{s:i}", "shift", shift),
                                .evidence = text}));
    }
    for (int part = 2; part <= 8 && n % part == 0; part *= 2) {
        assay_knobs knobs = *home->knobs;
        knobs.expert_modulo = n / part;
        snprintf(text, sizeof text, "expert id mod %d (a local id) computed gives the value",
                 n / part);
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){.kind = "local ids for global ones",
                                .family = "experts",
                                .complexity = 0.3,
                                .fitted = json_pack("{s:i}", "modulo", n / part),
                                .evidence = text}));
    }
    return ASSAY_OK;
}

/*
 * Every shift s of the ids gives, row by row, the experts (e + s) mod E at all places. A row in
 * which one place alone is wrong is the expected row minus that place's part plus another expert's;
 * the parts come from the oracle's own expert outputs.
 */
static assay_status try_single(assay_home *home)
{
    const assay_judged *j = home->judged;
    int E = home->shape->n_expert, U = home->shape->n_expert_used;
    double *ids = NULL, *weights = NULL, *down = NULL, *out = NULL;
    int64_t n, D = j->n_cols;
    assay_status s = ASSAY_OK;
    int n_wrong = 0, first_row = -1, first_place = 0, first_expert = 0;
    char text[320];
    /* expert outputs of all shifts: [E][rows, U, D] */
    if (assay_home_value(&ids, &n, home, ASSAY_POINT_MOE_TOPK, j->layer) != ASSAY_OK)
        return ASSAY_OK;
    ASSAY_GO(assay_home_value(&weights, &n, home, ASSAY_POINT_MOE_WEIGHTS, j->layer));
    ASSAY_GO(assay_alloc(&down, (size_t)(j->n_rows * U * D), (size_t)E * sizeof *down,
                         "outputs of experts"));
    ASSAY_GO(assay_alloc(&out, (size_t)home->n, sizeof *out, "a value"));
    for (int shift = 0; shift < E; shift++) {
        assay_knobs knobs = *home->knobs;
        knobs.expert_shift = shift;
        ASSAY_GO(assay_home_expert_outputs(down + shift * j->n_rows * U * D, home, &knobs));
    }
    memcpy(out, home->expected, (size_t)home->n * sizeof *out);
    for (int64_t r = 0; r < j->n_rows; r++) {
        double before = 0, size = 0, best = INFINITY;
        int best_place = -1, best_shift = 0;
        for (int64_t d = 0; d < D; d++) {
            double e = home->got[r * D + d] - home->expected[r * D + d];
            before += e * e;
            size += home->expected[r * D + d] * home->expected[r * D + d];
        }
        if (!(before > 25 * j->floor_row_median * j->floor_row_median * size))
            continue;
        for (int place = 0; place < U; place++)
            for (int shift = 1; shift < E; shift++) {
                const double *right = down + (r * U + place) * D;
                const double *other = down + ((int64_t)shift * j->n_rows * U + r * U + place) * D;
                double rest = 0, w = weights[r * U + place];
                for (int64_t d = 0; d < D; d++) {
                    double e = home->got[r * D + d] - home->expected[r * D + d] -
                               w * (other[d] - right[d]);
                    rest += e * e;
                }
                if (rest < best) {
                    best = rest;
                    best_place = place;
                    best_shift = shift;
                }
            }
        if (!(best < 0.5 * before))
            continue;
        const double *right = down + (r * U + best_place) * D;
        const double *other = down + ((int64_t)best_shift * j->n_rows * U + r * U + best_place) * D;
        for (int64_t d = 0; d < D; d++)
            out[r * D + d] += weights[r * U + best_place] * (other[d] - right[d]);
        if (n_wrong++ == 0) {
            first_row = (int)r;
            first_place = best_place;
            first_expert = ((int)assay_index_of(ids[r * U + best_place], E) + best_shift) % E;
        }
    }
    if (n_wrong > 0) {
        snprintf(
            text, sizeof text,
            "%d row(s) have one wrong expert; first: row %d place %d, expert %d was chosen and "
            "%d computed",
            n_wrong, first_row, first_place,
            (int)assay_index_of(ids[first_row * U + first_place], E), first_expert);
        s = assay_home_offer(
            home, out,
            &(assay_offer_text){.kind = "another expert computed",
                                .family = "experts",
                                .complexity = 1 + 0.6 * n_wrong,
                                .fitted = json_pack("{s:i, s:i, s:i}", "row", first_row, "place",
                                                    first_place, "expert", first_expert),
                                .evidence = text});
    }
out:
    free(ids);
    free(weights);
    free(down);
    free(out);
    return s;
}

#define MOST_PLACES 6

/* Places of a row whose parts are missing from the sum, as a mask: the subset that leaves least. */
static int lost_places(double *left, const double *error, const double *parts, int U, int64_t D)
{
    int best = 0;
    *left = INFINITY;
    for (int mask = 0; mask < 1 << U; mask++) {
        double rest = 0;
        for (int64_t d = 0; d < D; d++) {
            double e = error[d];
            for (int u = 0; u < U; u++)
                e += mask >> u & 1 ? parts[u * D + d] : 0;
            rest += e * e;
        }
        if (rest < *left) {
            *left = rest;
            best = mask;
        }
    }
    return best;
}

/* Some tokens without some of their experts, whichever they are: what a limit on tokens per expert
 * drops. */
static assay_status try_lost(assay_home *home)
{
    const assay_judged *j = home->judged;
    int U = home->shape->n_expert_used, n_rows = 0, n_parts = 0;
    int64_t n, D = j->n_cols, first = -1;
    double *weights = NULL, *down = NULL, left;
    char text[320];
    assay_status s;
    if (U > MOST_PLACES ||
        assay_home_value(&weights, &n, home, ASSAY_POINT_MOE_WEIGHTS, j->layer) != ASSAY_OK)
        return ASSAY_OK;
    ASSAY_GO(assay_alloc(&down, (size_t)(j->n_rows * U * D + D), sizeof *down, "experts"));
    ASSAY_GO(assay_home_expert_outputs(down, home, home->knobs));
    for (int64_t p = 0; p < j->n_rows * U; p++)
        for (int64_t d = 0; d < D; d++)
            down[p * D + d] *= weights[p];
    for (int64_t r = 0; r < j->n_rows; r++) {
        double *error = down + j->n_rows * U * D, *out = home->scratch + r * D;
        for (int64_t d = 0; d < D; d++)
            error[d] = home->got[r * D + d] - home->expected[r * D + d];
        int mask = lost_places(&left, error, down + r * U * D, U, D);
        memcpy(out, home->expected + r * D, (size_t)D * sizeof *out);
        for (int u = 0; u < U; u++) {
            n_parts += mask >> u & 1;
            for (int64_t d = 0; d < D && mask >> u & 1; d++)
                out[d] -= down[(r * U + u) * D + d];
        }
        first = mask && n_rows++ == 0 ? r : first;
    }
    snprintf(
        text, sizeof text,
        "%d parts of chosen experts are missing from the sums of %d of %lld tokens, token %lld "
        "the first; all else is right",
        n_parts, n_rows, (long long)j->n_rows, (long long)first);
    if (n_rows > 0)
        s = assay_home_offer(
            home, home->scratch,
            &(assay_offer_text){.kind = "experts lost for some tokens",
                                .family = "experts",
                                .complexity = 1 + 0.1 * n_parts,
                                .fitted = json_pack("{s:i, s:i, s:I}", "tokens", n_rows, "parts",
                                                    n_parts, "first", (json_int_t)first),
                                .evidence = text});
out:
    free(weights);
    free(down);
    return s;
}

/* One expert gives zero wherever it is chosen. At the places of experts, its places are zero; in
 * the sum, its parts are missing. */
static assay_status try_dropped(assay_home *home)
{
    const assay_judged *j = home->judged;
    int E = home->shape->n_expert, U = home->shape->n_expert_used;
    bool sum = assay_home_is(home, ASSAY_POINT_MOE_ROUTED);
    int64_t n, width = sum ? j->n_cols : j->n_cols / U;
    double *ids = NULL, *weights = NULL, *down = NULL;
    char text[320];
    assay_status s = ASSAY_OK;
    if (assay_home_value(&ids, &n, home, ASSAY_POINT_MOE_TOPK, j->layer) != ASSAY_OK)
        return ASSAY_OK;
    if (sum) {
        ASSAY_GO(assay_home_value(&weights, &n, home, ASSAY_POINT_MOE_WEIGHTS, j->layer));
        ASSAY_GO(assay_alloc(&down, (size_t)(j->n_rows * U * width), sizeof *down, "experts"));
        ASSAY_GO(assay_home_expert_outputs(down, home, home->knobs));
    }
    for (int e = 0; e < E; e++) {
        int places = 0;
        memcpy(home->scratch, home->expected, (size_t)home->n * sizeof *home->scratch);
        for (int64_t p = 0; p < j->n_rows * U; p++) {
            if (assay_index_of(ids[p], E) != e)
                continue;
            places++;
            for (int64_t i = 0; i < width; i++)
                if (sum)
                    home->scratch[p / U * width + i] -= weights[p] * down[p * width + i];
                else
                    home->scratch[p * width + i] = 0;
        }
        if (places == 0)
            continue;
        assay_relation_score(&home->rel, home->scratch, &home->pair);
        snprintf(text, sizeof text, "expert %d gives zero at all its %d places", e, places);
        ASSAY_GO(assay_home_offer_relation(
            home, &(assay_offer_text){.kind = "one expert gives nothing",
                                      .family = "experts",
                                      .complexity = 0.4,
                                      .fitted = json_pack("{s:i}", "expert", e),
                                      .evidence = text}));
    }
out:
    free(ids);
    free(weights);
    free(down);
    return s;
}

#define MOST_EXPERTS 64 /* the least squares take as many parts */

/* What each expert adds at its places, [E][rows, D], and behind them what is no expert's. Experts
 * that no row chose are left out: which[i] is the expert of part i, -1 the rest. */
static assay_status expert_parts(double *room, const double **parts, int *which, int *n,
                                 assay_home *home)
{
    const assay_judged *j = home->judged;
    int E = home->shape->n_expert, U = home->shape->n_expert_used;
    double *ids = NULL, *weights = NULL, *down = NULL, *rest = room + (int64_t)E * home->n;
    int64_t count, D = j->n_cols;
    bool used[MOST_EXPERTS] = {false};
    assay_status s;
    *n = 0;
    ASSAY_GO(assay_home_value(&ids, &count, home, ASSAY_POINT_MOE_TOPK, j->layer));
    ASSAY_GO(assay_home_value(&weights, &count, home, ASSAY_POINT_MOE_WEIGHTS, j->layer));
    ASSAY_GO(assay_alloc(&down, (size_t)(j->n_rows * U * D), sizeof *down, "experts"));
    ASSAY_GO(assay_home_expert_outputs(down, home, home->knobs));
    memcpy(rest, home->expected, (size_t)home->n * sizeof *rest);
    for (int64_t p = 0; p < j->n_rows * U; p++) {
        int64_t e = assay_index_of(ids[p], E);
        if (e < 0)
            continue; /* no expert of this model */
        used[e] = true;
        for (int64_t d = 0; d < D; d++) {
            room[e * home->n + p / U * D + d] += weights[p] * down[p * D + d];
            rest[p / U * D + d] -= weights[p] * down[p * D + d];
        }
    }
    for (int e = 0; e < E; e++)
        if (used[e]) {
            which[*n] = e;
            parts[(*n)++] = room + e * home->n;
        }
    which[*n] = -1;
    parts[(*n)++] = rest;
out:
    free(ids);
    free(weights);
    free(down);
    return s;
}

static assay_status offer_counts(assay_home *home, const int *which, int n, int n_ranks)
{
    int E = home->shape->n_expert, missing = 0, twice = 0;
    char text[320];
    json_t *absent = json_array(), *more = json_array(), *ranks = json_array();
    int last = -1;
    for (int i = 0; i < n; i++) {
        if (which[i] < 0)
            continue;
        if (fabs(home->rel.count[i]) < 0.02) {
            missing++;
            json_array_append_new(absent, json_integer(which[i]));
            if (which[i] * n_ranks / E != last)
                json_array_append_new(ranks, json_integer(last = which[i] * n_ranks / E));
        } else if (fabs(home->rel.count[i] - 2) < 0.02) {
            twice++;
            json_array_append_new(more, json_integer(which[i]));
        }
    }
    json_t *fitted = json_pack("{s:o, s:o, s:o}", "missing", absent, "twice", more, "ranks", ranks);
    snprintf(text, sizeof text,
             "%d experts of a rank's own are computed by no rank, %d by two: take id - first id of "
             "the rank once",
             missing, twice);
    if (missing == 0) {
        json_decref(fitted);
        return ASSAY_OK;
    }
    return assay_home_offer_relation(home, &(assay_offer_text){.kind = "a rank's experts offset",
                                                               .family = "experts of ranks",
                                                               .complexity = 0.4,
                                                               .fitted = fitted,
                                                               .evidence = text});
}

/* Ranks that hold whole experts: one that takes others than its own leaves some out of the sum. */
static assay_status try_offset(assay_home *home)
{
    int E = home->shape->n_expert, n, which[MOST_EXPERTS + 1];
    int n_ranks = assay_run_about(assay_forced_run(home->forced))->n_ranks;
    const double *parts[MOST_EXPERTS + 1];
    double *room;
    if (n_ranks < 2 || E % n_ranks || E >= MOST_EXPERTS)
        return ASSAY_OK;
    ASSAY_TRY(
        assay_alloc(&room, (size_t)(E + 1) * (size_t)home->n, sizeof *room, "parts of experts"));
    assay_status s = expert_parts(room, parts, which, &n, home);
    if (s == ASSAY_OK && n > 1) {
        assay_relation_components(&home->rel, home->scratch, &home->pair, parts, n);
        s = offer_counts(home, which, n, n_ranks);
    }
    free(room);
    return s == ASSAY_MISSING ? ASSAY_OK : s;
}

assay_status assay_fault_match_expert_map(assay_home *home)
{
    const assay_judged *j = home->judged;
    if (j->against || j->is_ids || home->shape->n_expert == 0 || j->n_nonfinite_added > 0)
        return ASSAY_OK;
    if (assay_home_is(home, ASSAY_POINT_MOE_OUT))
        ASSAY_TRY(try_offset(home));
    if (!assay_home_covers(home, ASSAY_POINT_MOE_EXPERT_GATE) &&
        !assay_home_covers(home, ASSAY_POINT_MOE_EXPERT_UP) &&
        !assay_home_covers(home, ASSAY_POINT_MOE_EXPERT_DOWN))
        return ASSAY_OK;
    ASSAY_TRY(try_maps(home));
    if (assay_home_is(home, ASSAY_POINT_MOE_ROUTED) ||
        assay_home_is(home, ASSAY_POINT_MOE_EXPERT_DOWN))
        ASSAY_TRY(try_dropped(home));
    if (assay_home_settled(home) || !assay_home_is(home, ASSAY_POINT_MOE_ROUTED))
        return ASSAY_OK;
    ASSAY_TRY(try_lost(home));
    if (!assay_home_best(home))
        return try_single(home);
    return ASSAY_OK;
}
