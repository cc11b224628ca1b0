/*
 * latent = expanded: two ways to compute the same attention must agree at every point both have.
 */
#include <stdlib.h>

#include "suites/check.h"
#include "suites/check_pair.h"

assay_status assay_check_path(assay_check_row *row, assay_check_context *context)
{
    if (!assay_model_hparams(context->model)->is_mla)
        return assay_check_say(row, ASSAY_VERDICT_SKIP, "%s has one path: no latent attention",
                               assay_model_hparams(context->model)->architecture);
    assay_engine_options expanded = context->engine, latent = context->engine;
    expanded.path = ASSAY_PATH_EXPANDED;
    latent.path = ASSAY_PATH_LATENT;
    assay_check_pair pair = {.row = row, .what = "latent = expanded"};
    for (int i = 0; i < context->n_prompts; i++) {
        assay_trace *a = NULL, *b = NULL;
        assay_status s = assay_check_trace(&a, context, &expanded, &context->prompts[i], 0);
        if (s == ASSAY_OK)
            s = assay_check_trace(&b, context, &latent, &context->prompts[i], 0);
        if (s == ASSAY_OK)
            s = assay_check_pair_add(&pair, context, a, b, context->prompts[i].name);
        assay_trace_free(a);
        assay_trace_free(b);
        ASSAY_TRY(s);
    }
    return assay_check_pair_end(&pair);
}
