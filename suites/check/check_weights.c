/*
 * The audit as a row: names and shapes of all tensors, then every byte of them (suites/audit.h).
 */
#include "suites/audit.h"
#include "suites/audit_against.h"
#include "suites/check.h"

#define MAX_DETAILS 20

/* The second source, if one is given. */
static assay_status compare(assay_audit *audit, const assay_check_context *context)
{
    assay_safetensors *source = NULL;
    const char *path = context->options->against_path;
    if (!path)
        return ASSAY_OK;
    ASSAY_TRY(assay_safetensors_open(&source, path));
    assay_status s =
        assay_audit_against(audit, context->file, source, context->engine.n_threads, NULL, NULL);
    assay_safetensors_close(source);
    return s;
}

static assay_status judge(assay_check_row *row, const assay_audit *audit, const char *against)
{
    for (int i = 0; i < audit->notes.n; i++)
        ASSAY_TRY(assay_strings_add(&row->details, "%s", audit->notes.items[i]));
    for (int i = 0; i < audit->n_findings && i < MAX_DETAILS; i++)
        ASSAY_TRY(assay_strings_add(&row->details, "%s", audit->findings[i].text));
    if (audit->n_findings > MAX_DETAILS)
        ASSAY_TRY(assay_strings_add(&row->details, "and %d more (assay audit lists them)",
                                    audit->n_findings - MAX_DETAILS));
    if (audit->n_findings > 0)
        return assay_check_say(row, ASSAY_VERDICT_FAIL, "%d finding%s: %s", audit->n_findings,
                               audit->n_findings == 1 ? "" : "s", audit->findings[0].text);
    if (audit->n_undecodable > 0)
        return assay_check_say(row, ASSAY_VERDICT_INCONCLUSIVE,
                               "%lld of %lld tensors have a type that is not decoded",
                               (long long)audit->n_undecodable, (long long)audit->n_tensors);
    return assay_check_say(row, ASSAY_VERDICT_PASS,
                           "%lld tensors: all there, none unknown, finite, no zero or repeated "
                           "rows, %s%s%s",
                           (long long)audit->n_tensors,
                           audit->n_alike ? "scales alike over layers"
                                          : "scales not compared (that takes three layers)",
                           against ? "; equal to " : "", against ? against : "");
}

assay_status assay_check_weights(assay_check_row *row, assay_check_context *context)
{
    assay_audit audit = {0};
    assay_status s = assay_audit_structure(&audit, context->file);
    if (s == ASSAY_OK)
        s = assay_audit_contents(&audit, context->file, context->engine.n_threads, NULL, NULL);
    if (s == ASSAY_OK)
        s = compare(&audit, context);
    if (s == ASSAY_OK)
        s = assay_audit_report(context->result, &audit, context->options->reproduce);
    if (s == ASSAY_OK)
        s = judge(row, &audit, context->options->against_path);
    if (s == ASSAY_OK && !context->model && row->verdict == ASSAY_VERDICT_PASS)
        s = assay_check_say(row,
                            assay_status_exit(context->model_status) == 125
                                ? ASSAY_VERDICT_INCONCLUSIVE
                                : ASSAY_VERDICT_FAIL,
                            "%s", context->model_error);
    assay_audit_clear(&audit);
    return s;
}
