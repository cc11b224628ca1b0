/*
 * Products with a weight, through OpenBLAS (float32, accumulation in float32 in BLAS's blocking):
 *
 *   y[t,n] = sum_k x[t,k] w[n,k]            assay_op_linear      w [y.width, x.width], rows
 * w_stride apart y[t,n] = sum_k x[t,k] w[k,n]            assay_op_linear_t    w [x.width, y.width]
 *
 * `add` accumulates into y. The order of summation over k, and so the last bits of a row, may
 * depend on how many rows go in at once; it does not depend on the other rows' values.
 */
#ifndef ASSAY_ENGINE_OPS_LINEAR_H
#define ASSAY_ENGINE_OPS_LINEAR_H

#include <stdbool.h>

#include "engine/ops/rows.h"

void assay_op_linear(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add);
void assay_op_linear_t(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add);
/* y[t,n] += b[n] */
void assay_op_bias(assay_rows y, const float *b);

#endif
