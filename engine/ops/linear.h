/*
 * Products with a weight in float32, w_stride between its rows:
 *
 *   assay_op_linear      y[t,n] = sum_k x[t,k] w[n,k]    w [y.width, x.width]
 *   assay_op_linear_t    y[t,n] = sum_k x[t,k] w[k,n]    w [x.width, y.width]
 *
 * `add` accumulates into y. Each element is a dot product of 16 interleaved partial sums (k modulo
 * 16), added pairwise at the end. Nothing is contracted: the same bits whichever way the weight
 * lies, whatever the number of rows, of threads, the processor, and the zeros behind the end of
 * both factors. assay_op_linear_t_steady sums in the order of k and does not read rows of w that
 * meet a zero: what lies there (padding of a cache) may be anything.
 */
#ifndef ASSAY_ENGINE_OPS_LINEAR_H
#define ASSAY_ENGINE_OPS_LINEAR_H

#include <stdbool.h>

#include "engine/ops/rows.h"

void assay_op_linear(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add);
/* The same by the calling thread alone. */
void assay_op_linear_alone(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add);
void assay_op_linear_t(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add);
void assay_op_linear_t_steady(assay_rows y, assay_rows x, const float *w, int64_t w_stride,
                              bool add);
/* y[t,n] += b[n] */
void assay_op_bias(assay_rows y, const float *b);

#endif
