/*
 * Q3_K, 256 elements in 110 bytes: 0 u8 hmask[32], 32 u8 q[64], 96 u8 scales[12], 108 f16 d.
 * Sixteen 6-bit scales: the low four bits of number k are nibble k/8 of scales[k%8], the high two
 * are bits 2*(k/4) of scales[8 + k%4].
 * With h = e/128, j = e%128/32, l = e%32:
 *     y[e] = (d * (sc[8h + 2j + l/16] - 32)) * ((q[32h + l] >> 2j & 3) - (bit(hmask[l], 4h + j) ? 0
 * : 4))
 */
#include "engine/base/wide.h"
#include "engine/quant/block.h"

static int scale_at(const uint8_t *scales, int k)
{
    int low = k < 8 ? block_lo(scales[k]) : block_hi(scales[k - 8]);
    int high = scales[8 + k % 4] >> 2 * (k / 4) & 3;
    return (low | high << 4) - 32;
}

/* 16 elements of run j, which is a constant where this is inlined; bit of hmask: 4h + j. */
static inline __attribute__((always_inline)) void run(float *restrict y, const uint8_t *restrict q,
                                                      const uint8_t *restrict hmask, float step,
                                                      int j, int bit)
{
    for (int l = 0; l < 16; l++)
        y[l] = step * (float)((q[l] >> 2 * j & 3) + 4 * (hmask[l] >> bit & 1) - 4);
}

ASSAY_WIDEST void assay_dequant_q3_k(float *restrict out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 110) {
        float d = block_f16(b + 108);
        for (int h = 0; h < 2; h++)
            for (int half = 0; half < 2; half++)
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++)
                    run(out + i + 128 * h + 32 * j + 16 * half, b + 32 + 32 * h + 16 * half,
                        b + 16 * half, d * (float)scale_at(b + 96, 8 * h + 2 * j + half), j,
                        4 * h + j);
    }
}

ASSAY_WIDEST_INT bool assay_unpack_q3_k(const assay_codes *out, const void *blocks, int64_t n)
{
    const uint8_t *restrict b = blocks;
    int16_t *restrict code = out->code;
    for (int64_t i = 0; i < n; i += 256, b += 110) {
        out->scale[i / 256] = block_f16(b + 108);
        for (int r = 0; r < 16; r++) { /* 16 elements: half r % 2 of run r / 2 % 4 of r / 8 */
            const uint8_t *q = b + 32 + 32 * (r / 8) + 16 * (r % 2), *hmask = b + 16 * (r % 2);
            int scale = scale_at(b + 96, r), shift = 2 * (r / 2 % 4), bit = r / 2;
            for (int l = 0; l < 16; l++)
                code[i + 16 * r + l] =
                    (int16_t)(scale * ((q[l] >> shift & 3) + 4 * (hmask[l] >> bit & 1) - 4));
        }
    }
    return false;
}
