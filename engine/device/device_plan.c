/*
 * Plans: what a step of so many rows fills, reads and shows.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_inside.h"

static assay_status make_room(void *list, int n, int *room, size_t size, const char *what)
{
    if (n < *room)
        return ASSAY_OK;
    int more = *room ? 2 * *room : 64;
    void *old;
    memcpy(&old, list, sizeof old);
    void *grown = realloc(old, (size_t)more * size);
    if (!grown)
        return assay_fail(ASSAY_NO_MEMORY, "%s: no memory for %d rows", what, more);
    memcpy(list, &grown, sizeof grown);
    *room = more;
    return ASSAY_OK;
}

assay_status assay_plan_add_fill(assay_plan *p, assay_span_words words)
{
    ASSAY_TRY(make_room(&p->fills, p->n_fills, &p->fills_room, sizeof *p->fills, "plan"));
    p->fills[p->n_fills++] = words;
    return ASSAY_OK;
}

assay_status assay_plan_add_look(assay_plan *p, assay_span_words words, assay_read read)
{
    int room = p->looks_room;
    ASSAY_TRY(make_room(&p->looks, p->n_looks, &room, sizeof *p->looks, "plan"));
    ASSAY_TRY(make_room(&p->reads, p->n_looks, &p->looks_room, sizeof *p->reads, "plan"));
    p->looks[p->n_looks] = words;
    p->reads[p->n_looks++] = read;
    return ASSAY_OK;
}

assay_status assay_plan_add_shown(assay_plan *p, const assay_shown *shown)
{
    ASSAY_TRY(make_room(&p->shown, p->n_shown, &p->shown_room, sizeof *p->shown, "plan"));
    p->shown[p->n_shown++] = *shown;
    return ASSAY_OK;
}

static void clear(assay_plan *p)
{
    assay_cuda_graph_free(p->graph);
    assay_cuda_free(p->device_fills);
    assay_cuda_free(p->device_looks);
    free(p->fills);
    free(p->looks);
    free(p->reads);
    free(p->shown);
    *p = (assay_plan){0};
}

void assay_plan_drop_all(assay_device *d)
{
    for (int i = 0; i < d->n_plans; i++)
        clear(&d->plans[i]);
    d->n_plans = 0;
}

static assay_status upload(void **out, assay_device *d, const assay_span_words *spans, int n)
{
    if (!n)
        return ASSAY_OK;
    ASSAY_TRY(assay_cuda_alloc(out, (size_t)n * sizeof *spans, "plan"));
    ASSAY_TRY(assay_cuda_to_device(d->stream, *out, spans, (size_t)n * sizeof *spans));
    return assay_cuda_sync(d->stream);
}

static assay_status room_for_counts(assay_device *d, int n)
{
    if (n <= d->counts_room)
        return ASSAY_OK;
    assay_cuda_free(d->counts_device);
    assay_cuda_pinned_free(d->counts);
    d->counts_device = NULL;
    d->counts = NULL;
    d->counts_room = 0;
    ASSAY_TRY(assay_cuda_alloc(&d->counts_device, (size_t)n * sizeof *d->counts, "ledger"));
    ASSAY_TRY(assay_cuda_pinned((void **)&d->counts, (size_t)n * sizeof *d->counts));
    d->counts_room = n;
    return ASSAY_OK;
}

/* What the dry pass notes about slots is no fact about the step: generations and flags go back. */
static assay_status dry_pass(assay_engine *e, assay_plan *p)
{
    assay_device *d = e->device;
    assay_use_of_slot *kept;
    ASSAY_TRY(assay_alloc(&kept, ASSAY_SLOT_COUNT, sizeof *kept, "plan"));
    memcpy(kept, d->uses, sizeof d->uses);
    d->plan = p;
    d->is_dry = true;
    assay_status s = assay_device_run(e, p->with_logits);
    d->is_dry = false;
    p->logits_at = p->with_logits ? d->uses[ASSAY_POINT_LOGITS].buffer.data : NULL;
    memcpy(d->uses, kept, sizeof d->uses);
    free(kept);
    return s;
}

static assay_status build(assay_engine *e, assay_plan *p)
{
    assay_device *d = e->device;
    for (int again = 0; again < 2; again++) { /* addresses are final when nothing moves any more */
        assay_plan fresh = {
            .n_rows = p->n_rows, .with_logits = p->with_logits, .is_bucket = p->is_bucket};
        clear(p);
        *p = fresh;
        d->has_moved = false;
        ASSAY_TRY(dry_pass(e, p));
        if (!d->has_moved)
            break;
        if (again == 0 && d->n_plans > 1) { /* what others hold may have moved too */
            assay_plan mine = *p;
            *p = (assay_plan){0};
            assay_plan_drop_all(d);
            p = &d->plans[0];
            *p = mine;
            d->n_plans = 1;
        }
    }
    d->plan = p;
    p->id = ++d->n_ids;
    ASSAY_TRY(room_for_counts(d, p->n_looks));
    ASSAY_TRY(upload(&p->device_fills, d, p->fills, p->n_fills));
    return upload(&p->device_looks, d, p->looks, p->n_looks);
}

assay_status assay_plan_find(assay_plan **out, assay_engine *e, bool with_logits, bool is_bucket)
{
    assay_device *d = e->device;
    for (int i = 0; i < d->n_plans; i++)
        if (d->plans[i].n_rows == d->n_bucket && d->plans[i].with_logits == with_logits &&
            d->plans[i].is_bucket == is_bucket) {
            *out = d->plan = &d->plans[i];
            return ASSAY_OK;
        }
    if (d->n_plans == ASSAY_DEVICE_PLANS) {
        ASSAY_TRY(assay_cuda_sync(d->stream));
        assay_plan_drop_all(d);
    }
    for (;;) {
        assay_plan *p = &d->plans[d->n_plans++];
        *p =
            (assay_plan){.n_rows = d->n_bucket, .with_logits = with_logits, .is_bucket = is_bucket};
        assay_status s = build(e, p);
        if (s == ASSAY_OK)
            break;
        assay_plan_drop_all(d);
        if (!d->must_share || !d->owns_layers)
            return s;
        ASSAY_TRY(assay_cuda_sync(d->stream));
        assay_device_free_cells(e);
        d->owns_layers = d->must_share = false;
    }
    *out = d->plan;
    return ASSAY_OK;
}

assay_status assay_plan_poison(assay_engine *e)
{
    assay_device *d = e->device;
    if (d->owns_layers && d->plan->n_fills)
        ASSAY_RUN(d, assay_device_table_fill(d->at, d->plan->device_fills, d->plan->n_fills));
    return ASSAY_OK;
}

/* Every buffer that was read, looked through for its own poison. */
assay_status assay_plan_look(assay_engine *e)
{
    assay_device *d = e->device;
    assay_plan *p = d->plan;
    if (!d->owns_layers || !p->n_looks)
        return ASSAY_OK;
    ASSAY_TRY(assay_device_table_look(d->stream, d->counts_device, p->device_looks, p->n_looks,
                                      e->batch.n));
    return assay_cuda_to_host(d->stream, d->counts, d->counts_device,
                              (size_t)p->n_looks * sizeof *d->counts);
}

assay_status assay_plan_judge(assay_engine *e)
{
    assay_device *d = e->device;
    assay_plan *p = d->plan;
    for (int i = 0; d->owns_layers && i < p->n_looks; i++) {
        const assay_read *r = &p->reads[i];
        assay_slot_fact fact = {r->layer,
                                r->owner,
                                false,
                                true,
                                d->counts[i],
                                "was read with elements that nobody wrote",
                                assay_point_at(r->reader)->name};
        if (d->counts[i])
            ASSAY_TRY(assay_slots_note(&e->slots, r->slot, &fact));
    }
    return ASSAY_OK;
}

static bool is_for_host(const assay_engine *e, const assay_shown *s)
{
    const assay_engine_options *o = &e->options;
    return o->tap && (!o->wants || o->wants(o->tap_user, s->event.point, s->event.layer));
}

/* The shape in this step: real rows, real keys. */
static int64_t shape_now(assay_buffer *b, const assay_engine *e, assay_point point)
{
    int64_t dims[ASSAY_MAX_DIMS];
    assay_point_dims(dims, e, point);
    memcpy(b->dims, dims, sizeof b->dims);
    return assay_buffer_count(b);
}

/* Dense copy; only the outer axes of a value may have gaps. */
static assay_status fetch(assay_device *d, char *to, const assay_buffer *b)
{
    int64_t inner = 1;
    int last = b->n_dims - 1;
    for (int i = b->n_dims - 1; i > 0 && b->strides[i] == inner; i--) {
        inner *= b->dims[i];
        last = i - 1;
    }
    size_t row = (size_t)inner * 4, pitch = (size_t)b->strides[last] * 4;
    int64_t n = b->dims[last];
    if (last == 0)
        return assay_cuda_rows_to_host(d->stream, to, row, b->data, pitch, row, (size_t)n);
    ASSAY_BUG_IF(last != 1);
    for (int64_t i = 0; i < b->dims[0]; i++)
        ASSAY_TRY(assay_cuda_rows_to_host(d->stream, to + (size_t)(i * n) * row, row,
                                          (char *)b->data + (size_t)(i * b->strides[0]) * 4, pitch,
                                          row, (size_t)n));
    return ASSAY_OK;
}

static assay_status room_for_values(assay_engine *e, int first, int last)
{
    assay_device *d = e->device;
    size_t bytes = 0;
    for (int i = first; i < last; i++) {
        assay_buffer b = d->plan->shown[i].buffer;
        if (is_for_host(e, &d->plan->shown[i]))
            bytes += ((size_t)shape_now(&b, e, d->plan->shown[i].event.point) * 4 + 63) / 64 * 64;
    }
    if (bytes <= d->shown_bytes)
        return ASSAY_OK;
    assay_cuda_pinned_free(d->shown_memory);
    d->shown_memory = NULL;
    d->shown_bytes = 0;
    ASSAY_TRY(assay_cuda_pinned(&d->shown_memory, bytes));
    d->shown_bytes = bytes;
    return ASSAY_OK;
}

/* Values first ... last - 1 of the plan to the tap of the host, in order. */
assay_status assay_plan_deliver(assay_engine *e, int first, int last)
{
    assay_device *d = e->device;
    char *at;
    if (!e->options.tap)
        return ASSAY_OK;
    ASSAY_TRY(room_for_values(e, first, last));
    at = d->shown_memory;
    for (int i = first; i < last; i++) {
        assay_buffer b = d->plan->shown[i].buffer;
        if (!is_for_host(e, &d->plan->shown[i]))
            continue;
        size_t bytes = (size_t)shape_now(&b, e, d->plan->shown[i].event.point) * 4;
        if (bytes)
            ASSAY_TRY(fetch(d, at, &b));
        at += (bytes + 63) / 64 * 64;
    }
    ASSAY_TRY(assay_cuda_sync(d->stream));
    at = d->shown_memory;
    for (int i = first; i < last; i++) {
        assay_buffer b = d->plan->shown[i].buffer;
        assay_tap_event event = d->plan->shown[i].event;
        if (!is_for_host(e, &d->plan->shown[i]))
            continue;
        size_t bytes = (size_t)shape_now(&b, e, event.point) * 4;
        assay_buffer host = assay_buffer_view(at, b.dtype, b.n_dims, b.dims);
        host.owner = b.owner;
        host.generation = b.generation + (uint64_t)d->plan->n_steps;
        event.buffer = &host;
        event.rows = (assay_tap_rows){e->batch.n, e->batch.tokens, e->positions, e->sequences};
        event.step = e->step;
        event.is_prefill = e->is_prefill;
        event.stream = NULL;
        ASSAY_TRY(e->options.tap(e->options.tap_user, &event));
        at += (bytes + 63) / 64 * 64;
    }
    return ASSAY_OK;
}
