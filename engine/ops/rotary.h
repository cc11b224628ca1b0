/*
 * Rotary position embedding of n_head vectors of `width` channels per row, pairs (2i, 2i + 1):
 *
 *   y[2i]     = m (x[2i] cos a - x[2i + 1] sin a)        a = position * f[i]
 *   y[2i + 1] = m (x[2i] sin a + x[2i + 1] cos a)        m = magnitude
 *
 * Frequencies:  f[i] = base^(-2i / width), divided by `factor` (linear); YaRN blends both per pair:
 *   corr(b) = width ln(orig / (2 pi b)) / (2 ln base)
 *   low = max(0, floor(corr(beta_fast)))   high = min(width - 1, ceil(corr(beta_slow)))
 *   keep = 1 - clamp((i - low) / max(0.001, high - low), 0, 1)
 *   f[i] = keep theta + (1 - keep) theta / factor
 * and `freqs` (llama's rope_freqs.weight, may be NULL) divides them at last. Angles and their
 * cosines are computed in double; the rotation in float32. Channels behind `turned` are copied. x
 * and y may be the same memory. Half-split pairs (i, i + turned / 2) are what other conventions
 * (and faults) use. Source: Su et al. 2021, arXiv:2104.09864; Peng et al. 2023, arXiv:2309.00071.
 */
#ifndef ASSAY_ENGINE_OPS_ROTARY_H
#define ASSAY_ENGINE_OPS_ROTARY_H

#include <stdbool.h>

#include "engine/ops/rows.h"

#define ASSAY_ROTARY_MAX_PAIRS 32768

typedef struct assay_rotary {
    int turned;          /* channels that are rotated, even */
    int frequency_width; /* divisor of 2i in the exponent; right: the rotary width */
    double base, factor;
    bool yarn;
    double orig_context, beta_fast, beta_slow;
    double magnitude;
    bool half_split, skip, inverse;
    double position_offset, position_scale; /* angle = (position * scale + offset) * f */
    const float *freqs;                     /* [turned / 2] or NULL */
} assay_rotary;

/* f[turned / 2] */
void assay_rotary_frequencies(double *f, const assay_rotary *how);
/* The bounds of the blend, before rounding (raw[2]) and after (bound[2]). */
void assay_rotary_yarn_range(double raw[2], double bound[2], const assay_rotary *how);

/*
 * Row t, head h: y.at + t y.stride + h y_head. x and y have n rows; widths are of one head.
 * positions[t]; a negative one (padding) leaves the row unrotated.
 */
void assay_op_rotary(assay_rows y, int64_t y_head, assay_rows x, int64_t x_head, int n_head,
                     const int32_t *positions, const assay_rotary *how);

#endif
