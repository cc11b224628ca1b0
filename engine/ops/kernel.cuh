/*
 * What every .cu file includes: the C headers of the engine seen from C++, and the check after a
 * launch. Compiled with -fmad=false: a product and a sum are contracted only where fmaf() says so,
 * as on the host.
 */
#ifndef ASSAY_ENGINE_OPS_KERNEL_CUH
#define ASSAY_ENGINE_OPS_KERNEL_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#define _Noreturn [[noreturn]]
extern "C" {
#include "engine/base/number.h"
#include "engine/base/status.h"
}

static inline cudaStream_t kernel_stream(void *stream)
{
    return static_cast<cudaStream_t>(stream);
}

/* The error of the last launch, cleared; a kernel's own error shows at the next call that waits. */
static inline assay_status kernel_launched(const char *what)
{
    cudaError_t e = cudaGetLastError();
    return e == cudaSuccess
               ? ASSAY_OK
               : assay_fail(ASSAY_DEVICE, "%s: launch failed: %s", what, cudaGetErrorString(e));
}

static inline unsigned kernel_blocks(int64_t n, int64_t per)
{
    return static_cast<unsigned>((n + per - 1) / per);
}

__device__ __forceinline__ float kernel_round_bf16(float x)
{
    uint32_t u = __float_as_uint(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u)
        return __uint_as_float((u | 0x400000u) & 0xFFFF0000u);
    return __uint_as_float((u + 0x7FFFu + (u >> 16 & 1u)) & 0xFFFF0000u);
}

/* Sum over the 32 lanes of a warp, the same in each of them; a fixed tree. */
__device__ __forceinline__ float kernel_warp_sum(float x)
{
    for (int d = 16; d > 0; d >>= 1)
        x += __shfl_xor_sync(0xFFFFFFFFu, x, d);
    return x;
}

__device__ __forceinline__ double kernel_warp_sum(double x)
{
    for (int d = 16; d > 0; d >>= 1)
        x += __shfl_xor_sync(0xFFFFFFFFu, x, d);
    return x;
}

__device__ __forceinline__ float kernel_warp_max(float x)
{
    for (int d = 16; d > 0; d >>= 1)
        x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, d));
    return x;
}

#endif
