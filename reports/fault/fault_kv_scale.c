/*
 * KV-SCALE: what is read from the cache is what was written times a factor; direction exact.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "reports/home_cache.h"

const assay_fault_kind assay_fault_kinds_kv_scale[] = {
    {.name = "value-scale",
     .about = "values read times a factor",
     .weakest = 1.01,
     .strongest = 2,
     .seam = ASSAY_SEAM_KV_SCALE,
     .value = 1.1,
     .n_ints = 1,
     .ints = {1},
     .home = "attn.kernel_out attn.probs attn.lse attn.o_latent"},
    {.name = "cache-scale",
     .about = "keys and values read times a factor",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_SCALE,
     .value = 2,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse attn.index.scores"},
    {.name = "cache-scale-lost",
     .about = "rows of an 8-bit cache read without their scale",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_ROW_SCALE,
     .value = 1,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse attn.index.scores",
     .run = {.cache = ASSAY_CACHE_F8E4M3}},
    {.name = "cache-scale-zero",
     .about = "the scale of an 8-bit cache is never set: 0",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_ROW_SCALE,
     .value = 3,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse attn.index.scores",
     .run = {.cache = ASSAY_CACHE_Q8_0}},
    {0}};

static assay_status try_side(assay_home *home, bool keys)
{
    assay_knobs knobs = *home->knobs;
    double best, rest, *at = keys ? &knobs.key_scale : &knobs.value_scale;
    char text[320];
    ASSAY_TRY(assay_home_fit(&best, &rest, home, &knobs, at, 1.0 / 256, 256, 25));
    if (fabs(best - 1) < 1e-3)
        return ASSAY_OK;
    snprintf(text, sizeof text, "%s times %.6g give the value%s", keys ? "keys" : "values", best,
             fabs(best / (448.0 / 240) - 1) < 5e-3 || fabs(best / (240.0 / 448) - 1) < 5e-3
                 ? " (448/240: ranges of the two 8-bit formats)"
                 : "");
    return assay_home_offer_variant(
        home, &knobs,
        &(assay_offer_text){.kind = keys ? "keys scaled" : "values scaled",
                            .family = "attention",
                            .complexity = 1.1,
                            .fitted = json_pack("{s:f}", keys ? "key scale" : "value scale", best),
                            .evidence = text});
}

/* The run's own log-sum-exp is the logarithm of the number of keys: keys are zero, too. */
static bool scores_are_zero(assay_home *home)
{
    const assay_judged *j = home->judged;
    const assay_run_step *step =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    double *lse;
    int64_t n, n_head = home->shape->n_head;
    if (assay_home_value(&lse, &n, home, ASSAY_POINT_LSE, j->layer) != ASSAY_OK)
        return false;
    int64_t last = step->first_position + step->n_tokens, rows = n / n_head;
    bool zero = n > 0;
    for (int64_t i = 0; i < n && zero; i++)
        zero = fabs(lse[i] - log((double)(last - rows + i / n_head + 1))) < 1e-3;
    free(lse);
    return zero;
}

/* A cache that keeps a scale, and a reader that does not use it. */
static assay_status try_codec(assay_home *home)
{
    static const struct {
        assay_misread misread;
        const char *kind, *text;
    } ways[] = {
        {ASSAY_MISREAD_SCALE_ONE, "cache read without its scale",
         "the codes of the cache, without the scale they were written with, give the value"},
        {ASSAY_MISREAD_SCALE_ZERO, "scale of the cache is zero",
         "rows of the cache times a scale of 0 give the value"}};
    for (size_t i = 0; i < 2 && home->knobs->codec != ASSAY_STORED_PLAIN; i++) {
        assay_knobs knobs = *home->knobs;
        knobs.misread = ways[i].misread;
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){.kind = ways[i].kind,
                                .family = "attention",
                                .complexity = i == 1 && scores_are_zero(home) ? -0.1 : 0.2,
                                .evidence = ways[i].text}));
    }
    return ASSAY_OK;
}

static assay_status try_both(assay_home *home)
{
    /* the latent cache holds keys and values in one tensor */
    assay_knobs knobs = *home->knobs;
    static const double factors[] = {448.0 / 240, 240.0 / 448, 2, 0.5, 4, 0.25};
    char text[320];
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        knobs.key_scale = knobs.value_scale = factors[i];
        snprintf(text, sizeof text, "keys and values times %.6g give the value", factors[i]);
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){.kind = "cache scaled",
                                .family = "attention",
                                .complexity = 1,
                                .fitted = json_pack("{s:f}", "cache scale", factors[i]),
                                .evidence = text}));
    }
    return ASSAY_OK;
}

typedef struct reading { /* of slots whose scale is being fitted */
    assay_home *home;
    assay_slot *slots;
    int64_t n; /* the first n of them are scaled */
    assay_cached what;
    double *out; /* [rows, cols] */
} reading;

/* What is left with this scale in the rows or heads that stand out: it may be wrong in some heads
 * alone. */
static assay_status rest_under(double *rest, reading *r, double scale)
{
    const assay_home *h = r->home;
    const assay_judged *j = h->judged;
    int64_t width = j->n_cols / j->n_groups;
    for (int64_t i = 0; i < r->n; i++)
        r->slots[i].scale = scale;
    ASSAY_TRY(assay_home_attend(r->out, r->home, r->slots, r->what));
    *rest = 0;
    for (int64_t c = 0; c < j->n_rows * j->n_groups; c++) {
        double left = 0, error = 0, size = 0;
        for (int64_t i = c * width; i < (c + 1) * width; i++) {
            double d = h->got[i] - h->expected[i], v = h->got[i] - r->out[i];
            error += isfinite(d) ? d * d : 0;
            left += isfinite(v) ? v * v : 0;
            size += isfinite(h->got[i]) ? h->got[i] * h->got[i] : 0;
        }
        bool wrong = error > 9 * j->floor_row_median * j->floor_row_median * size;
        *rest += wrong && size > 0 ? left / size : 0;
    }
    return ASSAY_OK;
}

/* A logarithmic grid, then golden section about its best point. */
static assay_status fit_scale(double *best, reading *r)
{
    static const double ratio = 0.6180339887498949, step = 0.4;
    double least = INFINITY, top = 0, rest, ra, rb, none = 0;
    for (int i = -7; i <= 7; i++) {
        ASSAY_TRY(rest_under(&rest, r, exp(step * i)));
        none = i == 0 ? rest : none; /* nothing scaled */
        if (rest < least) {
            least = rest;
            top = step * i;
        }
    }
    double a = top - step, b = top + step, x = b - ratio * (b - a), y = a + ratio * (b - a);
    ASSAY_TRY(rest_under(&ra, r, exp(x)));
    ASSAY_TRY(rest_under(&rb, r, exp(y)));
    while (b - a > 1e-8 && (b - a > 2e-3 || fmin(ra, rb) < 0.1 * none)) {
        if (ra < rb) {
            b = y;
            y = x;
            rb = ra;
            x = b - ratio * (b - a);
            ASSAY_TRY(rest_under(&ra, r, exp(x)));
        } else {
            a = x;
            x = y;
            ra = rb;
            y = a + ratio * (b - a);
            ASSAY_TRY(rest_under(&rb, r, exp(y)));
        }
    }
    *best = exp((a + b) / 2);
    return rest_under(&rest, r, *best);
}

/* The scale of what earlier steps cached, or of latents: keys without their rotary part, values. */
static assay_status offer_cached(assay_home *home, reading *r, bool earlier)
{
    static const char *const names[] = {"keys and values", "keys", "values",
                                        "keys without their rotary part, and values,"};
    double best;
    char text[320];
    assay_status s = fit_scale(&best, r);
    if (s == ASSAY_MISSING || (s == ASSAY_OK && fabs(best - 1) < 1e-3))
        return ASSAY_OK;
    ASSAY_TRY(s);
    snprintf(text, sizeof text, "%s%s times %.6g give the value%s", names[r->what],
             earlier ? " of earlier steps" : "", best,
             fabs(best / (448.0 / 240) - 1) < 5e-3 || fabs(best / (240.0 / 448) - 1) < 5e-3
                 ? " (448/240: ranges of the two 8-bit formats)"
                 : "");
    assay_offer_text offered = {.kind = r->what == ASSAY_CACHED_LATENT   ? "latents scaled"
                                        : r->what == ASSAY_CACHED_KEYS   ? "cached keys scaled"
                                        : r->what == ASSAY_CACHED_VALUES ? "cached values scaled"
                                                                         : "cache scaled",
                                .family = "attention",
                                .complexity = 1.2,
                                .fitted = json_pack("{s:f}", "cache scale", best),
                                .evidence = text};
    json_incref(offered.fitted);
    s = assay_home_offer(home, r->out, &offered);
    if (s == ASSAY_OK && !home->offers[home->n_offers - 1].complete)
        s = assay_home_offer_partly(home, r->out, home->scratch, &offered);
    json_decref(offered.fitted);
    return s;
}

/* What the step itself computed is read as it is where it does not pass through the cache. */
static assay_status try_cached(assay_home *home)
{
    const assay_judged *j = home->judged;
    const assay_run_step *at =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    int64_t n = assay_home_n_keys(home);
    int64_t rows = j->point == ASSAY_POINT_PROBS ? j->n_rows / home->shape->n_head : j->n_rows;
    bool values = j->point != ASSAY_POINT_PROBS && j->point != ASSAY_POINT_LSE;
    if (rows != at->n_tokens || n > 512 || home->pair.sketch || j->n_nonfinite > 0)
        return ASSAY_OK;
    reading r = {.home = home};
    ASSAY_TRY(assay_alloc(&r.slots, (size_t)n, sizeof *r.slots, "slots"));
    assay_status s = assay_alloc(&r.out, (size_t)home->n, sizeof *r.out, "a value");
    for (int earlier = 1; earlier >= 0; earlier--)
        for (assay_cached what = ASSAY_CACHED_ALL; what <= ASSAY_CACHED_LATENT; what++) {
            bool latent = what == ASSAY_CACHED_LATENT;
            if (s != ASSAY_OK || assay_home_best(home) || (latent && !home->shape->is_mla) ||
                (earlier ? at->first_position == 0 : !latent) ||
                (!values && (what == ASSAY_CACHED_VALUES || what == ASSAY_CACHED_ALL)))
                continue;
            assay_home_own_slots(r.slots, home);
            r.n = earlier ? at->first_position : n;
            r.what = what;
            s = offer_cached(home, &r, earlier);
        }
    free(r.slots);
    free(r.out);
    return s;
}

assay_status assay_fault_match_kv_scale(assay_home *home)
{
    const assay_judged *j = home->judged;
    char text[320];
    if (j->against || j->is_ids)
        return ASSAY_OK;
    if (assay_home_attends(home) || j->point == ASSAY_POINT_INDEX_SCORES)
        ASSAY_TRY(try_codec(home));
    if (assay_home_attends(home)) {
        if (assay_home_settled(home)) /* the scale of the logits says as much about keys */
            return ASSAY_OK;
        ASSAY_TRY(try_side(home, false));
        ASSAY_TRY(try_side(home, true));
        ASSAY_TRY(try_both(home));
        return assay_home_best(home) ? ASSAY_OK : try_cached(home);
    }
    if (j->point != ASSAY_POINT_K && j->point != ASSAY_POINT_V &&
        j->point != ASSAY_POINT_KV_LATENT && j->point != ASSAY_POINT_K_ROPE)
        return ASSAY_OK;
    assay_relation_scale(&home->rel, home->scratch, &home->pair);
    snprintf(text, sizeof text, "the cached tensor is the expected one times %.6g",
             home->rel.value);
    return assay_home_offer_relation(
        home, &(assay_offer_text){.kind = "cached tensor scaled",
                                  .complexity = 1,
                                  .fitted = json_pack("{s:f}", "scale", home->rel.value),
                                  .evidence = text});
}
