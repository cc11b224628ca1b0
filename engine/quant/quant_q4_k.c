/*
 * Q4_K, 256 elements in 144 bytes: 0 f16 d, 2 f16 dmin, 4 u8 scales[12], 16 u8 q[128].
 * Eight runs of 32 with a 6-bit scale and min each (block_scale_min). With j = e/32, l = e%32 and
 * B = q[32*(j/2) + l]:
 *     y[e] = (d * scale_j) * (j odd ? hi(B) : lo(B)) - dmin * min_j
 */
#include "engine/base/wide.h"
#include "engine/quant/block.h"

ASSAY_WIDEST void assay_dequant_q4_k(float *restrict out, const void *blocks, int64_t n)
{
    const uint8_t *restrict b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 144) {
        float step[8], below[8];
        block_steps(step, below, b + 4, block_f16(b), block_f16(b + 2));
        for (int j = 0; j < 8; j += 2) {
            const uint8_t *q = b + 16 + 16 * j;
            float *y = out + i + 32 * j;
            for (int l = 0; l < 32; l++)
                y[l] = step[j] * (float)block_lo(q[l]) - below[j];
            for (int l = 0; l < 32; l++)
                y[32 + l] = step[j + 1] * (float)block_hi(q[l]) - below[j + 1];
        }
    }
}

ASSAY_WIDEST_INT bool assay_unpack_q4_k(const assay_codes *out, const void *blocks, int64_t n)
{
    const uint8_t *restrict b = blocks;
    int16_t *restrict code = out->code;
    for (int64_t i = 0; i < n; i += 256, b += 144) {
        int16_t scale[8];
        out->scale[i / 256] = block_f16(b);
        out->min_scale[i / 256] = block_f16(b + 2);
        block_int_steps(scale, out->min + i / 16, b + 4);
        for (int j = 0; j < 8; j += 2) {
            const uint8_t *q = b + 16 + 16 * j;
            int16_t *y = code + i + 32 * j;
            for (int l = 0; l < 32; l++)
                y[l] = (int16_t)(scale[j] * block_lo(q[l]));
            for (int l = 0; l < 32; l++)
                y[32 + l] = (int16_t)(scale[j + 1] * block_hi(q[l]));
        }
    }
    return true;
}
