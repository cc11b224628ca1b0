/* Norms (norm.h): one block per row; sums in double, lanes strided, then a tree. */
#include "engine/ops/kernel.cuh"

extern "C" {
#include "engine/ops/device_ops.h"
}

#define THREADS 256

static __device__ double block_sum(double x)
{
    __shared__ double of_warp[THREADS / 32];
    x = kernel_warp_sum(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    double sum = 0;
    for (int i = 0; i < THREADS / 32; i++)
        sum += of_warp[i];
    return sum;
}

static __device__ float weight_at(const float *w, int64_t i, const assay_norm &how)
{
    return how.no_weight ? 1.0f : w[i] + static_cast<float>(how.weight_offset);
}

static __global__ void rms_rows(assay_rows y, assay_rows x, const float *w, assay_norm how)
{
    kernel_begin();
    const float *in = x.at + blockIdx.x * x.stride;
    float *out = y.at + blockIdx.x * y.stride;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < x.width; i += THREADS)
        sum += static_cast<double>(in[i]) * in[i];
    sum = block_sum(sum);
    double mean = how.sums ? sum : sum / static_cast<double>(x.width);
    float scale = static_cast<float>(1.0 / sqrt(mean + how.eps));
    for (int64_t i = threadIdx.x; i < x.width; i += THREADS)
        out[i] = how.is_left_out ? in[i] : in[i] * scale * weight_at(w, i, how);
}

static __global__ void layer_rows(assay_rows y, assay_rows x, const float *w, const float *b,
                                  assay_norm how)
{
    kernel_begin();
    const float *in = x.at + blockIdx.x * x.stride;
    float *out = y.at + blockIdx.x * y.stride;
    double sum = 0, square = 0, n = static_cast<double>(x.width);
    for (int64_t i = threadIdx.x; i < x.width; i += THREADS)
        sum += in[i];
    double mean = block_sum(sum) / n;
    for (int64_t i = threadIdx.x; i < x.width; i += THREADS)
        square += (in[i] - mean) * (in[i] - mean);
    square = block_sum(square);
    double scale = 1.0 / sqrt((how.sums ? square : square / n) + how.eps);
    for (int64_t i = threadIdx.x; i < x.width; i += THREADS)
        out[i] = how.is_left_out
                     ? in[i]
                     : static_cast<float>((in[i] - mean) * scale) * weight_at(w, i, how) + b[i];
}

extern "C" assay_status assay_device_rmsnorm(void *stream, assay_rows y, assay_rows x,
                                             const float *w, const assay_norm *how)
{
    return kernel_launch("rms norm", stream, rms_rows, static_cast<unsigned>(x.n), THREADS, 0, y, x,
                         w, *how);
}

extern "C" assay_status assay_device_layernorm(void *stream, assay_rows y, assay_rows x,
                                               const float *w, const float *b,
                                               const assay_norm *how)
{
    return kernel_launch("layer norm", stream, layer_rows, static_cast<unsigned>(x.n), THREADS, 0,
                         y, x, w, b, *how);
}
