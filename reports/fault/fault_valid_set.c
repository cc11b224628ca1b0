/*
 * VALID-SET: attention over another set of keys: the causal border shifted or missing, a window,
 * keys at the beginning or the end left out.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_valid_set[] = {
    {.name = "mask-shift",
     .about = "one key beyond the mask",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_MASK_SHIFT,
     .value = 1,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse"},
    {.name = "mask-short",
     .about = "the key of the token itself is not seen",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_MASK_SHIFT,
     .value = -1,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse"},
    {.name = "mask-none",
     .about = "every key of the step is seen",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_MASK_NONE,
     .value = 1,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse"},
    {.name = "window",
     .about = "only the last keys are seen",
     .weakest = 2,
     .strongest = 6,
     .seam = ASSAY_SEAM_MASK_WINDOW,
     .value = 4,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse"},
    {.name = "keys-beyond",
     .about = "zeros in reserved slots behind the sequence are seen",
     .weakest = 4,
     .strongest = 64,
     .seam = ASSAY_SEAM_KEYS_BEYOND,
     .value = 16,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse"},
    {.name = "empty-row-nan",
     .about = "a row that sees no key is NaN (the key of the token itself is not seen)",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_EMPTY_ROW,
     .value = 1,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse",
     .also = {true, ASSAY_SEAM_MASK_SHIFT, false, -1, 0, {0}}},
    {.name = "empty-row-mean",
     .about = "a row that sees no key is the mean of all values (its own key is not seen)",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_EMPTY_ROW,
     .value = 2,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse",
     .also = {true, ASSAY_SEAM_MASK_SHIFT, false, -1, 0, {0}}},
    {0}};

/*
 * A softmax over no key is 0 / 0: NaN in some kernels, the mean of all values in others (every
 * score at the same large negative number). Takes what the run has in the cells that the variant
 * leaves without a key, where it is one of these; returns how many.
 */
static int64_t take_empty(double *out, const assay_home *home, const double *variant)
{
    const assay_judged *j = home->judged;
    int64_t width = j->n_cols / j->n_groups, n = 0;
    memcpy(out, variant, (size_t)home->n * sizeof *out);
    for (int64_t c = 0; c < j->n_rows * j->n_groups; c++) {
        bool empty = true, was_empty = true, is_nan = true, even = true;
        const double *got = home->got + c * width;
        for (int64_t i = 0; i < width; i++) {
            empty = empty && (variant[c * width + i] == 0 || variant[c * width + i] == -HUGE_VAL);
            was_empty = was_empty && home->expected[c * width + i] == 0;
            is_nan = is_nan && !isfinite(got[i]);
            even = even && fabs(got[i] - got[0]) <= 1e-3 * fabs(got[0]);
        }
        even = even && home->judged->point == ASSAY_POINT_PROBS;
        if (!empty || was_empty || (!is_nan && !even))
            continue;
        memcpy(out + c * width, got, (size_t)width * sizeof *out);
        n++;
    }
    return n;
}

/* Rows whose set is empty, on top of the variant; text->fitted stays the caller's. */
static assay_status offer_empty(assay_home *home, const assay_knobs *knobs,
                                const assay_offer_text *text)
{
    double *variant;
    char evidence[320];
    ASSAY_TRY(assay_alloc(&variant, (size_t)home->n, 2 * sizeof *variant, "a set of keys"));
    double *out = variant + home->n;
    assay_status s = assay_forced_expect(variant, home->forced, home->index, knobs);
    int64_t n = s == ASSAY_OK ? take_empty(out, home, variant) : 0;
    snprintf(evidence, sizeof evidence,
             "%s; %lld row(s) (of heads) see no key at all and hold 0 / 0", text->evidence,
             (long long)n);
    assay_offer_text empty = *text;
    empty.evidence = evidence;
    empty.fitted = n > 0 ? json_incref(text->fitted) : NULL;
    if (n > 0)
        s = assay_home_offer_near(home, out, variant, knobs, &empty);
    free(variant);
    return s;
}

static assay_status offer(assay_home *home, const assay_knobs *knobs, const char *kind,
                          double complexity, json_t *fitted, const char *evidence)
{
    assay_offer_text text = {.kind = kind,
                             .family = "attention",
                             .complexity = complexity,
                             .fitted = fitted,
                             .evidence = evidence};
    assay_status s = home->judged->is_ids ? ASSAY_OK : offer_empty(home, knobs, &text);
    if (s != ASSAY_OK) {
        json_decref(fitted);
        return s;
    }
    return assay_home_offer_variant(home, knobs, &text);
}

/* Where every visible key is selected, a captured selection says nothing; a mask that lets more
 * keys through must not be cut by it. */
static assay_knobs start(const assay_home *home, int n_keys)
{
    assay_knobs knobs = *home->knobs;
    if (n_keys <= knobs.index_top_k)
        knobs.dense = true;
    return knobs;
}

static assay_status try_borders(assay_home *home, int n_keys)
{
    static const int shifts[] = {1, -1, 2, -2, 3, 4, 8};
    char text[320];
    assay_knobs knobs = start(home, n_keys);
    knobs.mask_none = true;
    ASSAY_TRY(offer(home, &knobs, "no causal mask", 0.2, NULL,
                    "attention over every key of the step gives the value"));
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) {
        knobs = start(home, n_keys);
        knobs.mask_shift += shifts[i];
        snprintf(text, sizeof text, "query t sees keys up to t%+d", shifts[i]);
        ASSAY_TRY(offer(home, &knobs, "causal border shifted", 0.3,
                        json_pack("{s:i}", "shift", shifts[i]), text));
    }
    return ASSAY_OK;
}

static assay_status try_ends(assay_home *home, int n_keys)
{
    char text[320];
    for (int n = 1; n <= 4 && n < n_keys; n++) {
        assay_knobs knobs = *home->knobs;
        knobs.key_first = n;
        snprintf(text, sizeof text, "the first %d keys are not seen", n);
        ASSAY_TRY(
            offer(home, &knobs, "first keys left out", 0.4, json_pack("{s:i}", "keys", n), text));
        knobs = *home->knobs;
        knobs.key_limit = n_keys - n;
        snprintf(text, sizeof text, "the last %d of %d keys are not seen", n, n_keys);
        ASSAY_TRY(
            offer(home, &knobs, "last keys left out", 0.4, json_pack("{s:i}", "keys", n), text));
    }
    return ASSAY_OK;
}

/* The widest window first tells nothing; powers of two and their neighbours are what engines use,
 * then every width of a short prompt. */
static assay_status try_windows(assay_home *home, int n_keys)
{
    char text[320];
    for (int w = 1; w < n_keys; w++) {
        bool round = (w & (w - 1)) == 0 || ((w + 1) & w) == 0;
        if (n_keys > 48 && !round)
            continue;
        assay_knobs knobs = *home->knobs;
        knobs.window = w;
        snprintf(text, sizeof text, "each query sees only the last %d keys", w);
        ASSAY_TRY(offer(home, &knobs, "window", 0.6, json_pack("{s:i}", "window", w), text));
    }
    return ASSAY_OK;
}

/* Without one key: every row's other keys share what it had. Of probabilities, where the key's own
 * column says it. */
static assay_status try_one_key(assay_home *home, int n_keys)
{
    const assay_judged *j = home->judged;
    char text[320];
    if (j->point != ASSAY_POINT_PROBS || j->n_cols != n_keys)
        return ASSAY_OK;
    for (int key = 0; key < n_keys; key++) {
        int64_t n_rows = j->n_rows / home->shape->n_head, left_out = 0;
        memcpy(home->scratch, home->expected, (size_t)home->n * sizeof *home->scratch);
        for (int64_t r = 0; r < j->n_rows; r++) {
            double *p = home->scratch + r * j->n_cols, gone = p[key];
            if (home->got[r * j->n_cols + key] != 0 || gone == 0 || gone == 1)
                continue;
            for (int64_t i = 0; i < j->n_cols; i++)
                p[i] = i == key ? 0 : p[i] / (1 - gone);
            left_out++;
        }
        if (left_out == 0)
            continue;
        snprintf(text, sizeof text,
                 "key %d has probability 0 in %lld rows of %d heads x %lld tokens, the other keys "
                 "share what it had",
                 key, (long long)left_out, home->shape->n_head, (long long)n_rows);
        assay_relation_score(&home->rel, home->scratch, &home->pair);
        ASSAY_TRY(assay_home_offer_relation(
            home, &(assay_offer_text){.kind = "one key left out",
                                      .family = "attention",
                                      .complexity = 0.8,
                                      .fitted = json_pack("{s:i}", "key", key),
                                      .evidence = text}));
    }
    return ASSAY_OK;
}

typedef struct key_set { /* how the sets of the run differ from the right ones */
    int64_t rows, first, n_less, n_more, from, to;
} key_set;

/* A row over the keys that the run gives a share: of `open`, its probabilities over all keys of the
 * step. Unchanged where the set is right. */
static void take_set(double *p, key_set *set, const double *open, const double *got, int64_t n,
                     int64_t token, double unit)
{
    double kept = 0;
    int64_t less = 0, more = 0;
    bool differs = false;
    for (int64_t i = 0; i < n; i++) {
        differs = differs || (got[i] == 0) != (p[i] == 0);
        bool out = got[i] == 0 && p[i] > 4 * unit, in = got[i] > 4 * unit && p[i] == 0;
        less += out;
        more += in;
        kept += got[i] != 0 ? open[i] : 0;
        if (out || in) {
            set->from = i < set->from ? i : set->from;
            set->to = i > set->to ? i : set->to;
        }
    }
    if (!differs || !(kept > 0))
        return;
    for (int64_t i = 0; i < n; i++)
        p[i] = got[i] != 0 ? open[i] / kept : 0;
    if (less + more == 0) /* shares that rounding takes */
        return;
    set->rows++;
    set->n_less += less;
    set->n_more += more;
    set->first = set->first < 0 || token < set->first ? token : set->first;
}

/*
 * Any set of keys: exact zeros say which keys a row does not see, and the others share what is
 * there. Of probabilities alone.
 */
static assay_status try_any_set(assay_home *home, int n_keys)
{
    const assay_judged *j = home->judged;
    int64_t n = j->n_cols, T = j->n_rows / home->shape->n_head;
    key_set set = {.first = -1, .from = n, .to = -1};
    double unit = ldexp(1, -assay_dtype_mantissa(j->format)), *open;
    char text[320];
    if (j->point != ASSAY_POINT_PROBS || home->pair.sketch)
        return ASSAY_OK;
    assay_knobs knobs = start(home, n_keys);
    knobs.mask_none = true;
    ASSAY_TRY(assay_alloc(&open, (size_t)home->n, sizeof *open, "attention without a mask"));
    assay_status s = assay_forced_expect(open, home->forced, home->index, &knobs);
    memcpy(home->scratch, home->expected, (size_t)home->n * sizeof *home->scratch);
    for (int64_t r = 0; r < j->n_rows && s == ASSAY_OK; r++)
        take_set(home->scratch + r * n, &set, open + r * n, home->got + r * n, n, r % T, unit);
    free(open);
    if (s != ASSAY_OK || set.rows == 0)
        return s == ASSAY_MISSING ? ASSAY_OK : s;
    snprintf(text, sizeof text,
             "%lld of %lld rows (of heads), from token %lld of the step on, %s (keys %lld ... "
             "%lld); over the keys that they see the probabilities are right",
             (long long)set.rows, (long long)j->n_rows, (long long)set.first,
             set.n_more == 0   ? "give exactly 0 to keys that they should see"
             : set.n_less == 0 ? "see keys that they should not"
                               : "see other keys than they should",
             (long long)set.from, (long long)set.to);
    return assay_home_offer(
        home, home->scratch,
        &(assay_offer_text){.kind = set.n_more == 0   ? "keys left out"
                                    : set.n_less == 0 ? "keys seen that are masked"
                                                      : "another set of keys",
                            .family = "attention",
                            .complexity = 2.5, /* any rule goes first */
                            .fitted = json_pack("{s:I, s:[I,I]}", "rows", (json_int_t)set.rows,
                                                "keys", (json_int_t)set.from, (json_int_t)set.to),
                            .evidence = text});
}

/* The variant in whole tokens: slots behind the sequence are seen by every head of a row. */
static assay_status offer_tokens(assay_home *home, const assay_knobs *knobs,
                                 const assay_offer_text *text)
{
    const assay_judged *j = home->judged;
    bool probs = j->point == ASSAY_POINT_PROBS;
    int64_t T = probs ? j->n_rows / home->shape->n_head : j->n_rows, taken = 0;
    double *variant;
    char evidence[400], kind[80];
    ASSAY_TRY(assay_alloc(&variant, (size_t)home->n, 2 * sizeof *variant, "a set of keys"));
    double *out = variant + home->n;
    memcpy(out, home->expected, (size_t)home->n * sizeof *out);
    assay_status s = assay_forced_expect(variant, home->forced, home->index, knobs);
    for (int64_t t = 0; t < T && s == ASSAY_OK; t++) {
        double rest = 0, error = 0;
        for (int64_t r = t; r < j->n_rows; r += T)
            for (int64_t i = r * j->n_cols; i < (r + 1) * j->n_cols; i++) {
                double d = home->got[i] - home->expected[i], v = home->got[i] - variant[i];
                error += isfinite(d) ? d * d : 0;
                rest += isfinite(v) ? v * v : 0;
            }
        if (!(rest < 0.5 * error))
            continue;
        taken++;
        for (int64_t r = t; r < j->n_rows; r += T)
            memcpy(out + r * j->n_cols, variant + r * j->n_cols, (size_t)j->n_cols * sizeof *out);
    }
    assay_offer_text some = *text;
    snprintf(kind, sizeof kind, taken == T ? "%s" : "%s, in some rows", text->kind);
    snprintf(evidence, sizeof evidence, "in %lld of %lld tokens: %s", (long long)taken,
             (long long)T, text->evidence);
    some.kind = kind;
    some.evidence = taken == T ? text->evidence : evidence;
    some.complexity += taken == T ? 0 : 0.5;
    if (s == ASSAY_OK && taken > 0)
        s = assay_home_offer_near(home, out, variant, knobs, &some);
    else
        json_decref(text->fitted);
    free(variant);
    return s == ASSAY_MISSING ? ASSAY_OK : s;
}

/* Slots behind the sequence hold zeros: their scores are 0, and they enlarge the denominator. */
static assay_status try_beyond(assay_home *home)
{
    char text[320];
    double best, rest;
    assay_knobs knobs = *home->knobs;
    ASSAY_TRY(assay_home_fit(&best, &rest, home, &knobs, &knobs.key_extra, 0.5, 1 << 17, 19));
    if (!(best > 0.75) || fabs(best - nearbyint(best)) > 0.02 * best)
        return ASSAY_OK;
    knobs.key_extra = nearbyint(best);
    snprintf(text, sizeof text, "%.0f keys of zeros besides the sequence's own give the value",
             knobs.key_extra);
    return offer_tokens(home, &knobs,
                        &(assay_offer_text){.kind = "slots behind the sequence seen",
                                            .family = "attention",
                                            .complexity = 0.9,
                                            .fitted = json_pack("{s:f}", "keys", knobs.key_extra),
                                            .evidence = text});
}

assay_status assay_fault_match_valid_set(assay_home *home)
{
    const assay_judged *j = home->judged;
    bool index = assay_home_covers(home, ASSAY_POINT_INDEX_SCORES) ||
                 assay_home_is(home, ASSAY_POINT_INDEX_TOPK);
    if (j->against || (!index && (j->is_ids || !assay_home_attends(home))))
        return ASSAY_OK;
    const assay_run_step *step =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    int n_keys = (int)(step->first_position + step->n_tokens);
    ASSAY_TRY(try_borders(home, n_keys));
    ASSAY_TRY(try_ends(home, n_keys));
    if (!assay_home_settled(home))
        ASSAY_TRY(try_windows(home, n_keys));
    if (!index && !assay_home_settled(home))
        ASSAY_TRY(try_beyond(home));
    if (!index && !assay_home_best(home))
        ASSAY_TRY(try_one_key(home, n_keys));
    return index || assay_home_best(home) ? ASSAY_OK : try_any_set(home, n_keys);
}
