/* Q2_0, 64 elements in 18 bytes: 0 f16 d, 2 u8 q[16].  y[e] = ((q[e/4] >> 2*(e%4) & 3) - 1) * d */
#include "engine/quant/block.h"

void assay_dequant_q2_0(float *out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 64, b += 18) {
        float d = block_f16(b);
        for (int e = 0; e < 64; e++)
            out[i + e] = (float)((b[2 + e / 4] >> 2 * (e % 4) & 3) - 1) * d;
    }
}
