/*
 * IQ3_S, 256 elements in 110 bytes: 0 f16 d, 2 u8 q[64], 66 u8 high[8], 74 u8 signs[32], 106 u8
 * scales[4].
 * Run l of group g: entries q[8g + 2l] and q[8g + 2l + 1] with bits 2l and 2l + 1 of high[g] as bit
 * 8; s is nibble g of scales, step = d * (1 + 2s). Codes 0 ... 7 are 1, 3, ... 15.
 */
#include "engine/quant/iq.h"

void assay_dequant_iq3_s(float *out, const void *blocks, int64_t n)
{
    static const float values[8] = {1.0f, 3.0f, 5.0f, 7.0f, 9.0f, 11.0f, 13.0f, 15.0f};
    const uint8_t *p = blocks;
    for (int64_t i = 0; i < n; i += 256, p += 110) {
        float d = block_f16(p);
        for (int g = 0; g < 8; g++) {
            int scale = p[106 + g / 2] >> 4 * (g % 2) & 15;
            float step = d * (float)(1 + 2 * scale);
            for (int l = 0; l < 4; l++) {
                const uint8_t *q = p + 2 + 8 * g + 2 * l;
                int high = p[66 + g] >> 2 * l;
                iq3_run(out + i + 32 * g + 8 * l, values, assay_grid_iq3_s[q[0] | (high & 1) << 8],
                        assay_grid_iq3_s[q[1] | (high & 2) << 7], step, p[74 + 4 * g + l]);
            }
        }
    }
}
