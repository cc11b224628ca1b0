/*
 * IQ2_XXS, 256 elements in 66 bytes: 0 f16 d, 2 {u32 a, u32 b}[8], one pair a group.
 *     step = d * (0.5 + (b >> 28)) * 0.25, grid entry byte l of a, signs 7 bits of b from 7l
 */
#include "engine/quant/iq.h"

void assay_dequant_iq2_xxs(float *out, const void *blocks, int64_t n)
{
    const uint8_t *p = blocks;
    for (int64_t i = 0; i < n; i += 256, p += 66) {
        float d = block_f16(p);
        for (int g = 0; g < 8; g++) {
            const uint8_t *a = p + 2 + 8 * g;
            uint32_t b = block_u32(a + 4);
            float step = d * (0.5f + (float)(b >> 28)) * 0.25f;
            for (int l = 0; l < 4; l++)
                iq2_run(out + i + 32 * g + 8 * l, assay_grid_iq2_xxs[a[l]], step,
                        iq_signs_of_7(b >> 7 * l));
        }
    }
}
