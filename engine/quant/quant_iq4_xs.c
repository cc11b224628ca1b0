/*
 * IQ4_XS, 256 elements in 136 bytes: 0 f16 d, 2 u16 scales_h, 4 u8 scales_l[4], 8 u8 q[128].
 * Run r of 32 has the 6-bit scale s = nibble r of scales_l | bits 2r of scales_h << 4:
 *     y[32r + j] = (d * (s - 32)) * NL[lo(q[16r + j])]        y[32r + 16 + j] likewise with hi
 */
#include "engine/quant/block.h"

void assay_dequant_iq4_xs(float *out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 136) {
        float d = block_f16(b);
        int high = block_u16(b + 2);
        for (int r = 0; r < 8; r++) {
            int scale = (b[4 + r / 2] >> 4 * (r % 2) & 15) | (high >> 2 * r & 3) << 4;
            float step = d * (float)(scale - 32);
            const uint8_t *q = b + 8 + 16 * r;
            float *y = out + i + 32 * r;
            for (int j = 0; j < 16; j++) {
                y[j] = step * (float)block_iq4_values[block_lo(q[j])];
                y[j + 16] = step * (float)block_iq4_values[block_hi(q[j])];
            }
        }
    }
}
