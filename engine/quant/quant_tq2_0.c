/*
 * TQ2_0, 256 elements in 66 bytes: 0 u8 q[64], 64 f16 d; two bits per element.
 * With h = e/128, j = e%128/32, l = e%32:  y[e] = ((q[32h + l] >> 2j & 3) - 1) * d
 */
#include "engine/quant/block.h"

void assay_dequant_tq2_0(float *out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 66) {
        float d = block_f16(b + 64);
        for (int e = 0; e < 256; e++) {
            int q = b[32 * (e / 128) + e % 32] >> 2 * (e % 128 / 32) & 3;
            out[i + e] = (float)(q - 1) * d;
        }
    }
}
