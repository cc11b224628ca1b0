/*
 * Products with a weight in float32:
 *
 *   y[t,n] = sum_k x[t,k] w[n,k]            assay_op_linear      w [y.width, x.width], rows
 * w_stride apart y[t,n] = sum_k x[t,k] w[k,n]            assay_op_linear_t    w [x.width, y.width]
 *
 * `add` accumulates into y. From ASSAY_NARROW + 1 rows on (and in assay_op_linear_t) OpenBLAS
 * multiplies, in its own blocking: the last bits of a row may depend on how many rows go in at
 * once, never on the other rows' values. Up to ASSAY_NARROW rows (decoding), and with `steady` for
 * any number, each product is a dot product of 16 interleaved partial sums, added pairwise at the
 * end (transposed: the sum over k in order): the same bits whatever the number of rows, of threads,
 * the processor, and the zeros behind the end of both factors.
 */
#ifndef ASSAY_ENGINE_OPS_LINEAR_H
#define ASSAY_ENGINE_OPS_LINEAR_H

#include <stdbool.h>

#include "engine/ops/rows.h"

#define ASSAY_NARROW 8

void assay_op_linear(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add);
void assay_op_linear_t(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add);
void assay_op_linear_steady(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add);
void assay_op_linear_t_steady(assay_rows y, assay_rows x, const float *w, int64_t w_stride,
                              bool add);
/* y[t,n] += b[n] */
void assay_op_bias(assay_rows y, const float *b);

#endif
