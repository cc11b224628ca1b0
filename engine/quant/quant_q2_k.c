/*
 * Q2_K, 256 elements in 84 bytes: 0 u8 scales[16], 16 u8 q[64], 80 f16 d, 82 f16 dmin.
 * With h = e/128, j = e%128/32, l = e%32 and S = scales[8h + 2j + l/16]:
 *     y[e] = (d * (S & 15)) * (q[32h + l] >> 2j & 3) - dmin * (S >> 4)
 */
#include "engine/quant/block.h"

void assay_dequant_q2_k(float *out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 84) {
        float d = block_f16(b + 80), dmin = block_f16(b + 82);
        for (int e = 0; e < 256; e++) {
            int h = e / 128, j = e % 128 / 32, l = e % 32;
            uint8_t scale = b[8 * h + 2 * j + l / 16];
            int q = b[16 + 32 * h + l] >> 2 * j & 3;
            float step = d * (float)(scale & 15), min = dmin * (float)(scale >> 4);
            out[i + e] = step * (float)q - min;
        }
    }
}
