/*
 * Q3_K, 256 elements in 110 bytes: 0 u8 hmask[32], 32 u8 q[64], 96 u8 scales[12], 108 f16 d.
 * Sixteen 6-bit scales: the low four bits of number k are nibble k/8 of scales[k%8], the high two
 * are bits 2*(k/4) of scales[8 + k%4].
 * With h = e/128, j = e%128/32, l = e%32:
 *     y[e] = (d * (sc[8h + 2j + l/16] - 32)) * ((q[32h + l] >> 2j & 3) - (bit(hmask[l], 4h + j) ? 0
 * : 4))
 */
#include "engine/quant/block.h"

static int scale_at(const uint8_t *scales, int k)
{
    int low = k < 8 ? block_lo(scales[k]) : block_hi(scales[k - 8]);
    int high = scales[8 + k % 4] >> 2 * (k / 4) & 3;
    return (low | high << 4) - 32;
}

void assay_dequant_q3_k(float *out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 110) {
        float d = block_f16(b + 108);
        for (int e = 0; e < 256; e++) {
            int h = e / 128, j = e % 128 / 32, l = e % 32;
            float step = d * (float)scale_at(b + 96, 8 * h + 2 * j + l / 16);
            int q = (b[32 + 32 * h + l] >> 2 * j & 3) - (b[l] >> (4 * h + j) & 1 ? 0 : 4);
            out[i + e] = step * (float)q;
        }
    }
}
