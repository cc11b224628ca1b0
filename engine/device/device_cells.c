/*
 * Points on the device: begin, done, read, as in engine/show.c and engine/slots.c. Poison is laid
 * by the plan (one launch for all cells of a step), or here where layers share cells.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_inside.h"
#include "engine/ops/pointwise.h"

#define OWNER_IDS 0xA5A5A5A5u

assay_status assay_device_grow(assay_device *d, assay_cell *cell, size_t bytes, const char *what)
{
    if (bytes <= cell->bytes && cell->memory)
        return ASSAY_OK;
    ASSAY_BUG_IF(!d->is_dry); /* the plan has gone through all of the step */
    ASSAY_TRY(assay_cuda_sync(d->stream));
    assay_cuda_free(cell->memory);
    *cell = (assay_cell){0};
    ASSAY_TRY(assay_cuda_alloc(&cell->memory, bytes, what));
    cell->bytes = bytes;
    d->has_moved = true;
    return ASSAY_OK;
}

assay_status assay_device_scratch(void **out, assay_device *d, int which, size_t bytes)
{
    ASSAY_TRY(assay_device_grow(d, &d->scratch[which], bytes, "scratch"));
    *out = d->scratch[which].memory;
    return ASSAY_OK;
}

static assay_cell *cell_of(assay_device *d, int slot, int layer)
{
    size_t of = d->owns_layers ? (size_t)(layer + 1) : 0;
    return &d->cells[of * ASSAY_DEVICE_CELLS + (size_t)slot];
}

static assay_status note(assay_engine *e, int slot, bool unread, const char *what, const char *who)
{
    const assay_use_of_slot *at = &e->device->uses[slot];
    assay_slot_fact fact = {at->layer, at->buffer.owner, unread, at->is_written, 0, what, who};
    return e->device->is_dry ? ASSAY_OK : assay_slots_note(&e->slots, slot, &fact);
}

/* Memory of a slot; what does not fit, layer by layer, is shared by all layers. */
static assay_status room_of_cell(assay_device *d, assay_cell *cell, size_t bytes)
{
    if (bytes <= cell->bytes && cell->memory)
        return ASSAY_OK;
    if (d->owns_layers && d->cell_bytes + (int64_t)bytes > d->own_bytes) {
        d->must_share = true;
        return assay_fail(ASSAY_NO_MEMORY, "buffers of a step: more than %lld bytes",
                          (long long)d->own_bytes);
    }
    d->cell_bytes += (int64_t)(bytes - cell->bytes);
    return assay_device_grow(d, cell, bytes, "buffer of a point");
}

static assay_status end_use(assay_engine *e, int slot)
{
    assay_use_of_slot *at = &e->device->uses[slot];
    assay_status s = ASSAY_OK;
    if (at->is_written && !at->is_read)
        s = note(e, slot, true, "was written, and nobody read it", NULL);
    at->is_written = at->is_read = at->is_checked = false;
    return s;
}

void assay_device_place_on(assay_engine *e, int slot, int of)
{
    assay_use_of_slot *at = &e->device->uses[slot];
    at->buffer.data = at->written.data = e->device->uses[of].buffer.data;
}

assay_status assay_device_end_step(assay_engine *e)
{
    for (int i = 0; i < ASSAY_SLOT_COUNT; i++)
        ASSAY_TRY(end_use(e, i));
    return ASSAY_OK;
}

void assay_device_mark(assay_engine *e, int slot)
{
    assay_use_of_slot *at = &e->device->uses[slot];
    at->written.generation++;
    if (at->written.data == at->buffer.data) {
        at->buffer.generation = at->written.generation;
        at->is_written = true;
    }
}

void assay_device_no_reader(assay_engine *e, int slot)
{
    e->device->uses[slot].is_read = true;
}

static assay_status fill_with_poison(assay_device *d, void *at, const assay_buffer *b)
{
    int64_t n = assay_buffer_count(b);
    uint32_t word = b->dtype == ASSAY_DTYPE_F32 ? assay_poison_f32(b->owner) : OWNER_IDS;
    if (d->is_dry)
        return assay_plan_add_fill(d->plan, (assay_span_words){at, 1, n, n, word});
    if (!d->owns_layers)
        ASSAY_RUN(d, assay_device_fill(d->at, at, word, n));
    return ASSAY_OK;
}

static assay_status begin(assay_engine *e, int slot, int layer, assay_dtype dtype, int n_dims,
                          const int64_t *dims)
{
    assay_device *d = e->device;
    assay_use_of_slot *at = &d->uses[slot];
    assay_cell *cell = cell_of(d, slot, layer);
    ASSAY_TRY(end_use(e, slot));
    assay_buffer b = assay_buffer_view(NULL, dtype, n_dims, dims);
    ASSAY_TRY(room_of_cell(d, cell, (size_t)assay_buffer_count(&b) * 4));
    b.data = cell->memory;
    b.place = ASSAY_PLACE_DEVICE;
    b.owner = (uint32_t)slot + 1;
    b.generation = at->buffer.generation;
    at->buffer = at->written = b;
    at->layer = layer;
    return fill_with_poison(d, b.data, &b);
}

assay_status assay_device_divert(assay_engine *e, int slot, int layer)
{
    assay_device *d = e->device;
    assay_use_of_slot *at = &d->uses[slot];
    assay_cell *cell = cell_of(d, ASSAY_DEVICE_PRIVATE, layer);
    ASSAY_TRY(room_of_cell(d, cell, (size_t)assay_buffer_count(&at->buffer) * 4));
    at->written.data = cell->memory;
    at->written.owner = ASSAY_DEVICE_PRIVATE + 1;
    return fill_with_poison(d, at->written.data, &at->written);
}

/* Axes of capacity: rows of S and X are as wide as they can become. */
assay_status assay_device_begin(assay_engine *e, int slot, int layer)
{
    int64_t dims[ASSAY_MAX_DIMS], n_batch = e->batch.n, n_keys = e->n_keys_most;
    assay_point point = (assay_point)slot;
    e->batch.n = e->device->n_bucket;
    e->n_keys_most = e->options.max_positions;
    int n = assay_point_dims(dims, e, point);
    e->batch.n = n_batch;
    e->n_keys_most = n_keys;
    return begin(e, slot, layer, assay_point_at(point)->is_ids ? ASSAY_DTYPE_I32 : ASSAY_DTYPE_F32,
                 n, dims);
}

assay_status assay_device_begin_shape(assay_engine *e, int slot, int layer, int64_t width)
{
    int64_t dims[2] = {e->device->n_bucket, width};
    return begin(e, slot, layer, ASSAY_DTYPE_F32, 2, dims);
}

/* Columns of another slot's memory, under that one's identity. */
assay_status assay_device_share(assay_engine *e, assay_point point, int layer, int of,
                                int64_t first)
{
    assay_use_of_slot *at = &e->device->uses[point];
    const assay_buffer *base = &e->device->uses[of].buffer;
    int64_t dims[ASSAY_MAX_DIMS], n_batch = e->batch.n;
    e->batch.n = e->device->n_bucket;
    int n = assay_point_dims(dims, e, point);
    e->batch.n = n_batch;
    ASSAY_TRY(end_use(e, point));
    assay_buffer b = assay_buffer_view((float *)base->data + first, base->dtype, n, dims);
    b.strides[0] = base->strides[0];
    b.place = ASSAY_PLACE_DEVICE;
    b.owner = base->owner;
    b.generation = base->generation;
    at->buffer = at->written = b;
    at->layer = layer;
    return ASSAY_OK;
}

static assay_rows rows_of(const assay_buffer *b)
{
    int64_t width = 1;
    ASSAY_BUG_IF(!b->data || b->dtype != ASSAY_DTYPE_F32);
    for (int i = 1; i < b->n_dims; i++)
        width *= b->dims[i];
    return (assay_rows){b->data, b->dims[0], width, b->n_dims ? b->strides[0] : 0};
}

assay_rows assay_device_rows_of(const assay_engine *e, int slot)
{
    return rows_of(&e->device->uses[slot].written);
}

int32_t *assay_device_ids(const assay_engine *e, int slot)
{
    const assay_buffer *b = &e->device->uses[slot].buffer;
    ASSAY_BUG_IF(!b->data || b->dtype != ASSAY_DTYPE_I32);
    return b->data;
}

static bool is_wanted(const assay_engine *e, assay_point point, int layer)
{
    return e->options.device_tap || assay_point_wanted(e, point, layer);
}

/* A tap that changes values: the step waits for it. */
static assay_status inject(assay_engine *e, const assay_shown *shown)
{
    const assay_engine_options *o = &e->options;
    assay_device *d = e->device;
    assay_buffer host = shown->buffer;
    assay_tap_event event = shown->event;
    int64_t n = assay_buffer_count(&host);
    size_t width = n && host.dims[0] ? (size_t)(n / host.dims[0]) * 4 : 0;
    ASSAY_TRY(assay_alloc(&host.data, (size_t)n, 4, "an injected value"));
    host = assay_buffer_view(host.data, host.dtype, host.n_dims, host.dims);
    host.owner = shown->buffer.owner;
    event.buffer = &host;
    assay_status s =
        assay_cuda_rows_to_host(d->stream, host.data, width, shown->buffer.data,
                                (size_t)shown->buffer.strides[0] * 4, width, (size_t)host.dims[0]);
    if (s == ASSAY_OK)
        s = assay_cuda_sync(d->stream);
    if (s == ASSAY_OK)
        s = o->inject(o->inject_user, &event);
    if (s == ASSAY_OK)
        s = assay_cuda_rows_to_device(d->stream, shown->buffer.data,
                                      (size_t)shown->buffer.strides[0] * 4, host.data, width, width,
                                      (size_t)host.dims[0]);
    if (s == ASSAY_OK)
        s = assay_cuda_sync(d->stream);
    assay_cuda_check("injection");
    free(host.data);
    return s;
}

static assay_status show(assay_engine *e, assay_point point, int layer, const assay_buffer *value,
                         const assay_buffer *written, const assay_buffer *read, bool partial)
{
    assay_device *d = e->device;
    if (!is_wanted(e, point, layer))
        return ASSAY_OK;
    assay_shown shown = {
        .event = {.point = point,
                  .layer = layer,
                  .rank = e->part.rank,
                  .n_ranks = e->part.n_ranks,
                  .partial = partial,
                  .shard_axis = partial ? -1 : assay_point_shard_axis(e, point),
                  .n_copies = assay_point_n_copies(e, point),
                  .written_address = written->data,
                  .read_address = read->data,
                  .written_owner = written->owner,
                  .read_owner = read->owner,
                  .written_generation = written->generation,
                  .read_generation = read->generation,
                  .stream = d->stream},
        .buffer = *value,
    };
    if (d->is_dry)
        return assay_plan_add_shown(d->plan, &shown);
    if (!e->options.inject || d->is_capturing)
        return ASSAY_OK;
    shown.event.rows = (assay_tap_rows){e->batch.n, e->batch.tokens, e->positions, e->sequences};
    shown.event.step = e->step;
    shown.event.is_prefill = e->is_prefill;
    int64_t dims[ASSAY_MAX_DIMS];
    assay_point_dims(dims, e, point);
    memcpy(shown.buffer.dims, dims, sizeof dims);
    return inject(e, &shown);
}

/* Rows under a scale that is not theirs alone, where a seam says so. */
static assay_status bend(assay_engine *e, assay_point point, int layer)
{
    assay_device *d = e->device;
    const assay_seam_setting *s = assay_bent_of(e, ASSAY_SEAM_PAD_SCALE, layer, (int)point);
    if (!s || s->n_ints < 2 || !d->plan->is_bucket)
        return ASSAY_OK;
    ASSAY_RUN(d, assay_device_share_scale(d->at, assay_device_rows_of(e, point), d->n_rows_at,
                                          (float)s->ints[1]));
    return ASSAY_OK;
}

assay_status assay_device_show(assay_engine *e, assay_point point, int layer,
                               const assay_buffer *value, const assay_buffer *written,
                               const assay_buffer *read)
{
    return show(e, point, layer, value, written, read, assay_point_is_partial(e, point));
}

assay_status assay_device_show_part(assay_engine *e, assay_point point, int layer,
                                    const assay_buffer *part, const assay_buffer *written)
{
    return show(e, point, layer, part, written, written, true);
}

assay_status assay_device_keep(assay_buffer *out, assay_engine *e, assay_point point, int layer)
{
    assay_device *d = e->device;
    bool is_ffn = point == ASSAY_POINT_FFN_OUT || point == ASSAY_POINT_MOE_OUT;
    assay_cell *cell = cell_of(d, is_ffn ? ASSAY_DEVICE_PART_FFN : ASSAY_DEVICE_PART, layer);
    *out = d->uses[point].written;
    out->data = NULL;
    if (!is_wanted(e, point, layer))
        return ASSAY_OK;
    ASSAY_TRY(room_of_cell(d, cell, (size_t)assay_buffer_count(out) * 4));
    out->data = cell->memory;
    return ASSAY_OK;
}

assay_status assay_device_done_exact(assay_engine *e, assay_point point, int layer)
{
    const assay_use_of_slot *at = &e->device->uses[point];
    if (e->options.seams)
        ASSAY_TRY(bend(e, point, layer));
    assay_device_mark(e, point);
    return assay_device_show(e, point, layer, &at->written, &at->written, &at->buffer);
}

assay_status assay_device_done(assay_engine *e, assay_point point, int layer)
{
    if (e->options.dtype == ASSAY_DTYPE_BF16)
        ASSAY_RUN(e->device,
                  assay_device_round_bf16(e->device->at, assay_device_rows_of(e, point)));
    return assay_device_done_exact(e, point, layer);
}

static bool is_looked_through(int slot, const assay_buffer *b)
{
    const char *axes = slot < ASSAY_POINT_COUNT ? assay_point_at((assay_point)slot)->axes : "";
    return b->dtype == ASSAY_DTYPE_F32 && !strchr(axes, 'S');
}

/* The ledger: who reads what; whether all of it was written is seen when the step is over. */
assay_status assay_device_read(assay_rows *rows, assay_engine *e, int slot, assay_point reader)
{
    assay_device *d = e->device;
    assay_use_of_slot *at = &d->uses[slot];
    const assay_buffer *b = &at->buffer;
    ASSAY_BUG_IF(!b->data);
    if (rows)
        *rows = rows_of(b);
    at->is_read = true;
    if (at->is_checked)
        return ASSAY_OK;
    at->is_checked = true;
    if (!at->is_written)
        ASSAY_TRY(note(e, slot, false, "was read and never written", assay_point_at(reader)->name));
    if (!d->is_dry || !at->is_written || !is_looked_through(slot, b))
        return ASSAY_OK;
    assay_rows r = rows_of(b);
    assay_span_words look = {(uint32_t *)r.at, r.n, r.width, r.stride, assay_poison_f32(b->owner)};
    return assay_plan_add_look(d->plan, look, (assay_read){slot, at->layer, b->owner, reader});
}
