/*
 * What came out of a campaign: rates, confusion matrix, misses, smallest sizes found.
 */
#include <math.h>
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
    json_t *row = json_pack("{s:s, s:s, s:i, s:s, s:s, s:i}", "model", c->models[t->model].path,
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
        &result->notes, "false alarm: %s %s %s prompt %d chunk %d: %s", c->models[t->model].path,
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

/* One row of `assay faults` per class. */
static assay_status add_rows(assay_result *result, const tally *t)
{
    for (int i = 0; i < ASSAY_FAULT_COUNT; i++) {
        assay_check_row *row;
        char *summary;
        if (t->by_class[i][0] == 0)
            continue;
        ASSAY_TRY(assay_result_add_check(&row, result, assay_fault_at(i)->name));
        row->verdict = t->by_class[i][2] * 100 >= 95 * t->by_class[i][0]
                           ? ASSAY_VERDICT_PASS
                           : ASSAY_VERDICT_INCONCLUSIVE;
        if (asprintf(&summary,
                     "%d visible, %d at home, %d of the right class; smallest %.3g floors",
                     t->by_class[i][0], t->by_class[i][1], t->by_class[i][2], t->smallest[i]) < 0)
            return assay_fail(ASSAY_NO_MEMORY, "out of memory for a row");
        free(row->summary);
        row->summary = summary;
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
        s = add_rows(result, &t);
    if (s == ASSAY_OK)
        s = assay_strings_add(
            &result->notes,
            "%d visible plants: detected %.2f %%, right class %.2f %%, right home %.2f %%; %d "
            "pairs "
            "apart %.1f %%; %d findings elsewhere; %d clean runs, %d false alarms",
            t.visible, 100 * share(t.detected, t.visible), 100 * share(t.class_right, t.visible),
            100 * share(t.home, t.visible), t.pairs, 100 * share(t.pairs_right, t.pairs),
            t.elsewhere, t.clean, t.alarms);
    result->n_points = campaign->n;
    result->n_judged = campaign->n - t.broken;
    return s;
}
