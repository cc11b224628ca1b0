#include "reports/home_ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Share of the axis's own size that is no match of a slice. */
#define SAME_SLICE 1e-2
/* A bias alone, in float32. */
#define SAME_LOST 1e-6
/* A wrong slice stands out by this much of the worst one. */
#define WRONG_SHARE 0.02

static const assay_seen *part_of(const assay_home *home, int rank)
{
    const assay_judged *j = home->judged;
    return assay_run_find_part(assay_forced_run(home->forced), j->prompt, j->step, j->point,
                               j->layer, rank, j->seen->hand_over);
}

static int64_t count_of(const assay_seen *seen)
{
    int64_t n = assay_seen_count(seen);
    return n;
}

int assay_home_n_ranks(const assay_home *home)
{
    int n = assay_run_about(assay_forced_run(home->forced))->n_ranks;
    return n > ASSAY_HOME_RANKS || !home->judged->seen || home->judged->against ? 0 : n;
}

int assay_home_slice_at(int64_t *at, const assay_home_slices *slices, int64_t c)
{
    int rank = 0;
    *at = c / slices->inner % slices->size;
    while (rank + 1 < slices->n && *at >= slices->first[rank + 1])
        rank++;
    return rank;
}

static void find_bad(assay_home_slices *s, const assay_home *home)
{
    double error[ASSAY_HOME_RANKS] = {0}, size[ASSAY_HOME_RANKS] = {0}, worst = 0;
    bool is_odd[ASSAY_HOME_RANKS] = {false}; /* not finite, and should be */
    int64_t cols = home->pair.cols, at;
    for (int64_t c = 0; c < cols; c++) {
        int r = assay_home_slice_at(&at, s, c);
        for (int64_t t = 0; t < home->pair.rows; t++) {
            double x = home->got[t * cols + c], y = home->expected[t * cols + c], e = x - y;
            is_odd[r] = is_odd[r] || (!isfinite(x) && isfinite(y));
            error[r] += isfinite(e) ? e * e : 0;
            size[r] += y * y;
        }
    }
    for (int r = 0; r < s->n; r++) {
        error[r] = size[r] > 0 ? sqrt(error[r] / size[r]) : error[r] > 0;
        worst = fmax(worst, error[r]);
    }
    for (int r = 0; r < s->n; r++) {
        s->bad[r] =
            is_odd[r] || (error[r] > WRONG_SHARE * worst && error[r] > 5 * home->judged->floor_rel);
        s->n_bad += s->bad[r];
    }
}

/* How many neighbours hold the same slice: as often as the ranks' parts cover the axis. */
static int copies_of(const assay_home *home, int axis, int64_t size, int n_ranks)
{
    int64_t all = 0;
    for (int r = 0; r < n_ranks; r++) {
        const assay_seen *part = part_of(home, r);
        all += part ? part->dims[axis] : 0;
    }
    bool even = all > 0 && all % size == 0 && n_ranks % (all / size) == 0;
    return even ? (int)(all / size) : 1;
}

/* Whether a rank's copy of slice k is the one that is judged. */
static bool is_judged_copy(const assay_home *home, const assay_home_slices *s, int k, int rank)
{
    const assay_seen *part = part_of(home, rank);
    int64_t width = (s->first[k + 1] - s->first[k]) * s->inner, rows = home->pair.rows;
    bool same = part && part->has_values && count_of(part) == rows * width;
    double *x = NULL;
    if (!same || assay_alloc(&x, (size_t)(rows * width), sizeof *x, "a copy") != ASSAY_OK)
        return false;
    same = assay_run_read(x, assay_forced_run(home->forced), part) == ASSAY_OK;
    for (int64_t t = 0; t < rows && same; t++)
        same = memcmp(x + t * width, home->got + t * home->pair.cols + s->first[k] * s->inner,
                      (size_t)width * sizeof *x) == 0;
    free(x);
    return same;
}

/* Ranks of the bad slices. */
static void add_ranks(assay_home_slices *s, const assay_home *home)
{
    for (int k = 0; k < s->n; k++)
        for (int rank = k * s->n_copies; rank < (k + 1) * s->n_copies && s->bad[k]; rank++)
            if (s->n_copies == 1 || is_judged_copy(home, s, k, rank))
                s->ranks[s->n_ranks++] = rank;
}

/* The first rank that has the bad slice k. */
static int rank_of(const assay_home_slices *s, int k)
{
    for (int i = 0; i < s->n_ranks; i++)
        if (s->ranks[i] / s->n_copies == k)
            return s->ranks[i];
    return k * s->n_copies;
}

bool assay_home_slices_of(assay_home_slices *out, const assay_home *home)
{
    const assay_seen *whole = home->judged->seen, *part = NULL;
    assay_home_slices s = {.n = assay_home_n_ranks(home)};
    int axis = -1;
    int64_t cols = 1;
    if (s.n < 2 || home->judged->is_ids || !(part = part_of(home, 0)) ||
        part->n_dims != whole->n_dims)
        return false;
    for (int d = 0; d < whole->n_dims; d++) {
        if (part->dims[d] != whole->dims[d] && axis >= 0)
            return false;
        axis = part->dims[d] != whole->dims[d] ? d : axis;
        cols *= d > 0 ? whole->dims[d] : 1;
    }
    if (axis < 1 || cols != home->pair.cols)
        return false;
    s.size = whole->dims[axis];
    s.inner = 1;
    for (int d = axis + 1; d < whole->n_dims; d++)
        s.inner *= whole->dims[d];
    int n_ranks = s.n;
    s.n_copies = copies_of(home, axis, s.size, n_ranks);
    s.n = n_ranks / s.n_copies;
    for (int r = 0; r < s.n; r++) {
        if (!(part = part_of(home, r * s.n_copies)))
            return false;
        s.first[r + 1] = s.first[r] + part->dims[axis];
    }
    if (s.first[s.n] != s.size)
        return false;
    if (axis == 1 && s.inner > 1) { /* heads and what is in them: rows of the weight */
        for (int r = 0; r <= s.n; r++)
            s.first[r] *= s.inner;
        s.size *= s.inner;
        s.inner = 1;
    }
    find_bad(&s, home);
    add_ranks(&s, home);
    *out = s;
    return true;
}

json_t *assay_home_slices_json(const assay_home_slices *slices)
{
    json_t *ranks = json_array();
    for (int i = 0; i < slices->n_ranks; i++)
        json_array_append_new(ranks, json_integer(slices->ranks[i]));
    return json_pack("{s:o}", "ranks", ranks);
}

bool assay_home_take_slices(double *out, const assay_home *home, const double *variant)
{
    assay_home_slices s;
    int64_t at;
    if (!assay_home_slices_of(&s, home) || s.n_bad == 0 || s.n_bad == s.n)
        return false;
    for (int64_t i = 0; i < home->n; i++)
        out[i] = s.bad[assay_home_slice_at(&at, &s, i % home->pair.cols)] ? variant[i]
                                                                          : home->expected[i];
    return true;
}

/* |x - expected| / |expected| of a rank's copy or its addend. */
static double distance(const double *x, const double *y, int64_t n)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        error += (x[i] - y[i]) * (x[i] - y[i]);
        size += y[i] * y[i];
    }
    return size > 0 ? sqrt(error / size) : error > 0;
}

assay_status assay_home_bad_ranks(assay_numbers *out, assay_home *home)
{
    assay_home_slices slices;
    assay_run *run = assay_forced_run(home->forced);
    int n = assay_home_n_ranks(home);
    double *copy;
    if (n < 2)
        return ASSAY_OK;
    if (assay_home_slices_of(&slices, home)) {
        for (int i = 0; i < slices.n_ranks; i++)
            ASSAY_TRY(assay_numbers_add(out, slices.ranks[i]));
        return ASSAY_OK;
    }
    ASSAY_TRY(assay_alloc(&copy, (size_t)home->n, sizeof *copy, "a rank's copy"));
    assay_status s = ASSAY_OK;
    for (int r = 0; r < n && s == ASSAY_OK; r++) {
        const assay_seen *part = part_of(home, r);
        if (!part || !part->has_values || count_of(part) != home->n)
            continue;
        s = assay_run_read(copy, run, part);
        if (s == ASSAY_OK && home->judged->is_ids) { /* the ids that are judged, or others */
            if (memcmp(copy, home->got, (size_t)home->n * sizeof *copy) == 0)
                s = assay_numbers_add(out, r);
            continue;
        }
        if (s == ASSAY_OK && !(distance(copy, home->expected, home->n) <
                               fmax(5 * home->judged->floor_rel, WRONG_SHARE * home->judged->rel)))
            s = assay_numbers_add(out, r);
    }
    free(copy);
    return s;
}

/* What position `at` of the axis holds when its row of the weight was not loaded. */
static double lost_at(const assay_home_slices *s, int64_t at)
{
    return s->lost && s->inner == 1 ? s->lost[at] : 0;
}

static assay_status find_lost(double **out, const assay_home *home, const assay_home_slices *s)
{
    static const struct {
        assay_point point;
        const char *bias;
    } biased[] = {{ASSAY_POINT_Q, "attn_q.bias"},
                  {ASSAY_POINT_K, "attn_k.bias"},
                  {ASSAY_POINT_V, "attn_v.bias"},
                  {ASSAY_POINT_FFN_GATE, "ffn_gate.bias"},
                  {ASSAY_POINT_FFN_UP, "ffn_up.bias"}};
    const double *b;
    int64_t dims[4];
    char name[64];
    *out = NULL;
    for (size_t i = 0; i < sizeof biased / sizeof *biased; i++) {
        if (!assay_home_is(home, biased[i].point))
            continue;
        snprintf(name, sizeof name, "blk.%d.%s", home->judged->layer, biased[i].bias);
        assay_status status =
            assay_oracle_weight(&b, dims, assay_forced_oracle(home->forced), name);
        if (status != ASSAY_OK || dims[3] != s->size)
            return status == ASSAY_MISSING ? ASSAY_OK : status;
        ASSAY_TRY(assay_alloc(out, (size_t)s->size, sizeof **out, "a bias"));
        memcpy(*out, b, (size_t)s->size * sizeof **out);
    }
    return ASSAY_OK;
}

/* Rest of rank r's slice when it is the stretch of `source` that begins at `from`; relative to the
 * slice. Positions at or behind `end` of the slice are zero. */
static double slice_rest(const assay_home *home, const assay_home_slices *s, int r,
                         const double *source, int64_t from, int64_t end)
{
    int64_t width = s->first[r + 1] - s->first[r], cols = home->pair.cols;
    int64_t outer = cols / (s->size * s->inner);
    double error = 0, size = 0;
    for (int64_t t = 0; t < home->pair.rows * outer; t++)
        for (int64_t i = 0; i < width * s->inner; i++) {
            int64_t base = t * s->size * s->inner;
            double got = home->got[base + s->first[r] * s->inner + i];
            double e = got - (i < end * s->inner ? source[base + from * s->inner + i]
                                                 : lost_at(s, s->first[r] + i / s->inner));
            error += e * e;
            size += got * got;
        }
    return size > 0 ? sqrt(error / size) : INFINITY;
}

static void put_slice(double *out, const assay_home *home, const assay_home_slices *s, int r,
                      const double *source, int64_t from, int64_t end)
{
    int64_t width = s->first[r + 1] - s->first[r];
    int64_t outer = home->pair.cols / (s->size * s->inner);
    for (int64_t t = 0; t < home->pair.rows * outer; t++)
        for (int64_t i = 0; i < width * s->inner; i++) {
            int64_t base = t * s->size * s->inner;
            out[base + s->first[r] * s->inner + i] = i < end * s->inner
                                                         ? source[base + from * s->inner + i]
                                                         : lost_at(s, s->first[r] + i / s->inner);
        }
}

typedef struct stretch { /* what a wrong slice is */
    int64_t from, end;
    int rank; /* it begins where this rank's begins; -1: none */
    double rest;
} stretch;

/* Positions of the slice before its all-zero end. */
static int64_t live_end(const assay_home *home, const assay_home_slices *s, int r)
{
    int64_t width = s->first[r + 1] - s->first[r], cols = home->pair.cols, at;
    int64_t end = 0;
    for (int64_t c = 0; c < cols; c++)
        if (assay_home_slice_at(&at, s, c) == r && at - s->first[r] >= end)
            for (int64_t t = 0; t < home->pair.rows; t++)
                if (fabs(home->got[t * cols + c] - lost_at(s, at)) >
                    SAME_LOST * fabs(lost_at(s, at))) {
                    end = at - s->first[r] + 1;
                    break;
                }
    return end < width ? end : width;
}

/* Every start along the axis is tried where that is cheap; else borders and steps of powers of 2.
 */
static stretch find_stretch(const assay_home *home, const assay_home_slices *s, int r)
{
    int64_t width = s->first[r + 1] - s->first[r], end = live_end(home, s, r);
    stretch best = {s->first[r], width, -1, INFINITY};
    bool all = s->size * home->n / s->n < (int64_t)1 << 24;
    for (int64_t from = 0; from + width <= s->size; from++) {
        int64_t by = llabs(from - s->first[r]);
        int rank = -1;
        for (int k = 0; k < s->n; k++)
            rank = s->first[k] == from ? k : rank;
        if (!all && rank < 0 && (by & (by - 1)) && by % (width / 2 > 0 ? width / 2 : 1))
            continue;
        double rest = slice_rest(home, s, r, home->expected, from, width);
        if (rest < best.rest)
            best = (stretch){from, width, rank, rest};
    }
    double rest = slice_rest(home, s, r, home->expected, s->first[r], end);
    if (end < width && rest < best.rest)
        best = (stretch){s->first[r], end, r, rest};
    return best;
}

static void say_stretch(char *text, size_t room, const assay_home_slices *s, int r,
                        const stretch *of)
{
    int64_t width = s->first[r + 1] - s->first[r], by = of->from - s->first[r];
    int rank = rank_of(s, r);
    if (of->end < width)
        snprintf(text, room,
                 "the last %lld of rank %d's %lld positions were not loaded: load all of them",
                 (long long)(width - of->end), rank, (long long)width);
    else if (of->rank >= 0)
        snprintf(text, room, "rank %d holds rank %d's slice: it begins at %lld and should at %lld",
                 rank, of->rank * s->n_copies, (long long)of->from, (long long)s->first[r]);
    else
        snprintf(text, room, "rank %d's slice begins %lld too %s: at %lld, and should at %lld",
                 rank, (long long)llabs(by), by > 0 ? "late" : "early", (long long)of->from,
                 (long long)s->first[r]);
}

static const char *kind_of(const stretch found[], const assay_home_slices *s)
{
    bool shorter = false, moved = false, exchanged = true;
    for (int r = 0; r < s->n; r++) {
        if (!s->bad[r])
            continue;
        shorter = shorter || found[r].end < s->first[r + 1] - s->first[r];
        moved = moved || found[r].rank < 0;
        exchanged = exchanged && found[r].rank >= 0 && s->bad[found[r].rank];
        for (int k = 0; k < r; k++)
            exchanged = exchanged && !(s->bad[k] && found[k].rank == found[r].rank);
    }
    return shorter     ? "slice cut short"
           : moved     ? "slice shifted"
           : exchanged ? "ranks exchanged"
                       : "another rank's slice";
}

static assay_status try_stretches(assay_home *home, const assay_home_slices *slices)
{
    const assay_home_slices s = *slices;
    stretch found[ASSAY_HOME_RANKS];
    char text[320] = "";
    json_t *fitted = assay_home_slices_json(&s), *starts = json_array(), *counts = json_array();
    memcpy(home->scratch, home->expected, (size_t)home->n * sizeof *home->scratch);
    bool all = true;
    for (int r = 0; r < s.n; r++) {
        found[r] = (stretch){s.first[r], s.first[r + 1] - s.first[r], r, 0};
        if (s.bad[r])
            found[r] = find_stretch(home, &s, r);
        all = all && found[r].rest < SAME_SLICE;
        json_array_append_new(starts, json_integer(found[r].from));
        json_array_append_new(counts, json_integer(found[r].end));
        if (!s.bad[r] || !all)
            continue;
        put_slice(home->scratch, home, &s, r, home->expected, found[r].from, found[r].end);
        size_t used = strlen(text);
        if (used + 120 < sizeof text) {
            snprintf(text + used, sizeof text - used, "%s", used ? "; " : "");
            used = strlen(text);
            say_stretch(text + used, sizeof text - used, &s, r, &found[r]);
        }
    }
    json_object_set_new(fitted, "starts", starts);
    json_object_set_new(fitted, "counts", counts);
    json_object_set_new(fitted, "size", json_integer(s.size));
    if (!all) {
        json_decref(fitted);
        return ASSAY_OK;
    }
    return assay_home_offer(
        home, home->scratch,
        &(assay_offer_text){
            .kind = kind_of(found, &s), .complexity = 0.1, .fitted = fitted, .evidence = text});
}

assay_status assay_home_try_slices(assay_home *home)
{
    assay_home_slices s;
    double *lost;
    if (!assay_home_slices_of(&s, home) || s.n_bad == 0)
        return ASSAY_OK;
    ASSAY_TRY(find_lost(&lost, home, &s));
    s.lost = lost;
    assay_status status = try_stretches(home, &s);
    free(lost);
    return status;
}

/* Column i of rank r's `is_first` part when gate and up of the rank are taken for pairs. */
static void riffle_slices(double *out, const assay_home *home, const assay_home_slices *s,
                          const double *first, const double *second, bool is_first)
{
    int64_t cols = home->pair.cols, at;
    for (int64_t c = 0; c < cols; c++) {
        int r = assay_home_slice_at(&at, s, c);
        if (!s->bad[r])
            continue;
        int64_t width = s->first[r + 1] - s->first[r];
        int64_t pick = 2 * (at - s->first[r]) + !is_first;
        const double *from = pick < width ? first : second;
        int64_t column = c + (s->first[r] + pick % width - at) * s->inner;
        for (int64_t t = 0; t < home->pair.rows; t++)
            out[t * cols + c] = from[t * cols + column];
    }
}

static assay_status offer_fused(assay_home *home, const assay_home_slices *s, const char *kind)
{
    char text[320], list[64] = "";
    for (int r = 0; r < s->n && strlen(list) + 8 < sizeof list; r++)
        if (s->bad[r])
            snprintf(list + strlen(list), sizeof list - strlen(list), " %d", r);
    snprintf(text, sizeof text,
             "on rank%s%s gate and up are taken in another order than they were concatenated in",
             s->n_bad == 1 ? "" : "s", list);
    return assay_home_offer(home, home->scratch,
                            &(assay_offer_text){.kind = kind,
                                                .family = "fused gate + up of a rank",
                                                .complexity = 0.1,
                                                .fitted = assay_home_slices_json(s),
                                                .evidence = text});
}

assay_status assay_home_try_fused_slices(assay_home *home, assay_point first, assay_point second)
{
    assay_home_slices s;
    bool is_first = home->judged->point == first;
    double *other;
    int64_t cols, at;
    if (!assay_home_slices_of(&s, home) || s.n_bad == 0)
        return ASSAY_OK;
    assay_status status = assay_home_partner(&other, NULL, &cols, home, is_first ? second : first);
    if (status == ASSAY_MISSING)
        return ASSAY_OK;
    ASSAY_TRY(status);
    if (cols == home->pair.cols) {
        memcpy(home->scratch, home->expected, (size_t)home->n * sizeof *home->scratch);
        for (int64_t i = 0; i < home->n; i++)
            if (s.bad[assay_home_slice_at(&at, &s, i % cols)])
                home->scratch[i] = other[i];
        status = offer_fused(home, &s, "gate and up exchanged");
        memcpy(home->scratch, home->expected, (size_t)home->n * sizeof *home->scratch);
        riffle_slices(home->scratch, home, &s, is_first ? home->expected : other,
                      is_first ? other : home->expected, is_first);
        if (status == ASSAY_OK)
            status = offer_fused(home, &s, "gate and up interleaved");
    }
    free(other);
    return status;
}

/* Rows of the home that are this addend and not the sum. */
static int64_t own_rows(double *out, const assay_home *home, const double *own)
{
    int64_t cols = home->pair.cols, n = 0;
    for (int64_t t = 0; t < home->pair.rows; t++) {
        const double *got = home->got + t * cols, *sum = home->expected + t * cols;
        bool is_own = distance(got, own + t * cols, cols) < 1e-6 && distance(got, sum, cols) > 1e-4;
        n += is_own;
        memcpy(out + t * cols, is_own ? own + t * cols : sum, (size_t)cols * sizeof *out);
    }
    return n;
}

static assay_status offer_own(assay_home *home, const double *own, int rank, bool some_rows)
{
    char text[320];
    int64_t n = own_rows(home->scratch, home, own);
    if (n == 0 || some_rows != (n < home->pair.rows))
        return ASSAY_OK;
    snprintf(text, sizeof text, "%lld of %lld rows are rank %d's own addend: %s", (long long)n,
             (long long)home->pair.rows, rank,
             some_rows ? "wait for the reduction before the sum is read"
                       : "the reduction did not run");
    return assay_home_offer(
        home, home->scratch,
        &(assay_offer_text){.kind = some_rows ? "reduction read too early" : "not reduced",
                            .complexity = 0.1,
                            .evidence = text});
}

assay_status assay_home_try_own_addend(assay_home *home, bool some_rows)
{
    const assay_judged *j = home->judged;
    assay_run *run = assay_forced_run(home->forced);
    double *own = NULL;
    assay_status s = ASSAY_OK;
    for (int rank = 0; rank < assay_home_n_ranks(home); rank++) {
        const assay_seen *seen =
            assay_run_find_partial(run, j->prompt, j->step, j->point, j->layer, rank);
        if (!seen || !seen->has_values || count_of(seen) != home->n)
            continue;
        if (!own)
            ASSAY_GO(assay_alloc(&own, (size_t)home->n, sizeof *own, "a rank's addend"));
        ASSAY_GO(assay_run_read(own, run, seen));
        ASSAY_GO(offer_own(home, own, rank, some_rows));
    }
out:
    free(own);
    return s;
}
