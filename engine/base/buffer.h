/*
 * A buffer: memory with a number format, a shape and an identity.
 *
 *   dims     outermost first; row-major unless strides say otherwise
 *   strides  in elements, one per dim
 *   owner    number of the buffer (unique in an engine); it is in the poison that fills the memory
 * before use generation  counts the writes: the op that fills the buffer adds one when it is done
 *   data     host or device address, as place says; 16-bit poison has no room for the owner, so
 * identity is (data, owner)
 *
 * A buffer struct is a view: copying it shares the memory. Whoever called assay_buffer_new frees
 * the memory once.
 */
#ifndef ASSAY_ENGINE_BASE_BUFFER_H
#define ASSAY_ENGINE_BASE_BUFFER_H

#include <stdint.h>

#include "engine/base/number.h"
#include "engine/base/status.h"

#define ASSAY_MAX_DIMS 4

typedef enum { ASSAY_PLACE_HOST, ASSAY_PLACE_DEVICE } assay_place;

typedef struct assay_buffer {
    void *data;
    assay_dtype dtype;
    assay_place place;
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS];
    int64_t strides[ASSAY_MAX_DIMS];
    uint32_t owner;
    uint64_t generation;
} assay_buffer;

/* Host memory of the given shape, filled with the owner's poison (float formats) or 0xA5 bytes
 * (integers). */
assay_status assay_buffer_new(assay_buffer *out, assay_dtype dtype, int n_dims, const int64_t *dims,
                              uint32_t owner);
void assay_buffer_free(assay_buffer *buffer);

/* Shape only: dense row-major strides over memory that somebody else owns. */
assay_buffer assay_buffer_view(void *data, assay_dtype dtype, int n_dims, const int64_t *dims);

int64_t assay_buffer_count(const assay_buffer *buffer);
int assay_buffer_is_dense(const assay_buffer *buffer);

/* Fills host memory with poison again, before the op that owns the buffer runs. */
void assay_buffer_poison(assay_buffer *buffer);

/* Elements that still hold a poison word (float32 only; other formats count 0). */
int64_t assay_buffer_count_poison(const assay_buffer *buffer);

#endif
