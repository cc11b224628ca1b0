/*
 * The forced pass over a capture of the engine under test: each op judged in float64 on the inputs
 * it really had. Its findings are the findings of the check.
 */
#include <math.h>
#include <stdio.h>

#include "reports/diagnose.h"
#include "suites/check.h"

/* A model larger than this is judged by `assay diagnose` on a chosen range of layers. */
#define MAX_FILE_BYTES (4ULL << 30)

static assay_knobs conventions_of(const assay_oracle *oracle, const assay_hparams *h)
{
    assay_knobs k = *assay_oracle_knobs(oracle);
    k.eps[1] = h->eps_q_a;
    k.eps[2] = h->eps_kv_a;
    k.eps[5] = h->eps_index;
    return k;
}

static assay_status diagnose(assay_check_context *c, int64_t *n_points, int64_t *n_judged)
{
    assay_run *run;
    assay_oracle *oracle;
    ASSAY_TRY(assay_check_capture(&run, c));
    ASSAY_TRY(assay_check_oracle(&oracle, c));
    assay_knobs knobs = conventions_of(oracle, assay_model_hparams(c->model));
    assay_diagnose_options d = {
        .reproduce = c->options->reproduce,
        .bundles = c->options->bundles,
        .file = c->file,
        .forced = {.knobs = &knobs, .first_layer = 0, .last_layer = -1},
    };
    int before = c->result->n_findings;
    ASSAY_TRY(assay_diagnose(c->result, run, oracle, &d));
    c->n_ops_findings = c->result->n_findings - before;
    *n_points = c->result->n_points;
    *n_judged = c->result->n_judged;
    return ASSAY_OK;
}

assay_status assay_check_ops(assay_check_row *row, assay_check_context *context)
{
    int64_t n_points, n_judged;
    uint64_t bytes = 0;
    for (int i = 0; i < assay_gguf_n_files(context->file); i++)
        bytes += assay_gguf_file_bytes(context->file, i);
    if (bytes > MAX_FILE_BYTES)
        return assay_check_say(row, ASSAY_VERDICT_SKIP,
                               "%.0f GB in float64 would take too long here: capture some layers "
                               "and use `assay diagnose`",
                               (double)bytes * 1e-9);
    ASSAY_TRY(diagnose(context, &n_points, &n_judged));
    if (context->n_ops_findings)
        return assay_check_say(
            row, ASSAY_VERDICT_FAIL, "%d finding%s: %s", context->n_ops_findings,
            context->n_ops_findings == 1 ? "" : "s",
            context->result->findings[context->result->n_findings - context->n_ops_findings]
                .sentence);
    if (!n_judged)
        return assay_check_say(row, ASSAY_VERDICT_INCONCLUSIVE, "no value could be judged");
    return assay_check_say(row, ASSAY_VERDICT_PASS,
                           "%lld of %lld captured values are what their inputs give, none stands "
                           "out of rounding",
                           (long long)n_judged, (long long)n_points);
}
