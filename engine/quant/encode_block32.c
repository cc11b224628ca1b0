/*
 * Encoders of the types with 32 elements a block: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q8_1 IQ4_NL.
 *
 *     Q4_0, Q5_0       d = m / -8 or m / -16, m the element of largest magnitude with its sign
 *     Q4_1, Q5_1       d = (max - min) / 15 or 31, m = min
 *     Q8_0, Q8_1       d = max |x| / 127
 *     IQ4_NL           d = m / -127, nearest of the 16 values
 *
 * Codes are taken with the unrounded d (as the reference does for these types); d is stored as f16.
 * Source: quantize_row_*_ref of ggml-quants.c; model-spec vectors in suite_quant.
 */
#include <math.h>

#include "engine/quant/block.h"

/* The element of largest magnitude, with its sign; the first of equals. */
static float extreme(const float *x, int n)
{
    float most = 0.0f, value = 0.0f;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > most) {
            most = fabsf(x[i]);
            value = x[i];
        }
    return value;
}

/* roundf: to the nearest, halves away from zero. x - r is exact, and no call is made. */
static int round_half_away(float x)
{
    int r = (int)x;
    float rest = x - (float)r;
    return r + (rest >= 0.5f) - (rest <= -0.5f);
}

static float inverse(float d)
{
    return d != 0.0f ? 1.0f / d : 0.0f;
}

/* Codes 0 ... top of x / d + offset, cut to an integer; the offset has the half for rounding. */
static void codes(uint8_t q[32], const float *x, float from, float id, float offset, int top)
{
    for (int e = 0; e < 32; e++) {
        int code = (int)((x[e] - from) * id + offset);
        q[e] = (uint8_t)(code > top ? top : code);
    }
}

static void pack_nibbles(uint8_t *p, const uint8_t q[32])
{
    for (int j = 0; j < 16; j++)
        p[j] = (uint8_t)((q[j] & 15) | (q[j + 16] & 15) << 4);
}

/* Bit e: the fifth bit of code e. */
static void pack_fifth(uint8_t *p, const uint8_t q[32])
{
    uint32_t h = 0;
    for (int e = 0; e < 32; e++)
        h |= (uint32_t)(q[e] >> 4 & 1) << e;
    memcpy(p, &h, sizeof h);
}

static void range(const float *x, float *low, float *high)
{
    *low = *high = x[0];
    for (int e = 1; e < 32; e++) {
        if (x[e] < *low)
            *low = x[e];
        if (x[e] > *high)
            *high = x[e];
    }
}

void assay_encode_q4_0(void *blocks, const float *x, int64_t n)
{
    uint8_t *b = blocks, q[32];
    for (int64_t i = 0; i < n; i += 32, b += 18) {
        float d = extreme(x + i, 32) / -8.0f;
        codes(q, x + i, 0.0f, inverse(d), 8.5f, 15);
        block_put_u16(b, assay_f32_to_f16(d));
        pack_nibbles(b + 2, q);
    }
}

void assay_encode_q4_1(void *blocks, const float *x, int64_t n)
{
    uint8_t *b = blocks, q[32];
    for (int64_t i = 0; i < n; i += 32, b += 20) {
        float low, high;
        range(x + i, &low, &high);
        float d = (high - low) / 15.0f;
        codes(q, x + i, low, inverse(d), 0.5f, 15);
        block_put_u16(b, assay_f32_to_f16(d));
        block_put_u16(b + 2, assay_f32_to_f16(low));
        pack_nibbles(b + 4, q);
    }
}

void assay_encode_q5_0(void *blocks, const float *x, int64_t n)
{
    uint8_t *b = blocks, q[32];
    for (int64_t i = 0; i < n; i += 32, b += 22) {
        float d = extreme(x + i, 32) / -16.0f;
        codes(q, x + i, 0.0f, inverse(d), 16.5f, 31);
        block_put_u16(b, assay_f32_to_f16(d));
        pack_fifth(b + 2, q);
        pack_nibbles(b + 6, q);
    }
}

void assay_encode_q5_1(void *blocks, const float *x, int64_t n)
{
    uint8_t *b = blocks, q[32];
    for (int64_t i = 0; i < n; i += 32, b += 24) {
        float low, high;
        range(x + i, &low, &high);
        float d = (high - low) / 31.0f;
        codes(q, x + i, low, inverse(d), 0.5f, 31);
        block_put_u16(b, assay_f32_to_f16(d));
        block_put_u16(b + 2, assay_f32_to_f16(low));
        pack_fifth(b + 4, q);
        pack_nibbles(b + 8, q);
    }
}

/* max |x| of 32, in four lanes that need no order. */
static float largest(const float *x)
{
    float lane[4] = {0};
    for (int e = 0; e < 32; e++) {
        float size = fabsf(x[e]);
        lane[e % 4] = size > lane[e % 4] ? size : lane[e % 4];
    }
    float a = lane[0] > lane[1] ? lane[0] : lane[1], b = lane[2] > lane[3] ? lane[2] : lane[3];
    return a > b ? a : b;
}

/* 32 codes of Q8_0 or Q8_1; returns d and the sum of the codes. */
static float bytes_of(uint8_t *p, const float *x, int *sum)
{
    float d = largest(x) / 127.0f, id = inverse(d);
    *sum = 0;
    for (int e = 0; e < 32; e++) {
        int code = round_half_away(x[e] * id);
        *sum += code;
        p[e] = (uint8_t)code;
    }
    return d;
}

void assay_encode_q8_0(void *blocks, const float *x, int64_t n)
{
    uint8_t *b = blocks;
    int sum;
    for (int64_t i = 0; i < n; i += 32, b += 34)
        block_put_u16(b, assay_f32_to_f16(bytes_of(b + 2, x + i, &sum)));
}

void assay_encode_q8_1(void *blocks, const float *x, int64_t n)
{
    uint8_t *b = blocks;
    int sum;
    for (int64_t i = 0; i < n; i += 32, b += 36) {
        float d = bytes_of(b + 4, x + i, &sum);
        block_put_u16(b, assay_f32_to_f16(d));
        block_put_u16(b + 2, assay_f32_to_f16((float)sum * d));
    }
}

static uint8_t nearest_iq4(float x)
{
    int best = 0;
    for (int c = 1; c < 16; c++)
        if (fabsf(x - (float)block_iq4_values[c]) < fabsf(x - (float)block_iq4_values[best]))
            best = c;
    return (uint8_t)best;
}

void assay_encode_iq4_nl(void *blocks, const float *x, int64_t n)
{
    uint8_t *b = blocks, q[32];
    for (int64_t i = 0; i < n; i += 32, b += 18) {
        float d = extreme(x + i, 32) / -127.0f, id = inverse(d);
        for (int e = 0; e < 32; e++)
            q[e] = nearest_iq4(x[i + e] * id);
        block_put_u16(b, assay_f32_to_f16(d));
        pack_nibbles(b + 2, q);
    }
}
