#include "references/oracle/oracle_quant.h"

#include <math.h>
#include <string.h>

#include "engine/base/number.h"

uint16_t assay_oracle_u16_at(const uint8_t *bytes)
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

uint32_t assay_oracle_u32_at(const uint8_t *bytes)
{
    return (uint32_t)assay_oracle_u16_at(bytes) | (uint32_t)assay_oracle_u16_at(bytes + 2) << 16;
}

float assay_oracle_f16_at(const uint8_t *bytes)
{
    return assay_f16_to_f32(assay_oracle_u16_at(bytes));
}

static float f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* One element per block. */

static void decode_f32(float *out, const uint8_t *b)
{
    *out = f32_from_bits(assay_oracle_u32_at(b));
}

static void decode_f16(float *out, const uint8_t *b)
{
    *out = assay_oracle_f16_at(b);
}

static void decode_bf16(float *out, const uint8_t *b)
{
    *out = assay_bf16_to_f32(assay_oracle_u16_at(b));
}

static void decode_f64(float *out, const uint8_t *b)
{
    double x;
    memcpy(&x, b, sizeof x);
    *out = (float)x;
}

static void decode_i8(float *out, const uint8_t *b)
{
    *out = (int8_t)b[0];
}

static void decode_i16(float *out, const uint8_t *b)
{
    *out = (int16_t)assay_oracle_u16_at(b);
}

static void decode_i32(float *out, const uint8_t *b)
{
    *out = (float)(int32_t)assay_oracle_u32_at(b);
}

/* 32 elements: low nibbles are elements 0-15, high nibbles 16-31. */

static void decode_q4_0(float *out, const uint8_t *b)
{
    float d = assay_oracle_f16_at(b);
    for (int j = 0; j < 16; j++) {
        out[j] = (float)((b[2 + j] & 15) - 8) * d;
        out[j + 16] = (float)((b[2 + j] >> 4) - 8) * d;
    }
}

static void decode_q4_1(float *out, const uint8_t *b)
{
    float d = assay_oracle_f16_at(b), m = assay_oracle_f16_at(b + 2);
    for (int j = 0; j < 16; j++) {
        out[j] = (float)(b[4 + j] & 15) * d + m;
        out[j + 16] = (float)(b[4 + j] >> 4) * d + m;
    }
}

/* Code e of Q5_0 and Q5_1: four bits from the nibbles, the fifth from the word of high bits. */
static int five_bits(const uint8_t *high, const uint8_t *low, int e)
{
    uint32_t h = assay_oracle_u32_at(high);
    int nibble = e < 16 ? low[e] & 15 : low[e - 16] >> 4;
    return nibble | (int)(h >> e & 1) << 4;
}

static void decode_q5_0(float *out, const uint8_t *b)
{
    float d = assay_oracle_f16_at(b);
    for (int e = 0; e < 32; e++)
        out[e] = (float)(five_bits(b + 2, b + 6, e) - 16) * d;
}

static void decode_q5_1(float *out, const uint8_t *b)
{
    float d = assay_oracle_f16_at(b), m = assay_oracle_f16_at(b + 2);
    for (int e = 0; e < 32; e++)
        out[e] = (float)five_bits(b + 4, b + 8, e) * d + m;
}

static void decode_q8_0(float *out, const uint8_t *b)
{
    float d = assay_oracle_f16_at(b);
    for (int e = 0; e < 32; e++)
        out[e] = (float)(int8_t)b[2 + e] * d;
}

static void decode_q8_1(float *out, const uint8_t *b)
{
    float d = assay_oracle_f16_at(b);
    for (int e = 0; e < 32; e++)
        out[e] = (float)(int8_t)b[4 + e] * d;
}

const int8_t assay_oracle_nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};

static void decode_iq4_nl(float *out, const uint8_t *b)
{
    float d = assay_oracle_f16_at(b);
    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)assay_oracle_nl[b[2 + j] & 15];
        out[j + 16] = d * (float)assay_oracle_nl[b[2 + j] >> 4];
    }
}

/* Twice the E2M1 values; the block scale is halved instead. */
static const int8_t e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void decode_mxfp4(float *out, const uint8_t *b)
{
    /* 2^(e - 128): below e = 2 a subnormal */
    uint32_t e = b[0];
    float s = f32_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    for (int j = 0; j < 16; j++) {
        out[j] = (float)e2m1[b[1 + j] & 15] * s;
        out[j + 16] = (float)e2m1[b[1 + j] >> 4] * s;
    }
}

/* Half of an unsigned E4M3 number; 0 and 0x7F mean 0. */
static float half_ue4m3(uint8_t x)
{
    int exponent = x >> 3 & 15, mantissa = x & 7;
    if (x == 0 || x == 0x7F)
        return 0;
    float v = exponent ? ldexpf(1.0f + (float)mantissa / 8.0f, exponent - 7)
                       : ldexpf((float)mantissa, -9);
    return 0.5f * v;
}

static void decode_nvfp4(float *out, const uint8_t *b)
{
    for (int k = 0; k < 4; k++) {
        float s = half_ue4m3(b[k]);
        for (int j = 0; j < 8; j++) {
            out[16 * k + j] = (float)e2m1[b[4 + 8 * k + j] & 15] * s;
            out[16 * k + 8 + j] = (float)e2m1[b[4 + 8 * k + j] >> 4] * s;
        }
    }
}

static void decode_q1_0(float *out, const uint8_t *b)
{
    float d = assay_oracle_f16_at(b);
    for (int j = 0; j < 128; j++)
        out[j] = b[2 + j / 8] >> j % 8 & 1 ? d : -d;
}

static void decode_q2_0(float *out, const uint8_t *b)
{
    float d = assay_oracle_f16_at(b);
    for (int j = 0; j < 64; j++)
        out[j] = (float)((b[2 + j / 4] >> 2 * (j % 4) & 3) - 1) * d;
}

static const oracle_quant table[] = {
#define X(number, name, elements, bytes, scale_at, scale_bytes, codes_at, code_bytes, partner, fn) \
    {number,   name,       elements,                                                               \
     bytes,    scale_at,   scale_bytes,                                                            \
     codes_at, code_bytes, ORACLE_PARTNER_##partner,                                               \
     fn},
#include "references/oracle/oracle_quant.def"
#undef X
};

const oracle_quant *assay_oracle_quant_find(int number)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].number == number)
            return &table[i];
    return NULL;
}

static const oracle_quant *seen_as(const oracle_quant *q, assay_weight_view view)
{
    if (view != ASSAY_WEIGHT_OTHER_16_BIT || (q->number != 1 && q->number != 30))
        return q;
    return assay_oracle_quant_find(q->number == 1 ? 30 : 1);
}

/* The block whose scale block i takes; row: blocks of a row. */
static int64_t scale_from(int64_t i, int64_t n_blocks, int64_t row, assay_weight_view view)
{
    switch (view) {
    case ASSAY_WEIGHT_NEIGHBOUR_SCALE:
        return i + 1 < n_blocks ? i + 1 : i;
    case ASSAY_WEIGHT_SCALE_BEFORE:
        return i > 0 ? i - 1 : i;
    case ASSAY_WEIGHT_SCALE_IN_ROW:
        return i % row + 1 < row ? i + 1 : i - row + 1;
    case ASSAY_WEIGHT_SCALE_NEXT_ROW:
        return i + row < n_blocks ? i + row : i;
    default:
        return i;
    }
}

void assay_oracle_quant_decode(double *out, const oracle_quant *quant, const uint8_t *slice,
                               int64_t n_blocks, int64_t first, int64_t n, assay_weight_view view)
{
    const oracle_quant *q = seen_as(quant, view);
    uint8_t bytes[512];
    float values[256];
    for (int64_t i = first; i < first + n / q->elements; i++) {
        const uint8_t *block = slice + i * q->bytes;
        if (q->elements > 1 && view != ASSAY_WEIGHT_RIGHT) {
            memcpy(bytes, block, (size_t)q->bytes);
            const uint8_t *from = slice + scale_from(i, n_blocks, n / q->elements, view) * q->bytes;
            memcpy(bytes + q->scale_at, from + q->scale_at, (size_t)q->scale_bytes);
            for (int c = 0; view == ASSAY_WEIGHT_NIBBLES_EXCHANGED && c < q->code_bytes; c++)
                bytes[q->codes_at + c] =
                    (uint8_t)(bytes[q->codes_at + c] << 4 | bytes[q->codes_at + c] >> 4);
            block = bytes;
        }
        q->decode(values, block);
        double *y = out + (i - first) * q->elements;
        for (int e = 0; e < q->elements; e++)
            y[e] = values[e];
        if (view == ASSAY_WEIGHT_NEIGHBOURS_EXCHANGED && q->code_bytes)
            for (int e = 0; e < q->elements; e += 2) {
                double kept = y[e];
                y[e] = y[e + 1];
                y[e + 1] = kept;
            }
    }
}
