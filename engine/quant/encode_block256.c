/*
 * Encoders of the types with 256 elements a block: Q4_K Q5_K Q6_K Q8_K.
 *
 *     Q4_K, Q5_K   a run of 32: scale = (max - min) / top with min <= 0, both as 6-bit multiples of
 *                  the block's d and dmin, codes for what the rounded pair gives
 *     Q6_K         a run of 16: scale = m / -32 (m the element of largest magnitude with its sign),
 *                  as an 8-bit multiple of d
 *     Q8_K         one float32 scale: the element of largest magnitude becomes -127
 *
 * The reference searches for scales with a smaller error; these are the plain ones.
 */
#include <math.h>

#include "engine/quant/block.h"

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

static int clamp(float x, int low, int high)
{
    float r = nearbyintf(x);
    return r < (float)low ? low : r > (float)high ? high : (int)r;
}

/* The eight runs of Q4_K and Q5_K. */
typedef struct runs {
    float d, dmin;
    int scale[8], min[8];
} runs;

/* Largest of eight values that are not negative, over 63 and as the f16 holds it. */
static float step_of(const float values[8], uint8_t *field)
{
    float most = 0.0f;
    for (int j = 0; j < 8; j++)
        if (values[j] > most)
            most = values[j];
    uint16_t bits = assay_f32_to_f16(most / 63.0f);
    block_put_u16(field, bits);
    return assay_f16_to_f32(bits);
}

static void fit_runs(runs *r, uint8_t *block, const float *x, int top)
{
    float scales[8], mins[8];
    for (int j = 0; j < 8; j++) {
        float low = 0.0f, high = x[32 * j];
        for (int l = 0; l < 32; l++) {
            float v = x[32 * j + l];
            if (v < low)
                low = v;
            if (v > high)
                high = v;
        }
        scales[j] = high > low ? (high - low) / (float)top : 0.0f;
        mins[j] = -low;
    }
    r->d = step_of(scales, block);
    r->dmin = step_of(mins, block + 2);
    for (int j = 0; j < 8; j++) {
        r->scale[j] = r->d > 0.0f ? clamp(scales[j] / r->d, 0, 63) : 0;
        r->min[j] = r->dmin > 0.0f ? clamp(mins[j] / r->dmin, 0, 63) : 0;
    }
}

/* The inverse of block_scale_min. */
static void pack_runs(uint8_t *b, const runs *r)
{
    for (int j = 0; j < 4; j++) {
        b[j] = (uint8_t)(r->scale[j] | (r->scale[j + 4] >> 4) << 6);
        b[j + 4] = (uint8_t)(r->min[j] | (r->min[j + 4] >> 4) << 6);
        b[j + 8] = (uint8_t)((r->scale[j + 4] & 15) | (r->min[j + 4] & 15) << 4);
    }
}

static int run_code(const runs *r, float x, int j, int top)
{
    float step = r->d * (float)r->scale[j];
    return step > 0.0f ? clamp((x + r->dmin * (float)r->min[j]) / step, 0, top) : 0;
}

void assay_encode_q4_k(void *blocks, const float *x, int64_t n)
{
    uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 144) {
        runs r;
        fit_runs(&r, b, x + i, 15);
        pack_runs(b + 4, &r);
        memset(b + 16, 0, 128);
        for (int e = 0; e < 256; e++) {
            int j = e / 32, code = run_code(&r, x[i + e], j, 15);
            b[16 + 32 * (j / 2) + e % 32] |= (uint8_t)(code << 4 * (j % 2));
        }
    }
}

void assay_encode_q5_k(void *blocks, const float *x, int64_t n)
{
    uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 176) {
        runs r;
        fit_runs(&r, b, x + i, 31);
        pack_runs(b + 4, &r);
        memset(b + 16, 0, 160);
        for (int e = 0; e < 256; e++) {
            int j = e / 32, code = run_code(&r, x[i + e], j, 31);
            b[16 + e % 32] |= (uint8_t)((code >> 4) << j);
            b[48 + 32 * (j / 2) + e % 32] |= (uint8_t)((code & 15) << 4 * (j % 2));
        }
    }
}

/* 16 scales of Q6_K as multiples of d, whose f16 goes to the block's end. */
static float fit_scales(int8_t scale[16], uint8_t *field, const float *x)
{
    float scales[16];
    for (int k = 0; k < 16; k++)
        scales[k] = extreme(x + 16 * k, 16) / -32.0f;
    uint16_t bits = assay_f32_to_f16(extreme(scales, 16) / -128.0f);
    float d = assay_f16_to_f32(bits);
    for (int k = 0; k < 16; k++)
        scale[k] = d != 0.0f ? (int8_t)clamp(scales[k] / d, -128, 127) : 0;
    block_put_u16(field, bits);
    return d;
}

void assay_encode_q6_k(void *blocks, const float *x, int64_t n)
{
    uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 210) {
        int8_t scale[16];
        float d = fit_scales(scale, b + 208, x + i);
        memset(b, 0, 192);
        memcpy(b + 192, scale, sizeof scale);
        for (int e = 0; e < 256; e++) {
            int h = e / 128, k = e % 128 / 32, l = e % 32;
            float step = d * (float)scale[e / 16];
            int code = (step != 0.0f ? clamp(x[i + e] / step, -32, 31) : 0) + 32;
            b[64 * h + 32 * (k & 1) + l] |= (uint8_t)((code & 15) << (k >= 2 ? 4 : 0));
            b[128 + 32 * h + l] |= (uint8_t)((code >> 4) << 2 * k);
        }
    }
}

void assay_encode_q8_k(void *blocks, const float *x, int64_t n)
{
    uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 292) {
        float most = extreme(x + i, 256);
        memset(b, 0, 292);
        if (most == 0.0f)
            continue;
        float inverse = -127.0f / most, d = 1.0f / inverse;
        memcpy(b, &d, sizeof d);
        for (int k = 0; k < 16; k++) {
            int sum = 0;
            for (int e = 16 * k; e < 16 * k + 16; e++) {
                int code = (int)nearbyintf(inverse * x[i + e]);
                code = code > 127 ? 127 : code;
                b[4 + e] = (uint8_t)code;
                sum += code;
            }
            block_put_u16(b + 260 + 2 * k, (uint16_t)sum);
        }
    }
}
