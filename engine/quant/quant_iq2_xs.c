/*
 * IQ2_XS, 256 elements in 74 bytes: 0 f16 d, 2 u16 q[32], 66 u8 scales[8].
 * q = q[4g + l]: grid entry q & 511, signs q >> 9. The nibble of scales[g] (low for runs 0 and 1,
 * high for 2 and 3) is s: step = d * (0.5 + s) * 0.25
 */
#include "engine/quant/iq.h"

void assay_dequant_iq2_xs(float *out, const void *blocks, int64_t n)
{
    const uint8_t *p = blocks;
    for (int64_t i = 0; i < n; i += 256, p += 74) {
        float d = block_f16(p);
        for (int g = 0; g < 8; g++)
            for (int l = 0; l < 4; l++) {
                uint32_t q = block_u16(p + 2 + 2 * (4 * g + l));
                int scale = l < 2 ? block_lo(p[66 + g]) : block_hi(p[66 + g]);
                float step = d * (0.5f + (float)scale) * 0.25f;
                iq2_run(out + i + 32 * g + 8 * l, assay_grid_iq2_xs[q & 511], step,
                        iq_signs_of_7(q >> 9));
            }
    }
}
