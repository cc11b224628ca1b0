/*
 * Q8_K, 256 elements in 292 bytes: 0 f32 d, 4 i8 q[256], 260 i16 sums of 16.  y[e] = d * q[e]
 * A format of activations; d is float32 here.
 */
#include "engine/quant/block.h"

void assay_dequant_q8_k(float *restrict out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 292) {
        float d;
        memcpy(&d, b, sizeof d);
        for (int e = 0; e < 256; e++)
            out[i + e] = d * (float)(int8_t)b[4 + e];
    }
}
