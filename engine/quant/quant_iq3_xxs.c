/*
 * IQ3_XXS, 256 elements in 98 bytes: 0 f16 d, 2 u8 q[64], 66 u32 a[8].
 * Run l of group g: entries q[8g + 2l] and q[8g + 2l + 1], signs 7 bits of a[g] from 7l,
 * step = d * (0.5 + (a[g] >> 28)) * 0.5. Codes 0 ... 7 are 4, 12, 20, 28, 36, 44, 52, 62.
 */
#include "engine/quant/iq.h"

void assay_dequant_iq3_xxs(float *out, const void *blocks, int64_t n)
{
    static const float values[8] = {4.0f, 12.0f, 20.0f, 28.0f, 36.0f, 44.0f, 52.0f, 62.0f};
    const uint8_t *p = blocks;
    for (int64_t i = 0; i < n; i += 256, p += 98) {
        float d = block_f16(p);
        for (int g = 0; g < 8; g++) {
            uint32_t a = block_u32(p + 66 + 4 * g);
            float step = d * (0.5f + (float)(a >> 28)) * 0.5f;
            for (int l = 0; l < 4; l++) {
                const uint8_t *q = p + 2 + 8 * g + 2 * l;
                iq3_run(out + i + 32 * g + 8 * l, values, assay_grid_iq3_xxs[q[0]],
                        assay_grid_iq3_xxs[q[1]], step, iq_signs_of_7(a >> 7 * l));
            }
        }
    }
}
