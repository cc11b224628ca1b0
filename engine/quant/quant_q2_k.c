/*
 * Q2_K, 256 elements in 84 bytes: 0 u8 scales[16], 16 u8 q[64], 80 f16 d, 82 f16 dmin.
 * With h = e/128, j = e%128/32, l = e%32 and S = scales[8h + 2j + l/16]:
 *     y[e] = (d * (S & 15)) * (q[32h + l] >> 2j & 3) - dmin * (S >> 4)
 */
#include "engine/base/wide.h"
#include "engine/quant/block.h"

/* 16 elements of run j, which is a constant where this is inlined. */
static inline __attribute__((always_inline)) void run(float *restrict y, const uint8_t *restrict q,
                                                      uint8_t scale, float d, float dmin, int j)
{
    float step = d * (float)(scale & 15), min = dmin * (float)(scale >> 4);
    for (int l = 0; l < 16; l++)
        y[l] = step * (float)(q[l] >> 2 * j & 3) - min;
}

ASSAY_WIDEST void assay_dequant_q2_k(float *restrict out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 84) {
        float d = block_f16(b + 80), dmin = block_f16(b + 82);
        for (int h = 0; h < 2; h++)
            for (int half = 0; half < 2; half++)
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++)
                    run(out + i + 128 * h + 32 * j + 16 * half, b + 16 + 32 * h + 16 * half,
                        b[8 * h + 2 * j + half], d, dmin, j);
    }
}

ASSAY_WIDEST_INT bool assay_unpack_q2_k(const assay_codes *out, const void *blocks, int64_t n)
{
    const uint8_t *restrict b = blocks;
    int16_t *restrict code = out->code;
    for (int64_t i = 0; i < n; i += 256, b += 84) {
        out->scale[i / 256] = block_f16(b + 80);
        out->min_scale[i / 256] = block_f16(b + 82);
        for (int r = 0; r < 16; r++) { /* 16 elements: half r % 2 of run j of h */
            const uint8_t *q = b + 16 + 32 * (r / 8) + 16 * (r % 2);
            int scale = b[r] & 15, shift = 2 * (r / 2 % 4);
            out->min[i / 16 + r] = b[r] >> 4;
            for (int l = 0; l < 16; l++)
                code[i + 16 * r + l] = (int16_t)(scale * (q[l] >> shift & 3));
        }
    }
    return true;
}
