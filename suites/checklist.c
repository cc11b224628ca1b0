/* Runs a checklist and judges what came out by its rules. */
#include "suites/checklist.h"

#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "reports/summary.h"

static assay_status replace(char **out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static assay_status replace(char **out, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0)
        return assay_fail(ASSAY_NO_MEMORY, "checklist: no memory");
    free(*out);
    *out = text;
    return ASSAY_OK;
}

static assay_status add_row(assay_result *result, const char *name, assay_verdict verdict,
                            const char *summary)
{
    assay_check_row *row;
    ASSAY_TRY(assay_result_add_check(&row, result, name));
    row->verdict = verdict;
    return replace(&row->summary, "%s", summary);
}

/* --- acceptances --- */

static bool accepts_finding(const assay_acceptance *a, const assay_finding *f)
{
    if (!a->fault_class || !f->fault_class || strcmp(a->fault_class, f->fault_class) != 0)
        return false;
    if (a->kind && (!f->kind || strcmp(a->kind, f->kind) != 0))
        return false;
    if (!a->point)
        return true;
    /* All places must be covered: a known fault does not hide the same one elsewhere. */
    bool all = f->point && !fnmatch(a->point, f->point, 0);
    for (int i = 0; i < f->points.n; i++)
        all &= !fnmatch(a->point, f->points.items[i], 0);
    return all;
}

static void remove_finding(assay_result *result, int index)
{
    assay_finding_clear(&result->findings[index]);
    result->n_findings--;
    memmove(&result->findings[index], &result->findings[index + 1],
            (size_t)(result->n_findings - index) * sizeof *result->findings);
    json_t *maps, *series = json_object_get(result->extra, "series");
    static const char *const members[] = {"maps", "scatters"};
    for (int m = 0; m < 2; m++) { /* pictures keep to their finding */
        maps = json_object_get(series, members[m]);
        for (size_t i = json_array_size(maps); i-- > 0;) {
            json_t *entry = json_array_get(maps, i), *of = json_object_get(entry, "finding");
            if (!json_is_integer(of) || json_integer_value(of) < index)
                continue;
            if (json_integer_value(of) == index)
                json_array_remove(maps, i);
            else
                json_integer_set(of, json_integer_value(of) - 1);
        }
    }
}

static assay_status skip_row(assay_check_row *row, const assay_acceptance *a)
{
    row->verdict = ASSAY_VERDICT_SKIP;
    return replace(&row->summary, "accepted until %s (%s, %s): %s", a->expires, a->reason, a->owner,
                   row->summary ? row->summary : "failed");
}

/* A row that failed for findings alone is not failed any more when the last one is accepted. */
static assay_status release_row(assay_result *result, const char *name, const assay_acceptance *a)
{
    for (int i = 0; i < result->n_findings; i++)
        if (result->findings[i].check && !strcmp(result->findings[i].check, name))
            return ASSAY_OK;
    for (int i = 0; i < result->n_checks; i++) {
        assay_check_row *row = &result->checks[i];
        if (strcmp(row->name, name) != 0 || row->verdict != ASSAY_VERDICT_FAIL)
            continue;
        ASSAY_TRY(skip_row(row, a));
    }
    return ASSAY_OK;
}

static assay_status accept_findings(assay_result *result, assay_acceptance *a)
{
    for (int i = 0; i < result->n_findings;) {
        const assay_finding *f = &result->findings[i];
        if (!accepts_finding(a, f)) {
            i++;
            continue;
        }
        a->n_used++;
        ASSAY_TRY(assay_strings_add(
            &result->notes, "accepted until %s: %s at %s (%s), because: %s (%s)", a->expires,
            f->fault_class, f->point ? f->point : "", f->kind ? f->kind : "", a->reason, a->owner));
        char *check = f->check;
        result->findings[i].check = NULL;
        remove_finding(result, i);
        assay_status s = check ? release_row(result, check, a) : ASSAY_OK;
        free(check);
        ASSAY_TRY(s);
    }
    return ASSAY_OK;
}

/* "tiny.gguf: smoke" is row smoke. */
static bool is_row_named(const assay_check_row *row, const char *name)
{
    size_t n = strlen(name), m = strlen(row->name);
    return !strcmp(row->name, name) || (m > n + 2 && !strcmp(row->name + m - n, name) &&
                                        !strncmp(row->name + m - n - 2, ": ", 2));
}

static assay_status accept_rows(assay_result *result, assay_acceptance *a)
{
    for (int i = 0; i < result->n_checks; i++) {
        assay_check_row *row = &result->checks[i];
        if (!is_row_named(row, a->check) || row->verdict != ASSAY_VERDICT_FAIL)
            continue;
        a->n_used++;
        ASSAY_TRY(skip_row(row, a));
    }
    return ASSAY_OK;
}

assay_status assay_checklist_accept(assay_result *result, assay_checklist *list, const char *today)
{
    char now[16], text[512];
    time_t t = time(NULL);
    struct tm utc;
    strftime(now, sizeof now, "%Y-%m-%d", gmtime_r(&t, &utc));
    for (int i = 0; i < list->n_acceptances; i++) {
        assay_acceptance *a = &list->acceptances[i];
        if (strcmp(a->expires, today ? today : now) < 0) { /* ISO days sort as texts */
            snprintf(text, sizeof text,
                     "'%s': line %d, column %d: the acceptance of %s (%s) expired on %s",
                     list->file, a->line, a->column, a->check ? a->check : a->fault_class, a->owner,
                     a->expires);
            ASSAY_TRY(add_row(result, "accept", ASSAY_VERDICT_FAIL, text));
            continue;
        }
        ASSAY_TRY(a->check ? accept_rows(result, a) : accept_findings(result, a));
        if (!a->n_used)
            ASSAY_TRY(assay_strings_add(&result->notes,
                                        "'%s': line %d: %s is accepted but was not seen",
                                        list->file, a->line, a->check ? a->check : a->fault_class));
    }
    return ASSAY_OK;
}

/* --- rules of the list --- */

static assay_status require_rows(assay_result *result, const assay_checklist_run *run)
{
    char text[256];
    for (int i = 0; i < run->require.n; i++) {
        const char *name = run->require.items[i];
        bool judged = false;
        for (int k = 0; k < result->n_checks; k++)
            judged |= !strcmp(result->checks[k].name, name) &&
                      result->checks[k].verdict != ASSAY_VERDICT_SKIP;
        snprintf(text, sizeof text, "the checklist requires row '%s', which was not judged", name);
        if (!judged)
            ASSAY_TRY(add_row(result, "require", ASSAY_VERDICT_FAIL, text));
    }
    return ASSAY_OK;
}

static assay_status judge_bound(assay_result *result, const char *key, double value, double bound,
                                bool is_least)
{
    char text[160];
    if (isnan(bound))
        return ASSAY_OK;
    bool good = is_least ? value >= bound : value <= bound; /* NaN: neither */
    snprintf(text, sizeof text, "%s %g: the run has %.4g", key, bound, value);
    return add_row(result, key,
                   good           ? ASSAY_VERDICT_PASS
                   : isnan(value) ? ASSAY_VERDICT_INCONCLUSIVE
                                  : ASSAY_VERDICT_FAIL,
                   text);
}

/* A member of extra.agreement; NaN: there is none. */
static double agreement_of(const assay_result *result, const char *member)
{
    const json_t *json = json_object_get(json_object_get(result->extra, "agreement"), member);
    if (json_is_number(json))
        return json_number_value(json);
    return json_is_string(json) ? INFINITY : NAN;
}

static assay_status judge_bounds(assay_result *result, const assay_checklist_run *run)
{
    double rows = agreement_of(result, "rows");
    ASSAY_TRY(judge_bound(result, "max_kl_mean", agreement_of(result, "kl_mean"), run->max_kl_mean,
                          false));
    ASSAY_TRY(judge_bound(result, "max_kl", agreement_of(result, "kl_max"), run->max_kl, false));
    ASSAY_TRY(judge_bound(result, "min_top1", agreement_of(result, "top1_equal") / rows,
                          run->min_top1, true));
    return judge_bound(result, "min_top5", agreement_of(result, "top5_overlap"), run->min_top5,
                       true);
}

/* --- running --- */

static void apply(assay_check_options *o, const assay_checklist *list,
                  const assay_checklist_run *run)
{
    o->model_path = run->model ? run->model : o->model_path;
    o->reference_path = run->reference ? run->reference : o->reference_path;
    o->twin_path = run->twin ? run->twin : o->twin_path;
    o->against_path = run->against ? run->against : o->against_path;
    o->profile = run->profile ? run->profile : o->profile;
    if (run->backend)
        o->engine.backend = !strcmp(run->backend, "cuda") ? ASSAY_BACKEND_CUDA : ASSAY_BACKEND_CPU;
    if (run->path)
        o->engine.path = !strcmp(run->path, "latent") ? ASSAY_PATH_LATENT : ASSAY_PATH_EXPANDED;
    if (run->dtype)
        o->engine.dtype = assay_dtype_from_name(run->dtype);
    o->n_ranks = run->ranks > 0 ? (int)run->ranks : o->n_ranks;
    o->chunk = run->chunk >= 0 ? (int)run->chunk : o->chunk;
    o->time_budget_s = isnan(run->time_budget_s) ? o->time_budget_s : run->time_budget_s;
    o->budget_bytes =
        run->budget_mb > 0 ? (int64_t)fmin(run->budget_mb * 1e6, 1e18) : o->budget_bytes;
    o->rows = (const char *const *)run->checks.items;
    o->n_rows = run->checks.n;
    o->wanted_prompts = (const char *const *)run->prompts.items;
    o->n_wanted_prompts = run->prompts.n;
    o->expected = list->expected;
    o->n_expected = list->n_expected;
}

static assay_status run_one(assay_result *result, const assay_checklist *list,
                            const assay_checklist_run *run, const assay_check_options *options)
{
    assay_check_options o = *options;
    apply(&o, list, run);
    if (!o.model_path)
        return assay_fail(ASSAY_USAGE, "'%s' names no model: give one as MODEL", list->file);
    ASSAY_TRY(assay_check_run(result, &o));
    ASSAY_TRY(require_rows(result, run));
    return judge_bounds(result, run);
}

/* Moves what one model gave behind what is there, rows under the model's name. */
static assay_status merge(assay_result *all, assay_result *one, const char *model)
{
    for (int i = 0; i < one->n_checks; i++) {
        assay_check_row *row, *from = &one->checks[i];
        char name[512];
        snprintf(name, sizeof name, "%s: %s", assay_summary_basename(model), from->name);
        ASSAY_TRY(assay_result_add_check(&row, all, name));
        row->verdict = from->verdict;
        row->seconds = from->seconds;
        row->summary = from->summary;
        row->details = from->details;
        from->summary = NULL;
        from->details = (assay_strings){0};
    }
    for (int i = 0; i < one->n_findings; i++) {
        assay_finding *f = &one->findings[i];
        if (f->check) {
            char name[512];
            snprintf(name, sizeof name, "%s: %s", assay_summary_basename(model), f->check);
            ASSAY_TRY(assay_finding_set(&f->check, "%s", name));
        }
        ASSAY_TRY(assay_result_add_finding(all, f));
    }
    for (int i = 0; i < one->notes.n; i++)
        ASSAY_TRY(assay_strings_add(&all->notes, "%s: %s", assay_summary_basename(model),
                                    one->notes.items[i]));
    all->n_points += one->n_points;
    all->n_judged += one->n_judged;
    all->inconclusive |= one->inconclusive;
    json_object_update_missing(all->model, one->model);
    return ASSAY_OK;
}

assay_status assay_checklist_check(assay_result *result, assay_checklist *list,
                                   const assay_check_options *options, const char *today)
{
    json_object_set_new(result->extra, "checklist",
                        json_pack("{s:s, s:s}", "file", list->file, "name", list->name));
    if (list->n_runs < 2) {
        ASSAY_TRY(run_one(result, list, list->n_runs ? &list->runs[0] : &list->defaults, options));
        return assay_checklist_accept(result, list, today);
    }
    for (int i = 0; i < list->n_runs; i++) {
        assay_result one;
        const char *model = list->runs[i].model ? list->runs[i].model : options->model_path;
        ASSAY_TRY(assay_result_init(&one, "check"));
        assay_status s = run_one(&one, list, &list->runs[i], options);
        if (s == ASSAY_OK)
            s = merge(result, &one, model);
        assay_result_clear(&one);
        ASSAY_TRY(s);
    }
    return assay_checklist_accept(result, list, today);
}
