#include "reports/compared.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/run_notes.h"
#include "reports/series.h"
#include "reports/text.h"

/* Place in the forward pass: embedding, layers, head. */
static int64_t order_of(const assay_compared *item)
{
    int64_t layer = item->layer >= 0                   ? item->layer
                    : item->point == ASSAY_POINT_EMBED ? -1
                                                       : INT32_MAX;
    return layer * ASSAY_POINT_COUNT + item->point;
}

static int first_failure(const assay_comparison *comparison)
{
    int first = -1;
    for (int i = 0; i < assay_comparison_n(comparison); i++) {
        const assay_compared *item = assay_comparison_at(comparison, i);
        if (!item->passed &&
            (first < 0 || order_of(item) < order_of(assay_comparison_at(comparison, first))))
            first = i;
    }
    return first;
}

/* Nearest judged and passed item before it in the same prompt and phase. */
static const assay_compared *last_good(const assay_comparison *comparison,
                                       const assay_compared *bad)
{
    const assay_compared *best = NULL;
    for (int i = 0; i < assay_comparison_n(comparison); i++) {
        const assay_compared *item = assay_comparison_at(comparison, i);
        if (item->prompt == bad->prompt && item->is_prefill == bad->is_prefill && item->judged &&
            item->passed && order_of(item) < order_of(bad) &&
            (!best || order_of(item) > order_of(best)))
            best = item;
    }
    return best;
}

/* Everything that fails: points, layers, steps, prompts; returns the number of points. */
static assay_status list_failures(assay_finding *f, const assay_comparison *comparison,
                                  const assay_run *candidate)
{
    for (int i = 0; i < assay_comparison_n(comparison); i++) {
        const assay_compared *item = assay_comparison_at(comparison, i);
        char name[ASSAY_POINT_NAME_BYTES];
        if (item->passed)
            continue;
        ASSAY_TRY(
            assay_strings_add_once(&f->points, assay_point_format(name, item->point, item->layer)));
        if (item->layer >= 0)
            ASSAY_TRY(assay_numbers_add(&f->layers, item->layer));
        ASSAY_TRY(assay_numbers_add(&f->steps, item->step));
        ASSAY_TRY(assay_strings_add_once(&f->prompts,
                                         assay_run_prompt_at(candidate, item->prompt)->name));
    }
    return ASSAY_OK;
}

static assay_status describe_numbers(assay_finding *f, const assay_compared *item)
{
    const assay_metrics *m = &item->metrics;
    char text[3][32], steps[64] = "";
    if (!item->is_prefill && item->n_rows > 1)
        snprintf(steps, sizeof steps, " (all decode steps as one, the worst is step %d)",
                 item->step);
    f->error_rel = m->rel;
    f->error_cos = 1 - m->one_minus_cos;
    f->error_gain = m->gain;
    f->floor = item->bound_median;
    f->confidence = NAN; /* no cause is claimed */
    f->explained = NAN;
    ASSAY_TRY(assay_strings_add(&f->evidence, "%s", item->why));
    ASSAY_TRY(assay_strings_add(
        &f->evidence,
        "%" PRId64 " of %" PRId64 " rows judged%s: median error %s, largest %s; 1 - cos %s",
        item->n_rows_judged, item->n_rows, steps, assay_text_number(text[0], m->row_rel_median),
        assay_text_number(text[1], m->row_rel_max), assay_text_number(text[2], m->one_minus_cos)));
    if (item->bad_at[0] < 0)
        return ASSAY_OK;
    f->has_first_bad = true;
    f->n_first_bad = item->candidate->n_dims;
    memcpy(f->first_bad, item->bad_at, sizeof f->first_bad);
    f->first_bad_got = item->bad_got;
    f->first_bad_expected = item->bad_expected;
    return ASSAY_OK;
}

static assay_status fill(assay_finding *f, const assay_comparison *comparison,
                         const assay_compared *item, const assay_run *candidate,
                         const char *reproduce)
{
    const assay_point_info *info = assay_point_at(item->point);
    const assay_compared *good = last_good(comparison, item);
    char name[ASSAY_POINT_NAME_BYTES];
    ASSAY_TRY(list_failures(f, comparison, candidate));
    ASSAY_TRY(assay_finding_set(&f->fault_class, "UNKNOWN"));
    ASSAY_TRY(assay_finding_set(&f->kind, "%s",
                                item->metrics.n_mask_differ || item->metrics.n_nan ? "not finite"
                                : !strncmp(item->why, "shape", 5)                  ? "other shape"
                                : !strncmp(item->why, "median", 6) && item->bad_at[0] < 0
                                    ? "systematic gain"
                                    : "differs from the reference"));
    ASSAY_TRY(
        assay_finding_set(&f->point, "%s", assay_point_format(name, item->point, item->layer)));
    if (good)
        ASSAY_TRY(assay_finding_set(&f->last_good, "%s",
                                    assay_point_format(name, good->point, good->layer)));
    ASSAY_TRY(assay_finding_set(&f->op, "%s", info->made_by));
    ASSAY_TRY(assay_finding_set(&f->sentence,
                                "the %s makes the first value that differs from the reference: %s",
                                info->made_by, item->why));
    ASSAY_TRY(assay_finding_set(
        &f->advice,
        "`assay diagnose CANDIDATE --model MODEL` computes each op again from the inputs "
        "it had and names the cause; points behind this one may only inherit"));
    ASSAY_TRY(assay_finding_set(&f->reproduce, "%s", reproduce ? reproduce : ""));
    return describe_numbers(f, item);
}

static assay_status add_finding(assay_result *result, const assay_comparison *comparison,
                                const assay_run *candidate, const char *reproduce)
{
    assay_finding f;
    int first = first_failure(comparison);
    if (first < 0)
        return ASSAY_OK;
    assay_finding_init(&f);
    assay_status s =
        fill(&f, comparison, assay_comparison_at(comparison, first), candidate, reproduce);
    if (s == ASSAY_OK)
        s = assay_result_add_finding(result, &f);
    assay_finding_clear(&f);
    return s;
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_string(isnan(x) ? "NaN" : "Infinity");
}

void assay_result_add_agreement(assay_result *result, const assay_comparison *comparison,
                                const assay_run *candidate)
{
    const assay_agreement *a = assay_comparison_agreement(comparison);
    if (!a->n_rows)
        return;
    json_t *json = json_object(), *worst = json_object();
    json_object_set_new(json, "rows", json_integer(a->n_rows));
    json_object_set_new(json, "top1_equal", json_integer(a->n_top1_equal));
    json_object_set_new(json, "top5_overlap", number(a->top5_overlap));
    json_object_set_new(json, "kl_mean", number(a->kl_mean));
    json_object_set_new(json, "kl_max", number(a->kl_max));
    json_object_set_new(worst, "prompt",
                        assay_text_json(assay_run_prompt_at(candidate, a->prompt)->name));
    json_object_set_new(worst, "step", json_integer(a->step));
    json_object_set_new(worst, "position", json_integer(a->worst_position));
    json_object_set_new(json, "worst", worst);
    json_object_set_new(result->extra, "agreement", json);
}

assay_status assay_result_add_comparison(assay_result *result, const assay_comparison *comparison,
                                         const assay_run *candidate, const char *reproduce)
{
    const char *open = assay_comparison_open_reason(comparison);
    result->n_points += assay_comparison_n_points(comparison);
    result->n_judged += assay_comparison_n_judged(comparison);
    ASSAY_TRY(add_finding(result, comparison, candidate, reproduce));
    if (open) {
        result->inconclusive = true;
        ASSAY_TRY(assay_strings_add(&result->notes, "not a pass: %s", open));
    }
    ASSAY_TRY(assay_result_add_run_notes(result, candidate));
    for (int i = 0; i < assay_comparison_n_notes(comparison); i++)
        ASSAY_TRY(assay_strings_add(&result->notes, "%s", assay_comparison_note_at(comparison, i)));
    for (int i = 0; i < assay_comparison_n(comparison); i++) {
        const assay_compared *item = assay_comparison_at(comparison, i);
        if (item->judged)
            ASSAY_TRY(assay_series_depth(result, assay_run_prompt_at(candidate, item->prompt)->name,
                                         item->step, assay_point_at(item->point)->name, item->layer,
                                         item->metrics.row_rel_median, NAN, item->bound_median,
                                         !item->passed));
    }
    assay_result_add_agreement(result, comparison, candidate);
    return ASSAY_OK;
}
