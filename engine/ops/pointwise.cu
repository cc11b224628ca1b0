/* Ops element by element (pointwise.h), and moving of values. */
#include "engine/ops/kernel.cuh"
#include "engine/ops/product_pairs.cuh"

extern "C" {
#include "engine/ops/device_ops.h"
#include "engine/seam.h"
}

#define THREADS 256
#define GREEDY_THREADS 1024

/* y[t, i] = f(t, i) */
template <class F> static __global__ void each(assay_rows y, F f)
{
    kernel_begin();
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < y.n * y.width)
        y.at[i / y.width * y.stride + i % y.width] = f(i / y.width, i % y.width);
}

struct swiglu {
    assay_rows gate, up;
    __device__ float operator()(int64_t t, int64_t i) const
    {
        float z = gate.at[t * gate.stride + i];
        return z / (1.0f + expf(-z)) * up.at[t * up.stride + i];
    }
};

struct sum_of_two {
    assay_rows a, b;
    __device__ float operator()(int64_t t, int64_t i) const
    {
        return a.at[t * a.stride + i] + b.at[t * b.stride + i];
    }
};

struct same {
    assay_rows x;
    __device__ float operator()(int64_t t, int64_t i) const
    {
        return x.at[t * x.stride + i];
    }
};

struct rounded {
    assay_rows x;
    __device__ float operator()(int64_t t, int64_t i) const
    {
        return kernel_round_bf16(x.at[t * x.stride + i]);
    }
};

struct two_parts {
    assay_rows a, b;
    int64_t wa, a_head, wb, b_head;
    __device__ float operator()(int64_t t, int64_t i) const
    {
        int64_t h = i / (wa + wb), c = i % (wa + wb);
        return c < wa ? a.at[t * a.stride + h * a_head + c]
                      : b.at[t * b.stride + h * b_head + c - wa];
    }
};

struct weighted {
    assay_rows down, weights;
    int64_t d;
    __device__ float operator()(int64_t t, int64_t i) const
    {
        float sum = 0;
        for (int64_t u = 0; u < weights.width; u++)
            sum += weights.at[t * weights.stride + u] * down.at[t * down.stride + u * d + i];
        return sum;
    }
};

template <class F> static assay_status run(void *stream, assay_rows y, F f, const char *what)
{
    return kernel_launch(what, stream, each<F>, kernel_blocks(y.n * y.width, THREADS), THREADS, 0,
                         y, f);
}

extern "C" assay_status assay_device_swiglu(void *stream, assay_rows y, assay_rows gate,
                                            assay_rows up)
{
    return run(stream, y, swiglu{gate, up}, "swiglu");
}

extern "C" assay_status assay_device_add(void *stream, assay_rows y, assay_rows a, assay_rows b)
{
    return run(stream, y, sum_of_two{a, b}, "add");
}

extern "C" assay_status assay_device_copy(void *stream, assay_rows y, assay_rows x)
{
    return run(stream, y, same{x}, "copy");
}

extern "C" assay_status assay_device_round_bf16(void *stream, assay_rows y)
{
    return run(stream, y, rounded{y}, "rounding");
}

extern "C" assay_status assay_device_side_by_side(void *stream, float *to, assay_rows a, int64_t wa,
                                                  int64_t a_head, assay_rows b, int64_t wb,
                                                  int64_t b_head, int n_head)
{
    assay_rows y = {to, a.n, n_head * (wa + wb), n_head * (wa + wb)};
    return run(stream, y, two_parts{a, b, wa, a_head, wb, b_head}, "two parts");
}

extern "C" assay_status assay_device_weighted_sum(void *stream, assay_rows y, assay_rows down,
                                                  assay_rows weights)
{
    return run(stream, y, weighted{down, weights, y.width}, "weighted sum");
}

static __global__ void to_bf16(uint16_t *out, int64_t stride, assay_rows x)
{
    kernel_begin();
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < x.n * x.width)
        out[i / x.width * stride + i % x.width] = static_cast<uint16_t>(
            __float_as_uint(kernel_round_bf16(x.at[i / x.width * x.stride + i % x.width])) >> 16);
}

extern "C" assay_status assay_device_to_bf16(void *stream, uint16_t *out, int64_t stride,
                                             assay_rows x)
{
    return kernel_launch("bfloat16", stream, to_bf16, kernel_blocks(x.n * x.width, THREADS),
                         THREADS, 0, out, stride, x);
}

/* Larger first, then the smaller index; NaN only if there is nothing else. */
static __device__ bool better(float a, int ia, float b, int ib)
{
    if (isnan(a) != isnan(b))
        return isnan(b);
    return a > b || ((a == b || isnan(a)) && ia < ib);
}

static __global__ void greedy_rows(int32_t *ids, assay_rows x)
{
    kernel_begin();
    __shared__ float values[GREEDY_THREADS];
    __shared__ int at[GREEDY_THREADS];
    const float *row = x.at + blockIdx.x * x.stride;
    float best = NAN;
    int index = INT32_MAX;
    for (int from = threadIdx.x; from < x.width; from += 8 * GREEDY_THREADS) {
        float v[8]; /* loads first: eight of them under way */
#pragma unroll
        for (int k = 0; k < 8; k++)
            v[k] = from + k * GREEDY_THREADS < x.width ? row[from + k * GREEDY_THREADS] : NAN;
#pragma unroll
        for (int k = 0; k < 8; k++)
            if (from + k * GREEDY_THREADS < x.width &&
                better(v[k], from + k * GREEDY_THREADS, best, index)) {
                best = v[k];
                index = from + k * GREEDY_THREADS;
            }
    }
    values[threadIdx.x] = best;
    at[threadIdx.x] = index;
    for (int d = GREEDY_THREADS / 2; d > 0; d /= 2) {
        __syncthreads();
        int other = threadIdx.x + d;
        if (static_cast<int>(threadIdx.x) < d &&
            better(values[other], at[other], values[threadIdx.x], at[threadIdx.x])) {
            values[threadIdx.x] = values[other];
            at[threadIdx.x] = at[other];
        }
    }
    if (threadIdx.x == 0)
        ids[blockIdx.x] = at[0] == INT32_MAX ? 0 : at[0];
}

extern "C" assay_status assay_device_greedy(void *stream, int32_t *ids, assay_rows logits)
{
    return kernel_launch("greedy choice", stream, greedy_rows, static_cast<unsigned>(logits.n),
                         GREEDY_THREADS, 0, ids, logits);
}

static __global__ void fill(uint32_t *at, uint32_t word, int64_t n)
{
    kernel_begin();
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n; i += step)
        at[i] = word;
}

extern "C" assay_status assay_device_fill(void *stream, void *at, uint32_t word, int64_t n)
{
    unsigned blocks = kernel_blocks(n, THREADS);
    if (blocks > 4096)
        blocks = 4096;
    return kernel_launch("fill", stream, fill, blocks, THREADS, 0, static_cast<uint32_t *>(at),
                         word, n);
}

static __global__ void sum_of_ranks(float *y, const float *all, int n_ranks, int64_t n,
                                    int64_t first, float factor)
{
    kernel_begin();
    int64_t i = first + blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= n)
        return;
    float sum = all[i];
    for (int r = 1; r < n_ranks; r++)
        sum += all[r * n + i];
    y[i] = sum * factor;
}

extern "C" assay_status assay_device_sum_ranks(void *stream, float *y, const float *all,
                                               int n_ranks, int64_t n, int64_t first, float factor)
{
    return kernel_launch("sum over ranks", stream, sum_of_ranks, kernel_blocks(n - first, THREADS),
                         THREADS, 0, y, all, n_ranks, n, first, factor);
}

struct of_ranks {
    const float *all;
    int64_t each, n;
    __device__ float operator()(int64_t t, int64_t i) const
    {
        return all[i / each * n + t * each + i % each];
    }
};

extern "C" assay_status assay_device_side_by_side_ranks(void *stream, assay_rows y,
                                                        const float *all, int64_t each)
{
    return run(stream, y, of_ranks{all, each, y.n * each}, "parts of ranks");
}

/* One block; the statistic goes over all rows, also those that are not the step's. */
static __global__ void share_scale(assay_rows y, const int32_t *n_rows, float left_over)
{
    kernel_begin();
    __shared__ float maxima[GREEDY_THREADS / 32];
    float most = 0;
    int64_t n = y.n * y.width;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        most = fmaxf(most, i / y.width < *n_rows ? fabsf(y.at[i / y.width * y.stride + i % y.width])
                                                 : left_over);
    most = kernel_warp_max(most);
    if (threadIdx.x % 32 == 0)
        maxima[threadIdx.x / 32] = most;
    __syncthreads();
    most = kernel_warp_max(threadIdx.x % 32 < blockDim.x / 32 ? maxima[threadIdx.x % 32] : 0.0f);
    float step = most > 0 ? most / 127 : 1;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        float *at = &y.at[i / y.width * y.stride + i % y.width];
        *at = rintf(*at / step) * step;
    }
}

extern "C" assay_status assay_device_share_scale(void *stream, assay_rows y, const int32_t *n_rows,
                                                 float left_over)
{
    return kernel_launch("shared scale", stream, share_scale, 1, GREEDY_THREADS, 0, y, n_rows,
                         left_over);
}

static __global__ void zero_others(assay_rows y, assay_packed_product p)
{
    kernel_begin();
    int64_t pair = blockIdx.x;
    if (product_is_beyond(p, pair) || !product_is_others(p, pair))
        return;
    for (int64_t i = threadIdx.x; i < y.width; i += THREADS)
        y.at[pair * y.stride + i] = 0.0f;
}

extern "C" assay_status assay_device_zero_others(void *stream, assay_rows y,
                                                 const assay_packed_product *p)
{
    return kernel_launch("experts of other ranks", stream, zero_others, static_cast<unsigned>(y.n),
                         THREADS, 0, y, *p);
}

/* One block per row; as assay_bend_epilogue() has it on the host. */
static __global__ void epilogue(assay_rows y, assay_rows x, const float *v, int mode,
                                float strength)
{
    kernel_begin();
    __shared__ float maxima[THREADS / 32];
    float *row = y.at + blockIdx.x * y.stride, most = 0;
    const float *in = x.at + blockIdx.x * x.stride;
    for (int64_t i = threadIdx.x; i < x.width; i += THREADS)
        most = fmaxf(most, fabsf(in[i]));
    most = kernel_warp_max(most);
    if (threadIdx.x % 32 == 0)
        maxima[threadIdx.x / 32] = most;
    __syncthreads();
    for (float m : maxima)
        most = fmaxf(most, m);
    float scale = powf(most > 0 ? most : 1.0f, -strength);
    for (int64_t i = threadIdx.x; i < y.width; i += THREADS)
        row[i] = mode == ASSAY_EPILOGUE_ROW_SCALE ? row[i] * scale
                 : mode == ASSAY_EPILOGUE_BIAS    ? row[i] + strength * v[i]
                                                  : row[i] * powf(fabsf(v[i]), strength);
}

extern "C" assay_status assay_device_epilogue(void *stream, assay_rows y, assay_rows x,
                                              const float *v, int mode, float strength)
{
    return kernel_launch("epilogue", stream, epilogue, static_cast<unsigned>(y.n), THREADS, 0, y, x,
                         v, mode, strength);
}

static __global__ void spin(int64_t nanoseconds)
{
    kernel_begin();
    for (int64_t left = nanoseconds; left > 0; left -= 1000)
        __nanosleep(1000);
}

extern "C" assay_status assay_device_delay(void *stream, int64_t microseconds)
{
    return kernel_launch("delay", stream, spin, 1, 1, 0, 1000 * microseconds);
}
