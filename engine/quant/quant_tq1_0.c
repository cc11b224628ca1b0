/*
 * TQ1_0, 256 elements in 54 bytes: 0 u8 q[48], 48 u8 qh[4], 52 f16 d; five ternary digits a byte
 * (four in qh). Digit k of byte x is (x * 3^k mod 256) * 3 >> 8, and y = (digit - 1) * d.
 * Order: digits 0 ... 4 of q[0 ... 31], digits 0 ... 4 of q[32 ... 47], digits 0 ... 3 of qh.
 */
#include "engine/quant/block.h"

/* digits x count values: digit-major over the bytes. */
static float *unpack(float *y, const uint8_t *bytes, int count, int digits, float d)
{
    int power = 1;
    for (int k = 0; k < digits; k++, power *= 3)
        for (int l = 0; l < count; l++) {
            int digit = (bytes[l] * power & 255) * 3 >> 8;
            *y++ = (float)(digit - 1) * d;
        }
    return y;
}

void assay_dequant_tq1_0(float *out, const void *blocks, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 54) {
        float d = block_f16(b + 52);
        float *y = unpack(out + i, b, 32, 5, d);
        y = unpack(y, b + 32, 16, 5, d);
        unpack(y, b + 48, 4, 4, d);
    }
}
