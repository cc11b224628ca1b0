#include "suites/requests.h"

#include <stdlib.h>
#include <string.h>

#include "engine/draft.h"
#include "probes/capture.h"
#include "references/run.h"

enum { N_BATCH = 3 };

static assay_status create(assay_capture **out, const char *path, const assay_model *model,
                           const assay_requests *r)
{
    assay_capture_about about = {
        .producer = "assay",
        .producer_version = ASSAY_VERSION,
        .architecture = assay_model_hparams(model)->architecture,
        .dtype = assay_dtype_name(r->engine.dtype),
        .path = r->engine.path == ASSAY_PATH_LATENT ? "latent" : "expanded",
        .backend = "cpu",
        .mode = "eager",
        .cache = assay_cache_type_name(r->engine.cache_type),
        .profile = assay_profile_of_own(r->engine.products == ASSAY_PRODUCTS_INTEGER),
        .n_ranks = 1};
    const assay_capture_options keep = {.selector = r->selector, .tier = r->tier};
    return assay_capture_create(out, path, &about, &keep);
}

/* What is in the cache of its beginning is not computed again. */
static assay_status one(assay_engine *engine, assay_capture *capture, const assay_requests *r,
                        const char *name, const int32_t *prompt)
{
    int64_t reused = 0;
    int32_t *ids;
    ASSAY_TRY(assay_capture_prompt(capture, name, NULL, prompt, r->n));
    if (r->engine.reuse_prefixes)
        ASSAY_TRY(assay_engine_reuse(&reused, engine, 0, prompt, r->n));
    ASSAY_TRY(assay_alloc(&ids, (size_t)r->n_new, sizeof *ids, "generated ids"));
    assay_draft_report report;
    assay_status s = r->engine.draft
                         ? assay_engine_generate_drafted(ids, &report, engine, prompt + reused,
                                                         r->n - reused, r->n_new, r->chunk)
                         : assay_engine_generate(ids, engine, prompt + reused, r->n - reused,
                                                 r->n_new, r->chunk, NULL, NULL);
    free(ids);
    return s;
}

static assay_status one_by_one(assay_engine *engine, assay_capture *capture,
                               const assay_requests *r)
{
    static const char *const names[] = {"first", "second", "third"};
    int n = r->run.requests == ASSAY_REQUESTS_EVICTED ? 3 : 2;
    for (int i = 0; i < n; i++) {
        ASSAY_TRY(one(engine, capture, r, names[i], i == 1 ? r->second : r->first));
        assay_engine_reset(engine, 0);
    }
    return ASSAY_OK;
}

/* Rows of one step: up to `chunk` of every request that is not through, the last request first. */
static int64_t next_rows(int32_t *rows, int64_t n_room, int64_t done[N_BATCH],
                         const int64_t lengths[N_BATCH], const assay_requests *r)
{
    int64_t n = 0, chunk = r->chunk > 0 ? r->chunk : r->n;
    for (int q = N_BATCH - 1; q >= 0; q--)
        for (int64_t c = 0; c < chunk && done[q] < lengths[q]; c++, done[q]++, n++) {
            rows[n] = (q == 1 ? r->second : r->first)[done[q]];
            rows[n_room + n] = (int32_t)done[q];
            rows[2 * n_room + n] = q;
        }
    for (int pad = r->engine.pad_to > 1 ? r->engine.pad_to : 1; n % pad; n++) {
        rows[n] = rows[n_room + n] = 0;
        rows[2 * n_room + n] = -1;
    }
    return n;
}

static assay_status together(assay_engine *engine, assay_capture *capture, const assay_requests *r)
{
    int64_t lengths[N_BATCH] = {r->n, r->n / 2, r->n - 1}, done[N_BATCH] = {0};
    int64_t n_room = N_BATCH * r->n + r->engine.pad_to + 1, n;
    int32_t *rows;
    ASSAY_TRY(assay_capture_prompt(capture, "default", NULL, r->first, r->n));
    ASSAY_TRY(assay_alloc(&rows, (size_t)n_room, 3 * sizeof *rows, "rows of a step"));
    assay_status s = ASSAY_OK;
    while (s == ASSAY_OK && (n = next_rows(rows, n_room, done, lengths, r)) > 0) {
        assay_batch batch = {n, rows, rows + n_room, rows + 2 * n_room};
        s = assay_engine_forward(engine, &batch, NULL);
    }
    free(rows);
    return s;
}

assay_status assay_requests_capture(const char *path, assay_model *model,
                                    const assay_requests *requests)
{
    const assay_requests *r = requests;
    assay_capture *capture = NULL;
    assay_engine *engine = NULL;
    assay_engine_options e = r->engine;
    assay_status s;
    e.max_positions = (int)(r->n + r->n_new) + (e.draft ? ASSAY_MAX_DRAFTS : 0);
    if (r->run.requests == ASSAY_REQUESTS_BATCH)
        e.max_sequences = N_BATCH;
    if (r->run.requests == ASSAY_REQUESTS_EVICTED) /* no page to spare */
        e.n_pages = (e.max_positions + e.page_size - 1) / e.page_size;
    ASSAY_GO(create(&capture, path, model, r));
    e.tap = assay_capture_tap;
    e.tap_user = capture;
    ASSAY_GO(assay_engine_new(&engine, model, &e));
    if (r->run.requests == ASSAY_REQUESTS_ONE)
        ASSAY_GO(one(engine, capture, r, "default", r->first));
    else if (r->run.requests == ASSAY_REQUESTS_BATCH)
        ASSAY_GO(together(engine, capture, r));
    else
        ASSAY_GO(one_by_one(engine, capture, r));
    s = assay_capture_finish(capture);
    capture = NULL;
out:
    assay_capture_abandon(capture);
    assay_engine_free(engine);
    return s;
}
