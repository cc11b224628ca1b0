/*
 * K-quants, IQ4_XS and the ternary formats: super-blocks of 256 elements. Element e of a block lies
 * at n = e / 128, j = (e % 128) / 32, l = e % 32 unless a decoder says otherwise.
 */
#include <string.h>

#include "references/oracle/oracle_quant.h"

void assay_oracle_decode_q2_k(float *out, const uint8_t *b)
{
    const uint8_t *scales = b, *qs = b + 16;
    float d = assay_oracle_f16_at(b + 80), dmin = assay_oracle_f16_at(b + 82);
    for (int e = 0; e < 256; e++) {
        int n = e / 128, j = e % 128 / 32, l = e % 32;
        uint8_t s = scales[8 * n + 2 * j + l / 16];
        int q = qs[32 * n + l] >> 2 * j & 3;
        out[e] = (d * (float)(s & 15)) * (float)q - dmin * (float)(s >> 4);
    }
}

void assay_oracle_decode_q3_k(float *out, const uint8_t *b)
{
    const uint8_t *hmask = b, *qs = b + 32, *scales = b + 96;
    float d = assay_oracle_f16_at(b + 108);
    int sc[16];
    for (int i = 0; i < 16; i++) {
        int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
        sc[i] = (low | (scales[8 + i % 4] >> 2 * (i / 4) & 3) << 4) - 32;
    }
    for (int e = 0; e < 256; e++) {
        int n = e / 128, j = e % 128 / 32, l = e % 32;
        int q = (qs[32 * n + l] >> 2 * j & 3) - (hmask[l] >> (4 * n + j) & 1 ? 0 : 4);
        out[e] = (d * (float)sc[8 * n + 2 * j + l / 16]) * (float)q;
    }
}

/* Eight pairs of 6-bit scale and minimum in 12 bytes. */
static void scale_and_min(int *scale, int *minimum, const uint8_t *b, int j)
{
    if (j < 4) {
        *scale = b[j] & 63;
        *minimum = b[j + 4] & 63;
    } else {
        *scale = (b[j + 4] & 15) | (b[j - 4] >> 6) << 4;
        *minimum = (b[j + 4] >> 4) | (b[j] >> 6) << 4;
    }
}

static void decode_4_or_5(float *out, const uint8_t *b, const uint8_t *high, const uint8_t *qs)
{
    float d = assay_oracle_f16_at(b), dmin = assay_oracle_f16_at(b + 2);
    for (int j = 0; j < 8; j++) {
        int scale, minimum;
        scale_and_min(&scale, &minimum, b + 4, j);
        for (int l = 0; l < 32; l++) {
            uint8_t byte = qs[32 * (j / 2) + l];
            int q = j % 2 ? byte >> 4 : byte & 15;
            if (high)
                q += 16 * (high[l] >> j & 1);
            out[32 * j + l] = (d * (float)scale) * (float)q - dmin * (float)minimum;
        }
    }
}

void assay_oracle_decode_q4_k(float *out, const uint8_t *b)
{
    decode_4_or_5(out, b, NULL, b + 16);
}

void assay_oracle_decode_q5_k(float *out, const uint8_t *b)
{
    decode_4_or_5(out, b, b + 16, b + 48);
}

void assay_oracle_decode_q6_k(float *out, const uint8_t *b)
{
    const uint8_t *ql = b, *qh = b + 128, *scales = b + 192;
    float d = assay_oracle_f16_at(b + 208);
    for (int e = 0; e < 256; e++) {
        int n = e / 128, k = e % 128 / 32, l = e % 32;
        uint8_t byte = ql[64 * n + 32 * (k & 1) + l];
        int low = k >= 2 ? byte >> 4 : byte & 15;
        int q = (low | (qh[32 * n + l] >> 2 * k & 3) << 4) - 32;
        out[e] = (d * (float)(int8_t)scales[8 * n + 2 * k + l / 16]) * (float)q;
    }
}

void assay_oracle_decode_q8_k(float *out, const uint8_t *b)
{
    uint32_t bits = assay_oracle_u32_at(b);
    float d;
    memcpy(&d, &bits, sizeof d);
    for (int e = 0; e < 256; e++)
        out[e] = d * (float)(int8_t)b[4 + e];
}

void assay_oracle_decode_iq4_xs(float *out, const uint8_t *b)
{
    float d = assay_oracle_f16_at(b);
    uint16_t high = assay_oracle_u16_at(b + 2);
    const uint8_t *low = b + 4, *qs = b + 8;
    for (int k = 0; k < 8; k++) {
        int scale = (low[k / 2] >> 4 * (k % 2) & 15) | (high >> 2 * k & 3) << 4;
        float dl = d * (float)(scale - 32);
        for (int j = 0; j < 16; j++) {
            out[32 * k + j] = dl * (float)assay_oracle_nl[qs[16 * k + j] & 15];
            out[32 * k + 16 + j] = dl * (float)assay_oracle_nl[qs[16 * k + j] >> 4];
        }
    }
}

void assay_oracle_decode_tq2_0(float *out, const uint8_t *b)
{
    float d = assay_oracle_f16_at(b + 64);
    for (int e = 0; e < 256; e++) {
        int n = e / 128, j = e % 128 / 32, l = e % 32;
        out[e] = (float)((b[32 * n + l] >> 2 * j & 3) - 1) * d;
    }
}

/* Digit n of a byte that holds five base-3 digits as a fraction of 256. */
static float ternary(uint8_t x, int n, float d)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    uint8_t shifted = (uint8_t)(x * power[n]);
    return (float)((shifted * 3 >> 8) - 1) * d;
}

void assay_oracle_decode_tq1_0(float *out, const uint8_t *b)
{
    float d = assay_oracle_f16_at(b + 52);
    for (int n = 0; n < 5; n++)
        for (int l = 0; l < 32; l++)
            *out++ = ternary(b[l], n, d);
    for (int n = 0; n < 5; n++)
        for (int l = 0; l < 16; l++)
            *out++ = ternary(b[32 + l], n, d);
    for (int n = 0; n < 4; n++)
        for (int l = 0; l < 4; l++)
            *out++ = ternary(b[48 + l], n, d);
}
