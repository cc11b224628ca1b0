/*
 * Q5_K, 256 elements in 176 bytes: 0 f16 d, 2 f16 dmin, 4 u8 scales[12], 16 u8 qh[32], 48 u8
 * q[128]. As Q4_K, with bit j of qh[l] as the fifth bit of element l of run j.
 */
#include "engine/base/wide.h"
#include "engine/quant/block.h"

ASSAY_WIDEST void assay_dequant_q5_k(float *out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 176) {
        float d = block_f16(b), dmin = block_f16(b + 2);
        for (int j = 0; j < 8; j++) {
            int scale, min;
            block_scale_min(&scale, &min, b + 4, j);
            float step = d * (float)scale, below = dmin * (float)min;
            const uint8_t *high = b + 16, *q = b + 48 + 32 * (j / 2);
            float *y = out + i + 32 * j;
            for (int l = 0; l < 32; l++) {
                int code = j % 2 ? block_hi(q[l]) : block_lo(q[l]);
                y[l] = step * (float)(code | (high[l] >> j & 1) << 4) - below;
            }
        }
    }
}
