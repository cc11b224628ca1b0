/*
 * Statistics of values that are taken to be finite and not zero, in as few instructions as the
 * memory's rate allows: about 17 an element. Extremes of the bits as whole numbers, two elements to
 * an instruction, are extremes of the values: the largest signed word is the largest value unless
 * all are negative, the largest unsigned word the smallest value unless none is, the smallest
 * unsigned word stands in for either; a zero is the smallest word of its sign.
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

/* What a word of two elements adds to the checksum; salt: its number + 1, times G. */
static __device__ __forceinline__ uint64_t word_term(float low, float high, uint64_t salt)
{
    uint64_t word;
    asm("mov.b64 %0, {%1, %2};" : "=l"(word) : "f"(low), "f"(high));
    word += salt;
    return word * (word >> 32 | 1);
}

static __device__ __forceinline__ uint64_t salt_of(int64_t element)
{
    return static_cast<uint64_t>(element / 2 + 1) * GOLDEN;
}

/* salt: of the first of the two words. */
static __device__ __forceinline__ void add_plain(tally *t, extremes *e, float4 v, uint64_t salt)
{
    float x[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        double wide = x[k];
        t->sum += wide;
        t->squares = fma(wide, wide, t->squares);
    }
    t->checksum += word_term(x[0], x[1], salt) + word_term(x[2], x[3], salt + GOLDEN);
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
        int32_t a = __float_as_int(x[k]), b = __float_as_int(x[k + 1]);
        uint32_t c = __float_as_uint(x[k]), d = __float_as_uint(x[k + 1]);
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
