/*
 * Q6_K, 256 elements in 210 bytes: 0 u8 ql[128], 128 u8 qh[64], 192 i8 scales[16], 208 f16 d.
 * With h = e/128, k = e%128/32, l = e%32 and B = ql[64h + 32*(k & 1) + l]:
 *     q = ((k >= 2 ? hi(B) : lo(B)) | (qh[32h + l] >> 2k & 3) << 4) - 32
 *     y[e] = (d * scales[8h + 2k + l/16]) * q
 */
#include "engine/base/wide.h"
#include "engine/quant/block.h"

ASSAY_WIDEST void assay_dequant_q6_k(float *out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 210) {
        float d = block_f16(b + 208);
        for (int e = 0; e < 256; e++) {
            int h = e / 128, k = e % 128 / 32, l = e % 32;
            uint8_t both = b[64 * h + 32 * (k & 1) + l];
            int low = k >= 2 ? block_hi(both) : block_lo(both);
            int high = b[128 + 32 * h + l] >> 2 * k & 3;
            float step = d * (float)(int8_t)b[192 + 8 * h + 2 * k + l / 16];
            out[i + e] = step * (float)((low | high << 4) - 32);
        }
    }
}
