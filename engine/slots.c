#include "engine/slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *slot_name(int slot)
{
    switch (slot) {
    case ASSAY_SLOT_FUSED_QA:
        return "merged q_a + kv_a";
    case ASSAY_SLOT_FUSED_GATE_UP:
        return "merged gate + up";
    case ASSAY_SLOT_FUSED_SHARED:
        return "merged shared gate + up";
    case ASSAY_SLOT_PRIVATE_OUT:
        return "the attention kernel's own output";
    default:
        return assay_point_at((assay_point)slot)->name;
    }
}

void assay_slots_clear(assay_slots *s)
{
    for (int i = 0; i < ASSAY_SLOT_COUNT; i++)
        free(s->slots[i].memory);
    free(s->faults);
    memset(s, 0, sizeof *s);
}

static assay_status add_fault(assay_slots *s, int slot, bool unread, int64_t n_poison,
                              const char *what, const char *who)
{
    const assay_slot *at = &s->slots[slot];
    if (s->n_faults == s->n_room) {
        int room = s->n_room ? 2 * s->n_room : 16;
        void *grown = realloc(s->faults, (size_t)room * sizeof *s->faults);
        if (!grown)
            return assay_fail(ASSAY_NO_MEMORY, "ledger: no memory for %d rows", room);
        s->faults = grown;
        s->n_room = room;
    }
    assay_buffer_fault *f = &s->faults[s->n_faults++];
    *f = (assay_buffer_fault){.point = slot < ASSAY_POINT_COUNT ? (assay_point)slot
                                                                : ASSAY_POINT_KERNEL_OUT,
                              .layer = at->layer,
                              .step = s->step,
                              .unread = unread,
                              .written_owner = at->is_written ? at->buffer.owner : 0,
                              .read_owner = unread ? 0 : at->buffer.owner,
                              .n_poison = n_poison};
    snprintf(f->text, sizeof f->text, "step %lld, layer %d: buffer %u (%s) %s%s%s",
             (long long)s->step, at->layer, at->buffer.owner, slot_name(slot), what,
             who ? " by " : "", who ? who : "");
    return ASSAY_OK;
}

static assay_status end_use(assay_slots *s, int slot)
{
    assay_slot *at = &s->slots[slot];
    assay_status status = ASSAY_OK;
    if (at->is_written && !at->is_read)
        status = add_fault(s, slot, true, 0, "was written, and nobody read it", NULL);
    at->is_written = at->is_read = at->is_checked = false;
    return status;
}

assay_status assay_slots_begin(assay_slots *s, int slot, int layer, assay_dtype dtype, int n_dims,
                               const int64_t *dims)
{
    assay_slot *at = &s->slots[slot];
    uint64_t generation = at->buffer.generation;
    ASSAY_TRY(end_use(s, slot));
    assay_buffer b = assay_buffer_view(NULL, dtype, n_dims, dims);
    size_t bytes = (size_t)assay_buffer_count(&b) * assay_dtype_bytes(dtype);
    if (bytes > at->bytes || !at->memory) {
        void *memory;
        ASSAY_TRY(assay_alloc(&memory, bytes, 1, slot_name(slot)));
        free(at->memory);
        at->memory = memory;
        at->bytes = bytes;
    }
    b.data = at->memory;
    b.owner = (uint32_t)slot + 1;
    b.generation = generation;
    at->buffer = b;
    at->layer = layer;
    assay_buffer_poison(&at->buffer);
    return ASSAY_OK;
}

assay_status assay_slots_share(assay_slots *s, int slot, int layer, int of, int64_t first,
                               int n_dims, const int64_t *dims)
{
    assay_slot *at = &s->slots[slot];
    const assay_slot *base = &s->slots[of];
    ASSAY_TRY(end_use(s, slot));
    at->buffer =
        assay_buffer_view((float *)base->buffer.data + first, base->buffer.dtype, n_dims, dims);
    at->buffer.strides[0] = base->buffer.strides[0];
    at->buffer.owner = base->buffer.owner;
    at->buffer.generation = base->buffer.generation;
    at->layer = layer;
    return ASSAY_OK;
}

void assay_slots_done(assay_slots *s, int slot)
{
    s->slots[slot].buffer.generation++;
    s->slots[slot].is_written = true;
}

/* Elements that hold the poison of this very buffer: poison of another one came in through the
 * inputs. */
static int64_t own_poison(const assay_buffer *b)
{
    int64_t n = assay_buffer_count(b), width = b->n_dims ? n / (b->dims[0] ? b->dims[0] : 1) : 0;
    uint32_t word = assay_poison_f32(b->owner);
    int64_t found = 0;
    if (b->dtype != ASSAY_DTYPE_F32)
        return 0;
    for (int64_t t = 0; t < b->dims[0]; t++) {
        const uint32_t *row = (const uint32_t *)b->data + t * b->strides[0];
        for (int64_t i = 0; i < width; i++)
            found += row[i] == word;
    }
    return found;
}

assay_status assay_slots_read(assay_slots *s, int slot, assay_point reader)
{
    assay_slot *at = &s->slots[slot];
    at->is_read = true;
    if (at->is_checked)
        return ASSAY_OK;
    at->is_checked = true;
    int64_t n = own_poison(&at->buffer);
    if (!at->is_written)
        return add_fault(s, slot, false, n, "was read and never written",
                         assay_point_at(reader)->name);
    if (n > 0)
        return add_fault(s, slot, false, n, "was read with elements that nobody wrote",
                         assay_point_at(reader)->name);
    return ASSAY_OK;
}

void assay_slots_no_reader(assay_slots *s, int slot)
{
    s->slots[slot].is_read = true;
}

assay_status assay_slots_end_step(assay_slots *s)
{
    for (int i = 0; i < ASSAY_SLOT_COUNT; i++)
        ASSAY_TRY(end_use(s, i));
    s->step++;
    return ASSAY_OK;
}

assay_rows assay_slots_rows(const assay_slots *s, int slot)
{
    const assay_buffer *b = &s->slots[slot].buffer;
    int64_t width = 1;
    ASSAY_BUG_IF(!b->data || b->dtype != ASSAY_DTYPE_F32);
    for (int d = 1; d < b->n_dims; d++)
        width *= b->dims[d];
    return (assay_rows){b->data, b->dims[0], width, b->n_dims ? b->strides[0] : 0};
}

int32_t *assay_slots_ids(const assay_slots *s, int slot)
{
    const assay_buffer *b = &s->slots[slot].buffer;
    ASSAY_BUG_IF(!b->data || b->dtype != ASSAY_DTYPE_I32);
    return b->data;
}
