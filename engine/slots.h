/*
 * Slots: the buffer of every point, and the ledger of who wrote and who read it.
 *
 * A slot is made anew for each use: begin() gives it its shape and fills it with its owner's
 * poison; done() says that the op has written it (its generation grows); read() says who consumes
 * it, and looks for elements that still hold the poison of this very buffer. What is read without
 * having been written, or written and then never read, is a fault of the hand-over, and is kept in
 * the ledger as a fact.
 *
 * Points of one merged projection share one buffer: share() makes a slot a strided view of
 * another's columns.
 */
#ifndef ASSAY_ENGINE_SLOTS_H
#define ASSAY_ENGINE_SLOTS_H

#include <stdbool.h>

#include "engine/base/buffer.h"
#include "engine/engine.h"
#include "engine/ops/rows.h"

/* Buffers that are no point: memory of merged projections. */
enum {
    ASSAY_SLOT_FUSED_QA = ASSAY_POINT_COUNT,
    ASSAY_SLOT_FUSED_GATE_UP,
    ASSAY_SLOT_FUSED_SHARED,
    ASSAY_SLOT_COUNT
};

/* Where an op writes when its caller's buffer is not the one (modes of the seams attn-out-buffer
 * and output-buffer). */
enum {
    ASSAY_DIVERT_NONE,
    ASSAY_DIVERT_ZEROED,
    ASSAY_DIVERT_POISONED,
    ASSAY_DIVERT_LAST_USE,
    ASSAY_DIVERT_LAST_STEP,
    ASSAY_DIVERT_ROWS_POISONED,
    ASSAY_DIVERT_ROWS_ZEROED,
    ASSAY_DIVERT_HEADS
};

typedef struct assay_slot {
    assay_buffer buffer;  /* of this use: what the reader reads; data NULL: not in use */
    assay_buffer written; /* what the op writes; the same as buffer in a healthy run */
    int divert;
    void *memory, *own; /* the caller's, and the op's own when diverted */
    size_t bytes, own_bytes;
    float **last_step; /* [layer + 1] values of the last step, kept for ASSAY_DIVERT_LAST_STEP */
    int64_t *n_last_step;
    int n_layers;
    int layer;
    bool is_written, is_read, is_checked;
} assay_slot;

typedef struct assay_slots {
    assay_slot slots[ASSAY_SLOT_COUNT];
    assay_buffer_fault *faults;
    int n_faults, n_room;
    int64_t step;
} assay_slots;

/* One line of the ledger. */
typedef struct assay_slot_fact {
    int layer;
    uint32_t owner; /* of the buffer */
    bool unread, is_written;
    int64_t n_poison;
    const char *what, *who;
} assay_slot_fact;

assay_status assay_slots_note(assay_slots *s, int slot, const assay_slot_fact *fact);

void assay_slots_clear(assay_slots *s);

/* Shape [dims], dense. A value written and not read before is a fault of the last use. */
assay_status assay_slots_begin(assay_slots *s, int slot, int layer, assay_dtype dtype, int n_dims,
                               const int64_t *dims);
/* The same memory and identity as `of`, columns from `first` on, shape [dims] (the row stride is
 * of's). */
assay_status assay_slots_share(assay_slots *s, int slot, int layer, int of, int64_t first,
                               int n_dims, const int64_t *dims);
/*
 * begin() in which the op gets a buffer of its own to write (mode: ASSAY_DIVERT_*); settle(), once
 * it has, leaves in the caller's what the mode says: the first n rows (or the first n of n_heads
 * equal columns), or nothing of it.
 */
assay_status assay_slots_begin_diverted(assay_slots *s, int slot, int layer, assay_dtype dtype,
                                        int n_dims, const int64_t *dims, int mode);
assay_status assay_slots_settle(assay_slots *s, int slot, int64_t n, int64_t n_heads);
void assay_slots_done(assay_slots *s, int slot);
/* Marks the slot as consumed by `reader`. */
assay_status assay_slots_read(assay_slots *s, int slot, assay_point reader);
/* Nothing reads the slot in this path (its last reader is the tap). */
void assay_slots_no_reader(assay_slots *s, int slot);
/* Ends a step: whatever was written and not read is a fault. */
assay_status assay_slots_end_step(assay_slots *s);

/* First axis as rows, the others together as columns. */
/* What the op writes: the same as assay_slots_rows in a healthy run. */
assay_rows assay_slots_written(const assay_slots *s, int slot);
assay_rows assay_slots_rows(const assay_slots *s, int slot);
int32_t *assay_slots_ids(const assay_slots *s, int slot);

#endif
