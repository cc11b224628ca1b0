/* Routing (router.h): one warp per row; at most 512 experts, 16 to a lane. */
#include "engine/ops/kernel.cuh"

extern "C" {
#include "engine/ops/device_ops.h"
}

#define MOST 512

static __global__ void probs_rows(assay_rows probs, assay_rows logits, bool softmax)
{
    kernel_begin();
    const float *x = logits.at + blockIdx.x * logits.stride;
    float *p = probs.at + blockIdx.x * probs.stride;
    int n = static_cast<int>(probs.width), lane = threadIdx.x;
    if (!softmax) {
        for (int e = lane; e < n; e += 32)
            p[e] = 1.0f / (1.0f + expf(-x[e]));
        return;
    }
    float most = -INFINITY;
    double sum = 0;
    for (int e = lane; e < n; e += 32)
        most = fmaxf(most, x[e]);
    most = kernel_warp_max(most);
    for (int e = lane; e < n; e += 32)
        sum += expf(x[e] - most);
    sum = kernel_warp_sum(sum);
    for (int e = lane; e < n; e += 32)
        p[e] = static_cast<float>(expf(x[e] - most) / sum);
}

/* Larger first, equal ones by smaller index; NaN counts as the smallest. */
static __device__ bool before(float a, int ia, float b, int ib)
{
    a = isnan(a) ? -INFINITY : a;
    b = isnan(b) ? -INFINITY : b;
    return a > b || (a == b && ia < ib);
}

/* The k largest of v[n] in shared memory, in order. What was chosen is marked in used[n]. */
static __device__ void largest(int32_t *ids, const float *v, bool *used, int n, int k)
{
    int lane = threadIdx.x;
    for (int i = lane; i < n; i += 32)
        used[i] = false;
    __syncwarp();
    for (int j = 0; j < k; j++) {
        float best = -INFINITY;
        int index = INT32_MAX;
        for (int i = lane; i < n; i += 32)
            if (!used[i] && before(v[i], i, best, index)) {
                best = v[i];
                index = i;
            }
        for (int d = 16; d > 0; d >>= 1) {
            float other = __shfl_xor_sync(0xFFFFFFFFu, best, d);
            int at = __shfl_xor_sync(0xFFFFFFFFu, index, d);
            if (before(other, at, best, index)) {
                best = other;
                index = at;
            }
        }
        if (lane == 0) {
            ids[j] = index;
            used[index] = true;
        }
        __syncwarp();
    }
}

static __device__ float group_score(const float *sel, int n, const assay_routing &how)
{
    float best = -INFINITY, second = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) {
        sum += sel[i];
        if (sel[i] > best) {
            second = best;
            best = sel[i];
        } else if (sel[i] > second) {
            second = sel[i];
        }
    }
    if (how.group_sum_all)
        return sum;
    return how.group_rule == ASSAY_GROUP_MAX || n < 2 ? best : best + second;
}

static __global__ void choose_rows(int32_t *ids, assay_rows probs, const float *bias,
                                   assay_routing how)
{
    kernel_begin();
    __shared__ float sel[MOST], score[MOST];
    __shared__ bool used[MOST];
    __shared__ int32_t keep[MOST];
    const float *p = probs.at + blockIdx.x * probs.stride;
    int lane = threadIdx.x, n = how.n_expert;
    for (int e = lane; e < n; e += 32)
        sel[e] = bias ? p[e] + bias[e] : p[e];
    __syncwarp();
    if (how.n_group > 1) {
        int size = n / how.n_group;
        for (int g = lane; g < how.n_group; g += 32)
            score[g] = group_score(sel + g * size, size, how);
        __syncwarp();
        largest(keep, score, used, how.n_group, how.n_group_used);
        for (int e = lane; e < size * how.n_group; e += 32)
            if (!used[e / size])
                sel[e] = how.group_mask_zero ? 0.0f : -INFINITY;
        __syncwarp();
    }
    largest(ids + blockIdx.x * static_cast<int64_t>(how.n_used), sel, used, n, how.n_used);
}

static __global__ void weigh_rows(assay_rows weights, const int32_t *ids, assay_rows probs,
                                  const float *bias, assay_routing how)
{
    kernel_begin();
    int64_t t = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (t >= weights.n)
        return;
    const float *p = probs.at + t * probs.stride;
    float *w = weights.at + t * weights.stride;
    float sum = 0;
    for (int u = 0; u < how.n_used; u++) {
        int32_t e = ids[t * how.n_used + u];
        w[u] = how.bias_in_weights && bias ? p[e] + bias[e] : p[e];
        sum += w[u];
    }
    if (!(sum > 0x1p-14f) && sum == sum)
        sum = 0x1p-14f;
    for (int u = 0; u < how.n_used; u++) {
        if (how.weights_norm)
            w[u] /= sum;
        w[u] *= static_cast<float>(how.weights_scale);
    }
}

extern "C" assay_status assay_device_router_probs(void *stream, assay_rows probs, assay_rows logits,
                                                  const assay_routing *how)
{
    return kernel_launch("router", stream, probs_rows, static_cast<unsigned>(probs.n), 32, 0, probs,
                         logits, how->gating == ASSAY_GATING_SOFTMAX);
}

extern "C" assay_status assay_device_router_choose(void *stream, int32_t *ids, assay_rows probs,
                                                   const float *bias, const assay_routing *how)
{
    ASSAY_BUG_IF(how->n_used > how->n_expert || how->n_expert > MOST);
    return kernel_launch("choice of experts", stream, choose_rows, static_cast<unsigned>(probs.n),
                         32, 0, ids, probs, bias, *how);
}

extern "C" assay_status assay_device_router_weigh(void *stream, assay_rows weights,
                                                  const int32_t *ids, assay_rows probs,
                                                  const float *bias, const assay_routing *how)
{
    return kernel_launch("weights of experts", stream, weigh_rows, kernel_blocks(weights.n, 64), 64,
                         0, weights, ids, probs, bias, *how);
}
