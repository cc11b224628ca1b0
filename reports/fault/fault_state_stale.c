/*
 * STATE-STALE: what the cache had of another request was taken for this one's beginning; or a value
 * is that of another request of the same run, at the same place.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/home_cache.h"

#define CACHED "attn.probs attn.kernel_out attn.o_latent attn.lse attn.index.scores"

const assay_fault_kind assay_fault_kinds_state_stale[] = {
    {.name = "prefix-hash",
     .about = "a prefix is found by a hash alone, and all pages have the same one",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_PREFIX_UNCHECKED,
     .value = 1,
     .home = CACHED,
     .global = true,
     .run = {.page_size = 4, .requests = ASSAY_REQUESTS_PREFIX},
     .also = {true, ASSAY_SEAM_PREFIX_HASH_BITS, true, -1, 0, {0}}},
    {.name = "prefix-evicted",
     .about = "a prefix is found in pages that others have been given since",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_PREFIX_EVICTED,
     .value = 1,
     .home = CACHED,
     .global = true,
     .run = {.page_size = 8, .requests = ASSAY_REQUESTS_EVICTED}},
    {0}};

/* Positions of the prompt that were found in the cache, not computed. */
static int64_t n_found(const assay_run *run, int prompt)
{
    const assay_run_prompt *p = assay_run_prompt_at(run, prompt);
    const assay_run_step *first = p->n_steps ? assay_run_step_at(run, prompt, 0) : NULL;
    return first && first->is_found ? first->n_tokens : 0;
}

/* Rows 0 ... n - 1 (by position) of a point in another prompt. Fails: ASSAY_MISSING. */
static assay_status rows_of(double *out, assay_run *run, int prompt, assay_point point, int layer,
                            int64_t n, int64_t width)
{
    int64_t have = 0;
    for (int k = 0; k < assay_run_prompt_at(run, prompt)->n_steps && have < n; k++) {
        const assay_run_step *at = assay_run_step_at(run, prompt, k);
        const assay_seen *seen = assay_run_find(run, prompt, k, point, layer);
        double *all;
        if (!seen || !seen->has_values || at->first_position != have)
            break;
        int64_t count = assay_seen_count(seen);
        if (count != at->n_tokens * width)
            break;
        ASSAY_TRY(assay_alloc(&all, (size_t)count, sizeof *all, "another request's rows"));
        assay_status s = assay_run_read(all, run, seen);
        int64_t take = at->n_tokens < n - have ? at->n_tokens : n - have;
        if (s == ASSAY_OK)
            memcpy(out + have * width, all, (size_t)(take * width) * sizeof *out);
        free(all);
        ASSAY_TRY(s);
        have += take;
    }
    return have == n ? ASSAY_OK : assay_fail(ASSAY_MISSING, "another request's rows are not here");
}

#define MOST_PAGES 8

/* What the positions that were found hold, page by page. */
typedef struct found {
    int other; /* prompt */
    int64_t n; /* positions */
    int64_t page;
    int map[MOST_PAGES]; /* page of the other request; -1: their own */
} found;

/* Rows of the step in front: this request's own, or the other's where the map says so. */
static assay_status put_found(assay_pass *pass, assay_home *home, const found *f, assay_point point)
{
    const assay_judged *j = home->judged;
    assay_pass *source = assay_forced_pass(home->forced, j->prompt);
    const double *own;
    double *rows;
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS], width = 1;
    if (!assay_oracle_has_point(assay_forced_oracle(home->forced), point, j->layer,
                                assay_forced_is_latent(home->forced, j->prompt)))
        return ASSAY_OK;
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, pass, 0, point, j->layer));
    for (int i = 1; i < n_dims; i++)
        width *= dims[i];
    ASSAY_TRY(assay_pass_value(&own, source, 0, point, j->layer));
    ASSAY_TRY(assay_alloc(&rows, (size_t)(2 * f->n * width), sizeof *rows, "rows of a prefix"));
    double *theirs = rows + f->n * width;
    memcpy(rows, own, (size_t)(f->n * width) * sizeof *rows);
    assay_status s =
        rows_of(theirs, assay_forced_run(home->forced), f->other, point, j->layer, f->n, width);
    for (int64_t i = 0; s == ASSAY_OK && i * f->page < f->n; i++)
        if (f->map[i] >= 0)
            memcpy(rows + i * f->page * width, theirs + f->map[i] * f->page * width,
                   (size_t)(f->page * width) * sizeof *rows);
    if (s == ASSAY_OK)
        s = assay_pass_put(pass, 0, point, j->layer, rows, f->n * width);
    free(rows);
    return s;
}

/* What the run shows of this prompt in a step, into another pass. */
static assay_status put_own(assay_pass *pass, assay_home *home, int step, assay_point point)
{
    const assay_judged *j = home->judged;
    assay_pass *source = assay_forced_pass(home->forced, j->prompt);
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS], count = 1;
    const double *values;
    if (!assay_pass_is_put(source, step, point, j->layer))
        return ASSAY_OK;
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, source, step, point, j->layer));
    for (int i = 0; i < n_dims; i++)
        count *= dims[i];
    ASSAY_TRY(assay_pass_value(&values, source, step, point, j->layer));
    return assay_pass_put(pass, step, point, j->layer, values, count);
}

/* The home's op over what the map says of the positions found, and this request's own behind. */
static assay_status attend_stale(double *out, assay_home *home, const found *f)
{
    static const assay_point points[] = {ASSAY_POINT_K,
                                         ASSAY_POINT_V,
                                         ASSAY_POINT_K_ROPE,
                                         ASSAY_POINT_KV_LATENT,
                                         ASSAY_POINT_INDEX_K,
                                         ASSAY_POINT_Q,
                                         ASSAY_POINT_Q_ROPE,
                                         ASSAY_POINT_Q_LATENT,
                                         ASSAY_POINT_INDEX_Q,
                                         ASSAY_POINT_INDEX_TOPK,
                                         ASSAY_POINT_INDEX_WEIGHTS};
    const assay_judged *j = home->judged;
    assay_run *run = assay_forced_run(home->forced);
    assay_pass_options options = {.latent = assay_forced_is_latent(home->forced, j->prompt),
                                  .knobs = home->knobs};
    assay_pass *pass;
    ASSAY_TRY(assay_pass_new(&pass, assay_forced_oracle(home->forced), &options));
    assay_status s = ASSAY_OK;
    for (int step = 0; step <= j->step; step++) {
        const assay_run_step *at = assay_run_step_at(run, j->prompt, step);
        int number;
        ASSAY_GO(assay_pass_add_step(&number, pass, at->tokens, at->n_tokens, at->first_position));
        for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
            if (step > 0)
                ASSAY_GO(put_own(pass, home, step, points[i]));
            else if (i < 5)
                ASSAY_GO(put_found(pass, home, f, points[i]));
        }
    }
    s = assay_pass_expect(out, pass, j->step, j->point, j->layer, home->knobs);
out:
    assay_pass_free(pass);
    return s;
}

static double rest_of(const assay_home *home, const double *out)
{
    double rest = 0;
    for (int64_t i = 0; i < home->n; i++) {
        double d = home->got[i] - out[i];
        rest += isfinite(d) ? d * d : 0;
    }
    return rest;
}

static assay_status offer_found(assay_home *home, const double *out, const found *f)
{
    char text[320], pages[100] = "";
    size_t at = 0;
    for (int64_t i = 0; f->page < f->n && i * f->page < f->n && at < sizeof pages - 16; i++)
        at += (size_t)(f->map[i] < 0 ? snprintf(pages + at, sizeof pages - at, " own")
                                     : snprintf(pages + at, sizeof pages - at, " %d", f->map[i]));
    snprintf(text, sizeof text,
             "positions 0 ... %lld were found in the cache; with those of prompt '%s' the value "
             "comes out%s%s",
             (long long)f->n - 1,
             assay_run_prompt_at(assay_forced_run(home->forced), f->other)->name,
             at ? "; its pages:" : "", pages);
    return assay_home_offer(home, out,
                            &(assay_offer_text){.kind = "another request's prefix",
                                                .family = "cache",
                                                .complexity = at ? 0.4 : 0.2,
                                                .evidence = text});
}

/* Page by page, whichever content leaves least. */
static assay_status try_pages(assay_home *home, found *f, double *out)
{
    double best;
    for (int i = 0; i < MOST_PAGES; i++)
        f->map[i] = -1;
    ASSAY_TRY(attend_stale(out, home, f));
    best = rest_of(home, out);
    for (int64_t i = 0; i * f->page < f->n; i++) {
        int kept = -1;
        for (int k = 0; k * f->page < f->n; k++) {
            f->map[i] = k;
            ASSAY_TRY(attend_stale(out, home, f));
            double rest = rest_of(home, out);
            if (rest < 0.999 * best) {
                best = rest;
                kept = k;
            }
        }
        f->map[i] = kept;
    }
    ASSAY_TRY(attend_stale(out, home, f));
    return offer_found(home, out, f);
}

/* Pages that were given back and hold nothing: whatever sees a position that was found is NaN. */
static assay_status try_given_back(assay_home *home, int64_t n)
{
    const assay_judged *j = home->judged;
    bool index = j->point == ASSAY_POINT_INDEX_SCORES;
    char text[320];
    int64_t n_bad = 0, n_outside = 0, n_fine = 0;
    for (int64_t i = 0; i < home->n; i++) {
        bool bad = isnan(home->got[i]) && isfinite(home->expected[i]);
        n_bad += bad;
        n_outside += bad && index && i % j->n_cols >= n;
        n_fine += !index && isfinite(home->got[i]) && home->got[i] != 0;
        home->scratch[i] = bad ? home->got[i] : home->expected[i];
    }
    if (n_bad == 0 || n_outside > 0 || n_fine > 0)
        return ASSAY_OK;
    snprintf(text, sizeof text,
             "positions 0 ... %lld were found in the cache; whatever sees them is NaN, what was "
             "computed since is finite: their pages had been given back",
             (long long)n - 1);
    return assay_home_offer(home, home->scratch,
                            &(assay_offer_text){.kind = "a prefix in pages given back",
                                                .family = "cache",
                                                .complexity = 0.02,
                                                .evidence = text});
}

static assay_status try_found(assay_home *home)
{
    const assay_judged *j = home->judged;
    assay_run *run = assay_forced_run(home->forced);
    int64_t n = n_found(run, j->prompt);
    double *out;
    if (n == 0 || !(assay_home_attends(home) || j->point == ASSAY_POINT_INDEX_SCORES))
        return ASSAY_OK;
    ASSAY_TRY(try_given_back(home, n));
    ASSAY_TRY(assay_alloc(&out, (size_t)home->n, sizeof *out, "a value"));
    assay_status s = ASSAY_OK;
    for (int p = 0; p < assay_run_n_prompts(run) && s == ASSAY_OK; p++) {
        found f = {.other = p, .n = n, .page = n};
        if (p == j->prompt)
            continue;
        s = attend_stale(out, home, &f);
        if (s == ASSAY_OK)
            s = offer_found(home, out, &f);
        for (f.page = 4; f.page < n && s == ASSAY_OK && !assay_home_settled(home); f.page *= 2)
            if (n % f.page == 0 && n / f.page <= MOST_PAGES)
                s = try_pages(home, &f, out);
        s = s == ASSAY_MISSING ? ASSAY_OK : s;
    }
    free(out);
    return s;
}

/* The first keys and values are another request's: a prefix that was taken for known. */
static assay_status try_prefix(assay_home *home, int prompt)
{
    const assay_run_prompt *other = assay_run_prompt_at(assay_forced_run(home->forced), prompt);
    int64_t n = assay_home_n_keys(home);
    assay_slot *slots;
    double *out = NULL;
    char text[320];
    ASSAY_TRY(assay_alloc(&slots, (size_t)n, sizeof *slots, "slots"));
    assay_status s = assay_alloc(&out, (size_t)home->n, sizeof *out, "a value");
    for (int64_t length = 1; s == ASSAY_OK && length <= n && length <= other->n_tokens; length++) {
        bool power = (length & (length - 1)) == 0;
        if (!power && length % 16 != 0 && length != other->n_tokens)
            continue;
        assay_home_own_slots(slots, home);
        for (int64_t i = 0; i < length; i++)
            slots[i].prompt = prompt;
        s = assay_home_attend(out, home, slots, ASSAY_CACHED_ALL);
        snprintf(text, sizeof text,
                 "attention with the first %lld keys and values of prompt '%s' gives the value",
                 (long long)length, other->name);
        if (s == ASSAY_OK)
            s = assay_home_offer(
                home, out,
                &(assay_offer_text){.kind = "another request's keys",
                                    .family = "attention",
                                    .complexity = 0.7,
                                    .fitted = json_pack("{s:s, s:I}", "prompt", other->name, "keys",
                                                        (json_int_t)length),
                                    .evidence = text});
        else if (s == ASSAY_MISSING)
            s = ASSAY_OK;
    }
    free(out);
    free(slots);
    return s;
}

assay_status assay_fault_match_state_stale(assay_home *home)
{
    const assay_judged *j = home->judged;
    assay_run *run = assay_forced_run(home->forced);
    char text[320];
    if (j->against || j->is_ids)
        return ASSAY_OK;
    bool attends = j->point == ASSAY_POINT_PROBS || j->point == ASSAY_POINT_KERNEL_OUT ||
                   j->point == ASSAY_POINT_O_LATENT || j->point == ASSAY_POINT_INDEX_SCORES;
    ASSAY_TRY(try_found(home));
    for (int p = 0; p < assay_run_n_prompts(run); p++) {
        if (p != j->prompt && attends && !assay_home_best(home) && p < 8)
            ASSAY_TRY(try_prefix(home, p));
        if (p == j->prompt || j->step >= assay_run_prompt_at(run, p)->n_steps)
            continue;
        const assay_seen *seen = assay_run_find(run, p, j->step, j->point, j->layer);
        if (!seen || !seen->has_values)
            continue;
        int64_t n = assay_seen_count(seen);
        if (n != home->n)
            continue;
        double *other;
        ASSAY_TRY(assay_alloc(&other, (size_t)n, sizeof *other, "another prompt's value"));
        assay_status s = assay_run_read(other, run, seen);
        if (s == ASSAY_OK) {
            assay_relation_equals(&home->rel, home->scratch, &home->pair, other);
            snprintf(text, sizeof text, "the value is that of prompt '%s'",
                     assay_run_prompt_at(run, p)->name);
            s = assay_home_offer_relation(
                home, &(assay_offer_text){.kind = "another request's value", .evidence = text});
        }
        free(other);
        ASSAY_TRY(s);
    }
    return ASSAY_OK;
}
