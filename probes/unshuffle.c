#include "probes/unshuffle.h"

#include "engine/base/status.h"
#include "engine/base/wide.h"

/* Byte b of an element; little-endian host. */
#define BYTE(word, b) ((word)in[(b)*stride + i] << 8 * (b))

ASSAY_WIDEST static void unshuffle_two(uint16_t *restrict out, const uint8_t *restrict in,
                                       int64_t stride, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = (uint16_t)(BYTE(uint16_t, 0) | BYTE(uint16_t, 1));
}

ASSAY_WIDEST static void unshuffle_four(uint32_t *restrict out, const uint8_t *restrict in,
                                        int64_t stride, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = BYTE(uint32_t, 0) | BYTE(uint32_t, 1) | BYTE(uint32_t, 2) | BYTE(uint32_t, 3);
}

ASSAY_WIDEST static void unshuffle_eight(uint64_t *restrict out, const uint8_t *restrict in,
                                         int64_t stride, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = BYTE(uint64_t, 0) | BYTE(uint64_t, 1) | BYTE(uint64_t, 2) | BYTE(uint64_t, 3) |
                 BYTE(uint64_t, 4) | BYTE(uint64_t, 5) | BYTE(uint64_t, 6) | BYTE(uint64_t, 7);
}

void assay_unshuffle(void *out, const uint8_t *in, int64_t stride, int64_t n, size_t size)
{
    switch (size) {
    case sizeof(uint16_t):
        unshuffle_two(out, in, stride, n);
        break;
    case sizeof(uint32_t):
        unshuffle_four(out, in, stride, n);
        break;
    case sizeof(uint64_t):
        unshuffle_eight(out, in, stride, n);
        break;
    default:
        ASSAY_BUG_IF("elements of another size");
    }
}
