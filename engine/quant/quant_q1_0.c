/* Q1_0, 128 elements in 18 bytes: 0 f16 d, 2 u8 q[16].  y[e] = bit(q[e/8], e%8) ? d : -d */
#include "engine/quant/block.h"

void assay_dequant_q1_0(float *out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 128, b += 18) {
        float d = block_f16(b);
        for (int e = 0; e < 128; e++)
            out[i + e] = b[2 + e / 8] >> e % 8 & 1 ? d : -d;
    }
}
