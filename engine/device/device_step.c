/*
 * Steps on the device: inputs, the queueing (eager, capture or replay), and what the host gets.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_inside.h"

static int64_t ring_stride(const assay_device *d)
{
    return 3 * d->rows_room + 2;
}

static assay_status room_for_rows(assay_device *d, int64_t n)
{
    int64_t room = d->rows_room ? d->rows_room : 16;
    void *block;
    if (n <= d->rows_room)
        return ASSAY_OK;
    while (room < n)
        room *= 2;
    ASSAY_TRY(assay_cuda_sync(d->stream));
    assay_plan_drop_all(d);
    assay_cuda_free(d->rows.tokens);
    assay_cuda_pinned_free(d->ring);
    assay_cuda_free(d->greedy);
    assay_cuda_free(d->captured_positions);
    d->captured_positions = NULL;
    d->rows = (assay_device_rows){0};
    d->ring = NULL;
    d->greedy = NULL;
    d->rows_room = 0;
    ASSAY_TRY(assay_cuda_alloc(&block, (size_t)(3 * room + 2) * sizeof(int32_t), "rows"));
    d->rows.tokens = block;
    d->rows.positions = d->rows.tokens + room;
    d->rows.sequences = d->rows.tokens + 2 * room;
    d->n_rows_at = d->rows.tokens + 3 * room;
    ASSAY_TRY(assay_cuda_pinned((void **)&d->ring,
                                (size_t)(3 * room + 2) * ASSAY_DEVICE_RING * sizeof(int32_t)));
    ASSAY_TRY(assay_cuda_alloc((void **)&d->greedy, (size_t)room * sizeof(int32_t), "choices"));
    ASSAY_TRY(assay_cuda_alloc((void **)&d->captured_positions, (size_t)room * sizeof(int32_t),
                               "positions"));
    d->rows_room = room;
    return ASSAY_OK;
}

/* Rows beyond the step's own; where the seam says so, they are rows of a live request. */
static void pad(int32_t *at, const assay_engine *e)
{
    const assay_device *d = e->device;
    bool leaks = assay_bent(e, ASSAY_SEAM_PAD_ROWS, -1, 0) != 0;
    for (int64_t t = e->batch.n; t < d->n_bucket; t++) {
        at[t] = 0;
        at[d->rows_room + t] = leaks ? 0 : -1;
        at[2 * d->rows_room + t] = leaks ? 0 : ASSAY_ROW_BEYOND;
    }
}

/* Tokens, positions, sequences and lengths of the step, on their way to the device. */
static assay_status send_rows(assay_engine *e, bool is_replay, bool keeps_tokens)
{
    assay_device *d = e->device;
    int slot = (int)(d->ring_at++ % ASSAY_DEVICE_RING);
    int32_t *at = d->ring + slot * ring_stride(d);
    size_t row = (size_t)d->rows_room * sizeof *at;
    if (d->ring_at > ASSAY_DEVICE_RING)
        ASSAY_TRY(assay_cuda_wait_host(d->ring_done[slot]));
    for (int64_t t = 0; t < e->batch.n; t++) {
        at[t] = e->batch.tokens[t];
        at[d->rows_room + t] = e->positions[t];
        at[2 * d->rows_room + t] = e->sequences[t];
    }
    pad(at, e);
    at[3 * d->rows_room] = (int32_t)e->batch.n;
    at[3 * d->rows_room + 1] = (int32_t)e->n_keys_most;
    if (is_replay && assay_bent(e, ASSAY_SEAM_GRAPH_METADATA, -1, 0) == 1)
        ASSAY_TRY(assay_cuda_to_device(d->stream, d->rows.tokens, at, row));
    else if (keeps_tokens)
        ASSAY_TRY(assay_cuda_to_device(d->stream, d->rows.positions, at + d->rows_room,
                                       2 * row + 2 * sizeof *at));
    else
        ASSAY_TRY(assay_cuda_to_device(d->stream, d->rows.tokens, at, 3 * row + 2 * sizeof *at));
    if (!is_replay && e->options.seams) /* what a stale graph goes on with */
        ASSAY_TRY(assay_cuda_within(d->stream, d->captured_positions, d->rows.positions, row));
    d->rows.n = d->n_bucket;
    return assay_cuda_record(d->ring_done[slot], d->stream);
}

static bool is_decode(const assay_engine *e)
{
    bool waits = e->part.n_ranks > 1 && !e->device->ranks; /* for sums over the host */
    return e->options.use_graph && !waits && !e->options.inject && !e->is_prefill &&
           e->batch.n <= ASSAY_DEVICE_FEW;
}

static int64_t bucket_of(const assay_engine *e)
{
    int64_t bucket = 1;
    while (bucket < e->batch.n || bucket < e->options.least_bucket)
        bucket *= 2;
    return bucket;
}

static assay_status call_device_tap(assay_engine *e)
{
    assay_device *d = e->device;
    assay_plan *p = d->plan;
    if (!e->options.device_tap)
        return ASSAY_OK;
    assay_tap_event *events;
    ASSAY_TRY(assay_alloc(&events, (size_t)p->n_shown, sizeof *events, "device tap"));
    for (int i = 0; i < p->n_shown; i++) {
        events[i] = p->shown[i].event;
        events[i].buffer = &p->shown[i].buffer;
        events[i].rows = (assay_tap_rows){e->batch.n, e->batch.tokens, e->positions, e->sequences};
        events[i].step = e->step;
        events[i].is_prefill = e->is_prefill;
    }
    assay_device_table table = {events,       p->n_shown,      p->id,
                                d->n_rows_at, d->is_capturing, d->stream};
    assay_status s = e->options.device_tap(e->options.device_tap_user, &table);
    free(events);
    return s;
}

static assay_status queue_step(assay_engine *e)
{
    assay_device *d = e->device;
    d->counted.n_launches = 0;
    ASSAY_TRY(assay_device_run(e, d->plan->with_logits));
    return call_device_tap(e);
}

static assay_status capture(assay_engine *e)
{
    assay_device *d = e->device;
    ASSAY_TRY(assay_cuda_capture_begin(d->stream));
    d->is_capturing = true;
    assay_status s = queue_step(e);
    d->is_capturing = false;
    void *graph = NULL;
    assay_status ended = assay_cuda_capture_end(&graph, &d->plan->n_nodes, d->stream);
    if (s != ASSAY_OK || ended != ASSAY_OK) {
        assay_cuda_graph_free(graph);
        return s != ASSAY_OK ? s : ended;
    }
    d->plan->graph = graph;
    d->counted.n_captures++;
    d->counted.n_nodes = d->plan->n_nodes;
    return ASSAY_OK;
}

/* The step by its plan: eagerly the first time; a bucket's second step captures it. */
static assay_status run(assay_engine *e, bool keeps_tokens)
{
    assay_device *d = e->device;
    assay_plan *p = d->plan;
    ASSAY_TRY(send_rows(e, p->graph != NULL, keeps_tokens));
    if (p->is_bucket && p->n_steps > 0) {
        if (!p->graph)
            ASSAY_TRY(capture(e));
        else
            d->counted.n_replays++;
        ASSAY_TRY(assay_cuda_graph_launch(p->graph, d->stream));
    } else {
        ASSAY_TRY(queue_step(e));
    }
    p->n_steps++;
    return ASSAY_OK;
}

static assay_status prepare(assay_engine *e, bool with_logits)
{
    assay_device *d = e->device;
    assay_plan *plan;
    bool is_bucket = is_decode(e);
    d->n_bucket = is_bucket ? bucket_of(e) : e->batch.n;
    ASSAY_TRY(room_for_rows(d, d->n_bucket));
    ASSAY_TRY(assay_device_send_pages(e));
    d->rows.n = d->n_bucket;
    return assay_plan_find(&plan, e, with_logits, is_bucket);
}

static assay_status fetch_logits(assay_engine *e)
{
    assay_device *d = e->device;
    int64_t n = e->batch.n * e->hp->n_vocab;
    if (n > d->logits_room) {
        assay_cuda_pinned_free(d->logits);
        d->logits = NULL;
        d->logits_room = 0;
        ASSAY_TRY(assay_cuda_pinned((void **)&d->logits, (size_t)n * sizeof *d->logits));
        d->logits_room = n;
    }
    return assay_cuda_to_host(d->stream, d->logits, d->uses[ASSAY_POINT_LOGITS].buffer.data,
                              (size_t)n * sizeof *d->logits);
}

/* After a replay the host's notes about slots are those of the capture. */
static void point_at_plan(assay_engine *e)
{
    const assay_plan *p = e->device->plan;
    if (p->logits_at)
        e->device->uses[ASSAY_POINT_LOGITS].buffer.data = p->logits_at;
}

assay_status assay_device_step(assay_engine *e, float *logits)
{
    assay_device *d = e->device;
    bool with_logits =
        logits || e->options.device_tap || assay_point_wanted(e, ASSAY_POINT_LOGITS, -1);
    bool is_last = assay_model_last_layer(e->model) == e->hp->n_layer - 1;
    ASSAY_TRY(prepare(e, with_logits && (is_last || logits)));
    ASSAY_TRY(run(e, false));
    ASSAY_TRY(assay_device_end_step(e));
    point_at_plan(e);
    bool judges = !d->plan->graph;
    if (judges)
        ASSAY_TRY(assay_plan_look(e));
    if (logits)
        ASSAY_TRY(fetch_logits(e));
    if (logits || judges || e->options.tap)
        ASSAY_TRY(assay_cuda_sync(d->stream));
    if (logits)
        memcpy(logits, d->logits, (size_t)(e->batch.n * e->hp->n_vocab) * sizeof *logits);
    if (judges)
        ASSAY_TRY(assay_plan_judge(e));
    return d->owns_layers ? assay_plan_deliver(e, 0, d->plan->n_shown) : ASSAY_OK;
}

static void next_positions(assay_engine *e, int n)
{
    e->n_keys_most = 0;
    for (int i = 0; i < n; i++) {
        e->positions[i] = (int32_t)e->n_past[i]++;
        if (e->n_past[i] > e->n_keys_most)
            e->n_keys_most = e->n_past[i];
    }
}

static assay_status decode_all(assay_engine *e, int32_t *on_device, const int32_t *first, int n,
                               int64_t n_steps)
{
    assay_device *d = e->device;
    int32_t sequences[ASSAY_DEVICE_FEW], positions[ASSAY_DEVICE_FEW];
    size_t row = (size_t)n * sizeof *first;
    for (int i = 0; i < n; i++)
        sequences[i] = i;
    for (int64_t s = 0; s < n_steps; s++) {
        for (int i = 0; i < n; i++)
            positions[i] = (int32_t)e->n_past[i];
        e->batch = (assay_batch){n, first, positions, sequences};
        e->sequences = sequences;
        e->is_prefill = false;
        next_positions(e, n);
        for (int i = 0; i < n && e->options.page_size; i++)
            ASSAY_TRY(assay_kvcache_extend(e->cache, i, e->n_past[i]));
        if (e->n_keys_most > e->options.max_positions)
            return assay_fail(ASSAY_USAGE, "%lld positions, and there is room for %d",
                              (long long)e->n_keys_most, e->options.max_positions);
        ASSAY_TRY(prepare(e, true));
        ASSAY_TRY(run(e, s > 0));
        ASSAY_TRY(assay_device_end_step(e));
        ASSAY_TRY(assay_cuda_within(d->stream, d->rows.tokens, d->greedy, row));
        ASSAY_TRY(assay_cuda_within(d->stream, on_device + s * n, d->greedy, row));
        e->step++;
        e->slots.step++;
    }
    return ASSAY_OK;
}

assay_status assay_device_decode(int32_t *ids, assay_engine *e, const int32_t *first,
                                 int n_sequences, int64_t n)
{
    assay_device *d = e->device;
    size_t bytes = (size_t)(n * n_sequences) * sizeof *ids;
    void *on_device;
    ASSAY_BUG_IF(!d || n_sequences < 1 || n_sequences > ASSAY_DEVICE_FEW ||
                 n_sequences > e->options.max_sequences || n_sequences > e->n_room);
    ASSAY_TRY(assay_cuda_alloc(&on_device, bytes, "choices"));
    assay_status s = decode_all(e, on_device, first, n_sequences, n);
    if (s == ASSAY_OK)
        s = assay_cuda_to_host(d->stream, ids, on_device, bytes);
    if (s == ASSAY_OK)
        s = assay_cuda_sync(d->stream);
    assay_cuda_free(on_device);
    return s;
}

assay_status assay_device_run_as(assay_engine *e, bool use_graph, assay_device_tap_fn *tap,
                                 void *tap_user)
{
    ASSAY_BUG_IF(!e->device);
    ASSAY_TRY(assay_cuda_sync(e->device->stream));
    assay_plan_drop_all(e->device);
    e->options.use_graph = use_graph;
    e->options.device_tap = tap;
    e->options.device_tap_user = tap_user;
    return ASSAY_OK;
}

assay_status assay_device_counts_of(assay_device_counts *out, assay_engine *e)
{
    ASSAY_BUG_IF(!e->device);
    *out = e->device->counted;
    out->weight_bytes = e->device->weight_bytes;
    return ASSAY_OK;
}

void assay_device_time_products(assay_engine *e, bool on)
{
    e->device->times_products = on;
    e->device->counted.product_ms = 0;
}

assay_status assay_device_wait(assay_engine *e)
{
    ASSAY_TRY(assay_cuda_sync(e->device->stream));
    return assay_cuda_sync(e->device->side);
}
