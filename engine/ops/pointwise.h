/*
 * Ops element by element.
 *
 *   swiglu:  y = silu(gate) * up       silu(z) = z / (1 + exp(-z))
 *   add:     y = a + b
 *   greedy:  index of the largest logit, the smallest index among equal ones; NaN is never chosen
 * unless all are NaN
 *
 * Float32, one rounding per operation.
 */
#ifndef ASSAY_ENGINE_OPS_POINTWISE_H
#define ASSAY_ENGINE_OPS_POINTWISE_H

#include "engine/ops/rows.h"

void assay_op_swiglu(assay_rows y, assay_rows gate, assay_rows up);
/* gelu(gate) * up with the exact gelu: what another model has in that place. */
void assay_op_geglu(assay_rows y, assay_rows gate, assay_rows up);
void assay_op_add(assay_rows y, assay_rows a, assay_rows b);
/* y = a + times * b; times is 1 in every engine that is right */
void assay_op_add_times(assay_rows y, assay_rows a, assay_rows b, double times);
int32_t assay_op_greedy(const float *logits, int64_t n);
void assay_op_round_bf16(assay_rows y);
/* y = y * factor; y = cap tanh(y / cap) */
void assay_op_scale(assay_rows y, double factor);
void assay_op_cap(assay_rows y, double cap);

#endif
