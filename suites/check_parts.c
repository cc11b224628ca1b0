/*
 * Stage two: some layers at a time are captured whole and diagnosed.
 */
#include <string.h>

#include "reports/diagnose.h"
#include "reports/finding_join.h"
#include "suites/check_capture.h"
#include "suites/check_stages.h"

#define PART "part"

typedef struct part {
    bool layers[ASSAY_MAX_LAYERS];
    bool head;
    int n;
    int64_t n_bytes;
} part;

static assay_status diagnose_part(int64_t *n_judged, assay_check_context *c, const part *p,
                                  const assay_knobs *knobs)
{
    const assay_check_keep keep = {.name = PART, .layers = p->layers, .head = p->head};
    assay_result *result = c->result;
    int64_t n_points = result->n_points, before = result->n_judged;
    assay_run *run = NULL;
    assay_oracle *oracle;
    assay_status s;
    ASSAY_GO(assay_check_oracle(&oracle, c));
    ASSAY_GO(assay_check_capture_run(c, &keep, 1, false));
    ASSAY_GO(assay_check_capture_open(&run, c, PART));
    assay_diagnose_options d = {
        .reproduce = c->options->reproduce,
        .bundles = c->options->bundles,
        .file = c->file,
        .is_own = true,
        .forced = {.knobs = knobs, .last_layer = -1, .layers = p->layers},
    };
    s = assay_diagnose(result, run, oracle, &d);
    *n_judged += result->n_judged - before;
out:
    result->n_points = n_points;
    result->n_judged = before;
    assay_run_close(run);
    assay_check_capture_unlink(c, PART);
    return s;
}

/* A layer that is beyond the budget alone is captured all the same: less cannot be diagnosed. */
static assay_status tell_largest(int64_t largest, const assay_check_context *c, int64_t budget)
{
    if (largest <= budget)
        return ASSAY_OK;
    return assay_strings_add(&c->result->notes,
                             "the budget was not kept: values of one layer take up to %.3g MB",
                             (double)largest * 1e-6);
}

assay_status assay_check_diagnose_layers(int64_t *n_judged, int *n_parts, assay_check_context *c,
                                         const bool *layers, bool head, const assay_knobs *knobs)
{
    assay_check_stages *st;
    ASSAY_TRY(assay_check_plan(&st, c));
    int first = c->result->n_findings, first_note = c->result->notes.n;
    int64_t budget = c->options->budget_bytes / c->options->n_ranks;
    part p = {.n = 0};
    int64_t largest = 0;
    *n_judged = 0;
    *n_parts = 0;
    for (int i = 0; i <= st->n_layers; i++) {
        bool is_end = i == st->n_layers, is_wanted = is_end ? head : layers[i];
        int64_t n_bytes = st->needs[is_end ? 0 : i + 1].full_bytes;
        if ((p.n || p.head) && is_wanted && p.n_bytes + n_bytes > budget) {
            ASSAY_TRY(diagnose_part(n_judged, c, &p, knobs));
            ++*n_parts;
            p = (part){.n = 0};
        }
        if (!is_wanted)
            continue;
        p.n_bytes += n_bytes;
        largest = n_bytes > largest ? n_bytes : largest;
        p.head = is_end;
        if (!is_end)
            p.layers[i] = true;
        p.n += !is_end;
    }
    if (p.n || p.head) {
        ASSAY_TRY(diagnose_part(n_judged, c, &p, knobs));
        ++*n_parts;
    }
    ASSAY_TRY(tell_largest(largest, c, budget));
    ASSAY_TRY(assay_result_join_findings(c->result, first));
    assay_result_join_notes(c->result, first_note);
    return ASSAY_OK;
}
