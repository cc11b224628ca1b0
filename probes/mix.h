/*
 * The terms of checksums and the mix behind sketches (splitmix64; recorder.h has both formulas),
 * for one word and for eight side by side. Word i of a checksum counts as w_i + (i + 1) * G.
 */
#ifndef ASSAY_PROBES_MIX_H
#define ASSAY_PROBES_MIX_H

#include "engine/base/wide.h"

#define ASSAY_MIX_G 0x9E3779B97F4A7C15u
/* z: a uint64_t or a vector of them */
#define ASSAY_MIX(z)                                                                               \
    do {                                                                                           \
        (z) = ((z) ^ ((z) >> 30)) * 0xBF58476D1CE4E5B9u;                                           \
        (z) = ((z) ^ ((z) >> 27)) * 0x94D049BB133111EBu;                                           \
        (z) = (z) ^ ((z) >> 31);                                                                   \
    } while (0)

/* What z adds to a checksum. Two instructions and a product, where mixing takes six and two. */
#define ASSAY_SUM_TERM(z) ((z) * ((z) >> 32 | 1))

static inline uint64_t assay_sum_word(uint64_t word, int64_t i)
{
    const uint64_t z = word + (uint64_t)(i + 1) * ASSAY_MIX_G;
    return ASSAY_SUM_TERM(z);
}

/* (i + 1) * G of words first ... first + 7, and what takes them eight words on. */
ASSAY_INSIDE void assay_sum_begin(assay_u64s *at, assay_u64s *step, int64_t first)
{
    for (int j = 0; j < ASSAY_LANES_F64; j++) {
        (*at)[j] = (uint64_t)(first + j + 1) * ASSAY_MIX_G;
        (*step)[j] = ASSAY_LANES_F64 * ASSAY_MIX_G;
    }
}

ASSAY_INSIDE uint64_t assay_sum_total(const assay_u64s *sums)
{
    uint64_t sum = 0;
    for (int j = 0; j < ASSAY_LANES_F64; j++)
        sum += (*sums)[j];
    return sum;
}

#endif
