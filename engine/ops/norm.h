/*
 * RMS normalisation of rows:     y[t,d] = x[t,d] / sqrt(mean_d(x[t,d]^2) + eps) * w[d]
 * Layer normalisation of rows:   y[t,d] = (x[t,d] - mean) / sqrt(var + eps) * w[d] + b[d] (biased
 * variance)
 *
 * y may be x. Sums in double, left to right; everything else in float32, one rounding per
 * operation. eps is added to the mean square, not to the root. The other members of assay_norm are
 * what engines get wrong; a healthy run has them at 0. Source: Zhang and Sennrich 2019,
 * arXiv:1910.07467; Ba et al. 2016, arXiv:1607.06450.
 */
#ifndef ASSAY_ENGINE_OPS_NORM_H
#define ASSAY_ENGINE_OPS_NORM_H

#include <stdbool.h>

#include "engine/ops/rows.h"

typedef struct assay_norm {
    double eps;
    double weight_offset; /* added to every weight */
    bool is_left_out;     /* y = x */
    bool sums;            /* sum of squares for their mean */
    bool no_weight;
} assay_norm;

void assay_op_rmsnorm(assay_rows y, assay_rows x, const float *w, const assay_norm *how);
void assay_op_layernorm(assay_rows y, assay_rows x, const float *w, const float *b,
                        const assay_norm *how);

#endif
