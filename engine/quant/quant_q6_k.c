/*
 * Q6_K, 256 elements in 210 bytes: 0 u8 ql[128], 128 u8 qh[64], 192 i8 scales[16], 208 f16 d.
 * With h = e/128, k = e%128/32, l = e%32 and B = ql[64h + 32*(k & 1) + l]:
 *     q = ((k >= 2 ? hi(B) : lo(B)) | (qh[32h + l] >> 2k & 3) << 4) - 32
 *     y[e] = (d * scales[8h + 2k + l/16]) * q
 */
#include "engine/base/wide.h"
#include "engine/quant/block.h"

/* 32 elements: k of half h. Both are constants where this is inlined. */
static inline __attribute__((always_inline)) void run(float *restrict y, const uint8_t *restrict b,
                                                      float d, int h, int k)
{
    const uint8_t *low = b + 64 * h + 32 * (k & 1), *high = b + 128 + 32 * h;
    const int8_t *scale = (const int8_t *)b + 192 + 8 * h + 2 * k;
    float step[2] = {d * (float)scale[0], d * (float)scale[1]};
    int8_t code[32];
    for (int l = 0; l < 32; l++)
        code[l] = (int8_t)(((k >= 2 ? block_hi(low[l]) : block_lo(low[l])) | (high[l] >> 2 * k & 3)
                                                                                 << 4) -
                           32);
    for (int l = 0; l < 16; l++)
        y[l] = step[0] * (float)code[l];
    for (int l = 16; l < 32; l++)
        y[l] = step[1] * (float)code[l];
}

ASSAY_WIDEST void assay_dequant_q6_k(float *restrict out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 210) {
        float d = block_f16(b + 208);
        for (int h = 0; h < 2; h++)
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++)
                run(out + i + 128 * h + 32 * k, b, d, h, k);
    }
}

static inline __attribute__((always_inline)) void int_run(int16_t *restrict y,
                                                          const uint8_t *restrict b, int h, int k)
{
    const uint8_t *low = b + 64 * h + 32 * (k & 1), *high = b + 128 + 32 * h;
    const int8_t *scale = (const int8_t *)b + 192 + 8 * h + 2 * k;
    int16_t of[2] = {scale[0], scale[1]};
    for (int l = 0; l < 32; l++)
        y[l] = (int16_t)(((k >= 2 ? block_hi(low[l]) : block_lo(low[l])) | (high[l] >> 2 * k & 3)
                                                                               << 4) -
                         32);
    for (int l = 0; l < 16; l++)
        y[l] = (int16_t)(y[l] * of[0]);
    for (int l = 16; l < 32; l++)
        y[l] = (int16_t)(y[l] * of[1]);
}

ASSAY_WIDEST_INT bool assay_unpack_q6_k(const assay_codes *out, const void *blocks, int64_t n)
{
    const uint8_t *restrict b = blocks;
    int16_t *restrict code = out->code;
    for (int64_t i = 0; i < n; i += 256, b += 210) {
        out->scale[i / 256] = block_f16(b + 208);
        for (int h = 0; h < 2; h++)
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++)
                int_run(code + i + 128 * h + 32 * k, b, h, k);
    }
    return false;
}
