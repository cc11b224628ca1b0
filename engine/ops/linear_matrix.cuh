/* Products of few rows on the matrix units (linear_matrix.cu), for linear.cu to choose. */
#ifndef ASSAY_ENGINE_OPS_LINEAR_MATRIX_CUH
#define ASSAY_ENGINE_OPS_LINEAR_MATRIX_CUH

#include "engine/ops/kernel.cuh"

extern "C" {
#include "engine/ops/device_ops.h"
}

bool linear_matrix_fits(const assay_packed_product *p);
assay_status linear_matrix_product(void *stream, const assay_packed_product *p);

#endif
