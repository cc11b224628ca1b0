#include "engine/ops/linear_integer.h"

#include <math.h>
#include <string.h>

#include "engine/base/number.h"
#include "engine/base/wide.h"

#define INLINE static inline __attribute__((always_inline))

enum { RUN = 16 };

size_t assay_op_q8_bytes(int64_t n, int64_t width, int block)
{
    return (size_t)n * (size_t)(width / block * (int64_t)sizeof(float) +
                                (width + width / RUN) * (int64_t)sizeof(int16_t)) +
           sizeof(float);
}

size_t assay_op_codes_bytes(int64_t width, int block)
{
    return assay_op_q8_bytes(1, width, block) + (size_t)(width / block) * sizeof(float);
}

/* The largest bits of a magnitude: bits of positive floats are in the order of the floats. */
INLINE uint32_t largest_bits(const uint32_t *bits, int n)
{
    int32_t largest = 0;
    for (int i = 0; i < n; i++) {
        int32_t magnitude = (int32_t)(bits[i] & 0x7FFFFFFF);
        largest = magnitude > largest ? magnitude : largest;
    }
    return (uint32_t)largest;
}

INLINE float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* To nearest, halves away from zero: what is cut off is exact. */
INLINE int16_t away(float x)
{
    int32_t whole = (int32_t)x;
    float rest = x - (float)whole;
    return (int16_t)(whole + (rest >= 0.5f) - (rest <= -0.5f));
}

INLINE float round_32(int16_t *code, const float *x)
{
    uint32_t bits[32];
    memcpy(bits, x, sizeof bits);
    float d = float_of(largest_bits(bits, 32)) / 127.0f, inverse = 1.0f / d;
    inverse = inverse < INFINITY ? inverse : 0; /* too small for a scale in any case */
    for (int i = 0; i < 32; i++)
        code[i] = away(x[i] * inverse);
    return assay_f16_to_f32(assay_f32_to_f16(d));
}

/* The first element of largest magnitude. */
INLINE float extreme_of(const uint32_t *bits, int n)
{
    uint32_t largest = largest_bits(bits, n);
    for (int i = 0; i < n; i++)
        if ((bits[i] & 0x7FFFFFFF) == largest)
            return float_of(bits[i]);
    return 0;
}

INLINE float round_256(int16_t *code, const float *x)
{
    const float whole = 12582912.0f; /* 1.5 * 2^23: adding it rounds to integers, ties to even */
    uint32_t bits[256];
    memcpy(bits, x, sizeof bits);
    float extreme = extreme_of(bits, 256);
    float inverse = -127.0f / extreme;
    if (extreme == 0 || isinf(inverse)) {
        memset(code, 0, 256 * sizeof *code);
        return 0;
    }
    for (int i = 0; i < 256; i++) {
        int32_t q = (int32_t)(inverse * x[i] + whole - whole);
        code[i] = (int16_t)(q > 127 ? 127 : q);
    }
    return 1.0f / inverse;
}

INLINE bool is_finite(const float *x, int n)
{
    uint32_t bits, largest = 0;
    for (int i = 0; i < n; i++) {
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7FFFFFFF;
        largest = bits > largest ? bits : largest;
    }
    return largest < 0x7F800000;
}

ASSAY_WIDEST_INT static void round_row(int16_t *restrict code, int16_t *restrict sum,
                                       float *restrict scale, const float *restrict x,
                                       int64_t width, int block)
{
    for (int64_t i = 0; i < width; i += block) {
        if (!is_finite(x + i, block)) {
            memset(code + i, 0, (size_t)block * sizeof *code);
            scale[i / block] = float_of(0x7FC00000);
        } else {
            scale[i / block] = block == 32 ? round_32(code + i, x + i) : round_256(code + i, x + i);
        }
    }
    for (int64_t i = 0; i < width; i += RUN) {
        int16_t all = 0;
        for (int k = 0; k < RUN; k++)
            all = (int16_t)(all + code[i + k]);
        sum[i / RUN] = all;
    }
}

assay_q8 assay_op_round_q8(void *memory, assay_rows x, int block)
{
    ASSAY_BUG_IF((block != 32 && block != 256) || x.width % block);
    assay_q8 q = {.n = x.n, .width = x.width, .block = block, .scale = memory};
    q.code = (int16_t *)(void *)(q.scale + x.n * (x.width / block));
    q.sum = q.code + x.n * x.width;
    for (int64_t t = 0; t < x.n; t++)
        round_row(q.code + t * x.width, q.sum + t * (x.width / RUN),
                  q.scale + t * (x.width / block), x.at + t * x.stride, x.width, block);
    return q;
}

void assay_op_q8_values(assay_rows y, const assay_q8 *x)
{
    ASSAY_BUG_IF(y.n != x->n || y.width != x->width);
    for (int64_t t = 0; t < y.n; t++)
        for (int64_t i = 0; i < y.width; i++)
            y.at[t * y.stride + i] =
                x->scale[(t * y.width + i) / x->block] * (float)x->code[t * y.width + i];
}

/* Both of a length that is constant where this is inlined. */
INLINE int32_t dot(const int16_t *restrict a, const int16_t *restrict b, int n)
{
    int32_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* One row of the weight with every row of x; block is a constant where this is inlined. */
INLINE void products(const int block, float *y, int64_t y_stride, const assay_q8 *x,
                     const assay_codes *w, bool has_min, bool add)
{
    int64_t n_blocks = x->width / block;
    for (int64_t t = 0; t < x->n; t++) {
        const int16_t *code = x->code + t * x->width, *sum = x->sum + t * (x->width / RUN);
        const float *scale = x->scale + t * n_blocks;
        float all = 0;
        for (int64_t b = 0; b < n_blocks; b++) {
            const int64_t at = b * block, run = at / RUN;
            all += w->scale[b] * scale[b] * (float)dot(w->code + at, code + at, block);
            if (has_min)
                all -=
                    w->min_scale[b] * scale[b] * (float)dot(w->min + run, sum + run, block / RUN);
        }
        float *out = y + t * y_stride;
        *out = add ? *out + all : all;
    }
}

ASSAY_WIDEST_INT static void products_32(float *y, int64_t y_stride, const assay_q8 *x,
                                         const assay_codes *w, bool has_min, bool add)
{
    products(32, y, y_stride, x, w, has_min, add);
}

ASSAY_WIDEST_INT static void products_256(float *y, int64_t y_stride, const assay_q8 *x,
                                          const assay_codes *w, bool has_min, bool add)
{
    products(256, y, y_stride, x, w, has_min, add);
}

void assay_op_linear_integer(assay_rows y, const assay_q8 *x, const assay_quant *quant,
                             const void *blocks, int64_t row_bytes, void *memory, bool add)
{
    ASSAY_BUG_IF(y.n != x->n || quant->block_elements != x->block || !quant->unpack);
    int64_t n_blocks = x->width / x->block;
    float *scales = memory;
    assay_codes w = {.scale = scales, .min_scale = scales + n_blocks};
    w.code = (int16_t *)(void *)(scales + 2 * n_blocks);
    w.min = w.code + x->width;
    for (int64_t j = 0; j < y.width; j++) {
        bool has_min = quant->unpack(&w, (const char *)blocks + j * row_bytes, x->width);
        (x->block == 32 ? products_32 : products_256)(y.at + j, y.stride, x, &w, has_min, add);
    }
}
