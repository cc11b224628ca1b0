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

/*
 * Kernels follow each other closely: each is launched while the one before it still runs, and waits
 * in kernel_begin() until that one has ended and its writes are seen (programmatic dependent
 * launch, from compute capability 9.0 on; before that, and after anything that is no kernel, in
 * order as ever). So every kernel begins with kernel_begin(), and what it does before may touch
 * only what no kernel writes.
 */
__device__ __forceinline__ void kernel_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Whether the kernels that this device runs do wait: a program built for 8.0 alone runs on a later
 * device as well, compiled from its PTX, and its kernels do not. */
static inline bool kernel_overlaps()
{
    static const bool overlaps = [] {
        static const int built_for[] = {__CUDA_ARCH_LIST__}; /* 800, 900, ... */
        int device = 0, major = 0, minor = 0;
        bool waits = false;
        cudaGetDevice(&device);
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
        for (int architecture : built_for)
            waits = waits || (architecture >= 900 && architecture <= 100 * major + 10 * minor);
        return waits;
    }();
    return overlaps;
}

template <class... P, class... A>
static inline assay_status kernel_launch(const char *what, void *stream, void (*kernel)(P...),
                                         dim3 grid, unsigned threads, size_t shared_bytes,
                                         const A &...arguments)
{
    cudaLaunchAttribute closely = {};
    closely.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    closely.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = grid;
    how.blockDim = dim3(threads);
    how.dynamicSmemBytes = shared_bytes;
    how.stream = kernel_stream(stream);
    how.attrs = &closely;
    how.numAttrs = kernel_overlaps() ? 1 : 0;
    cudaLaunchKernelEx(&how, kernel, static_cast<P>(arguments)...);
    return kernel_launched(what);
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
