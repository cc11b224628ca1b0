/*
 * Activations as ggml's CPU products see them: each row is rounded to 8-bit blocks before it meets
 * a quantized weight. Source: the reference quantizers of ggml (ggml-quants.c), formulas restated.
 */
#include <math.h>
#include <string.h>

#include "engine/base/number.h"
#include "references/oracle/oracle_quant.h"

static void put_u16(uint8_t *to, uint16_t x)
{
    to[0] = (uint8_t)x;
    to[1] = (uint8_t)(x >> 8);
}

/* Codes and the unrounded scale of 32 values; the codes are made with the unrounded scale. */
static float codes_q8_0(int8_t q[32], const float *x)
{
    float largest = 0;
    for (int i = 0; i < 32; i++)
        if (fabsf(x[i]) > largest)
            largest = fabsf(x[i]);
    float d = largest / 127.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
    for (int i = 0; i < 32; i++)
        q[i] = (int8_t)roundf(x[i] * inverse);
    return d;
}

void assay_oracle_encode_q8_0(uint8_t block[34], const float *x)
{
    int8_t q[32];
    put_u16(block, assay_f32_to_f16(codes_q8_0(q, x)));
    memcpy(block + 2, q, sizeof q);
}

void assay_oracle_encode_q8_1(uint8_t block[36], const float *x)
{
    int8_t q[32];
    int sum = 0;
    float d = codes_q8_0(q, x);
    for (int i = 0; i < 32; i++)
        sum += q[i];
    put_u16(block, assay_f32_to_f16(d));
    put_u16(block + 2, assay_f32_to_f16((float)sum * d));
    memcpy(block + 4, q, sizeof q);
}

/* The element of largest magnitude maps to -127. */
static float codes_q8_k(int8_t q[256], const float *x)
{
    float extreme = 0;
    for (int i = 0; i < 256; i++)
        if (fabsf(x[i]) > fabsf(extreme))
            extreme = x[i];
    memset(q, 0, 256);
    if (extreme == 0)
        return 0;
    float inverse = -127.0f / extreme;
    for (int i = 0; i < 256; i++) {
        float code = rintf(inverse * x[i]); /* to nearest even */
        q[i] = (int8_t)(code > 127.0f ? 127.0f : code);
    }
    return 1.0f / inverse;
}

void assay_oracle_encode_q8_k(uint8_t block[292], const float *x)
{
    int8_t q[256];
    float d = codes_q8_k(q, x);
    memcpy(block, &d, 4);
    memcpy(block + 4, q, sizeof q);
    for (int i = 0; i < 16; i++) {
        int sum = 0;
        for (int k = 0; k < 16; k++)
            sum += q[16 * i + k];
        put_u16(block + 260 + 2 * i, (uint16_t)(int16_t)sum);
    }
}

static int all_finite(const float *x, int n)
{
    for (int i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return 0;
    return 1;
}

void assay_oracle_round_activation(double *row, int64_t n, oracle_partner partner)
{
    if (partner == ORACLE_PARTNER_NONE)
        return;
    if (partner == ORACLE_PARTNER_F16 || partner == ORACLE_PARTNER_BF16) {
        for (int64_t i = 0; i < n; i++)
            row[i] = partner == ORACLE_PARTNER_F16
                         ? assay_f16_to_f32(assay_f32_to_f16((float)row[i]))
                         : assay_bf16_to_f32(assay_f32_to_bf16((float)row[i]));
        return;
    }
    int width = partner == ORACLE_PARTNER_Q8_K ? 256 : 32;
    for (int64_t at = 0; at + width <= n; at += width) {
        float x[256];
        int8_t q[256];
        for (int i = 0; i < width; i++)
            x[i] = (float)row[at + i];
        if (!all_finite(x, width)) /* such a block has no scale; the product is non-finite anyway */
            continue;
        float d =
            width == 256 ? codes_q8_k(q, x) : assay_f16_to_f32(assay_f32_to_f16(codes_q8_0(q, x)));
        for (int i = 0; i < width; i++)
            row[at + i] = (double)d * q[i];
    }
}
