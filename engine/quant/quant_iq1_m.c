/*
 * IQ1_M, 256 elements in 56 bytes: 0 u8 q[32], 32 u8 h[16], 48 u16 s[4].
 * The f16 d is spread over the top nibbles of s[0 ... 3], lowest nibble first; the lower 12 bits of
 * s[g/2] hold four 3-bit scales, of runs (0,1) and (2,3) of two groups:
 *     step = d * (2 * scale + 1), nibble n of h[2g + l/2] (low for even l): delta = n & 8 ? -1/8 :
 * 1/8 entry = q[4g + l] | (n & 7) << 8, y = step * (value + delta)
 */
#include "engine/quant/iq.h"

static float scattered_f16(const uint8_t *s)
{
    int bits = 0;
    for (int i = 0; i < 4; i++)
        bits |= (block_u16(s + 2 * i) >> 12) << 4 * i;
    return assay_f16_to_f32((uint16_t)bits);
}

void assay_dequant_iq1_m(float *out, const void *blocks, int64_t n)
{
    const uint8_t *p = blocks;
    for (int64_t i = 0; i < n; i += 256, p += 56) {
        float d = scattered_f16(p + 48);
        for (int g = 0; g < 8; g++) {
            int scales = block_u16(p + 48 + 2 * (g / 2)) >> 6 * (g % 2);
            for (int l = 0; l < 4; l++) {
                float step = d * (float)(2 * (scales >> 3 * (l / 2) & 7) + 1);
                int h = p[32 + 2 * g + l / 2] >> 4 * (l % 2);
                iq1_run(out + i + 32 * g + 8 * l, assay_grid_iq1[p[4 * g + l] | (h & 7) << 8], step,
                        h & 8 ? -0.125f : 0.125f);
            }
        }
    }
}
