/*
 * IQ2_S, 256 elements in 82 bytes: 0 f16 d, 2 u8 q[32], 34 u8 signs[32], 66 u8 high[8], 74 u8
 * scales[8].
 * Grid entry q[4g + l] with bits 2l of high[g] as bits 8 and 9; signs are whole bytes; step as
 * IQ2_XS.
 */
#include "engine/quant/iq.h"

void assay_dequant_iq2_s(float *out, const void *blocks, int64_t n)
{
    const uint8_t *p = blocks;
    for (int64_t i = 0; i < n; i += 256, p += 82) {
        float d = block_f16(p);
        for (int g = 0; g < 8; g++)
            for (int l = 0; l < 4; l++) {
                int entry = p[2 + 4 * g + l] | (p[66 + g] >> 2 * l & 3) << 8;
                int scale = l < 2 ? block_lo(p[74 + g]) : block_hi(p[74 + g]);
                float step = d * (0.5f + (float)scale) * 0.25f;
                iq2_run(out + i + 32 * g + 8 * l, assay_grid_iq2_s[entry], step, p[34 + 4 * g + l]);
            }
    }
}
