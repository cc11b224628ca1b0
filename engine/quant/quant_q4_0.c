/*
 * Q4_0, 32 elements in 18 bytes: 0 f16 d, 2 u8 q[16].
 *     y[j] = (lo(q[j]) - 8) * d        y[j + 16] = (hi(q[j]) - 8) * d
 */
#include "engine/base/wide.h"
#include "engine/quant/block.h"

ASSAY_WIDEST void assay_dequant_q4_0(float *restrict out, const void *blocks, int64_t n)
{
    const uint8_t *restrict b = blocks;
    for (int64_t i = 0; i < n; i += 32, b += 18) {
        float d = block_f16(b);
        for (int j = 0; j < 16; j++)
            out[i + j] = (float)(block_lo(b[2 + j]) - 8) * d;
        for (int j = 0; j < 16; j++)
            out[i + j + 16] = (float)(block_hi(b[2 + j]) - 8) * d;
    }
}

ASSAY_WIDEST_INT bool assay_unpack_q4_0(const assay_codes *out, const void *blocks, int64_t n)
{
    const uint8_t *restrict b = blocks;
    int16_t *restrict code = out->code;
    for (int64_t i = 0; i < n; i += 32, b += 18) {
        out->scale[i / 32] = block_f16(b);
        for (int j = 0; j < 16; j++)
            code[i + j] = (int16_t)(block_lo(b[2 + j]) - 8);
        for (int j = 0; j < 16; j++)
            code[i + j + 16] = (int16_t)(block_hi(b[2 + j]) - 8);
    }
    return false;
}
