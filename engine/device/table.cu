/* Launches over a table of buffers: poison into all of them, and the search for it. */
#include "engine/ops/kernel.cuh"

extern "C" {
#include "engine/device/device_inside.h"
}

#define BLOCKS 32 /* for one buffer */
#define THREADS 256

static __global__ void fill_all(const assay_span_words *spans)
{
    kernel_begin();
    assay_span_words s = spans[blockIdx.y];
    int64_t n = s.n_rows * s.width, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n; i += step)
        s.at[i] = s.word;
}

static __global__ void look_all(int32_t *counts, const assay_span_words *spans, int64_t n_rows)
{
    kernel_begin();
    assay_span_words s = spans[blockIdx.x];
    int64_t n = (s.n_rows < n_rows ? s.n_rows : n_rows) * s.width;
    int found = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        found += s.at[i / s.width * s.stride + i % s.width] == s.word;
    found = __reduce_add_sync(0xFFFFFFFFu, found);
    __shared__ int all;
    if (threadIdx.x == 0)
        all = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0 && found)
        atomicAdd(&all, found);
    __syncthreads();
    if (threadIdx.x == 0)
        counts[blockIdx.x] = all;
}

extern "C" assay_status assay_device_table_fill(void *stream, const void *spans, int n)
{
    return kernel_launch("poison", stream, fill_all, dim3(BLOCKS, static_cast<unsigned>(n)),
                         THREADS, 0, static_cast<const assay_span_words *>(spans));
}

extern "C" assay_status assay_device_table_look(void *stream, int32_t *counts, const void *spans,
                                                int n, int64_t n_rows)
{
    return kernel_launch("search for poison", stream, look_all, static_cast<unsigned>(n), 512, 0,
                         counts, static_cast<const assay_span_words *>(spans), n_rows);
}
