/*
 * What the IQ1, IQ2 and IQ3 decoders share: packed grids, the meaning of their codes, and signs.
 *
 * A block of 256 is 8 groups (g) of 32, a group 4 runs (l) of 8 elements (k). Products are float32,
 * left to right: y = step * value * sign.
 */
#ifndef ASSAY_ENGINE_QUANT_IQ_H
#define ASSAY_ENGINE_QUANT_IQ_H

#include "engine/base/iq_grids.h"
#include "engine/quant/block.h"

/* Bit k set: element k of the run is negative. Seven given bits, the eighth makes their number
 * even. */
static inline uint8_t iq_signs_of_7(uint32_t i)
{
    i &= 127;
    return (uint8_t)(i | (uint32_t)__builtin_parity(i) << 7);
}

static inline float iq_sign(uint8_t signs, int k)
{
    return signs >> k & 1 ? -1.0f : 1.0f;
}

/* IQ1: codes 0, 1, 2 are -1, 0, 1; all values are moved by delta = +-1/8. */
static inline void iq1_run(float *y, uint16_t entry, float step, float delta)
{
    for (int k = 0; k < 8; k++)
        y[k] = step * ((float)((entry >> 2 * k & 3) - 1) + delta);
}

/* IQ2: codes 0, 1, 2 are 8, 25, 43. */
static inline void iq2_run(float *y, uint16_t entry, float step, uint8_t signs)
{
    static const float values[4] = {8.0f, 25.0f, 43.0f, 0.0f};
    for (int k = 0; k < 8; k++)
        y[k] = step * values[entry >> 2 * k & 3] * iq_sign(signs, k);
}

/* IQ3 takes two entries of four values for a run. */
static inline void iq3_run(float *y, const float values[8], uint16_t first, uint16_t second,
                           float step, uint8_t signs)
{
    uint32_t both = (uint32_t)first | (uint32_t)second << 12;
    for (int k = 0; k < 8; k++)
        y[k] = step * values[both >> 3 * k & 7] * iq_sign(signs, k);
}

#endif
