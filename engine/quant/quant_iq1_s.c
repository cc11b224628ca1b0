/*
 * IQ1_S, 256 elements in 50 bytes: 0 f16 d, 2 u8 q[32], 34 u16 h[8].
 *     step = d * (2 * (h >> 12 & 7) + 1), delta = h & 0x8000 ? -1/8 : 1/8
 *     entry = q[4g + l] | (h >> 3l & 7) << 8, y = step * (value + delta)
 */
#include "engine/quant/iq.h"

void assay_dequant_iq1_s(float *out, const void *blocks, int64_t n)
{
    const uint8_t *p = blocks;
    for (int64_t i = 0; i < n; i += 256, p += 50) {
        float d = block_f16(p);
        for (int g = 0; g < 8; g++) {
            int h = block_u16(p + 34 + 2 * g);
            float step = d * (float)(2 * (h >> 12 & 7) + 1);
            float delta = h & 0x8000 ? -0.125f : 0.125f;
            for (int l = 0; l < 4; l++)
                iq1_run(out + i + 32 * g + 8 * l,
                        assay_grid_iq1[p[2 + 4 * g + l] | (h >> 3 * l & 7) << 8], step, delta);
        }
    }
}
