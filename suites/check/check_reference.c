/*
 * engine = reference: the engine run on the reference's tokens with its conventions applied, then
 * every point compared, and the agreement of the logits stated.
 */
#include <math.h>
#include <stdio.h>

#include "references/compare.h"
#include "reports/compared.h"
#include "reports/diagnose.h"
#include "suites/check.h"
#include "suites/check_stages.h"

#define MAX_DETAILS 20

static assay_status list_failures(assay_check_row *row, const assay_comparison *comparison,
                                  int *n_failed, const assay_compared **first)
{
    char name[ASSAY_POINT_NAME_BYTES];
    *n_failed = 0;
    for (int i = 0; i < assay_comparison_n(comparison); i++) {
        const assay_compared *x = assay_comparison_at(comparison, i);
        if (x->passed)
            continue;
        if (!(*n_failed)++)
            *first = x;
        if (*n_failed <= MAX_DETAILS)
            ASSAY_TRY(assay_strings_add(&row->details, "step %d, %s: relative %.2e: %s", x->step,
                                        assay_point_format(name, x->point, x->layer),
                                        x->metrics.rel, x->why));
    }
    for (int i = 0; i < assay_comparison_n_notes(comparison); i++)
        ASSAY_TRY(assay_strings_add(&row->details, "%s", assay_comparison_note_at(comparison, i)));
    return ASSAY_OK;
}

static void write_agreement(char out[160], const assay_agreement *a)
{
    snprintf(out, 160, "no logits in common");
    if (a && a->n_rows > 0)
        snprintf(out, 160, "KL %.1e mean, %.1e worst, top-1 %lld of %lld, top-5 %.1f%%", a->kl_mean,
                 a->kl_max, (long long)a->n_top1_equal, (long long)a->n_rows,
                 100 * a->top5_overlap);
}

static assay_status tell_conventions(assay_check_row *row, const assay_check_context *c)
{
    const assay_profile *profile = assay_run_about(c->reference)->profile;
    return profile ? assay_strings_add(&row->details, "conventions of '%s' applied to the run: %s",
                                       profile->name, profile->about)
                   : ASSAY_OK;
}

static assay_status judge(assay_check_row *row, assay_check_context *c,
                          const assay_comparison *comparison)
{
    const assay_compared *first = NULL;
    char agreement[160], name[ASSAY_POINT_NAME_BYTES];
    int n_failed, n = assay_comparison_n(comparison);
    ASSAY_TRY(list_failures(row, comparison, &n_failed, &first));
    write_agreement(agreement, assay_comparison_agreement(comparison));
    ASSAY_TRY(tell_conventions(row, c));
    if (!n)
        return assay_check_say(row, ASSAY_VERDICT_INCONCLUSIVE, "no point in common");
    if (n_failed)
        return assay_check_say(row, ASSAY_VERDICT_FAIL,
                               "%d of %d values differ, first at %s (relative %.2e); %s", n_failed,
                               n, assay_point_format(name, first->point, first->layer),
                               first->metrics.rel, agreement);
    if (assay_comparison_open_reason(comparison))
        return assay_check_say(row, ASSAY_VERDICT_INCONCLUSIVE, "%s; %s",
                               assay_comparison_open_reason(comparison), agreement);
    return assay_check_say(row, ASSAY_VERDICT_PASS, "%d values within their bounds; %s", n,
                           agreement);
}

/*
 * The engine does what the model file says, and the reference does something else: then the file
 * (or the reference) is at fault, and the forced pass over the reference names what they disagree
 * in: a key that was changed, a weight of another model. layers NULL: all of them.
 */
static assay_status diagnose_reference(assay_check_row *row, assay_check_context *c,
                                       const bool *layers)
{
    assay_oracle *oracle;
    char reproduce[8192];
    int before = c->result->n_findings;
    int64_t n_points = c->result->n_points, n_judged = c->result->n_judged;
    ASSAY_TRY(assay_check_oracle(&oracle, c));
    snprintf(reproduce, sizeof reproduce, "assay diagnose %s --model %s",
             c->options->reference_path, c->options->model_path);
    assay_diagnose_options d = {.reproduce = reproduce,
                                .forced = {.last_layer = -1, .layers = layers}};
    assay_status s = assay_diagnose(c->result, c->reference, oracle, &d);
    c->result->n_points = n_points; /* coverage is that of the engine's run */
    c->result->n_judged = n_judged;
    if (s == ASSAY_CANNOT_JUDGE)
        return assay_strings_add(&row->details, "the reference against the file: %s",
                                 assay_error_text());
    ASSAY_TRY(s);
    for (int i = before; i < c->result->n_findings; i++)
        ASSAY_TRY(assay_strings_add(&c->result->findings[i].evidence,
                                    "the engine computes what this model file says; the reference "
                                    "computes this: the file and the reference disagree"));
    if (c->result->n_findings > before && row->verdict == ASSAY_VERDICT_PASS)
        return assay_check_say(row, ASSAY_VERDICT_FAIL, "the reference is of another model: %s",
                               c->result->findings[before].sentence);
    return ASSAY_OK;
}

static assay_status judge_sketches(assay_check_row *row, const assay_check_context *c,
                                   const assay_check_stages *st, const char *agreement)
{
    const assay_sketched *p = &st->plain;
    char name[ASSAY_POINT_NAME_BYTES];
    if (p->has_bad)
        return assay_check_say(row, ASSAY_VERDICT_FAIL,
                               "the sketches differ, first at %s (relative %.2e, bound %.1e); %s",
                               assay_point_format(name, p->point, p->layer), p->rel, p->bound,
                               agreement);
    if (st->has_bad)
        return assay_check_say(row, ASSAY_VERDICT_FAIL,
                               "with its input led back to the reference, %s differs (relative "
                               "%.2e, bound %.1e); %s",
                               assay_point_format(name, st->bad.point, st->bad.layer), st->bad.rel,
                               st->bad.bound, agreement);
    if (p->has_flip)
        return assay_check_say(
            row, c->n_ops_findings ? ASSAY_VERDICT_INCONCLUSIVE : ASSAY_VERDICT_PASS,
            "another choice at %s%s; %s", assay_point_format(name, p->flip_point, p->flip_layer),
            c->n_ops_findings ? ", and what lies behind it was not judged"
                              : ", a near tie, and no other difference",
            agreement);
    return assay_check_say(row, ASSAY_VERDICT_PASS,
                           "%lld values within their bounds by their sketches; %s",
                           (long long)p->n_judged, agreement);
}

/* The run was too large to be captured whole: its sketches, and the logits where they fit. */
static assay_status compare_sketches(assay_check_row *row, assay_check_context *c)
{
    assay_check_stages *st;
    assay_comparison *comparison = NULL;
    char agreement[160] = "logits beyond the budget";
    bool differs = false;
    ASSAY_TRY(assay_check_look(&st, c));
    if (st->logits) {
        ASSAY_TRY(assay_compare_runs(&comparison, st->logits, c->reference, NULL));
        const assay_agreement *a = assay_comparison_agreement(comparison);
        write_agreement(agreement, a);
        differs = a && a->n_top1_equal < a->n_rows;
        assay_result_add_agreement(c->result, comparison, st->logits);
        assay_comparison_free(comparison);
    }
    ASSAY_TRY(tell_conventions(row, c));
    ASSAY_TRY(judge_sketches(row, c, st, agreement));
    bool is_open = row->verdict != ASSAY_VERDICT_PASS || differs;
    return is_open && !c->n_ops_findings && st->n_suspects
               ? diagnose_reference(row, c, st->suspects)
               : ASSAY_OK;
}

/* Shards of ranks have no sketch of their whole: the end of the run is compared. */
static assay_status compare_head(assay_check_row *row, assay_check_context *c)
{
    assay_run *run = NULL;
    assay_comparison *comparison = NULL;
    assay_status s;
    ASSAY_GO(assay_check_capture_head(&run, c));
    ASSAY_GO(assay_compare_runs(&comparison, run, c->reference, c->twin));
    ASSAY_GO(judge(row, c, comparison));
    assay_result_add_agreement(c->result, comparison, run);
    s = assay_strings_add(&row->details, "final norm and logits alone: every value of every rank "
                                         "would be beyond the budget");
out:
    assay_comparison_free(comparison);
    assay_run_close(run);
    return s;
}

static assay_status compare_values(assay_check_row *row, assay_check_context *context)
{
    assay_run *run;
    assay_comparison *comparison;
    ASSAY_TRY(assay_check_capture(&run, context));
    ASSAY_TRY(assay_compare_runs(&comparison, run, context->reference, context->twin));
    const assay_agreement *a = assay_comparison_agreement(comparison);
    /* behind a choice that differs nothing is compared; then the forced pass has the last word */
    bool differs = a && a->n_top1_equal < a->n_rows;
    assay_status s = judge(row, context, comparison);
    assay_result_add_agreement(context->result, comparison, run);
    assay_comparison_free(comparison);
    if (s == ASSAY_OK && !context->n_ops_findings &&
        (row->verdict != ASSAY_VERDICT_PASS || differs))
        s = diagnose_reference(row, context, NULL);
    return s;
}

assay_status assay_check_reference(assay_check_row *row, assay_check_context *context)
{
    assay_check_stages *st;
    if (!context->reference)
        return assay_check_say(row, ASSAY_VERDICT_SKIP, "no reference given (--reference REF)");
    ASSAY_TRY(assay_check_plan(&st, context));
    if (!st->is_large && !st->has_looked)
        return compare_values(row, context);
    return context->options->n_ranks > 1 ? compare_head(row, context)
                                         : compare_sketches(row, context);
}
