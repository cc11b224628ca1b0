/*
 * The forced pass over a capture of the engine under test: each op judged in float64 on the inputs
 * it really had. Its findings are the findings of the check.
 */
#include <string.h>

#include "reports/diagnose.h"
#include "suites/check.h"
#include "suites/check_stages.h"

/* All layers of a larger model are too much for the oracle. */
#define MAX_FILE_BYTES (4ULL << 30)

static assay_knobs conventions_of(const assay_oracle *oracle, const assay_hparams *h)
{
    assay_knobs k = *assay_oracle_knobs(oracle);
    k.eps[1] = h->eps_q_a;
    k.eps[2] = h->eps_kv_a;
    k.eps[5] = h->eps_index;
    return k;
}

static assay_status diagnose_all(assay_check_context *c, const assay_knobs *knobs)
{
    assay_run *run;
    assay_oracle *oracle;
    ASSAY_TRY(assay_check_capture(&run, c));
    ASSAY_TRY(assay_check_oracle(&oracle, c));
    assay_diagnose_options d = {
        .reproduce = c->options->reproduce,
        .bundles = c->options->bundles,
        .file = c->file,
        .is_own = true,
        .forced = {.knobs = knobs, .first_layer = 0, .last_layer = -1},
    };
    return assay_diagnose(c->result, run, oracle, &d);
}

/* Every layer, a few at a time. */
static assay_status diagnose_parts(assay_check_context *c, const assay_check_stages *st,
                                   const assay_knobs *knobs)
{
    bool layers[ASSAY_MAX_LAYERS];
    int64_t n_judged;
    int n_parts;
    memset(layers, true, sizeof layers);
    ASSAY_TRY(assay_check_diagnose_layers(&n_judged, &n_parts, c, layers, true, knobs));
    c->result->n_points += st->need.n_values;
    c->result->n_judged += n_judged;
    return assay_strings_add(&c->result->notes,
                             "every value of this run would take %.3g MB, the budget is %.3g: the "
                             "engine ran %d times, and each time some layers were captured and "
                             "judged",
                             (double)st->need.full_bytes * 1e-6,
                             (double)c->options->budget_bytes * 1e-6, n_parts);
}

/* The layers that stood out in their sketches. */
static assay_status diagnose_suspects(assay_check_row *row, assay_check_context *c,
                                      const assay_check_stages *st, const assay_knobs *knobs)
{
    char who[256];
    int64_t n_judged = 0, n_acquitted = 0;
    int n_parts = 0;
    c->result->n_points += st->n_sketches;
    if (!st->was_led) {
        c->result->n_judged += st->plain.n_judged;
        return assay_check_say(row, ASSAY_VERDICT_PASS,
                               "%lld of %lld values agree with the reference by their sketches; "
                               "none was computed again",
                               (long long)st->plain.n_judged, (long long)st->n_sketches);
    }
    ASSAY_TRY(assay_check_diagnose_layers(&n_judged, &n_parts, c, st->suspects, st->head_suspected,
                                          knobs));
    for (int i = 0; i < st->n_layers; i++)
        n_acquitted += st->suspects[i] ? 0 : st->judged[i];
    c->result->n_judged += n_judged + n_acquitted;
    return assay_check_say(row, n_judged ? ASSAY_VERDICT_PASS : ASSAY_VERDICT_INCONCLUSIVE,
                           "%s: %lld values are what their inputs give; the other layers: %lld "
                           "values agree with the reference by their sketches",
                           assay_check_suspects_text(who, sizeof who, st), (long long)n_judged,
                           (long long)n_acquitted);
}

static assay_status diagnose_large(assay_check_row *row, assay_check_context *c, bool is_huge,
                                   const assay_knobs *knobs)
{
    assay_check_stages *st;
    assay_status s = ASSAY_CANNOT_JUDGE;
    ASSAY_TRY(assay_check_plan(&st, c));
    if (c->reference && c->options->n_ranks == 1)
        s = assay_check_look(&st, c);
    if (s == ASSAY_OK)
        return diagnose_suspects(row, c, st, knobs);
    if (s != ASSAY_CANNOT_JUDGE)
        return s;
    if (is_huge)
        return assay_check_say(row, ASSAY_VERDICT_SKIP,
                               "every layer in float64 would take too long here: give a "
                               "--reference, or capture some layers and use `assay diagnose`");
    return diagnose_parts(c, st, knobs);
}

assay_status assay_check_ops(assay_check_row *row, assay_check_context *context)
{
    assay_check_stages *st;
    assay_oracle *oracle;
    const assay_result *result = context->result;
    int before = result->n_findings;
    uint64_t bytes = 0;
    for (int i = 0; i < assay_gguf_n_files(context->file); i++)
        bytes += assay_gguf_file_bytes(context->file, i);
    bool is_huge = bytes > MAX_FILE_BYTES;
    ASSAY_TRY(assay_check_oracle(&oracle, context));
    ASSAY_TRY(assay_check_plan(&st, context));
    assay_knobs knobs = conventions_of(oracle, assay_model_hparams(context->model));
    ASSAY_TRY(is_huge || st->is_large ? diagnose_large(row, context, is_huge, &knobs)
                                      : diagnose_all(context, &knobs));
    if (row->verdict == ASSAY_VERDICT_SKIP)
        return ASSAY_OK;
    context->n_ops_findings = result->n_findings - before;
    if (context->n_ops_findings)
        return assay_check_say(row, ASSAY_VERDICT_FAIL, "%d finding%s: %s", context->n_ops_findings,
                               context->n_ops_findings == 1 ? "" : "s",
                               result->findings[before].sentence);
    if (row->summary)
        return ASSAY_OK;
    if (!result->n_judged)
        return assay_check_say(row, ASSAY_VERDICT_INCONCLUSIVE, "no value could be judged");
    return assay_check_say(row, ASSAY_VERDICT_PASS,
                           "%lld of %lld captured values are what their inputs give, none stands "
                           "out of rounding",
                           (long long)result->n_judged, (long long)result->n_points);
}
