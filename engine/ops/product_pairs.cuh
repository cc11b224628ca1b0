/* Pairs (row, place) of products with chosen experts (device_ops.h). */
#ifndef ASSAY_ENGINE_OPS_PRODUCT_PAIRS_CUH
#define ASSAY_ENGINE_OPS_PRODUCT_PAIRS_CUH

#include "engine/ops/kernel.cuh"

extern "C" {
#include "engine/ops/device_ops.h"
}

__device__ __forceinline__ bool product_is_beyond(const assay_packed_product &p, int64_t pair)
{
    return p.sequences[pair / p.used] == ASSAY_ROW_BEYOND;
}

/* The pair's expert is another rank's. */
__device__ __forceinline__ bool product_is_others(const assay_packed_product &p, int64_t pair)
{
    return p.n_own && (p.ids[pair] < p.first_own || p.ids[pair] >= p.first_own + p.n_own);
}

__device__ __forceinline__ bool product_leaves_out(const assay_packed_product &p, int64_t pair)
{
    return product_is_beyond(p, pair) || product_is_others(p, pair);
}

#endif
