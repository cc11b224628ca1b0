/*
 * Row-parallel weights: every rank multiplies its columns with its inputs, and the products are
 * summed. Each rank's addend is judged for itself: it is the product with the columns that the rank
 * really holds. Vectors that all ranks hold are looked at in the same way.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/home_ranks.h"

#define SAME_ADDEND 1e-2 /* rest of an addend that is explained, of its size */
#define SAMPLE_ROWS 4    /* tokens and channels that the search looks at */
#define SAMPLE_CHANNELS 16
#define MOST_WORK ((int64_t)1 << 31)

typedef struct addends {
    assay_home *home;
    int n; /* ranks */
    const double *weight;
    double *x; /* [rows, width] */
    int64_t rows, channels, width, each;
    double *own;  /* [rows, channels]: the addend that a rank gave, without the bias */
    double *bias; /* [channels], of rank 0's addend; NULL: none */
    double bound;
} addends;

/* The bias of the sum, which one rank adds; NULL: none. */
static assay_status find_bias(double **out, const addends *a, const char *weight)
{
    const double *b;
    int64_t dims[4];
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%.*s.bias", a->home->judged->layer,
             (int)strcspn(weight, "."), weight);
    *out = NULL;
    assay_status s = assay_oracle_weight(&b, dims, assay_forced_oracle(a->home->forced), name);
    if (s != ASSAY_OK || dims[3] != a->channels)
        return s == ASSAY_MISSING ? ASSAY_OK : s;
    ASSAY_TRY(assay_alloc(out, (size_t)a->channels, sizeof **out, "a bias"));
    memcpy(*out, b, (size_t)a->channels * sizeof **out);
    return ASSAY_OK;
}

typedef enum { COLUMNS, OTHER_AXIS } cut;

typedef struct held { /* columns that a rank holds */
    cut how;
    int64_t from, count;
    double rest;
} held;

/* Weight of channel d at the rank's input c. */
static inline double weight_at(const addends *a, const held *h, int64_t d, int64_t c)
{
    return h->how == COLUMNS ? a->weight[d * a->width + h->from + c]
                             : a->weight[h->from * a->channels + d * a->each + c];
}

static double product(const addends *a, const held *h, int rank, int64_t t, int64_t d)
{
    const double *x = a->x + t * a->width + rank * a->each;
    double sum = 0;
    for (int64_t c = 0; c < h->count; c++)
        sum += weight_at(a, h, d, c) * x[c];
    return sum;
}

/* |own - product| / |own| over a sample. */
static double rest_of(const addends *a, const held *h, int rank)
{
    int64_t n_t = a->rows < SAMPLE_ROWS ? a->rows : SAMPLE_ROWS;
    int64_t n_d = a->channels < SAMPLE_CHANNELS ? a->channels : SAMPLE_CHANNELS;
    double error = 0, size = 0;
    for (int64_t i = 0; i < n_t; i++)
        for (int64_t k = 0; k < n_d; k++) {
            int64_t t = a->rows * i / n_t, d = a->channels * k / n_d;
            double got = a->own[t * a->channels + d], e = got - product(a, h, rank, t, d);
            error += e * e;
            size += got * got;
        }
    return size > 0 ? sqrt(error / size) : INFINITY;
}

static void take_better(held *best, held h, const addends *a, int rank)
{
    h.rest = rest_of(a, &h, rank);
    if (h.rest < best->rest)
        *best = h;
}

/* Every beginning where that is cheap, else those of ranks and by powers of two off. */
static held search(const addends *a, int rank)
{
    int64_t right = rank * a->each;
    held best = {COLUMNS, right, a->each, INFINITY};
    bool all = (a->width - a->each) * a->each * SAMPLE_ROWS * SAMPLE_CHANNELS < MOST_WORK;
    take_better(&best, best, a, rank);
    for (int64_t from = 0; from + a->each <= a->width; from++) {
        int64_t by = llabs(from - right);
        if (all || from % a->each == 0 || (by & (by - 1)) == 0)
            take_better(&best, (held){COLUMNS, from, a->each, INFINITY}, a, rank);
    }
    for (int64_t count = 0; count < a->each && best.rest > a->bound; count++)
        take_better(&best, (held){COLUMNS, right, count, INFINITY}, a, rank);
    take_better(&best, (held){OTHER_AXIS, right, a->each, INFINITY}, a, rank);
    return best;
}

static void say(char *text, size_t room, const addends *a, int rank, const held *h)
{
    int64_t right = rank * a->each, by = h->from - right;
    if (h->how == OTHER_AXIS)
        snprintf(text, room,
                 "rank %d's part is cut out along the other axis: cut columns (inputs), not rows",
                 rank);
    else if (h->count < a->each)
        snprintf(text, room,
                 "the last %lld of rank %d's %lld columns are missing: load all of them",
                 (long long)(a->each - h->count), rank, (long long)a->each);
    else if (h->from % a->each == 0)
        snprintf(text, room, "rank %d holds rank %lld's columns: begin at %lld, not at %lld", rank,
                 (long long)(h->from / a->each), (long long)right, (long long)h->from);
    else
        snprintf(text, room, "rank %d's columns begin %lld too %s: begin at %lld, not at %lld",
                 rank, (long long)llabs(by), by > 0 ? "late" : "early", (long long)right,
                 (long long)h->from);
}

static const char *kind_of(const addends *a, const held *h)
{
    return h->how == OTHER_AXIS     ? "slice along the other axis"
           : h->count < a->each     ? "slice cut short"
           : h->from % a->each == 0 ? "another rank's slice"
                                    : "slice shifted";
}

/* explained += the product with what the rank holds - the right one. */
static void exchange(double *explained, const addends *a, const held *h, int rank)
{
    held right = {COLUMNS, rank * a->each, a->each, 0};
    for (int64_t t = 0; t < a->rows; t++)
        for (int64_t d = 0; d < a->channels; d++)
            explained[t * a->channels + d] +=
                product(a, h, rank, t, d) - product(a, &right, rank, t, d);
}

/* Reads the rank's addend. False: it is not in the run. */
static assay_status read_own(bool *there, addends *a, int rank)
{
    const assay_judged *j = a->home->judged;
    assay_run *run = assay_forced_run(a->home->forced);
    const assay_seen *seen =
        assay_run_find_partial(run, j->prompt, j->step, j->point, j->layer, rank);
    int64_t n = seen ? assay_seen_count(seen) : 1;
    *there = seen && seen->has_values && n == a->home->n;
    if (!*there)
        return ASSAY_OK;
    ASSAY_TRY(assay_run_read(a->own, run, seen));
    for (int64_t i = 0; i < n && a->bias && rank == 0; i++)
        a->own[i] -= a->bias[i % a->channels];
    return ASSAY_OK;
}

static assay_status explain(addends *a)
{
    assay_home *home = a->home;
    char text[320] = "";
    const char *kind = NULL;
    json_t *ranks = json_array(), *starts = json_array(), *counts = json_array();
    bool all = true;
    assay_status s = ASSAY_OK;
    memcpy(home->scratch, home->expected, (size_t)home->n * sizeof *home->scratch);
    for (int r = 0; r < a->n && all && s == ASSAY_OK; r++) {
        held h = {COLUMNS, r * a->each, a->each, 0};
        s = read_own(&all, a, r);
        if (s != ASSAY_OK || !all)
            break;
        if (rest_of(a, &h, r) > a->bound) {
            h = search(a, r);
            all = h.rest <= a->bound &&
                  (h.how != COLUMNS || h.from != r * a->each || h.count != a->each);
            size_t used = strlen(text);
            if (used + 120 < sizeof text) {
                snprintf(text + used, sizeof text - used, "%s", used ? "; " : "");
                used = strlen(text);
                say(text + used, sizeof text - used, a, r, &h);
            }
            json_array_append_new(ranks, json_integer(r));
            exchange(home->scratch, a, &h, r);
            kind = kind ? kind : kind_of(a, &h);
        }
        json_array_append_new(starts, json_integer(h.from));
        json_array_append_new(counts, h.how == COLUMNS ? json_integer(h.count) : json_null());
    }
    json_t *fitted = json_pack("{s:o, s:o, s:o, s:I}", "ranks", ranks, "starts", starts, "counts",
                               counts, "size", (json_int_t)a->width);
    if (s != ASSAY_OK || !all || !kind) {
        json_decref(fitted);
        return s;
    }
    return assay_home_offer(
        home, home->scratch,
        &(assay_offer_text){.kind = kind, .complexity = 0.1, .fitted = fitted, .evidence = text});
}

assay_status assay_home_try_addends(assay_home *home)
{
    static const struct {
        assay_point sum, in;
        const char *weight;
    } sums[] = {{ASSAY_POINT_PROJ, ASSAY_POINT_OUT_ATTN, "attn_output.weight"},
                {ASSAY_POINT_FFN_OUT, ASSAY_POINT_FFN_ACT, "ffn_down.weight"}};
    const assay_judged *j = home->judged;
    addends a = {.home = home,
                 .n = assay_home_n_ranks(home),
                 .rows = j->n_rows,
                 .channels = j->n_cols,
                 .bound = fmax(SAME_ADDEND, 5 * j->floor_rel)};
    char name[64];
    int64_t n_values, dims[4];
    size_t i = 0;
    while (i < 2 && !assay_home_is(home, sums[i].sum))
        i++;
    if (i == 2 || a.n < 2 || home->n != a.rows * a.channels)
        return ASSAY_OK;
    assay_status s = assay_home_value(&a.x, &n_values, home, sums[i].in, j->layer);
    if (s != ASSAY_OK)
        return s == ASSAY_MISSING ? ASSAY_OK : s;
    snprintf(name, sizeof name, "blk.%d.%s", j->layer, sums[i].weight);
    a.width = n_values / a.rows;
    a.each = a.width / a.n;
    ASSAY_GO(find_bias(&a.bias, &a, sums[i].weight));
    ASSAY_GO(assay_alloc(&a.own, (size_t)home->n, sizeof *a.own, "an addend"));
    s = assay_oracle_weight(&a.weight, dims, assay_forced_oracle(home->forced), name);
    if (s == ASSAY_OK && dims[2] == a.channels && dims[3] == a.width && a.width % a.n == 0)
        s = explain(&a);
out:
    free(a.own);
    free(a.bias);
    free(a.x);
    return s;
}

/* ---- vectors that all ranks hold ---- */

/* Rest of the value when entry d of the norm's weight is entry d + late of the right one. */
static double late_rest(double *out, const assay_home *home, const double *w, int64_t late)
{
    int64_t cols = home->pair.cols;
    double error = 0, size = 0;
    for (int64_t i = 0; i < home->n; i++) {
        double own = w[i % cols];
        out[i] = own != 0 ? home->expected[i] / own * w[(i % cols + late) % cols] : home->got[i];
        error += (home->got[i] - out[i]) * (home->got[i] - out[i]);
        size += home->got[i] * home->got[i];
    }
    return size > 0 ? sqrt(error / size) : INFINITY;
}

static assay_status try_late_norm(assay_home *home, const char *weight)
{
    const double *w;
    int64_t dims[4], cols = home->pair.cols, best = 0;
    char name[64], text[320];
    double rest = INFINITY;
    if (home->judged->layer >= 0)
        snprintf(name, sizeof name, "blk.%d.%s", home->judged->layer, weight);
    else
        snprintf(name, sizeof name, "%s", weight);
    assay_status s = assay_oracle_weight(&w, dims, assay_forced_oracle(home->forced), name);
    if (s != ASSAY_OK || dims[3] != cols)
        return s == ASSAY_MISSING ? ASSAY_OK : s;
    for (int64_t late = 1; late < cols; late++) {
        double r = late_rest(home->scratch, home, w, late);
        if (r < rest) {
            rest = r;
            best = late;
        }
    }
    if (!(rest < home->judged->rel / 2))
        return ASSAY_OK;
    late_rest(home->scratch, home, w, best);
    snprintf(
        text, sizeof text,
        "entry d of the norm's weight is entry d + %lld: all ranks hold this weight whole, and "
        "it begins at 0",
        (long long)best);
    return assay_home_offer(
        home, home->scratch,
        &(assay_offer_text){.kind = "norm weight shifted",
                            .complexity = 0.3,
                            .fitted = json_pack("{s:I}", "shift", (json_int_t)best),
                            .evidence = text});
}

static assay_status try_bias_share(assay_home *home)
{
    int n = assay_home_n_ranks(home), E = home->shape->n_expert;
    char text[320];
    for (int r = 0; r < n && E % n == 0; r++) {
        assay_knobs knobs = *home->knobs;
        knobs.bias_count = E / n;
        knobs.bias_first = r * knobs.bias_count;
        snprintf(text, sizeof text,
                 "entries %d to %d of the router's bias in front and zeros behind give the choice: "
                 "all ranks hold this bias whole",
                 knobs.bias_first, knobs.bias_first + knobs.bias_count - 1);
        ASSAY_TRY(
            assay_home_offer_variant(home, &knobs,
                                     &(assay_offer_text){.kind = "router bias sliced",
                                                         .family = "router",
                                                         .complexity = 0.15,
                                                         .fitted = json_pack("{s:i}", "share", r),
                                                         .evidence = text}));
    }
    return ASSAY_OK;
}

assay_status assay_home_try_vectors(assay_home *home)
{
    static const struct {
        assay_point point;
        const char *weight;
    } norms[] = {{ASSAY_POINT_IN_NORM, "attn_norm.weight"},
                 {ASSAY_POINT_Q_A_NORM, "attn_q_a_norm.weight"},
                 {ASSAY_POINT_KV_LATENT, "attn_kv_a_norm.weight"},
                 {ASSAY_POINT_FFN_NORM, "ffn_norm.weight"},
                 {ASSAY_POINT_FINAL_NORM, "output_norm.weight"}};
    if (assay_home_n_ranks(home) < 2)
        return ASSAY_OK;
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        if (assay_home_is(home, norms[i].point))
            return try_late_norm(home, norms[i].weight);
    return assay_home_is(home, ASSAY_POINT_MOE_TOPK) ? try_bias_share(home) : ASSAY_OK;
}
