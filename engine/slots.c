#include "engine/slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/wide.h"

static const char *slot_name(int slot)
{
    switch (slot) {
    case ASSAY_SLOT_FUSED_QA:
        return "merged q_a + kv_a";
    case ASSAY_SLOT_FUSED_GATE_UP:
        return "merged gate + up";
    case ASSAY_SLOT_FUSED_SHARED:
        return "merged shared gate + up";
    default:
        return assay_point_at((assay_point)slot)->name;
    }
}

void assay_slots_clear(assay_slots *s)
{
    for (int i = 0; i < ASSAY_SLOT_COUNT; i++) {
        for (int layer = 0; layer < s->slots[i].n_layers; layer++)
            free(s->slots[i].last_step[layer]);
        free(s->slots[i].last_step);
        free(s->slots[i].n_last_step);
        free(s->slots[i].memory);
        free(s->slots[i].own);
    }
    free(s->faults);
    memset(s, 0, sizeof *s);
}

/* A kernel's output that nobody read is its own point, not the one that was read instead. */
static assay_point point_of(int slot, bool unread)
{
    if (slot == ASSAY_POINT_OUT_ATTN && unread)
        return ASSAY_POINT_KERNEL_OUT;
    if (slot == ASSAY_SLOT_FUSED_QA)
        return ASSAY_POINT_Q_A;
    if (slot == ASSAY_SLOT_FUSED_GATE_UP)
        return ASSAY_POINT_FFN_GATE;
    return slot == ASSAY_SLOT_FUSED_SHARED ? ASSAY_POINT_SHARED_GATE : (assay_point)slot;
}

assay_status assay_slots_note(assay_slots *s, int slot, const assay_slot_fact *fact)
{
    if (s->n_faults == s->n_room) {
        int room = s->n_room ? 2 * s->n_room : 16;
        void *grown = realloc(s->faults, (size_t)room * sizeof *s->faults);
        if (!grown)
            return assay_fail(ASSAY_NO_MEMORY, "ledger: no memory for %d rows", room);
        s->faults = grown;
        s->n_room = room;
    }
    assay_buffer_fault *f = &s->faults[s->n_faults++];
    *f = (assay_buffer_fault){.point = point_of(slot, fact->unread),
                              .layer = fact->layer,
                              .step = s->step,
                              .unread = fact->unread,
                              .written_owner = fact->is_written ? fact->owner : 0,
                              .read_owner = fact->unread ? 0 : fact->owner,
                              .n_poison = fact->n_poison};
    snprintf(f->text, sizeof f->text, "step %lld, layer %d: buffer %u (%s) %s%s%s",
             (long long)s->step, fact->layer, fact->owner, slot_name(slot), fact->what,
             fact->who ? " by " : "", fact->who ? fact->who : "");
    return ASSAY_OK;
}

static assay_status add_fault(assay_slots *s, int slot, bool unread, int64_t n_poison,
                              const char *what, const char *who)
{
    const assay_slot *at = &s->slots[slot];
    assay_slot_fact fact = {at->layer, at->buffer.owner, unread, at->is_written, n_poison, what,
                            who};
    return assay_slots_note(s, slot, &fact);
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

/* The op gets memory of its own; the caller's stays as begin() left it. */
static assay_status divert(assay_slot *at, int slot, size_t bytes)
{
    if (bytes > at->own_bytes) {
        void *memory;
        ASSAY_TRY(assay_alloc(&memory, bytes, 1, slot_name(slot)));
        free(at->own);
        at->own = memory;
        at->own_bytes = bytes;
    }
    at->written.data = at->own;
    at->written.owner = (uint32_t)(ASSAY_SLOT_COUNT + slot + 1);
    assay_buffer_poison(&at->written);
    return ASSAY_OK;
}

assay_status assay_slots_begin(assay_slots *s, int slot, int layer, assay_dtype dtype, int n_dims,
                               const int64_t *dims)
{
    return assay_slots_begin_diverted(s, slot, layer, dtype, n_dims, dims, ASSAY_DIVERT_NONE);
}

assay_status assay_slots_begin_diverted(assay_slots *s, int slot, int layer, assay_dtype dtype,
                                        int n_dims, const int64_t *dims, int mode)
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
    at->buffer = at->written = b;
    at->layer = layer;
    at->divert = mode;
    if (mode == ASSAY_DIVERT_NONE || mode == ASSAY_DIVERT_POISONED ||
        mode == ASSAY_DIVERT_ROWS_POISONED)
        assay_buffer_poison(&at->buffer);
    else if (mode != ASSAY_DIVERT_LAST_USE)
        memset(at->buffer.data, 0, bytes);
    return mode == ASSAY_DIVERT_NONE ? ASSAY_OK : divert(at, slot, bytes);
}

/* Copies the first n rows, or the first n of n_heads equal parts of every row. */
static void copy_part(assay_slot *at, int64_t n, int64_t n_heads)
{
    const assay_buffer *b = &at->buffer;
    int64_t rows = b->dims[0], width = assay_buffer_count(b) / (rows ? rows : 1);
    bool heads = at->divert == ASSAY_DIVERT_HEADS;
    int64_t columns = heads && n_heads > 0 ? n * (width / n_heads) : width;
    for (int64_t t = 0; t < rows && (heads || t < n); t++)
        memcpy((float *)b->data + t * width, (const float *)at->written.data + t * width,
               (size_t)(columns < width ? columns : width) * sizeof(float));
}

static assay_status keep_step(assay_slot *at)
{
    int64_t n = assay_buffer_count(&at->written);
    int index = at->layer + 1;
    if (index >= at->n_layers) {
        float **values = realloc(at->last_step, (size_t)(index + 1) * sizeof *values);
        if (values)
            at->last_step = values;
        int64_t *counts = realloc(at->n_last_step, (size_t)(index + 1) * sizeof *counts);
        if (counts)
            at->n_last_step = counts;
        if (!values || !counts)
            return assay_fail(ASSAY_NO_MEMORY, "ledger: no memory for %d layers", index);
        for (int i = at->n_layers; i <= index; i++) {
            at->last_step[i] = NULL;
            at->n_last_step[i] = 0;
        }
        at->n_layers = index + 1;
    }
    int64_t least = n < at->n_last_step[index] ? n : at->n_last_step[index];
    if (least > 0)
        memcpy(at->buffer.data, at->last_step[index], (size_t)least * sizeof(float));
    free(at->last_step[index]);
    at->last_step[index] = NULL;
    at->n_last_step[index] = 0;
    ASSAY_TRY(assay_alloc(&at->last_step[index], (size_t)n, sizeof(float), "ledger"));
    memcpy(at->last_step[index], at->written.data, (size_t)n * sizeof(float));
    at->n_last_step[index] = n;
    return ASSAY_OK;
}

assay_status assay_slots_settle(assay_slots *s, int slot, int64_t n, int64_t n_heads)
{
    assay_slot *at = &s->slots[slot];
    switch (at->divert) {
    case ASSAY_DIVERT_NONE:
        return ASSAY_OK;
    case ASSAY_DIVERT_ROWS_POISONED:
    case ASSAY_DIVERT_ROWS_ZEROED:
    case ASSAY_DIVERT_HEADS: /* the op stops early in the right buffer */
        copy_part(at, n, n_heads);
        at->written.data = at->buffer.data;
        at->written.owner = at->buffer.owner;
        return ASSAY_OK;
    case ASSAY_DIVERT_LAST_STEP:
        ASSAY_TRY(keep_step(at));
        break;
    default:
        break;
    }
    at->is_written = false;
    assay_buffer reader = at->buffer;
    at->buffer = at->written; /* the ledger names the op's own buffer */
    at->is_written = true;
    assay_status status = add_fault(s, slot, true, 0, "was written, and nobody read it", NULL);
    at->buffer = reader;
    at->is_written = false;
    return status;
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
    at->written = at->buffer;
    at->divert = ASSAY_DIVERT_NONE;
    at->layer = layer;
    return ASSAY_OK;
}

void assay_slots_done(assay_slots *s, int slot)
{
    assay_slot *at = &s->slots[slot];
    at->written.generation++;
    if (at->written.data == at->buffer.data) {
        at->buffer.generation++;
        at->is_written = true;
    }
}

ASSAY_WIDEST static int64_t count_of(const uint32_t *words, uint32_t word, int64_t n)
{
    int32_t found = 0; /* a row is shorter than 2^31 */
    for (int64_t i = 0; i < n; i++)
        found += words[i] == word;
    return found;
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
    for (int64_t t = 0; t < b->dims[0]; t++)
        found += count_of((const uint32_t *)b->data + t * b->strides[0], word, width);
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

static assay_rows rows_of(const assay_buffer *b)
{
    int64_t width = 1;
    ASSAY_BUG_IF(!b->data || b->dtype != ASSAY_DTYPE_F32);
    for (int d = 1; d < b->n_dims; d++)
        width *= b->dims[d];
    return (assay_rows){b->data, b->dims[0], width, b->n_dims ? b->strides[0] : 0};
}

assay_rows assay_slots_rows(const assay_slots *s, int slot)
{
    return rows_of(&s->slots[slot].buffer);
}

assay_rows assay_slots_written(const assay_slots *s, int slot)
{
    return rows_of(&s->slots[slot].written);
}

int32_t *assay_slots_ids(const assay_slots *s, int slot)
{
    const assay_buffer *b = &s->slots[slot].buffer;
    ASSAY_BUG_IF(!b->data || b->dtype != ASSAY_DTYPE_I32);
    return b->data;
}
