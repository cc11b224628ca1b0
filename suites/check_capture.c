/*
 * The capture that rows `ops` and `reference` judge: the engine under test over all prompts, by the
 * reference's own steps where there are some, so that every captured step has its counterpart.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/comm.h"
#include "probes/capture.h"
#include "suites/check.h"
#include "suites/turn.h"

#define DECODE_STEPS 3 /* of a seeded prompt; on a device: eager, captured, replayed */
#define GRAPH_BUCKET 4
#define PATH_BYTES 128

static assay_status make_folder(assay_check_context *c)
{
    const char *dir = getenv("TMPDIR");
    char name[64];
    if (c->folder[0])
        return ASSAY_OK;
    int n = snprintf(name, sizeof name, "%s/assay-check-XXXXXX", dir && *dir ? dir : "/tmp");
    if (n >= (int)sizeof name || !mkdtemp(name))
        return assay_fail(ASSAY_IO, "no scratch folder can be made in '%s'",
                          dir && *dir ? dir : "/tmp");
    memcpy(c->folder, name, sizeof name);
    return ASSAY_OK;
}

static char *file_of_rank(char out[PATH_BYTES], const assay_check_context *c, int rank)
{
    snprintf(out, PATH_BYTES, "%s/engine.rank%dof%d.h5", c->folder, rank, c->options->n_ranks);
    return out;
}

void assay_check_drop_capture(assay_check_context *context)
{
    char path[PATH_BYTES];
    assay_run_close(context->seen);
    context->seen = NULL;
    if (!context->folder[0])
        return;
    for (int r = 0; r < context->options->n_ranks; r++)
        unlink(file_of_rank(path, context, r));
    rmdir(context->folder);
    context->folder[0] = '\0';
}

static assay_status forward(assay_engine *engine, const int32_t *tokens, int64_t n, int64_t first,
                            float *logits)
{
    int32_t *positions;
    ASSAY_TRY(assay_alloc(&positions, (size_t)n, sizeof *positions, "positions"));
    for (int64_t i = 0; i < n; i++)
        positions[i] = (int32_t)(first + i);
    assay_batch batch = {.n = n, .tokens = tokens, .positions = positions};
    assay_status s = assay_engine_forward(engine, &batch, logits);
    free(positions);
    return s;
}

static assay_status run_reference_steps(assay_engine *engine, const assay_check_context *c,
                                        int prompt)
{
    const assay_run_prompt *p = assay_run_prompt_at(c->reference, prompt);
    for (int s = 0; s < p->n_steps; s++) {
        const assay_run_step *step = assay_run_step_at(c->reference, prompt, s);
        ASSAY_TRY(forward(engine, step->tokens, step->n_tokens, step->first_position, NULL));
    }
    return ASSAY_OK;
}

static int64_t n_positions(const assay_check_context *c, const assay_check_prompt *p)
{
    int64_t n = p->n + DECODE_STEPS;
    if (p->reference_index < 0)
        return n;
    const assay_run_prompt *r = assay_run_prompt_at(c->reference, p->reference_index);
    for (int s = 0; s < r->n_steps; s++) {
        const assay_run_step *step = assay_run_step_at(c->reference, p->reference_index, s);
        if (step->first_position + step->n_tokens > n)
            n = step->first_position + step->n_tokens;
    }
    return n;
}

static assay_status begin_prompt(assay_capture *capture, const assay_check_context *c,
                                 const assay_check_prompt *p)
{
    const char *text =
        p->reference_index < 0 ? NULL : assay_run_prompt_at(c->reference, p->reference_index)->text;
    assay_turn_take();
    assay_status s = assay_capture_prompt(capture, p->name, text, p->tokens, p->n);
    assay_turn_give();
    return s;
}

static assay_status capture_prompt(assay_check_context *c, const assay_check_prompt *p,
                                   assay_capture *capture, assay_comm *comm)
{
    assay_engine *engine = NULL;
    assay_engine_options e = c->engine;
    int32_t ids[DECODE_STEPS + 1];
    assay_status s;
    /* on a device as it is served: steps of one row replayed, in a bucket of several */
    e.use_graph = e.backend == ASSAY_BACKEND_CUDA;
    e.least_bucket = e.use_graph ? GRAPH_BUCKET : 0;
    e.tap = assay_turn_tap;
    e.tap_user = capture;
    e.comm = comm;
    ASSAY_GO(begin_prompt(capture, c, p));
    ASSAY_GO(assay_check_engine(&engine, c, &e, n_positions(c, p)));
    if (p->reference_index >= 0)
        ASSAY_GO(run_reference_steps(engine, c, p->reference_index));
    else
        ASSAY_GO(assay_engine_generate(ids, engine, p->tokens, p->n, DECODE_STEPS + 1,
                                       c->options->chunk, NULL, NULL));
out:
    assay_engine_free(engine);
    return s;
}

static assay_status create(assay_capture **out, const assay_check_context *c, int rank)
{
    char path[PATH_BYTES];
    assay_capture_about about = {
        .producer = "assay",
        .producer_version = ASSAY_VERSION,
        .architecture = assay_model_hparams(c->model)->architecture,
        .model_sha256 = c->sha256,
        .dtype = assay_dtype_name(c->engine.dtype),
        .path = c->engine.path == ASSAY_PATH_LATENT ? "latent" : "expanded",
        .backend = c->engine.backend == ASSAY_BACKEND_CUDA ? "cuda" : "cpu",
        .mode = c->engine.backend == ASSAY_BACKEND_CUDA ? "graph" : "eager",
        .cache = assay_cache_type_name(c->engine.cache_type),
        .n_ranks = c->options->n_ranks,
        .rank = rank,
    };
    assay_turn_take();
    assay_status s = assay_capture_create(out, file_of_rank(path, c, rank), &about, NULL);
    assay_turn_give();
    return s;
}

/* The whole life of one rank's capture. comm NULL: the only rank. */
static assay_status write_rank(void *user, assay_comm *comm)
{
    assay_check_context *c = user;
    assay_capture *capture = NULL;
    assay_status s;
    ASSAY_GO(create(&capture, c, comm ? comm->rank : 0));
    for (int i = 0; i < c->n_prompts; i++)
        ASSAY_GO(capture_prompt(c, &c->prompts[i], capture, comm));
out:
    assay_turn_take();
    if (s == ASSAY_OK)
        s = assay_capture_finish(capture);
    else
        assay_capture_abandon(capture);
    assay_turn_give();
    return s;
}

static assay_status open_capture(assay_check_context *c)
{
    int n = c->options->n_ranks;
    char names[n][PATH_BYTES];
    const char *paths[n];
    assay_run_options r = assay_run_options_default();
    for (int i = 0; i < n; i++)
        paths[i] = file_of_rank(names[i], c, i);
    return assay_run_open(&c->seen, paths, n, &r);
}

assay_status assay_check_capture(assay_run **out, assay_check_context *context)
{
    if (!context->seen) {
        ASSAY_TRY(make_folder(context));
        if (context->options->n_ranks > 1)
            ASSAY_TRY(assay_ranks_run(context->options->n_ranks, write_rank, context));
        else
            ASSAY_TRY(write_rank(context, NULL));
        ASSAY_TRY(open_capture(context));
    }
    *out = context->seen;
    return ASSAY_OK;
}
