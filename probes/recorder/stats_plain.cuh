/*
 * Statistics of values that are taken to be finite and not zero, in as few instructions as the
 * memory's rate allows: about 27 an element, shared out over the pipelines. Extremes of the bits as
 * whole numbers, two elements to an instruction, are extremes of the values: the largest signed
 * word is the largest value unless all are negative, the largest unsigned word the smallest value
 * unless none is, the smallest unsigned word stands in for either; a zero is the smallest word of
 * its sign.
 */
#ifndef ASSAY_PROBES_RECORDER_STATS_PLAIN_CUH
#define ASSAY_PROBES_RECORDER_STATS_PLAIN_CUH

#include "probes/recorder/device_table.cuh"

#define GOLDEN 0x9E3779B97F4A7C15u

/* What the loop keeps in registers. */
struct tally {
    double sum, squares;
    float min, max;
    uint64_t checksum;
    uint32_t zero;
};

struct extremes {
    int32_t largest, smallest;
    uint32_t largest_unsigned, smallest_unsigned;
};

static __device__ __forceinline__ bool has_zero(const extremes &e)
{
    return e.smallest_unsigned == 0 || e.smallest == INT32_MIN;
}

static __device__ __forceinline__ float least(const extremes &e)
{
    bool any = e.largest_unsigned >> 31;
    return __uint_as_float(any ? e.largest_unsigned : e.smallest_unsigned);
}

static __device__ __forceinline__ float greatest(const extremes &e)
{
    return e.largest >= 0 ? __int_as_float(e.largest) : __uint_as_float(e.smallest_unsigned);
}

/* (high, low) *= (factor_high, factor_low), modulo 2^64 */
static __device__ __forceinline__ void multiply(uint32_t *low, uint32_t *high, uint32_t factor_low,
                                                uint32_t factor_high)
{
    uint32_t l, h;
    asm("{ .reg .u64 t; mul.wide.u32 t, %2, %3; mov.b64 {%0, %1}, t; }"
        : "=r"(l), "=r"(h)
        : "r"(*low), "r"(factor_low));
    asm("mad.lo.u32 %0, %1, %2, %0;" : "+r"(h) : "r"(*low), "r"(factor_high));
    asm("mad.lo.u32 %0, %1, %2, %0;" : "+r"(h) : "r"(*high), "r"(factor_low));
    *low = l;
    *high = h;
}

static __device__ __forceinline__ uint32_t multiply_high(uint32_t a, uint32_t b)
{
    uint32_t high;
    asm("mul.hi.u32 %0, %1, %2;" : "=r"(high) : "r"(a), "r"(b));
    return high;
}

/* table_mix(z). Two shifts to the right by 30 and 27 are products with 4 and 32, which come as
 * arguments so that they stay products: the pipeline of shifts is the busy one. */
static __device__ __forceinline__ uint64_t plain_mix(uint64_t z, const uint32_t *powers)
{
    uint32_t low, high;
    asm("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "l"(z));
    uint32_t shifted = __funnelshift_r(low, high, 30);
    low ^= shifted;
    high ^= multiply_high(high, powers[0]);
    multiply(&low, &high, 0x1CE4E5B9u, 0xBF58476Du);
    shifted = __funnelshift_r(low, high, 27);
    low ^= shifted;
    high ^= multiply_high(high, powers[1]);
    multiply(&low, &high, 0x133111EBu, 0x94D049BBu);
    shifted = __funnelshift_r(low, high, 31);
    low ^= shifted;
    high ^= high >> 31;
    asm("mov.b64 %0, {%1, %2};" : "=l"(z) : "r"(low), "r"(high));
    return z;
}

static __device__ __forceinline__ void add_plain(tally *t, extremes *e, float4 v, uint64_t salt,
                                                 const uint32_t *powers)
{
    float x[4] = {v.x, v.y, v.z, v.w};
    uint64_t mixed[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        double wide = x[k];
        mixed[k] =
            plain_mix(__float_as_uint(x[k]) + salt + static_cast<uint64_t>(k) * GOLDEN, powers);
        t->sum += wide;
        t->squares = fma(wide, wide, t->squares);
    }
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
        int32_t a = __float_as_int(x[k]), b = __float_as_int(x[k + 1]);
        uint32_t c = __float_as_uint(x[k]), d = __float_as_uint(x[k + 1]);
        t->checksum += mixed[k] + mixed[k + 1];
        e->largest = __vimax3_s32(e->largest, a, b);
        e->smallest = __vimin3_s32(e->smallest, a, b);
        e->largest_unsigned = __vimax3_u32(e->largest_unsigned, c, d);
        e->smallest_unsigned = __vimin3_u32(e->smallest_unsigned, c, d);
    }
}

/* Four loads that stay together: the next ones are not put off until these are used up. */
static __device__ __forceinline__ void load_four(float4 *v, const float *at, int64_t step)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        asm volatile("ld.global.cs.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v[k].x), "=f"(v[k].y), "=f"(v[k].z), "=f"(v[k].w)
                     : "l"(at + k * step));
}

#endif
