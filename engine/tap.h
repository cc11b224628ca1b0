/*
 * The tap: the engine's one callback. It shows each buffer at its point right after the op that
 * made it has finished.
 *
 * The buffer may be strided (a view into a larger one). Shape: the rows of this call in the order
 * of the batch, then the axes of point.def. `rows` tells which tokens they are. The memory is valid
 * during the call only.
 *
 * A tap never changes what it is shown. To put a reference value in place of the engine's own, set
 * assay_engine_options.inject, which is called with the same event before the tap and may write
 * through event->buffer.
 */
#ifndef ASSAY_ENGINE_TAP_H
#define ASSAY_ENGINE_TAP_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/point.h"

typedef struct assay_tap_rows {
    int64_t n;
    const int32_t *tokens;    /* [n] */
    const int32_t *positions; /* [n] */
    const int32_t *sequences; /* [n] index of the request each row belongs to; -1: padding */
} assay_tap_rows;

typedef struct assay_tap_event {
    assay_point point;
    int layer; /* -1 for global points */
    const assay_buffer *buffer;
    assay_tap_rows rows;
    int64_t step; /* forward call of this engine, from 0 */
    bool is_prefill;
    int rank, n_ranks;
    bool partial;   /* before the reduction over ranks */
    int shard_axis; /* axis of buffer->dims that is split over ranks; -1: whole */
    int n_copies;   /* so many neighbouring ranks hold the same shard (key heads); 0: one */
    /* Identity: what the op wrote to, and what the reader of this point will read. Equal in a
     * healthy run. */
    const void *written_address, *read_address;
    uint32_t written_owner, read_owner;
    uint64_t written_generation, read_generation;
    void *stream; /* device stream, NULL on the host */
} assay_tap_event;

typedef assay_status assay_tap_fn(void *user, const assay_tap_event *event);

#endif
