/* The row of a position in a cache on the device (device_ops.h). */
#ifndef ASSAY_ENGINE_OPS_CACHE_ROW_CUH
#define ASSAY_ENGINE_OPS_CACHE_ROW_CUH

#include "engine/ops/kernel.cuh"

extern "C" {
#include "engine/ops/device_ops.h"
}

__device__ __forceinline__ int64_t cache_row(const assay_device_cache &c, int sequence,
                                             int position)
{
    if (!c.pages)
        return sequence * c.capacity + position;
    int64_t page = c.pages[sequence * c.n_pages + position / c.page];
    return page * c.page + position % c.page;
}

#endif
