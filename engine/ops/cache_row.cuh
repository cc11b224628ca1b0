/*
 * Rows of a cache on the device (device_ops.h), and the formats they are stored in: the bits of
 * engine/base/number.c and engine/cache_row.c.
 */
#ifndef ASSAY_ENGINE_OPS_CACHE_ROW_CUH
#define ASSAY_ENGINE_OPS_CACHE_ROW_CUH

#include "engine/ops/kernel.cuh"

extern "C" {
#include "engine/ops/device_ops.h"
}

/* Row of a position. */
__device__ __forceinline__ int64_t cache_row(const assay_device_cache &c, int sequence,
                                             int position)
{
    if (!c.pages)
        return sequence * c.capacity + position;
    int64_t page = c.pages[sequence * c.n_pages + position / c.page];
    return page * c.page + position % c.page;
}

/* Row 0 of a cache of float32 rows. */
__device__ __forceinline__ const float *cache_floats(const assay_device_cache &c)
{
    return c.decoded ? c.decoded : *reinterpret_cast<float *const *>(c.base);
}

__device__ __forceinline__ float cache_f16_to_f32(uint32_t bits)
{
    uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, mantissa = bits & 0x3FFu;
    if (exponent == 31)
        return __uint_as_float(sign | 0x7F800000u | mantissa << 13);
    if (exponent)
        return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
    return __uint_as_float(sign | __float_as_uint(static_cast<float>(mantissa) * 0x1p-24f));
}

/* Rounds to nearest, ties to even. */
__device__ __forceinline__ uint16_t cache_f32_to_f16(float x)
{
    uint32_t u = __float_as_uint(x), sign = u >> 16 & 0x8000u, magnitude = u & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u)
        return static_cast<uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
    if (magnitude >= 0x477FF000u) /* 65520 and above */
        return static_cast<uint16_t>(sign | 0x7C00u);
    if (magnitude < 0x33000000u)
        return static_cast<uint16_t>(sign);
    if (magnitude < 0x38800000u) { /* below 2^-14: subnormal, one unit is 2^-24 */
        uint32_t full = (magnitude & 0x7FFFFFu) | 0x800000u, shift = 126 - (magnitude >> 23);
        uint32_t half = 1u << (shift - 1), kept = full >> shift, rest = full & ((1u << shift) - 1);
        kept += rest > half || (rest == half && (kept & 1));
        return static_cast<uint16_t>(sign | kept);
    }
    uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
    return static_cast<uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}

__device__ __forceinline__ uint16_t cache_f32_to_bf16(float x)
{
    return static_cast<uint16_t>(__float_as_uint(kernel_round_bf16(x)) >> 16);
}

__device__ __forceinline__ float cache_f8_to_f32(uint32_t bits)
{
    uint32_t sign = (bits & 0x80u) << 24, exponent = bits >> 3 & 15u, mantissa = bits & 7u;
    if (exponent == 15 && mantissa == 7)
        return __uint_as_float(sign | 0x7FC00000u);
    if (exponent)
        return __uint_as_float(sign | (exponent + 120) << 23 | mantissa << 20);
    return __uint_as_float(sign | __float_as_uint(static_cast<float>(mantissa) * 0x1p-9f));
}

__device__ __forceinline__ uint8_t cache_f32_to_f8(float x)
{
    uint32_t u = __float_as_uint(x), sign = u >> 24 & 0x80u, magnitude = u & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u)
        return static_cast<uint8_t>(sign | 0x7Fu);
    if (magnitude >= 0x43E80000u) /* 464 and above lie beyond the largest finite value */
        return static_cast<uint8_t>(sign | (magnitude > 0x43E80000u ? 0x7Fu : 0x7Eu));
    if (magnitude < 0x3C800000u) { /* below 2^-6: subnormal, one unit is 2^-9 */
        float units = __uint_as_float(magnitude) * 0x1p9f;
        return static_cast<uint8_t>(sign | static_cast<uint32_t>(rintf(units)));
    }
    uint32_t rounded = magnitude + 0x7FFFFu + (magnitude >> 20 & 1u);
    return static_cast<uint8_t>(sign | (rounded - 0x3C000000u) >> 20);
}

#endif
