/*
 * IQ4_NL, 32 elements in 18 bytes: 0 f16 d, 2 u8 q[16]; codes index a table of 16 values.
 *     y[j] = d * NL[lo(q[j])]        y[j + 16] = d * NL[hi(q[j])]
 */
#include "engine/quant/block.h"

const int8_t block_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

void assay_dequant_iq4_nl(float *out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 32, b += 18) {
        float d = block_f16(b);
        for (int j = 0; j < 16; j++) {
            out[i + j] = d * (float)block_iq4_values[block_lo(b[2 + j])];
            out[i + j + 16] = d * (float)block_iq4_values[block_hi(b[2 + j])];
        }
    }
}
