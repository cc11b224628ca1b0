/*
 * Q4_K, 256 elements in 144 bytes: 0 f16 d, 2 f16 dmin, 4 u8 scales[12], 16 u8 q[128].
 * Eight runs of 32 with a 6-bit scale and min each (block_scale_min). With j = e/32, l = e%32 and
 * B = q[32*(j/2) + l]:
 *     y[e] = (d * scale_j) * (j odd ? hi(B) : lo(B)) - dmin * min_j
 */
#include "engine/base/wide.h"
#include "engine/quant/block.h"

ASSAY_WIDEST void assay_dequant_q4_k(float *out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 144) {
        float d = block_f16(b), dmin = block_f16(b + 2);
        for (int j = 0; j < 8; j++) {
            int scale, min;
            block_scale_min(&scale, &min, b + 4, j);
            float step = d * (float)scale, below = dmin * (float)min;
            const uint8_t *q = b + 16 + 32 * (j / 2);
            float *y = out + i + 32 * j;
            for (int l = 0; l < 32; l++)
                y[l] = step * (float)(j % 2 ? block_hi(q[l]) : block_lo(q[l])) - below;
        }
    }
}
