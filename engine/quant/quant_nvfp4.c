/*
 * NVFP4, 64 elements in 36 bytes: 0 u8 d[4] (unsigned E4M3), 4 u8 q[32] (E2M1 codes).
 * Run k of 16 uses q[8k ... 8k+7] with step = UE4M3(d[k]) / 2:
 *     y[16k + j] = MX[lo(q)] * step        y[16k + 8 + j] = MX[hi(q)] * step
 * A further factor per tensor is the tensor <name>.scale, which is no part of the block.
 */
#include <math.h>

#include "engine/quant/block.h"

static float ue4m3(uint8_t x)
{
    if (x == 0 || x == 0x7f)
        return 0.0f;
    int exponent = x >> 3 & 15;
    float fraction = (float)(x & 7);
    return exponent == 0 ? ldexpf(fraction, -9) : ldexpf(1.0f + fraction / 8.0f, exponent - 7);
}

void assay_dequant_nvfp4(float *out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 64, b += 36)
        for (int k = 0; k < 4; k++) {
            float step = 0.5f * ue4m3(b[k]);
            const uint8_t *q = b + 4 + 8 * k;
            float *y = out + i + 16 * k;
            for (int j = 0; j < 8; j++) {
                y[j] = (float)block_e2m1_twice[block_lo(q[j])] * step;
                y[j + 8] = (float)block_e2m1_twice[block_hi(q[j])] * step;
            }
        }
}
