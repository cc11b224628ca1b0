/* The host's side of the recorders on a device: tables of buffers, the ring of results. */
#include <stdlib.h>
#include <string.h>

#include "probes/recorder/device_table.cuh"

extern "C" {
#include "engine/device/runtime.h"
#include "probes/recorder_device.h"
}

#define MOST_TABLES 64
#define CHUNK 16384
#define MOST_CHUNKS 4096

/* One table of the engine, by its id. */
struct table {
    int64_t id;
    int n, n_chunks, n_pieces, n_groups;
    int64_t n_values; /* rows that are kept of one step */
    table_entry *host;
    assay_point *points;
    int *layers;
    void *entries, *results, *partial, *arrived;
    void *sketches, *sketch_partial, *sketch_arrived;
    void *values, *shapes;
};

struct assay_recorder_device {
    assay_device_tier tier;
    int ring;
    void *step; /* device: int, steps queued so far */
    table tables[MOST_TABLES];
    int n_tables, last;
    device_stats *fetched;
    float *fetched_sketches;
    uint32_t *fetched_values;
    int32_t fetched_shape[2]; /* rows and keys of the step */
    assay_device_recorded *out;
    int out_room;
};

static __global__ void count_step(int *step)
{
    kernel_begin();
    ++*step;
}

static bool keeps_rows(const assay_recorder_device *r)
{
    return r->tier == ASSAY_DEVICE_ROWS || r->tier == ASSAY_DEVICE_FULL;
}

assay_status assay_recorder_device_new(assay_recorder_device **out, assay_device_tier tier,
                                       int ring)
{
    assay_recorder_device *r;
    int minus_one = -1;
    ASSAY_TRY(assay_alloc(&r, 1, sizeof *r, "recorder"));
    r->tier = tier;
    r->ring = ring < 1 ? 1 : ring;
    r->last = -1;
    assay_status s = assay_cuda_alloc(&r->step, sizeof(int), "recorder");
    if (s == ASSAY_OK)
        s = assay_cuda_to_device(nullptr, r->step, &minus_one, sizeof minus_one);
    if (s == ASSAY_OK)
        s = assay_cuda_sync(nullptr);
    if (s != ASSAY_OK) {
        assay_recorder_device_free(r);
        return s;
    }
    *out = r;
    return ASSAY_OK;
}

static void clear(table *t)
{
    void *memory[] = {t->entries,        t->results,        t->partial, t->arrived, t->sketches,
                      t->sketch_partial, t->sketch_arrived, t->values,  t->shapes};
    for (void *m : memory)
        assay_cuda_free(m);
    free(t->host);
    free(t->points);
    free(t->layers);
    memset(t, 0, sizeof *t);
}

void assay_recorder_device_free(assay_recorder_device *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->n_tables; i++)
        clear(&r->tables[i]);
    assay_cuda_free(r->step);
    free(r->fetched);
    free(r->fetched_sketches);
    free(r->fetched_values);
    free(r->out);
    free(r);
}

static int64_t ceiling(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Adds what the kernels need to know beyond the shape. */
static void lay_out(table *t, table_entry *e, assay_device_tier tier)
{
    int64_t n = e->rows * e->width;
    int64_t most = tier == ASSAY_DEVICE_FULL ? e->rows : 2 * TABLE_ENDS;
    e->first_value = t->n_values;
    t->n_values += (e->rows < most ? e->rows : most) * e->width;
    e->chunk = CHUNK;
    while (ceiling(n, e->chunk) > MOST_CHUNKS)
        e->chunk *= 2;
    e->first_chunk = t->n_chunks;
    e->n_chunks = n ? static_cast<int32_t>(ceiling(n, e->chunk)) : 1;
    t->n_chunks += e->n_chunks;
    int64_t rows = e->rows < ASSAY_SKETCH_ROWS ? e->rows : ASSAY_SKETCH_ROWS;
    int per_group = static_cast<int>(ceiling(rows * e->width, SKETCH_PIECE));
    e->n_groups = e->rows ? static_cast<int32_t>(assay_sketch_groups(e->rows)) : 1;
    e->first_piece = t->n_pieces;
    e->first_group = t->n_groups;
    e->n_pieces = e->n_groups * (per_group ? per_group : 1);
    t->n_pieces += e->n_pieces;
    t->n_groups += e->n_groups;
}

static table_entry entry_of(const assay_tap_event *event)
{
    const assay_buffer *b = event->buffer;
    const char *axes = assay_point_at(event->point)->axes;
    table_entry e = {};
    e.at = b->data;
    e.rows = b->dims[0];
    e.width = 1;
    for (int i = 1; i < b->n_dims; i++)
        e.width *= b->dims[i];
    e.stride = b->strides[0];
    e.is_ids = b->dtype == ASSAY_DTYPE_I32;
    e.width_rule = strchr(axes, 'S')   ? WIDTH_KEYS
                   : strchr(axes, 'X') ? WIDTH_AT_MOST_KEYS
                                       : WIDTH_AS_IT_IS;
    return e;
}

static assay_status zeroed(void **out, size_t bytes, void *stream)
{
    ASSAY_TRY(assay_cuda_alloc(out, bytes, "recorder"));
    cudaMemsetAsync(*out, 0, bytes, kernel_stream(stream));
    return assay_cuda_sync(stream);
}

static assay_status upload(table *t, const assay_recorder_device *r, void *stream)
{
    size_t n = static_cast<size_t>(t->n), ring = static_cast<size_t>(r->ring);
    size_t numbers = static_cast<size_t>(t->n_groups) * ASSAY_SKETCH_N * sizeof(float);
    ASSAY_TRY(assay_cuda_alloc(&t->entries, n * sizeof *t->host, "recorder"));
    ASSAY_TRY(assay_cuda_to_device(stream, t->entries, t->host, n * sizeof *t->host));
    ASSAY_TRY(zeroed(&t->results, ring * n * sizeof(device_stats), stream));
    ASSAY_TRY(zeroed(&t->partial, static_cast<size_t>(t->n_chunks) * sizeof(device_stats), stream));
    ASSAY_TRY(zeroed(&t->arrived, n * sizeof(int), stream));
    if (keeps_rows(r)) {
        ASSAY_TRY(zeroed(&t->shapes, 2 * ring * sizeof(int32_t), stream));
        return assay_cuda_alloc(
            &t->values, ring * static_cast<size_t>(t->n_values) * sizeof(uint32_t), "recorder");
    }
    if (r->tier != ASSAY_DEVICE_SKETCH)
        return ASSAY_OK;
    ASSAY_TRY(zeroed(&t->sketches, ring * numbers, stream));
    ASSAY_TRY(zeroed(&t->sketch_partial,
                     static_cast<size_t>(t->n_pieces) * ASSAY_SKETCH_N * sizeof(double), stream));
    return zeroed(&t->sketch_arrived, static_cast<size_t>(t->n_groups) * sizeof(int), stream);
}

/* A new table. Values that are not rows of tokens (probabilities) are not recorded here. */
static assay_status add(table *t, const assay_recorder_device *r, const assay_device_table *from)
{
    size_t n = static_cast<size_t>(from->n);
    t->id = from->id;
    ASSAY_TRY(assay_alloc(&t->host, n, sizeof *t->host, "recorder"));
    ASSAY_TRY(assay_alloc(&t->points, n, sizeof *t->points, "recorder"));
    ASSAY_TRY(assay_alloc(&t->layers, n, sizeof *t->layers, "recorder"));
    for (int i = 0; i < from->n; i++) {
        const assay_tap_event *event = &from->events[i];
        if (assay_point_at(event->point)->axes[0] != 'T')
            continue;
        t->host[t->n] = entry_of(event);
        t->points[t->n] = event->point;
        t->layers[t->n] = event->layer;
        lay_out(t, &t->host[t->n++], r->tier);
    }
    return upload(t, r, from->stream);
}

static assay_status find(table **out, assay_recorder_device *r, const assay_device_table *from)
{
    for (int i = 0; i < r->n_tables; i++)
        if (r->tables[i].id == from->id) {
            r->last = i;
            *out = &r->tables[i];
            return ASSAY_OK;
        }
    if (from->is_capturing || r->n_tables == MOST_TABLES)
        return assay_fail(ASSAY_UNSUPPORTED, "recorder: a table that was not seen before, %s",
                          from->is_capturing ? "while a graph is captured" : "and no room for it");
    table *t = &r->tables[r->n_tables];
    assay_status s = add(t, r, from);
    if (s != ASSAY_OK) {
        clear(t);
        return s;
    }
    r->last = r->n_tables++;
    *out = t;
    return ASSAY_OK;
}

static assay_status queue(assay_recorder_device *r, table *t, const int32_t *counts, void *stream)
{
    const table_entry *entries = static_cast<const table_entry *>(t->entries);
    int *step = static_cast<int *>(r->step);
    ASSAY_TRY(kernel_launch("recorder", stream, count_step, 1, 1, 0, step));
    ASSAY_TRY(device_stats_queue(
        stream, static_cast<device_stats *>(t->results), static_cast<device_stats *>(t->partial),
        static_cast<int *>(t->arrived), entries, t->n, t->n_chunks, counts, step, r->ring));
    if (keeps_rows(r))
        return device_rows_queue(stream, static_cast<uint32_t *>(t->values), t->n_values,
                                 static_cast<int32_t *>(t->shapes), entries, t->n,
                                 r->tier == ASSAY_DEVICE_FULL, counts, step, r->ring);
    if (r->tier != ASSAY_DEVICE_SKETCH)
        return ASSAY_OK;
    return device_sketch_queue(stream, static_cast<float *>(t->sketches),
                               static_cast<double *>(t->sketch_partial),
                               static_cast<int *>(t->sketch_arrived), entries, t->n, t->n_pieces,
                               t->n_groups, counts, step, r->ring);
}

assay_status assay_recorder_device_tap(void *recorder, const assay_device_table *from)
{
    assay_recorder_device *r = static_cast<assay_recorder_device *>(recorder);
    table *t;
    ASSAY_TRY(find(&t, r, from));
    return queue(r, t, from->n_rows, from->stream);
}

static assay_status fetch_rows(assay_recorder_device *r, table *t, int slot)
{
    size_t n = static_cast<size_t>(t->n_values);
    free(r->fetched_values);
    r->fetched_values = nullptr;
    ASSAY_TRY(assay_alloc(&r->fetched_values, n, sizeof *r->fetched_values, "recorder"));
    ASSAY_TRY(assay_cuda_to_host(nullptr, r->fetched_shape,
                                 static_cast<int32_t *>(t->shapes) + 2 * slot,
                                 sizeof r->fetched_shape));
    return assay_cuda_to_host(nullptr, r->fetched_values,
                              static_cast<uint32_t *>(t->values) + static_cast<size_t>(slot) * n,
                              n * sizeof(uint32_t));
}

/* What the tier kept of an entry, in the shape of its step: as table_shape() has it. */
static void show_rows(assay_device_recorded *out, const assay_recorder_device *r,
                      const table_entry *e)
{
    int64_t rows = r->fetched_shape[0], keys = r->fetched_shape[1];
    out->n_rows = rows < e->rows ? rows : e->rows;
    bool by_keys =
        e->width_rule == WIDTH_KEYS || (e->width_rule == WIDTH_AT_MOST_KEYS && keys < e->width);
    out->width = by_keys && keys < INT32_MAX ? keys : e->width;
    bool all = r->tier == ASSAY_DEVICE_FULL || out->n_rows < 2 * TABLE_ENDS;
    out->n_kept = all ? out->n_rows : 2 * TABLE_ENDS;
    out->values = r->fetched_values + e->first_value;
}

static assay_status fetch(assay_recorder_device *r, table *t, int slot)
{
    size_t n = static_cast<size_t>(t->n);
    size_t groups = static_cast<size_t>(t->n_groups) * ASSAY_SKETCH_N;
    free(r->fetched);
    free(r->fetched_sketches);
    free(r->out);
    r->fetched = nullptr;
    r->fetched_sketches = nullptr;
    r->out = nullptr;
    ASSAY_TRY(assay_alloc(&r->fetched, n, sizeof *r->fetched, "recorder"));
    ASSAY_TRY(assay_alloc(&r->out, n, sizeof *r->out, "recorder"));
    ASSAY_TRY(
        assay_cuda_to_host(nullptr, r->fetched,
                           static_cast<device_stats *>(t->results) + static_cast<size_t>(slot) * n,
                           n * sizeof *r->fetched));
    if (keeps_rows(r))
        ASSAY_TRY(fetch_rows(r, t, slot));
    if (r->tier == ASSAY_DEVICE_SKETCH) {
        ASSAY_TRY(assay_alloc(&r->fetched_sketches, groups, sizeof(float), "recorder"));
        ASSAY_TRY(assay_cuda_to_host(nullptr, r->fetched_sketches,
                                     static_cast<float *>(t->sketches) +
                                         static_cast<size_t>(slot) * groups,
                                     groups * sizeof(float)));
    }
    return assay_cuda_sync(nullptr);
}

assay_status assay_recorder_device_read(const assay_device_recorded **out, int *n,
                                        assay_recorder_device *r, int back)
{
    int step;
    if (r->last < 0 || back < 0 || back >= r->ring)
        return assay_fail(ASSAY_MISSING, "recorder: step -%d is not in the ring of %d", back,
                          r->ring);
    table *t = &r->tables[r->last];
    ASSAY_TRY(assay_cuda_wait_all()); /* the engine, and its stream, may be gone */
    ASSAY_TRY(assay_cuda_to_host(nullptr, &step, r->step, sizeof step));
    ASSAY_TRY(assay_cuda_sync(nullptr));
    if (step < back)
        return assay_fail(ASSAY_MISSING, "recorder: %d steps were recorded, -%d is none of them",
                          step + 1, back);
    ASSAY_TRY(fetch(r, t, (step - back) % r->ring));
    for (int i = 0; i < t->n; i++) {
        const table_entry *e = &t->host[i];
        assay_device_recorded *to = &r->out[i];
        *to = {};
        to->point = t->points[i];
        to->layer = t->layers[i];
        to->stats = r->fetched[i].stats;
        to->first_bad = r->fetched[i].first_bad;
        if (keeps_rows(r))
            show_rows(to, r, e);
        if (r->tier == ASSAY_DEVICE_SKETCH) {
            to->n_groups = e->n_groups;
            to->sketch =
                r->fetched_sketches + static_cast<int64_t>(e->first_group) * ASSAY_SKETCH_N;
        }
    }
    *out = r->out;
    *n = t->n;
    return ASSAY_OK;
}

assay_status assay_recorder_device_one(assay_device_recorded *out, assay_recorder_device *r,
                                       const float *values, int64_t n, void *stream)
{
    int64_t dims[1] = {n};
    assay_buffer b = assay_buffer_view(const_cast<float *>(values), ASSAY_DTYPE_F32, 1, dims);
    assay_tap_event event = {};
    event.point = ASSAY_POINT_EMBED;
    event.layer = -1;
    event.buffer = &b;
    assay_device_table from = {&event, 1, -n, nullptr, false, stream};
    table *t;
    const assay_device_recorded *results;
    int n_results;
    ASSAY_TRY(find(&t, r, &from));
    if (t->host[0].at != values) {
        t->host[0].at = values;
        ASSAY_TRY(assay_cuda_to_device(stream, t->entries, t->host, sizeof *t->host));
        ASSAY_TRY(assay_cuda_sync(stream));
    }
    ASSAY_TRY(queue(r, t, nullptr, stream));
    if (!out)
        return ASSAY_OK;
    ASSAY_TRY(assay_recorder_device_read(&results, &n_results, r, 0));
    *out = results[0];
    return ASSAY_OK;
}

#define PLAIN_THREADS 256
#define PLAIN_BLOCKS (132 * 8)

static __global__ void plain_sum(double *partial, const float *x, int64_t n)
{
    kernel_begin();
    float sum = 0;
    int64_t step = 4 * static_cast<int64_t>(gridDim.x) * blockDim.x;
    int64_t i = 4 * (blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x);
    for (; i + 3 * step + 3 < n; i += 4 * step) {
        float4 v[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = __ldcs(reinterpret_cast<const float4 *>(x + i + k * step));
#pragma unroll
        for (int k = 0; k < 4; k++)
            sum += v[k].x + v[k].y + (v[k].z + v[k].w);
    }
    for (; i < n; i += step)
        for (int64_t k = 0; k < 4 && i + k < n; k++)
            sum += x[i + k];
    sum = kernel_warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        atomicAdd(partial, static_cast<double>(sum));
}

assay_status assay_recorder_device_plain_sum(double *out, const float *values, int64_t n,
                                             void *stream, float *milliseconds)
{
    void *sum, *from, *to;
    ASSAY_TRY(zeroed(&sum, sizeof *out, stream));
    ASSAY_TRY(assay_cuda_event_new(&from, true));
    ASSAY_TRY(assay_cuda_event_new(&to, true));
    ASSAY_TRY(assay_cuda_record(from, stream));
    ASSAY_TRY(kernel_launch("plain sum", stream, plain_sum, PLAIN_BLOCKS, PLAIN_THREADS, 0,
                            static_cast<double *>(sum), values, n));
    ASSAY_TRY(assay_cuda_record(to, stream));
    ASSAY_TRY(assay_cuda_to_host(stream, out, sum, sizeof *out));
    ASSAY_TRY(assay_cuda_sync(stream));
    ASSAY_TRY(assay_cuda_elapsed(milliseconds, from, to));
    assay_cuda_event_free(from);
    assay_cuda_event_free(to);
    assay_cuda_free(sum);
    return ASSAY_OK;
}
