#include "engine/base/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/wide.h"

static int64_t offset_of(const assay_buffer *b, int64_t i)
{
    int64_t at = 0;
    for (int d = b->n_dims - 1; d >= 0; d--) {
        at += i % b->dims[d] * b->strides[d];
        i /= b->dims[d];
    }
    return at;
}

assay_buffer assay_buffer_view(void *data, assay_dtype dtype, int n_dims, const int64_t *dims)
{
    ASSAY_BUG_IF(n_dims < 0 || n_dims > ASSAY_MAX_DIMS);
    assay_buffer b = {.data = data, .dtype = dtype, .n_dims = n_dims};
    int64_t stride = 1;
    for (int d = n_dims - 1; d >= 0; d--) {
        b.dims[d] = dims[d];
        b.strides[d] = stride;
        stride *= dims[d];
    }
    return b;
}

assay_status assay_buffer_new(assay_buffer *out, assay_dtype dtype, int n_dims, const int64_t *dims,
                              uint32_t owner)
{
    assay_buffer b = assay_buffer_view(NULL, dtype, n_dims, dims);
    b.owner = owner;
    size_t n = 1;
    for (int d = 0; d < n_dims; d++)
        if (dims[d] < 0 || __builtin_mul_overflow(n, (size_t)dims[d], &n))
            return assay_fail(ASSAY_NO_MEMORY, "buffer %u: shape overflows", owner);
    ASSAY_TRY(assay_alloc(&b.data, n, assay_dtype_bytes(dtype), "buffer"));
    assay_buffer_poison(&b);
    *out = b;
    return ASSAY_OK;
}

void assay_buffer_free(assay_buffer *buffer)
{
    if (!buffer)
        return;
    ASSAY_BUG_IF(buffer->place != ASSAY_PLACE_HOST);
    free(buffer->data);
    buffer->data = NULL;
}

int64_t assay_buffer_count(const assay_buffer *buffer)
{
    int64_t n = 1;
    for (int d = 0; d < buffer->n_dims; d++)
        n *= buffer->dims[d];
    return n;
}

int assay_buffer_is_dense(const assay_buffer *buffer)
{
    int64_t stride = 1;
    for (int d = buffer->n_dims - 1; d >= 0; d--) {
        if (buffer->dims[d] != 1 && buffer->strides[d] != stride)
            return 0;
        stride *= buffer->dims[d];
    }
    return 1;
}

ASSAY_WIDEST static void fill(uint32_t *words, uint32_t word, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        words[i] = word;
}

void assay_buffer_poison(assay_buffer *buffer)
{
    ASSAY_BUG_IF(buffer->place != ASSAY_PLACE_HOST);
    int64_t n = assay_buffer_count(buffer);
    uint32_t word = assay_poison_f32(buffer->owner & 0xFFFFFu);
    if (buffer->dtype == ASSAY_DTYPE_F32 && assay_buffer_is_dense(buffer)) {
        fill(buffer->data, word, n); /* the common case, without the index arithmetic */
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = offset_of(buffer, i);
        switch (assay_dtype_bytes(buffer->dtype)) {
        case 8:
            ((uint64_t *)buffer->data)[at] = buffer->dtype == ASSAY_DTYPE_F64
                                                 ? (uint64_t)word << 32 | 0x7FF8000000000000u
                                                 : 0xA5A5A5A5A5A5A5A5u;
            break;
        case 4:
            ((uint32_t *)buffer->data)[at] = buffer->dtype == ASSAY_DTYPE_F32 ? word : 0xA5A5A5A5u;
            break;
        case 2:
            ((uint16_t *)buffer->data)[at] = 0x7FE5u; /* NaN in f16 and bf16 alike */
            break;
        default:
            ((uint8_t *)buffer->data)[at] = buffer->dtype == ASSAY_DTYPE_F8E4M3 ? 0x7Fu : 0xA5u;
        }
    }
}

int64_t assay_buffer_count_poison(const assay_buffer *buffer)
{
    if (buffer->dtype != ASSAY_DTYPE_F32 || buffer->place != ASSAY_PLACE_HOST)
        return 0;
    int64_t n = assay_buffer_count(buffer), found = 0;
    for (int64_t i = 0; i < n; i++)
        found += assay_is_poison_f32(((const uint32_t *)buffer->data)[offset_of(buffer, i)], NULL);
    return found;
}
