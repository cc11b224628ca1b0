/*
 * Q5_0, 32 elements in 22 bytes: 0 f16 d, 2 u32 h, 6 u8 q[16]; bit e of h is the fifth bit of
 * element e.
 *     y[j] = ((lo(q[j]) | bit(h, j) << 4) - 16) * d        y[j + 16] likewise with hi and bit j +
 * 16
 */
#include "engine/base/wide.h"
#include "engine/quant/block.h"

ASSAY_WIDEST void assay_dequant_q5_0(float *restrict out, const void *blocks, int64_t n)
{
    const uint8_t *restrict b = blocks;
    for (int64_t i = 0; i < n; i += 32, b += 22) {
        float d = block_f16(b);
        uint8_t five[32];
        block_fifth_bits(five, block_u32(b + 2));
        for (int j = 0; j < 16; j++)
            out[i + j] = (float)((block_lo(b[6 + j]) | five[j]) - 16) * d;
        for (int j = 0; j < 16; j++)
            out[i + j + 16] = (float)((block_hi(b[6 + j]) | five[j + 16]) - 16) * d;
    }
}

ASSAY_WIDEST_INT bool assay_unpack_q5_0(const assay_codes *out, const void *blocks, int64_t n)
{
    const uint8_t *restrict b = blocks;
    int16_t *restrict code = out->code;
    for (int64_t i = 0; i < n; i += 32, b += 22) {
        uint8_t five[32];
        block_fifth_bits(five, block_u32(b + 2));
        out->scale[i / 32] = block_f16(b);
        for (int j = 0; j < 16; j++)
            code[i + j] = (int16_t)((block_lo(b[6 + j]) | five[j]) - 16);
        for (int j = 0; j < 16; j++)
            code[i + j + 16] = (int16_t)((block_hi(b[6 + j]) | five[j + 16]) - 16);
    }
    return false;
}
