/*
 * The engine's own ledger: every buffer is poisoned before use and its reader records what it read.
 */
#include <stdlib.h>

#include "suites/check.h"

#define DECODE_STEPS 2
#define MAX_DETAILS 12

static assay_status run(assay_check_row *row, assay_check_context *c, const assay_check_prompt *p,
                        assay_path path, int *n_faults)
{
    assay_engine *engine = NULL;
    assay_engine_options e = c->engine;
    int32_t ids[DECODE_STEPS + 1];
    assay_status s;
    e.path = path;
    ASSAY_GO(assay_check_engine(&engine, c, &e, p->n + DECODE_STEPS));
    ASSAY_GO(assay_engine_generate(ids, engine, p->tokens, p->n, DECODE_STEPS + 1,
                                   c->options->chunk, NULL, NULL));
    int n = assay_engine_n_buffer_faults(engine);
    for (int i = 0; i < n && *n_faults + i < MAX_DETAILS; i++) {
        const assay_buffer_fault *f = assay_engine_buffer_fault_at(engine, i);
        ASSAY_GO(assay_strings_add(&row->details, "%s, %s path: %s", p->name,
                                   path == ASSAY_PATH_LATENT ? "latent" : "expanded", f->text));
    }
    *n_faults += n;
out:
    assay_engine_free(engine);
    return s;
}

assay_status assay_check_buffers(assay_check_row *row, assay_check_context *context)
{
    const assay_check_prompt *p = &context->prompts[0];
    bool both = assay_model_hparams(context->model)->is_mla && !context->options->chunk;
    int n_faults = 0;
    ASSAY_TRY(run(row, context, p, context->engine.path, &n_faults));
    if (both && !n_faults)
        ASSAY_TRY(
            run(row, context, p,
                context->engine.path == ASSAY_PATH_LATENT ? ASSAY_PATH_EXPANDED : ASSAY_PATH_LATENT,
                &n_faults));
    if (n_faults)
        return assay_check_say(row, ASSAY_VERDICT_FAIL, "%d times: %s", n_faults,
                               row->details.items[0]);
    return assay_check_say(row, ASSAY_VERDICT_PASS,
                           "prompt '%s' and %d decode steps: every buffer written before it is "
                           "read, and read%s",
                           p->name, DECODE_STEPS, both ? ", both paths" : "");
}
