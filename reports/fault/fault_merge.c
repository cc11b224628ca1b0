/*
 * MERGE: attention over parts of the keys, each right, put together wrongly. The parts are computed
 * by the oracle, output and log-sum-exp each; the ways of merging are done here.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/home.h"

#define KIND(id, text, way)                                                                        \
    {                                                                                              \
        .name = id, .about = text, .weakest = NAN, .strongest = NAN, .seam = ASSAY_SEAM_MERGE,     \
        .value = way, .home = "attn.probs attn.kernel_out attn.o_latent attn.lse", .run = {        \
            .key_split = 4                                                                         \
        }                                                                                          \
    }

const assay_fault_kind assay_fault_kinds_merge[] = {
    KIND("merge-base-2", "log-sum-exp of the parts taken for base 2", 1),
    KIND("merge-sign", "log-sum-exp of the parts with the other sign", 2),
    KIND("merge-mean", "the mean of the parts that have keys", 3),
    KIND("merge-last", "the last part that has keys overwrites the others", 4),
    KIND("merge-stale", "an empty part keeps what the part before it left", 5),
    KIND("merge-one-lse", "every part weighed by the first part's log-sum-exp", 6),
    KIND("merge-empty-inf", "an empty part says +inf for its log-sum-exp", 7),
    KIND("merge-stride", "parts behind the first read with the stride of a padded view", 8),
    {0}};

#define MOST_PARTS 16

typedef enum {
    BASE_2,
    SIGN,
    MEAN,
    LAST,
    STALE,
    ONE_LSE,
    EMPTY_INF,
    STRIDE,
    FIRST,
    SUM,
    EMPTY_COUNTS,
    MEAN_IN_TURN,
    N_WAYS
} merge_way;

static const struct {
    const char *kind;
    bool keeps_lse; /* the merged log-sum-exp is right */
} ways[N_WAYS] = {
    [BASE_2] = {"log-sum-exp in another base", false},
    [SIGN] = {"log-sum-exp with the other sign", false},
    [MEAN] = {"parts averaged", true},
    [LAST] = {"only the last part used", true},
    [STALE] = {"an empty part keeps the one before it", false},
    [ONE_LSE] = {"one part's log-sum-exp for all", false},
    [EMPTY_INF] = {"an empty part takes all the weight", false},
    [STRIDE] = {"parts read with another stride", true},
    [FIRST] = {"only the first part used", true},
    [SUM] = {"parts added", true},
    [EMPTY_COUNTS] = {"an empty part counts", true},
    [MEAN_IN_TURN] = {"parts averaged, each with what came before", true},
};

/* Value of the home and log-sum-exp from each part of the keys alone. */
typedef struct parts {
    const assay_home *home;
    int n, width;
    int64_t n_tokens, n_head; /* rows of the home, and heads */
    double *o[MOST_PARTS], *lse[MOST_PARTS];
    double *weights;
} parts;

static void free_parts(parts *p)
{
    for (int i = 0; i < p->n; i++) {
        free(p->o[i]);
        free(p->lse[i]);
    }
}

static assay_status compute_part(parts *p, assay_home *home, int i, int64_t n_all)
{
    const assay_judged *j = home->judged;
    assay_knobs knobs = *home->knobs;
    double *all;
    knobs.key_first = i * p->width;
    knobs.key_limit = (i + 1) * p->width;
    ASSAY_TRY(assay_alloc(&p->o[i], (size_t)home->n, sizeof(double), "a part of attention"));
    ASSAY_TRY(assay_alloc(&p->lse[i], (size_t)(p->n_tokens * p->n_head), sizeof(double),
                          "a part of attention"));
    ASSAY_TRY(assay_forced_expect(p->o[i], home->forced, home->index, &knobs));
    if (j->point == ASSAY_POINT_LSE) {
        memcpy(p->lse[i], p->o[i], (size_t)home->n * sizeof(double));
        return ASSAY_OK;
    }
    ASSAY_TRY(assay_alloc(&all, (size_t)(n_all * p->n_head), sizeof *all, "a part of attention"));
    assay_status s = assay_pass_expect(all, assay_forced_pass(home->forced, j->prompt), j->step,
                                       ASSAY_POINT_LSE, j->layer, &knobs);
    memcpy(p->lse[i], all + (n_all - p->n_tokens) * p->n_head,
           (size_t)(p->n_tokens * p->n_head) * sizeof *all);
    free(all);
    return s;
}

/* Log-sum-exp of part i as a merge of this way takes it. */
static double taken(const parts *p, int i, int64_t cell, double before, merge_way way)
{
    double l = p->lse[i][cell];
    bool empty = l == -HUGE_VAL;
    switch (way) {
    case BASE_2:
        return l * log(2);
    case SIGN:
        return empty ? l : -l;
    case STALE:
        return empty && i > 0 ? before : l;
    case EMPTY_COUNTS:
        return empty ? 0 : l;
    case ONE_LSE:
        return empty ? l : p->lse[0][cell];
    case EMPTY_INF:
        return empty ? HUGE_VAL : l;
    default:
        return l;
    }
}

/* Weights of the parts at one token and head; returns the merged log-sum-exp. */
static double weigh(double w[MOST_PARTS], const parts *p, int64_t cell, merge_way way)
{
    double l[MOST_PARTS], most = -HUGE_VAL, sum = 0;
    int n_seen = 0, last = -1;
    for (int i = 0; i < p->n; i++) {
        l[i] = taken(p, i, cell, i ? l[i - 1] : -HUGE_VAL, way);
        most = fmax(most, l[i]);
        if (l[i] > -HUGE_VAL) {
            n_seen++;
            last = i;
        }
    }
    for (int i = 0; i < p->n; i++) {
        w[i] = l[i] == -HUGE_VAL ? 0 : l[i] == most ? 1 : exp(l[i] - most);
        sum += w[i];
    }
    for (int i = 0; i < p->n && sum > 0; i++) {
        w[i] /= sum;
        if (way == MEAN)
            w[i] = l[i] == -HUGE_VAL ? 0 : 1 / (double)n_seen;
        if (way == LAST || way == FIRST)
            w[i] = i == (way == LAST ? last : 0);
        if (way == SUM)
            w[i] = l[i] > -HUGE_VAL;
    }
    for (int i = 0, n = 0; way == MEAN_IN_TURN && i < p->n; i++) {
        w[i] = l[i] == -HUGE_VAL ? 0 : n++ ? 0.5 : 1;
        for (int k = 0; k < i && w[i] == 0.5; k++)
            w[k] /= 2;
    }
    return sum > 0 ? most + log(sum) : -HUGE_VAL;
}

/* Where part i of this way has the value that belongs at `at`. */
static double part_value(const parts *p, int i, int64_t at, int64_t cell, merge_way way)
{
    const assay_judged *j = p->home->judged;
    int64_t width = j->n_cols / p->n_head;
    if (way == STRIDE && i > 0) {
        int64_t t = at / j->n_cols, h = at % j->n_cols / width;
        int64_t first = t * j->n_cols + h * width * 3 / 2, most = p->home->n - width;
        at = (first < most ? first : most) + at % width;
    }
    while (way == STALE && i > 0 && p->lse[i][cell] == -HUGE_VAL)
        i--;
    return p->o[i][at];
}

static void merge(double *out, const parts *p, merge_way way)
{
    const assay_judged *j = p->home->judged;
    bool probs = j->point == ASSAY_POINT_PROBS, lse = j->point == ASSAY_POINT_LSE;
    int64_t width = probs ? j->n_cols : j->n_cols / p->n_head;
    for (int64_t c = 0; c < p->n_tokens * p->n_head; c++) {
        int64_t t = c / p->n_head, h = c % p->n_head;
        int64_t first = probs ? (h * p->n_tokens + t) * width : t * j->n_cols + h * width;
        double w[MOST_PARTS], l = weigh(w, p, c, way);
        for (int64_t d = 0; d < width; d++) {
            double sum = 0;
            for (int i = 0; i < p->n && !lse; i++)
                if (w[i] != 0)
                    sum += w[i] * part_value(p, i, first + d, c, probs ? LAST : way);
            out[first + d] = lse ? l : sum;
        }
    }
}

/* The run's own log-sum-exp is +inf somewhere: an empty part said so. */
static bool says_inf(assay_home *home)
{
    double *lse;
    int64_t n;
    bool found = false;
    if (assay_home_value(&lse, &n, home, ASSAY_POINT_LSE, home->judged->layer) != ASSAY_OK)
        return false;
    for (int64_t i = 0; i < n; i++)
        found = found || lse[i] == HUGE_VAL;
    free(lse);
    return found;
}

static assay_status offer_ways(assay_home *home, const parts *p)
{
    const assay_judged *j = home->judged;
    char text[320];
    double *out;
    ASSAY_TRY(assay_alloc(&out, (size_t)home->n, sizeof *out, "merged parts"));
    assay_status s = ASSAY_OK;
    for (merge_way way = 0; way < N_WAYS && s == ASSAY_OK; way++) {
        bool strided = way == STRIDE && (j->point == ASSAY_POINT_PROBS || j->first_row > 0);
        if (strided || (j->point == ASSAY_POINT_LSE && ways[way].keeps_lse))
            continue;
        merge(out, p, way);
        snprintf(text, sizeof text, "keys attended in parts of %d; %s", p->width, ways[way].kind);
        s = assay_home_offer(
            home, out,
            &(assay_offer_text){.kind = ways[way].kind,
                                .family = "attention",
                                .complexity = way == EMPTY_INF && says_inf(home) ? -0.1 : 0.7,
                                .fitted = json_pack("{s:i}", "keys a part", p->width),
                                .evidence = text});
    }
    free(out);
    return s;
}

static assay_status try_width(assay_home *home, int width, int n_keys, int64_t n_all)
{
    const assay_judged *j = home->judged;
    parts p = {.home = home,
               .n = (n_keys + width - 1) / width,
               .width = width,
               .n_head = home->shape->n_head};
    p.n_tokens = j->point == ASSAY_POINT_PROBS ? j->n_rows / p.n_head : j->n_rows;
    if (p.n < 2 || p.n > MOST_PARTS)
        return ASSAY_OK;
    assay_status s = ASSAY_OK;
    for (int i = 0; i < p.n && s == ASSAY_OK; i++)
        s = compute_part(&p, home, i, n_all);
    if (s == ASSAY_OK)
        s = offer_ways(home, &p);
    free_parts(&p);
    return s == ASSAY_MISSING ? ASSAY_OK : s;
}

/* Behind further ops the parts are no longer to be seen: they are merged inside the oracle. Two
 * parts with the border at key `at`, or parts of `at` keys each. */
static assay_status try_inside(assay_home *home, int at, assay_parts how)
{
    static const struct {
        assay_merge merge;
        const char *kind;
    } inside[] = {
        {ASSAY_MERGE_MEAN, "parts averaged"},
        {ASSAY_MERGE_SUM, "parts added"},
        {ASSAY_MERGE_LSE_SIGN, "log-sum-exp with the other sign"},
        {ASSAY_MERGE_LSE_BASE_2, "log-sum-exp in another base"},
        {ASSAY_MERGE_FIRST_ONLY, "only the first part used"},
        {ASSAY_MERGE_LAST_ONLY, "only the last part used"},
        {ASSAY_MERGE_EMPTY_COUNTS, "an empty part counts"},
        {ASSAY_MERGE_EMPTY_REPEATS, "an empty part keeps the one before it"},
    };
    char text[320];
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        assay_knobs knobs = *home->knobs;
        knobs.merge_at = at;
        knobs.merge_parts = how;
        knobs.merge = inside[i].merge;
        if (how != ASSAY_PARTS_TWO)
            snprintf(text, sizeof text, "every %d keys attended apart, put together %s; %s", at,
                     how == ASSAY_PARTS_ALL ? "at once" : "one by one", inside[i].kind);
        else
            snprintf(text, sizeof text, "keys 0 ... %d and the rest attended apart; %s", at - 1,
                     inside[i].kind);
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){
                .kind = inside[i].kind,
                .family = "attention",
                .complexity = how != ASSAY_PARTS_TWO ? 0.75 : 0.7,
                .fitted = json_pack("{s:i}", how != ASSAY_PARTS_TWO ? "part" : "border", at),
                .evidence = text}));
    }
    return ASSAY_OK;
}

assay_status assay_fault_match_merge(assay_home *home)
{
    const assay_judged *j = home->judged;
    if (j->against || j->is_ids || !assay_home_attends(home))
        return ASSAY_OK;
    const assay_run_step *step =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    bool here =
        j->point == ASSAY_POINT_PROBS || j->point == ASSAY_POINT_LSE ||
        j->point == ASSAY_POINT_O_LATENT ||
        (j->point == ASSAY_POINT_KERNEL_OUT && !assay_forced_is_latent(home->forced, j->prompt));
    int n_keys = (int)(step->first_position + step->n_tokens);
    bool inf = says_inf(home); /* then zeros are no row left unwritten */
    for (int at = 1; at < n_keys && (inf || !assay_home_settled(home)); at++) {
        /* chunks of a power of two, the half, the border of this step */
        bool power = (at & (at - 1)) == 0;
        if (!power && at != n_keys / 2 && at != step->first_position)
            continue;
        if (here)
            ASSAY_TRY(try_width(home, at, n_keys, step->n_tokens));
        if (!here || at != n_keys / 2)
            ASSAY_TRY(try_inside(home, at, ASSAY_PARTS_TWO));
        if (here || !power || at < 4)
            continue;
        if (!assay_home_settled(home))
            ASSAY_TRY(try_inside(home, at, ASSAY_PARTS_ALL));
        if (!assay_home_settled(home) && 2 * at < n_keys)
            ASSAY_TRY(try_inside(home, at, ASSAY_PARTS_CHAIN));
    }
    return ASSAY_OK;
}
