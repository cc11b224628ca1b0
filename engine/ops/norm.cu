/* Norms (norm.h): one block per row; sums in double, lanes strided, then a tree. */
#include "engine/ops/kernel.cuh"

extern "C" {
#include "engine/ops/device_ops.h"
}

#define MOST_THREADS 1024
#define HELD 8 /* values of a row that a thread keeps, where the row is not longer */

static __device__ double block_sum(double x)
{
    __shared__ double of_warp[MOST_THREADS / 32];
    int lane = threadIdx.x % 32;
    x = kernel_warp_sum(x);
    __syncthreads();
    if (lane == 0)
        of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    return kernel_warp_sum(lane < static_cast<int>(blockDim.x / 32) ? of_warp[lane] : 0.0);
}

/* A thread's share of a row: elements threadIdx.x, + blockDim.x, ...; the first HELD of them in
 * registers, loaded together. */
struct share {
    float held[HELD];
};

static __device__ __forceinline__ void load(share *s, const float *x, int64_t width)
{
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        int64_t i = threadIdx.x + static_cast<int64_t>(k) * blockDim.x;
        s->held[k] = i < width ? x[i] : 0.0f;
    }
}

/* f(element, its number) over the share, in order. */
template <class F>
static __device__ __forceinline__ void each_of(const share &s, const float *x, int64_t width, F f)
{
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        int64_t i = threadIdx.x + static_cast<int64_t>(k) * blockDim.x;
        if (i < width)
            f(s.held[k], i, k);
    }
    for (int64_t i = threadIdx.x + static_cast<int64_t>(HELD) * blockDim.x; i < width;
         i += blockDim.x)
        f(x[i], i, HELD);
}

/* Weights are no kernel's output: they are loaded before kernel_begin(). */
static __device__ __forceinline__ float weight_at(const share &s, const float *w, int64_t i, int k,
                                                  const assay_norm &how)
{
    if (how.no_weight)
        return 1.0f;
    return (k < HELD ? s.held[k < HELD ? k : 0] : w[i]) + static_cast<float>(how.weight_offset);
}

static __global__ void rms_rows(assay_rows y, assay_rows x, const float *w, assay_norm how)
{
    share weights = {}, values;
    if (w)
        load(&weights, w, x.width);
    kernel_begin();
    const float *in = x.at + blockIdx.x * x.stride;
    float *out = y.at + blockIdx.x * y.stride;
    double sum = 0;
    load(&values, in, x.width);
    each_of(values, in, x.width, [&](float v, int64_t, int) { sum += static_cast<double>(v) * v; });
    sum = block_sum(sum);
    double mean = how.sums ? sum : sum / static_cast<double>(x.width);
    float scale = static_cast<float>(1.0 / sqrt(mean + how.eps));
    each_of(values, in, x.width, [&](float v, int64_t i, int k) {
        out[i] = how.is_left_out ? v : v * scale * weight_at(weights, w, i, k, how);
    });
}

static __global__ void layer_rows(assay_rows y, assay_rows x, const float *w, const float *b,
                                  assay_norm how)
{
    share weights = {}, values;
    if (w)
        load(&weights, w, x.width);
    kernel_begin();
    const float *in = x.at + blockIdx.x * x.stride;
    float *out = y.at + blockIdx.x * y.stride;
    double sum = 0, square = 0, n = static_cast<double>(x.width);
    load(&values, in, x.width);
    each_of(values, in, x.width, [&](float v, int64_t, int) { sum += v; });
    double mean = block_sum(sum) / n;
    each_of(values, in, x.width, [&](float v, int64_t, int) { square += (v - mean) * (v - mean); });
    square = block_sum(square);
    double scale = 1.0 / sqrt((how.sums ? square : square / n) + how.eps);
    each_of(values, in, x.width, [&](float v, int64_t i, int k) {
        float scaled = static_cast<float>((v - mean) * scale);
        out[i] = how.is_left_out ? v : scaled * weight_at(weights, w, i, k, how) + b[i];
    });
}

static unsigned threads_of(int64_t width)
{
    return width > 2048 ? MOST_THREADS : width > 256 ? 256 : 64;
}

extern "C" assay_status assay_device_rmsnorm(void *stream, assay_rows y, assay_rows x,
                                             const float *w, const assay_norm *how)
{
    return kernel_launch("rms norm", stream, rms_rows, static_cast<unsigned>(x.n),
                         threads_of(x.width), 0, y, x, w, *how);
}

extern "C" assay_status assay_device_layernorm(void *stream, assay_rows y, assay_rows x,
                                               const float *w, const float *b,
                                               const assay_norm *how)
{
    return kernel_launch("layer norm", stream, layer_rows, static_cast<unsigned>(x.n),
                         threads_of(x.width), 0, y, x, w, b, *how);
}
