#include "reports/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/diagnose_pictures.h"
#include "reports/diagnose_private.h"
#include "reports/home_ranks.h"
#include "reports/run_notes.h"
#include "reports/series.h"

/* How far a home stands out; ids and masks first of all. */
static double weight_of(const assay_judged *j)
{
    if (j->is_ids || j->n_nonfinite_added > 0)
        return INFINITY;
    double whole = j->floor_rel > 0 ? j->rel / j->floor_rel : INFINITY;
    double row = j->floor_row_median > 0 ? j->row_rel_max / j->floor_row_median : INFINITY;
    return fmax(whole, row);
}

static assay_status ask(assay_diagnosis *d, assay_home *home, int fault)
{
    d->cost.n_asked++;
    home->fault = fault;
    assay_status s = assay_fault_at(fault)->match(home);
    return s == ASSAY_OK ? s : assay_within(s, "class %s", assay_fault_at(fault)->name);
}

static void keep(assay_located *l, const assay_home *home, const assay_offer *best)
{
    l->fault = best->fault;
    l->convention = best->convention;
    memcpy(l->kind, best->kind, sizeof l->kind);
    memcpy(l->family, best->family, sizeof l->family);
    memcpy(l->evidence, best->evidence, sizeof l->evidence);
    l->fitted = json_incref(best->fitted);
    l->confidence = assay_home_confidence(home, best);
    l->explained = fmax(0, fmin(1, best->explained));
    const assay_offer *second = assay_home_second(home, best);
    if (second)
        snprintf(l->second, sizeof l->second,
                 second->residual <= 1.5 * best->residual
                     ? "fits as well, but is less simple: %s (%s)"
                     : "next best: %s (%s), which leaves an error of %.3g where this leaves %.3g",
                 assay_fault_at(second->fault)->name, second->kind, second->residual,
                 best->residual);
}

static void keep_unknown(assay_located *l, const assay_home *home)
{
    const assay_offer *nearest = assay_home_nearest(home);
    l->fault = ASSAY_FAULT_UNKNOWN;
    snprintf(l->kind, sizeof l->kind, "unexplained");
    snprintf(l->family, sizeof l->family, "%s", assay_point_at(home->judged->point)->name);
    l->fitted = json_object();
    if (home->judged->seen->known == ASSAY_KNOWN_ESTIMATE)
        snprintf(l->shape, sizeof l->shape,
                 "nothing tried fits its sketch; capture the values of this layer");
    else
        assay_shape_describe(l->shape, sizeof l->shape, home);
    if (nearest && nearest->explained > 0.3) {
        l->explained = nearest->explained;
        snprintf(l->second, sizeof l->second, "nearest: %s (%s), removes %.1f %% of the error",
                 assay_fault_at(nearest->fault)->name, nearest->kind, 100 * nearest->explained);
    }
}

/* The ranks at fault: as the explanation says, else those whose part of the value is wrong. */
static assay_status find_ranks(assay_located *l, assay_home *home)
{
    const json_t *ranks = json_object_get(l->fitted, "ranks");
    for (size_t i = 0; i < json_array_size(ranks); i++)
        ASSAY_TRY(
            assay_numbers_add(&l->ranks, (int64_t)json_integer_value(json_array_get(ranks, i))));
    return ranks ? ASSAY_OK : assay_home_bad_ranks(&l->ranks, home);
}

/* One class may cost some passes more. */
static bool is_spent(const assay_forced *forced)
{
    return assay_forced_cost(forced) > ASSAY_DIAGNOSE_PASSES - 3;
}

/* likely: the class that explained another home at this point, or -1. */
assay_status assay_diagnosis_explain_home(assay_diagnosis *d, int position, int likely)
{
    assay_located *l = &d->homes[position];
    assay_forced *forced = d->forced;
    assay_home *home;
    ASSAY_TRY(assay_home_new(&home, forced, l->index));
    d->n_explained++;
    assay_status s = ASSAY_OK;
    bool is_estimate = home->judged->seen->known == ASSAY_KNOWN_ESTIMATE; /* the walk has asked */
    if (likely >= 0 && !is_estimate)
        ASSAY_GO(ask(d, home, likely));
    if (assay_home_best(home))
        d->cost.n_answered += assay_fault_count() - 1;
    else
        for (int i = 0; i < assay_fault_count() && !is_estimate; i++)
            if (i != likely && is_spent(forced))
                d->cost.n_unaffordable++;
            else if (i != likely)
                ASSAY_GO(ask(d, home, i));
    const assay_offer *best = assay_home_best(home);
    if (best)
        keep(l, home, best);
    else
        keep_unknown(l, home);
    ASSAY_GO(find_ranks(l, home));
out:
    assay_home_free(home);
    return s;
}

static assay_status list_homes(assay_diagnosis *d)
{
    int n = assay_forced_n(d->forced);
    for (int i = 0; i < n; i++)
        d->n += assay_forced_at(d->forced, i)->is_home;
    ASSAY_TRY(assay_alloc(&d->homes, (size_t)d->n, sizeof *d->homes, "homes"));
    int k = 0;
    for (int i = 0; i < n; i++)
        if (assay_forced_at(d->forced, i)->is_home) {
            d->homes[k].index = i;
            d->homes[k].fault = ASSAY_FAULT_UNKNOWN;
            d->homes[k++].merged = -1;
        }
    return ASSAY_OK;
}

static const assay_judged *judged_of(const assay_diagnosis *d, int position)
{
    return assay_forced_at(d->forced, d->homes[position].index);
}

static int likely_class(const assay_diagnosis *d, int position, const bool *done)
{
    const assay_judged *j = judged_of(d, position);
    for (int i = 0; i < d->n; i++) {
        const assay_judged *k = judged_of(d, i);
        if (done[i] && k->point == j->point && !k->against == !j->against &&
            d->homes[i].fault != ASSAY_FAULT_UNKNOWN)
            return d->homes[i].fault;
    }
    return -1;
}

/* Of the homes at one place of the model, the one with the most rows: it says most. */
static int longest_at(const assay_diagnosis *d, int position, const bool *done)
{
    const assay_judged *j = judged_of(d, position);
    int longest = position;
    for (int i = 0; i < d->n; i++) {
        const assay_judged *k = judged_of(d, i);
        if (!done[i] && d->homes[i].merged < 0 && k->point == j->point && k->layer == j->layer &&
            !k->against == !j->against && k->n_rows > judged_of(d, longest)->n_rows)
            longest = i;
    }
    return longest;
}

static assay_status explain_all(assay_diagnosis *d)
{
    bool *done;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(assay_alloc(&done, (size_t)d->n, sizeof *done, "homes"));
    for (int i = 0; i < d->n; i++)
        done[i] = d->homes[i].fault != ASSAY_FAULT_UNKNOWN;
    for (int round = 0; round < d->n && s == ASSAY_OK; round++) {
        int next = -1;
        for (int i = 0; i < d->n; i++) {
            if (done[i] || d->homes[i].merged >= 0)
                continue;
            double a = weight_of(judged_of(d, i)),
                   b = next < 0 ? -1 : weight_of(judged_of(d, next));
            /* of equals, the one with more rows says more */
            if (next < 0 || a > b ||
                (a == b && judged_of(d, i)->n_rows > judged_of(d, next)->n_rows))
                next = i;
        }
        if (next < 0)
            break;
        next = longest_at(d, next, done);
        s = assay_diagnosis_explain_home(d, next, likely_class(d, next, done));
        done[next] = true;
    }
    free(done);
    return s;
}

/* Rotated parts stored in another order, and a Hadamard matrix, are conventions only where queries
 * and keys both have them. */
static void check_conventions(assay_diagnosis *d)
{
    for (int i = 0; i < d->n; i++) {
        const assay_judged *a = judged_of(d, i);
        if (!d->homes[i].convention || (strcmp(d->homes[i].family, "rotary") != 0 &&
                                        strcmp(d->homes[i].family, "hadamard") != 0))
            continue;
        bool both = false;
        for (int k = 0; k < d->n && !both; k++) {
            const assay_judged *b = judged_of(d, k);
            both = b->point != a->point && b->layer == a->layer && b->prompt == a->prompt &&
                   !strcmp(d->homes[k].kind, d->homes[i].kind);
        }
        d->homes[i].convention = both;
    }
}

static assay_status check_model(assay_result *result, const assay_run *run,
                                const assay_diagnose_options *options)
{
    const assay_gguf *file = options->file;
    const assay_run_info *info = assay_run_about(run);
    char sha256[65];
    if (!info->is_complete)
        ASSAY_TRY(assay_strings_add(&result->notes, "%s is incomplete: the capture was cut off",
                                    info->path));
    if (options->is_own)
        return ASSAY_OK;
    assay_gguf_string kind;
    if (*info->architecture && file && !assay_gguf_str(&kind, file, "general.architecture") &&
        (strlen(info->architecture) != kind.n || memcmp(info->architecture, kind.bytes, kind.n)))
        return assay_fail(ASSAY_CANNOT_JUDGE,
                          "%s is a capture of another model: its architecture is '%s', that of %s "
                          "is '%.*s'",
                          info->path, info->architecture, assay_gguf_path(file), (int)kind.n,
                          kind.bytes);
    if (!info->model_sha256[0] || !file)
        return assay_strings_add(&result->notes,
                                 "same model: unproven (%s carries no hash of its model); shapes "
                                 "and tokens fit",
                                 info->path);
    if (options->sha256 && !*options->sha256)
        return assay_strings_add(&result->notes,
                                 "same model: unproven (of some layers alone the file is not read "
                                 "whole for its SHA-256); shapes and tokens fit");
    if (options->sha256)
        snprintf(sha256, sizeof sha256, "%s", options->sha256);
    else
        ASSAY_TRY(assay_gguf_sha256(sha256, file));
    if (strcmp(sha256, info->model_sha256))
        return assay_fail(ASSAY_CANNOT_JUDGE,
                          "%s is a capture of another model: SHA-256 %.12s, %s has %.12s",
                          info->path, info->model_sha256, assay_gguf_path(file), sha256);
    return ASSAY_OK;
}

/* "POINT: why" -> why. */
static const char *reason_of(const char *line)
{
    const char *colon = strstr(line, ": ");
    return colon ? colon + 2 : line;
}

/* Values that share a reason are one note. */
static assay_status add_unjudged(assay_result *result, const assay_forced *forced, int index)
{
    const char *line = assay_forced_unjudged_at(forced, index), *why = reason_of(line);
    int n = 0;
    for (int i = 0; i < assay_forced_n_unjudged(forced); i++)
        if (!strcmp(reason_of(assay_forced_unjudged_at(forced, i)), why)) {
            if (i < index)
                return ASSAY_OK;
            n++;
        }
    if (n == 1)
        return assay_strings_add(&result->notes, "%s", line);
    return assay_strings_add(&result->notes, "%d values are not judged, the first is %s", n, line);
}

static assay_status add_notes(assay_result *result, const assay_diagnosis *d)
{
    const assay_run_info *info = assay_run_about(assay_forced_run(d->forced));
    int n_unjudged = assay_forced_n_unjudged(d->forced);
    result->n_judged += assay_forced_n(d->forced);
    result->n_points += assay_forced_n(d->forced) + n_unjudged;
    if (is_spent(d->forced))
        ASSAY_TRY(assay_strings_add(&result->notes,
                                    "%.0f oracle passes are spent: not every class was asked at "
                                    "every place; the layers or steps asked for may be fewer",
                                    assay_forced_cost(d->forced)));
    if (info->profile)
        ASSAY_TRY(
            assay_strings_add(&result->notes, "conventions assumed: %s", info->profile->about));
    ASSAY_TRY(assay_result_add_run_notes(result, assay_forced_run(d->forced)));
    for (int i = 0; i < n_unjudged; i++)
        ASSAY_TRY(add_unjudged(result, d->forced, i));
    for (int i = 0; i < assay_forced_n_notes(d->forced); i++)
        ASSAY_TRY(assay_strings_add(&result->notes, "%s", assay_forced_note_at(d->forced, i)));
    for (int i = 0; i < info->n_unmapped && i < 8; i++)
        ASSAY_TRY(assay_strings_add(&result->notes, "not judged, no point of this name: %s",
                                    assay_run_unmapped_at(assay_forced_run(d->forced), i)));
    return ASSAY_OK;
}

static assay_status add_series(assay_result *result, const assay_diagnosis *d)
{
    for (int i = 0; i < assay_forced_n(d->forced); i++) {
        const assay_judged *j = assay_forced_at(d->forced, i);
        if (j->is_ids || j->step > 0)
            continue;
        const assay_run_prompt *p = assay_run_prompt_at(assay_forced_run(d->forced), j->prompt);
        ASSAY_TRY(assay_series_depth(result, p->name, j->step, assay_point_at(j->point)->name,
                                     j->layer, j->rel, NAN, j->floor_rel, j->is_home));
    }
    return ASSAY_OK;
}

assay_status assay_diagnosis_explain(assay_diagnosis *d, assay_result *result, assay_run *run,
                                     assay_oracle *oracle, const assay_forced_options *options)
{
    ASSAY_TRY(assay_diagnosis_view(&d->forced, run, oracle, options));
    ASSAY_TRY(assay_diagnosis_conventions(result, d, run, oracle, options));
    ASSAY_TRY(assay_diagnosis_layouts(result, d, run, oracle, options));
    ASSAY_TRY(list_homes(d));
    ASSAY_TRY(assay_diagnosis_drop_behind(result, d));
    assay_diagnosis_merge(d);
    ASSAY_TRY(assay_diagnosis_other_weights(d));
    ASSAY_TRY(explain_all(d));
    assay_diagnosis_merge_estimates(d);
    ASSAY_TRY(assay_diagnosis_hadamard(d));
    ASSAY_TRY(assay_diagnosis_join(d));
    check_conventions(d);
    return ASSAY_OK;
}

void assay_diagnosis_clear(assay_diagnosis *d)
{
    for (int i = 0; i < d->n && d->homes; i++) {
        json_decref(d->homes[i].fitted);
        assay_numbers_clear(&d->homes[i].ranks);
    }
    free(d->homes);
    assay_forced_free(d->forced);
    *d = (assay_diagnosis){0};
}

static assay_diagnose_cost cost_of(const assay_diagnosis *d)
{
    assay_diagnose_cost cost = d->cost;
    cost.n_homes = d->n;
    if (d->n > d->n_explained)
        cost.n_belongs = (int64_t)(d->n - d->n_explained) * assay_fault_count();
    cost.n_hypotheses = cost.n_asked + cost.n_answered + cost.n_unaffordable + cost.n_belongs;
    return cost;
}

/* Embeddings are copied: what no class explains there may be the weights of another file. */
static assay_status doubt_model(assay_result *result, int first, const assay_run *run,
                                const assay_diagnose_options *options)
{
    bool is_proven = options->is_own || (options->file && *assay_run_about(run)->model_sha256);
    for (int i = first; i < result->n_findings && !is_proven; i++) {
        assay_finding *f = &result->findings[i];
        if (!strcmp(f->fault_class, "UNKNOWN") && !strcmp(f->point, "embed"))
            ASSAY_TRY(assay_strings_add(
                &f->evidence, "an embedding is a row of the weights as it lies: the capture may be "
                              "of another file of this model (other weights, another number "
                              "format), and the other findings may come from that alone; it "
                              "carries no hash of its model"));
    }
    return ASSAY_OK;
}

assay_status assay_diagnose(assay_result *result, assay_run *run, assay_oracle *oracle,
                            const assay_diagnose_options *options)
{
    assay_diagnosis d = {0};
    int first;
    bool differs;
    assay_status s = ASSAY_OK;
    (void)assay_lacked(); /* what earlier work lacked is no matter here */
    ASSAY_GO(check_model(result, run, options));
    ASSAY_GO(assay_diagnosis_walk(result, run, oracle, &options->forced));
    ASSAY_GO(assay_diagnosis_expert_count(&differs, result, run, oracle, options->reproduce));
    if (differs)
        return ASSAY_OK;
    ASSAY_GO(assay_diagnosis_explain(&d, result, run, oracle, &options->forced));
    for (int i = 0; options->on_judged && i < assay_forced_n(d.forced); i++)
        options->on_judged(options->on_judged_user, assay_forced_at(d.forced, i));
    if (options->passes)
        *options->passes = assay_forced_cost(d.forced);
    if (options->cost)
        *options->cost = cost_of(&d);
    ASSAY_GO(add_notes(result, &d));
    ASSAY_GO(assay_diagnosis_vocab(result, run, options->file, options->reproduce));
    ASSAY_GO(assay_diagnosis_selection(result, &d, options->reproduce));
    first = result->n_findings;
    ASSAY_GO(assay_diagnosis_findings(result, &d, options->reproduce));
    ASSAY_GO(doubt_model(result, first, run, options));
    ASSAY_GO(add_series(result, &d));
    ASSAY_GO(assay_series_expert_load(result, run));
    if (options->bundles)
        ASSAY_GO(assay_diagnosis_bundles(result, first, &d, options));
    if (!assay_run_about(run)->is_complete)
        result->inconclusive = true;
    s = assay_lacked();
out:
    assay_diagnosis_clear(&d);
    return s;
}
