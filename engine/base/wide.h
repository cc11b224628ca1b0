/*
 * Loops over vectors of a fixed number of lanes, compiled for the widest instructions that the
 * processor has when the program starts. No contraction (-ffp-contract=off): the order of every sum
 * is in the source, so all versions give the same bits.
 */
#ifndef ASSAY_ENGINE_BASE_WIDE_H
#define ASSAY_ENGINE_BASE_WIDE_H

#include <stdint.h>

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

#endif
