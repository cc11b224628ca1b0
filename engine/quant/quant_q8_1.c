/*
 * Q8_1, 32 elements in 36 bytes: 0 f16 d, 2 f16 s = d * sum(q), 4 i8 q[32].  y[e] = q[e] * d
 * A format of activations; files do not hold it.
 */
#include "engine/quant/block.h"

void assay_dequant_q8_1(float *restrict out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 32, b += 36) {
        float d = block_f16(b);
        for (int e = 0; e < 32; e++)
            out[i + e] = (float)(int8_t)b[4 + e] * d;
    }
}
