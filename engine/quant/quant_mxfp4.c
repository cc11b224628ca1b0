/*
 * MXFP4, 32 elements in 17 bytes: 0 u8 e (E8M0 exponent), 1 u8 q[16] (E2M1 codes).
 *     y[j] = MX[lo(q[j])] * 2^(e - 128)        y[j + 16] = MX[hi(q[j])] * 2^(e - 128)
 * MX is twice the E2M1 value, hence 128 and not 127. e = 255 is NaN in E8M0 and passes as 2^127
 * here: the audit refuses it. Source: OCP Microscaling Formats specification 1.0.
 */
#include "engine/quant/block.h"

const int8_t block_e2m1_twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 2^(e - 128); subnormal for e < 2. */
static float half_e8m0(uint8_t e)
{
    uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void assay_dequant_mxfp4(float *out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 32, b += 17) {
        float d = half_e8m0(b[0]);
        for (int j = 0; j < 16; j++) {
            out[i + j] = (float)block_e2m1_twice[block_lo(b[1 + j])] * d;
            out[i + j + 16] = (float)block_e2m1_twice[block_hi(b[1 + j])] * d;
        }
    }
}
