/*
 * Loops over vectors of a fixed number of lanes, compiled for the widest instructions that the
 * processor has when the program starts. No contraction (-ffp-contract=off): the order of every sum
 * is in the source, so all versions give the same bits.
 */
#ifndef ASSAY_ENGINE_BASE_WIDE_H
#define ASSAY_ENGINE_BASE_WIDE_H

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ASSAY_HAS_TARGETS
#define ASSAY_WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
/* With products of 64-bit integers. */
#define ASSAY_WIDEST_INT __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define ASSAY_WIDEST
#define ASSAY_WIDEST_INT
#endif

#define ASSAY_LANES_F64 8

typedef double assay_f64s __attribute__((vector_size(ASSAY_LANES_F64 * sizeof(double))));
typedef float assay_f32s __attribute__((vector_size(ASSAY_LANES_F64 * sizeof(float))));
typedef int64_t assay_i64s __attribute__((vector_size(ASSAY_LANES_F64 * sizeof(int64_t))));
typedef uint64_t assay_u64s __attribute__((vector_size(ASSAY_LANES_F64 * sizeof(uint64_t))));
typedef uint32_t assay_u32s __attribute__((vector_size(ASSAY_LANES_F64 * sizeof(uint32_t))));

/* As many bytes as eight float64 numbers. */
#define ASSAY_LANES_F32 16
typedef float assay_f32w __attribute__((vector_size(ASSAY_LANES_F32 * sizeof(float))));
typedef double assay_f64w __attribute__((vector_size(ASSAY_LANES_F32 * sizeof(double))));

/* Part of whatever loop it is used in, so that it is compiled for that loop's instructions. Compare
 * whole numbers by the sign of their difference: gcc breaks `a > b` into single elements before it
 * makes the copies for wider instructions (7 times slower). */
#define ASSAY_INSIDE static inline __attribute__((always_inline))

/* Sixteen float32 numbers as float64: of sixteen at a time gcc widens each half with one
 * instruction, of eight at a time with four. */
ASSAY_INSIDE void assay_widen_f32(assay_f64s *low, assay_f64s *high, const float *x)
{
    assay_f32w narrow;
    memcpy(&narrow, x, sizeof narrow);
    assay_f64w wide = __builtin_convertvector(narrow, assay_f64w);
    memcpy(low, &wide, sizeof *low);
    memcpy(high, (const char *)&wide + sizeof *low, sizeof *high);
}

/* Pairwise: lanes i and i + 4, then i and i + 2, then the last two. */
ASSAY_INSIDE double assay_lanes_total(const assay_f64s *lanes)
{
    typedef double four __attribute__((vector_size(4 * sizeof(double))));
    typedef double two __attribute__((vector_size(2 * sizeof(double))));
    four half[2];
    two quarter[2];
    memcpy(half, lanes, sizeof half);
    half[0] += half[1];
    memcpy(quarter, half, sizeof quarter);
    quarter[0] += quarter[1];
    return quarter[0][0] + quarter[0][1];
}

#endif
