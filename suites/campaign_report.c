/*
 * What came out of a campaign: rates, confusion matrix, misses, smallest sizes found.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suites/campaign_private.h"

typedef struct tally {
    int visible, detected, class_right, home;
    int pairs, pairs_right;
    int clean, alarms, elsewhere, broken;
    double smallest[ASSAY_FAULT_COUNT];
    int by_class[ASSAY_FAULT_COUNT][3]; /* visible, at home, class right */
} tally;

static double share(int part, int whole)
{
    return whole > 0 ? (double)part / whole : 0;
}

static void put_count(json_t *object, const char *key, const char *inner)
{
    json_t *row = json_object_get(object, key);
    if (!row) {
        row = json_object();
        json_object_set_new(object, key, row);
    }
    json_t *n = json_object_get(row, inner);
    json_object_set_new(row, inner, json_integer((n ? json_integer_value(n) : 0) + 1));
}

static json_t *describe(const assay_campaign *c, const assay_trial *t, int which)
{
    const assay_plant *p = &t->plants[which];
    json_t *row = json_pack("{s:s, s:s, s:i, s:s, s:s, s:i}", "model", c->models[t->model].name,
                            "plant", p->kind, "layer", p->layer, "path",
                            t->path == ASSAY_PATH_LATENT ? "latent" : "expanded", "dtype",
                            assay_dtype_name(t->dtype), "prompt", t->prompt);
    if (row && !isnan(p->value))
        json_object_set_new(row, "value", json_real(p->value));
    if (row && t->n_plants > 1)
        json_object_set_new(row, "with", json_string(t->plants[1 - which].kind));
    return row;
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_string("inf");
}

static void judge_plant(tally *t, json_t *confusion, json_t *misses, json_t *invisible,
                        const assay_campaign *c, int index, int which)
{
    const assay_trial *trial = &c->trials[index];
    const assay_outcome *o = &c->outcomes[index];
    int fault;
    assay_fault_kind_find(trial->plants[which].kind, &fault);
    if (!o->visible[which]) {
        json_t *row = describe(c, trial, which);
        json_object_set_new(row, "size", number(o->size[which]));
        json_array_append_new(invisible, row);
        return;
    }
    t->visible++;
    t->by_class[fault][0]++;
    t->detected += o->n_findings > 0;
    t->home += o->detected[which];
    t->by_class[fault][1] += o->detected[which];
    t->class_right += o->class_right[which];
    t->by_class[fault][2] += o->class_right[which];
    put_count(confusion, assay_fault_at(fault)->name,
              o->class_right[which] ? assay_fault_at(fault)->name : o->found_class[which]);
    if (o->class_right[which])
        t->smallest[fault] = fmin(t->smallest[fault], o->size[which]);
    if (o->class_right[which] && (o->n_elsewhere == 0 || which > 0))
        return;
    json_t *row = describe(c, trial, which);
    json_object_set_new(row, "size", number(o->size[which]));
    json_object_set_new(row, "class", json_string(assay_fault_at(fault)->name));
    json_object_set_new(row, "found", json_string(o->found_class[which]));
    json_object_set_new(row, "elsewhere", json_integer(o->n_elsewhere));
    json_object_set_new(row, "first", json_string(o->first));
    json_array_append_new(misses, row);
}

static assay_status add_alarm(assay_result *result, const assay_campaign *c, int index)
{
    const assay_trial *t = &c->trials[index];
    return assay_strings_add(
        &result->notes, "false alarm: %s %s %s prompt %d chunk %d: %s", c->models[t->model].name,
        t->path == ASSAY_PATH_LATENT ? "latent" : "expanded", assay_dtype_name(t->dtype), t->prompt,
        t->chunk, c->outcomes[index].first);
}

static assay_status count_all(tally *t, assay_result *result, json_t *confusion, json_t *misses,
                              json_t *invisible, const assay_campaign *c)
{
    for (int i = 0; i < ASSAY_FAULT_COUNT; i++)
        t->smallest[i] = INFINITY;
    for (int i = 0; i < c->n; i++) {
        const assay_trial *trial = &c->trials[i];
        const assay_outcome *o = &c->outcomes[i];
        if (o->status != ASSAY_OK) {
            t->broken++;
            ASSAY_TRY(assay_strings_add(&result->notes, "not run: %s: %s",
                                        trial->n_plants ? trial->plants[0].kind : "healthy",
                                        o->first));
            continue;
        }
        if (trial->n_plants == 0) {
            t->clean++;
            t->alarms += o->n_findings > 0;
            if (o->n_findings > 0)
                ASSAY_TRY(add_alarm(result, c, i));
            continue;
        }
        t->elsewhere += o->n_elsewhere;
        for (int k = 0; k < trial->n_plants; k++)
            judge_plant(t, confusion, misses, invisible, c, i, k);
        if (trial->n_plants == 2 && o->visible[0] && o->visible[1]) {
            t->pairs++;
            t->pairs_right += o->class_right[0] && o->class_right[1] && o->n_elsewhere == 0;
        }
    }
    return ASSAY_OK;
}

static assay_status add_row(assay_result *result, const char *name, assay_verdict verdict,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));

static assay_status add_row(assay_result *result, const char *name, assay_verdict verdict,
                            const char *format, ...)
{
    assay_check_row *row;
    char *summary;
    va_list args;
    ASSAY_TRY(assay_result_add_check(&row, result, name));
    va_start(args, format);
    int n = vasprintf(&summary, format, args);
    va_end(args);
    if (n < 0)
        return assay_fail(ASSAY_NO_MEMORY, "out of memory for a row");
    free(row->summary);
    row->summary = summary;
    row->verdict = verdict;
    return ASSAY_OK;
}

/* A share that must hold; of nothing it does not. */
static assay_status add_rate(assay_result *result, const char *name, const char *what, int part,
                             int whole, double least)
{
    if (!whole)
        return add_row(result, name, ASSAY_VERDICT_INCONCLUSIVE, "%s: none in this campaign", what);
    return add_row(result, name, part >= least * whole ? ASSAY_VERDICT_PASS : ASSAY_VERDICT_FAIL,
                   "%s: %d of %d, %.2f %%; at least %.0f %% are asked for", what, part, whole,
                   100 * share(part, whole), 100 * least);
}

/* The design's floors for a table of faults that may be shipped: of full captures, and of captures
 * that hold sketches and no values. */
static const struct bounds {
    double detection, home, fault_class, pairs;
} of_values = {0.99, 0.98, 0.95, 0.95}, of_sketches = {0.95, 0.90, 0.80, 0.80};

static assay_status add_rates(assay_result *result, const tally *t, const assay_campaign *c)
{
    int n_trials = c->n;
    const struct bounds *b = c->options.tier ? &of_sketches : &of_values;
    ASSAY_TRY(add_row(result, "runs", t->broken ? ASSAY_VERDICT_INCONCLUSIVE : ASSAY_VERDICT_PASS,
                      "%d of %d runs came to an end", n_trials - t->broken, n_trials));
    ASSAY_TRY(add_row(result, "clean runs",
                      t->alarms  ? ASSAY_VERDICT_FAIL
                      : t->clean ? ASSAY_VERDICT_PASS
                                 : ASSAY_VERDICT_INCONCLUSIVE,
                      "%d false alarm%s in %d healthy runs; none is allowed", t->alarms,
                      t->alarms == 1 ? "" : "s", t->clean));
    ASSAY_TRY(add_rate(result, "detection", "visible plants with a finding", t->detected,
                       t->visible, b->detection));
    ASSAY_TRY(add_rate(result, "home", "visible plants found at their home", t->home, t->visible,
                       b->home));
    ASSAY_TRY(add_rate(result, "class", "visible plants of the right class", t->class_right,
                       t->visible, b->fault_class));
    if (c->options.classes)
        return add_row(result, "pairs", ASSAY_VERDICT_SKIP, "%s",
                       "no pairs are planted where classes are asked for");
    return add_rate(result, "pairs", "pairs apart, nothing else found", t->pairs_right, t->pairs,
                    b->pairs);
}

/* One row per class; it has no bound of its own, the row `class` has. */
static assay_status add_classes(assay_result *result, const tally *t)
{
    for (int i = 0; i < ASSAY_FAULT_COUNT; i++) {
        const int *n = t->by_class[i];
        if (n[0] > 0)
            ASSAY_TRY(add_row(result, assay_fault_at(i)->name,
                              n[2] * 100 >= 95 * n[0] ? ASSAY_VERDICT_PASS : ASSAY_VERDICT_SKIP,
                              "%s%d visible, %d at home, %d of the right class; smallest %.3g "
                              "floors",
                              n[2] * 100 >= 95 * n[0] ? "" : "below 95 %: ", n[0], n[1], n[2],
                              t->smallest[i]));
    }
    return ASSAY_OK;
}

assay_status assay_campaign_report(assay_result *result, const assay_campaign *campaign)
{
    tally t = {0};
    json_t *confusion = json_object(), *misses = json_array(), *invisible = json_array();
    assay_status s = count_all(&t, result, confusion, misses, invisible, campaign);
    json_t *rates =
        json_pack("{s:i, s:f, s:f, s:f, s:f, s:i, s:i, s:i}", "visible", t.visible, "detection",
                  share(t.detected, t.visible), "class", share(t.class_right, t.visible), "home",
                  share(t.home, t.visible), "pairs", share(t.pairs_right, t.pairs), "clean_runs",
                  t.clean, "false_alarms", t.alarms, "elsewhere", t.elsewhere);
    json_object_set_new(result->extra, "rates", rates);
    json_object_set_new(result->extra, "confusion", confusion);
    json_object_set_new(result->extra, "misses", misses);
    json_object_set_new(result->extra, "invisible", invisible);
    if (s == ASSAY_OK)
        s = add_rates(result, &t, campaign);
    if (s == ASSAY_OK)
        s = add_classes(result, &t);
    if (s == ASSAY_OK && t.elsewhere)
        s = assay_strings_add(&result->notes, "%d finding%s elsewhere than at a plant", t.elsewhere,
                              t.elsewhere == 1 ? "" : "s");
    result->n_points = campaign->n;
    result->n_judged = campaign->n - t.broken;
    return s;
}
