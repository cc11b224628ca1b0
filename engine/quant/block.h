/*
 * What the decoders share: prototypes, field loads, and the small tables.
 *
 * Notation of the headers in this folder: e is the element inside the block, lo(x) = x & 15,
 * hi(x) = x >> 4 (unsigned bytes), offsets in bytes from the block's start, all little-endian.
 */
#ifndef ASSAY_ENGINE_QUANT_BLOCK_H
#define ASSAY_ENGINE_QUANT_BLOCK_H

#include <stdint.h>
#include <string.h>

#include "engine/base/number.h"
#include "engine/quant.h"

assay_dequant_fn assay_dequant_f32, assay_dequant_f16, assay_dequant_bf16, assay_dequant_f64;
assay_dequant_fn assay_dequant_q4_0, assay_dequant_q4_1, assay_dequant_q5_0, assay_dequant_q5_1;
assay_dequant_fn assay_dequant_q8_0, assay_dequant_q8_1, assay_dequant_q1_0, assay_dequant_q2_0;
assay_dequant_fn assay_dequant_q2_k, assay_dequant_q3_k, assay_dequant_q4_k, assay_dequant_q5_k;
assay_dequant_fn assay_dequant_q6_k, assay_dequant_q8_k, assay_dequant_tq1_0, assay_dequant_tq2_0;
assay_dequant_fn assay_dequant_iq1_s, assay_dequant_iq1_m, assay_dequant_iq2_xxs;
assay_dequant_fn assay_dequant_iq2_xs, assay_dequant_iq2_s, assay_dequant_iq3_xxs;
assay_dequant_fn assay_dequant_iq3_s, assay_dequant_iq4_nl, assay_dequant_iq4_xs;
assay_dequant_fn assay_dequant_mxfp4, assay_dequant_nvfp4;

assay_encode_fn assay_encode_f32, assay_encode_f16, assay_encode_bf16;
assay_encode_fn assay_encode_q4_0, assay_encode_q4_1, assay_encode_q5_0, assay_encode_q5_1;
assay_encode_fn assay_encode_q8_0, assay_encode_q8_1, assay_encode_q8_k, assay_encode_iq4_nl;
assay_encode_fn assay_encode_q4_k, assay_encode_q5_k, assay_encode_q6_k;

assay_unpack_fn assay_unpack_q4_0, assay_unpack_q4_1, assay_unpack_q5_0, assay_unpack_q5_1;
assay_unpack_fn assay_unpack_q8_0, assay_unpack_q2_k, assay_unpack_q3_k, assay_unpack_q4_k;
assay_unpack_fn assay_unpack_q5_k, assay_unpack_q6_k;

static inline uint16_t block_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t block_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline void block_put_u16(uint8_t *p, uint16_t x)
{
    p[0] = (uint8_t)x;
    p[1] = (uint8_t)(x >> 8);
}

/* As assay_f16_to_f32, without a branch: decoders of whole rows are vectorised. 2^112 is what the
 * two formats' exponents differ by, so subnormals come out right, too. */
static inline float block_f16(const uint8_t *p)
{
    uint32_t half = block_u16(p), magnitude = half & 0x7FFF, bits = magnitude << 13;
    float x;
    memcpy(&x, &bits, sizeof x);
    x *= 0x1p112f;
    memcpy(&bits, &x, sizeof x);
    bits |= (half & 0x8000) << 16 | (magnitude >= 0x7C00) * 0x7F800000u; /* infinite, NaN */
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline int block_lo(uint8_t x)
{
    return x & 15;
}

static inline int block_hi(uint8_t x)
{
    return x >> 4;
}

/* Pair j of the eight 6-bit (scale, min) pairs in the 12 bytes that Q4_K and Q5_K share. */
static inline void block_scale_min(int *scale, int *min, const uint8_t *b, int j)
{
    *scale = j < 4 ? b[j] & 63 : (b[j + 4] & 15) | (b[j - 4] >> 6) << 4;
    *min = j < 4 ? b[j + 4] & 63 : b[j + 4] >> 4 | (b[j] >> 6) << 4;
}

typedef uint64_t block_longs __attribute__((vector_size(32)));

/* 16 where the bit of an element is set: eight bits spread over eight bytes at a time. */
static inline void block_fifth_bits(uint8_t five[32], uint32_t bits)
{
    const uint64_t each = 0x0101010101010101, own = 0x8040201008040201, below = 0x7F7F7F7F7F7F7F7F;
    block_longs spread = {(bits & 255) * each, (bits >> 8 & 255) * each, (bits >> 16 & 255) * each,
                          (bits >> 24) * each};
    spread = ((spread & own) + below) >> 3 & 16 * each;
    memcpy(five, &spread, sizeof spread);
}

typedef uint32_t block_words __attribute__((vector_size(32)));

/* Four bytes of `low`, then four of `high`, times a factor. */
static inline void block_bytes_times(float out[8], uint32_t low, uint32_t high, float factor)
{
    const block_words shift = {0, 8, 16, 24, 0, 8, 16, 24};
    block_words words = {low, low, low, low, high, high, high, high};
    int32_t bytes[8];
    words = (words >> shift) & 255;
    memcpy(bytes, &words, sizeof bytes);
    for (int i = 0; i < 8; i++)
        out[i] = factor * (float)bytes[i];
}

/* All eight pairs as integers; the mins twice each, one per 16 elements. */
static inline void block_int_steps(int16_t scale[8], int16_t min[16], const uint8_t *b)
{
    for (int j = 0; j < 8; j++) {
        int one, below;
        block_scale_min(&one, &below, b, j);
        scale[j] = (int16_t)one;
        min[2 * j] = min[2 * j + 1] = (int16_t)below;
    }
}

/* All eight pairs at once: d * scale_j and dmin * min_j. */
static inline void block_steps(float step[8], float below[8], const uint8_t *b, float d, float dmin)
{
    const uint32_t six = 0x3F3F3F3F, four = 0x0F0F0F0F, two = 0x03030303;
    uint32_t first = block_u32(b), second = block_u32(b + 4), third = block_u32(b + 8);
    block_bytes_times(step, first & six, (third & four) | (first >> 6 & two) << 4, d);
    block_bytes_times(below, second & six, (third >> 4 & four) | (second >> 6 & two) << 4, dmin);
}

/* Values of the 4-bit codes of IQ4_NL and IQ4_XS. */
extern const int8_t block_iq4_values[16];
/* Twice the E2M1 values, codes of MXFP4 and NVFP4. */
extern const int8_t block_e2m1_twice[16];

#endif
