/* Q8_0, 32 elements in 34 bytes: 0 f16 d, 2 i8 q[32].  y[e] = q[e] * d */
#include "engine/base/wide.h"
#include "engine/quant/block.h"

ASSAY_WIDEST void assay_dequant_q8_0(float *restrict out, const void *blocks, int64_t n)
{
    const uint8_t *restrict b = blocks;
    for (int64_t i = 0; i < n; i += 32, b += 34) {
        float d = block_f16(b);
        for (int e = 0; e < 32; e++)
            out[i + e] = (float)(int8_t)b[2 + e] * d;
    }
}

ASSAY_WIDEST_INT bool assay_unpack_q8_0(const assay_codes *out, const void *blocks, int64_t n)
{
    const uint8_t *restrict b = blocks;
    int16_t *restrict code = out->code;
    for (int64_t i = 0; i < n; i += 32, b += 34) {
        out->scale[i / 32] = block_f16(b);
        for (int e = 0; e < 32; e++)
            code[i + e] = (int8_t)b[2 + e];
    }
    return false;
}
