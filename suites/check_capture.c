#include "suites/check_capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/comm.h"
#include "probes/capture.h"
#include "suites/turn.h"

#define MAX_CAPTURES 2
#define GRAPH_BUCKET 4
#define PATH_BYTES 128
#define EVERYTHING "engine" /* the capture of small models */

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

static char *file_of_rank(char out[PATH_BYTES], const assay_check_context *c, const char *name,
                          int rank)
{
    snprintf(out, PATH_BYTES, "%s/%.32s.rank%dof%d.h5", c->folder, name, rank, c->options->n_ranks);
    return out;
}

void assay_check_capture_unlink(const assay_check_context *c, const char *name)
{
    char path[PATH_BYTES];
    for (int r = 0; c->folder[0] && r < c->options->n_ranks; r++)
        unlink(file_of_rank(path, c, name, r));
}

void assay_check_drop_capture(assay_check_context *context)
{
    assay_run_close(context->seen);
    context->seen = NULL;
    if (!context->folder[0])
        return;
    assay_check_capture_unlink(context, EVERYTHING);
    rmdir(context->folder);
    context->folder[0] = '\0';
}

/* The layer whose selection of keys this one uses. */
static int selecting_layer(const assay_hparams *h, int layer)
{
    while (layer > 0 && !h->index_full[layer])
        layer--;
    return layer;
}

static bool is_input(const assay_check_keep *keep, const assay_hparams *h, assay_point point,
                     int layer)
{
    if (point == ASSAY_POINT_OUT)
        return layer + 1 < h->n_layer ? keep->layers[layer + 1] : keep->head;
    for (int i = layer + 1; point == ASSAY_POINT_INDEX_TOPK && i < h->n_layer; i++)
        if (keep->layers[i] && selecting_layer(h, i) == layer)
            return true;
    return false;
}

static bool is_kept(const assay_check_keep *keep, const assay_hparams *h, assay_point point,
                    int layer)
{
    if (!keep->layers)
        return true;
    if (layer < 0)
        return point == ASSAY_POINT_EMBED ? keep->layers[0] : keep->head;
    return layer < h->n_layer && (keep->layers[layer] || is_input(keep, h, point, layer));
}

/* One rank's engine, watched. */
typedef struct watch {
    assay_check_context *c;
    const assay_check_keep *keeps;
    assay_capture *captures[MAX_CAPTURES];
    int n;
    bool is_led;
    int reference_prompt;
} watch;

static assay_status keep_event(void *user, const assay_tap_event *event)
{
    const watch *w = user;
    const assay_hparams *h = assay_model_hparams(w->c->model);
    for (int i = 0; i < w->n; i++)
        if (is_kept(&w->keeps[i], h, event->point, event->layer))
            ASSAY_TRY(assay_turn_tap(w->captures[i], event));
    return ASSAY_OK;
}

static const assay_seen *input_of(const assay_check_context *c, int prompt, int step, int layer)
{
    bool is_first = layer == 0;
    const assay_seen *seen =
        step < assay_run_prompt_at(c->reference, prompt)->n_steps
            ? assay_run_find(c->reference, prompt, step,
                             is_first ? ASSAY_POINT_EMBED : ASSAY_POINT_OUT, layer - 1)
            : NULL;
    return seen && seen->has_values ? seen : NULL;
}

bool assay_check_has_input(const assay_check_context *context, int reference_prompt, int step,
                           int layer)
{
    return input_of(context, reference_prompt, step, layer) != NULL;
}

static assay_status put_rows(const assay_buffer *to, const double *values)
{
    const int64_t *n = to->dims, *stride = to->strides;
    if (to->dtype != ASSAY_DTYPE_F32)
        return assay_fail(ASSAY_UNSUPPORTED, "the stream is not held in float32");
    for (int64_t t = 0; t < n[0]; t++)
        for (int64_t i = 0; i < n[1]; i++)
            ((float *)to->data)[t * stride[0] + i * stride[1]] = (float)values[t * n[1] + i];
    return ASSAY_OK;
}

/* Keeps what the engine made, then leads the stream back to the reference's. */
static assay_status lead(void *user, const assay_tap_event *event)
{
    const watch *w = user;
    double *values = NULL;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(keep_event(user, event));
    if (event->partial || (event->point != ASSAY_POINT_OUT && event->point != ASSAY_POINT_EMBED))
        return ASSAY_OK;
    const assay_buffer *b = event->buffer;
    const assay_seen *seen =
        input_of(w->c, w->reference_prompt, (int)event->step, event->layer + 1);
    if (!seen || seen->n_dims != 2 || b->n_dims != 2 || seen->dims[0] != b->dims[0] ||
        seen->dims[1] != b->dims[1])
        return ASSAY_OK;
    assay_turn_take();
    ASSAY_GO(assay_alloc(&values, (size_t)(b->dims[0] * b->dims[1]), sizeof *values, "a stream"));
    ASSAY_GO(assay_run_read(values, w->c->reference, seen));
    s = put_rows(b, values);
out:
    assay_turn_give();
    free(values);
    return s;
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
    int64_t n = p->n + ASSAY_CHECK_DECODE_STEPS;
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

static assay_status run_prompt(watch *w, const assay_check_prompt *p, assay_comm *comm)
{
    assay_check_context *c = w->c;
    assay_engine *engine = NULL;
    assay_engine_options e = c->engine;
    int32_t ids[ASSAY_CHECK_DECODE_STEPS + 1];
    assay_status s;
    /* on a device as it is served: steps of one row replayed, in a bucket of several */
    e.use_graph = e.backend == ASSAY_BACKEND_CUDA && !w->is_led;
    e.least_bucket = e.use_graph ? GRAPH_BUCKET : 0;
    e.tap = w->is_led ? NULL : keep_event;
    e.inject = w->is_led ? lead : NULL;
    e.tap_user = e.inject_user = w;
    e.comm = comm;
    w->reference_prompt = p->reference_index;
    for (int i = 0; i < w->n; i++)
        ASSAY_GO(begin_prompt(w->captures[i], c, p));
    ASSAY_GO(assay_check_engine(&engine, c, &e, n_positions(c, p)));
    if (p->reference_index >= 0)
        ASSAY_GO(run_reference_steps(engine, c, p->reference_index));
    else
        ASSAY_GO(assay_engine_generate(ids, engine, p->tokens, p->n, ASSAY_CHECK_DECODE_STEPS + 1,
                                       c->options->chunk, NULL, NULL));
out:
    assay_engine_free(engine);
    return s;
}

static assay_status create(assay_capture **out, const assay_check_context *c,
                           const assay_check_keep *keep, int rank)
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
        .profile = assay_profile_of_own(c->engine.products == ASSAY_PRODUCTS_INTEGER),
        .n_ranks = c->options->n_ranks,
        .rank = rank,
    };
    assay_capture_options options = {.tier = keep->tier};
    assay_turn_take();
    assay_status s =
        assay_capture_create(out, file_of_rank(path, c, keep->name, rank), &about, &options);
    assay_turn_give();
    return s;
}

typedef struct job {
    assay_check_context *c;
    const assay_check_keep *keeps;
    int n;
    bool is_led;
} job;

/* The whole life of one rank's captures. comm NULL: the only rank. */
static assay_status write_rank(void *user, assay_comm *comm)
{
    const job *j = user;
    watch w = {.c = j->c, .keeps = j->keeps, .n = j->n, .is_led = j->is_led};
    assay_status s;
    for (int i = 0; i < j->n; i++)
        ASSAY_GO(create(&w.captures[i], j->c, &j->keeps[i], comm ? comm->rank : 0));
    for (int i = 0; i < j->c->n_prompts; i++)
        ASSAY_GO(run_prompt(&w, &j->c->prompts[i], comm));
out:
    assay_turn_take();
    for (int i = 0; i < j->n; i++)
        if (s == ASSAY_OK)
            s = assay_capture_finish(w.captures[i]);
        else
            assay_capture_abandon(w.captures[i]);
    assay_turn_give();
    return s;
}

assay_status assay_check_capture_run(assay_check_context *context, const assay_check_keep *keeps,
                                     int n, bool is_led)
{
    job j = {context, keeps, n, is_led};
    ASSAY_BUG_IF(n > MAX_CAPTURES || (is_led && !context->reference));
    ASSAY_TRY(make_folder(context));
    return context->options->n_ranks > 1
               ? assay_ranks_run(context->options->n_ranks, write_rank, &j)
               : write_rank(&j, NULL);
}

assay_status assay_check_capture_open(assay_run **out, const assay_check_context *context,
                                      const char *name)
{
    int n = context->options->n_ranks;
    char names[n][PATH_BYTES];
    const char *paths[n];
    assay_run_options r = assay_run_options_default();
    for (int i = 0; i < n; i++)
        paths[i] = file_of_rank(names[i], context, name, i);
    return assay_run_open(out, paths, n, &r);
}

assay_status assay_check_capture(assay_run **out, assay_check_context *context)
{
    static const assay_check_keep everything = {.name = EVERYTHING};
    if (!context->seen) {
        ASSAY_TRY(assay_check_capture_run(context, &everything, 1, false));
        ASSAY_TRY(assay_check_capture_open(&context->seen, context, EVERYTHING));
    }
    *out = context->seen;
    return ASSAY_OK;
}
