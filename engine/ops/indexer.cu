/*
 * The indexer (indexer.h). Lengths are read on the device.
 *
 * Selection sorts keys of 64 bits, score descending then position ascending, in shared memory. A
 * row with more keys than fit keeps the best so far at the front and sorts the next ones behind it.
 */
#include "engine/ops/kernel.cuh"

#include "engine/ops/cache_row.cuh"

#define SORT_ROOM 8192 /* keys in shared memory, 64 KB */
#define SORT_THREADS 512
#define WARPS 8
#define MOST_BLOCKS 1024 /* of scores, all rows together */

/* Score of one head for one key; every lane has it. */
static __device__ float head_score(const float *q, const float *k, int d_head, bool no_relu)
{
    float dot = 0;
    for (int i = threadIdx.x % 32; i < d_head; i += 32)
        dot = fmaf(q[i], k[i], dot);
    dot = kernel_warp_sum(dot);
    return !no_relu && dot < 0 ? 0 : dot;
}

/* One block per key: a warp sums every eighth head in order, then the warps are summed in order. */
static __global__ void __launch_bounds__(32 * WARPS)
    score_keys(assay_rows scores, assay_rows q, assay_rows w, assay_device_cache keys,
               assay_device_rows rows, assay_indexer how)
{
    kernel_begin();
    __shared__ float sums[2][WARPS];
    int64_t t = blockIdx.y;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, turn = 0;
    int32_t sequence = rows.sequences[t], position = rows.positions[t];
    int seen = sequence < 0 ? 0 : position + 1 < keys.capacity ? position + 1 : keys.capacity;
    float *out = scores.at + t * scores.stride;
    for (int64_t j = seen + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
         j < keys.capacity; j += static_cast<int64_t>(gridDim.x) * blockDim.x)
        out[j] = -INFINITY;
    for (int j = blockIdx.x; j < seen; j += gridDim.x, turn ^= 1) {
        const float *k = cache_floats(keys) + cache_row(keys, sequence, j) * keys.width;
        float sum = 0;
#pragma unroll 4
        for (int h = warp; h < how.n_summed; h += WARPS)
            sum += w.at[t * w.stride + h] *
                   head_score(q.at + t * q.stride + h * how.d_head, k, how.d_head, how.no_relu);
        if (lane == 0)
            sums[turn][warp] = sum;
        __syncthreads();
        if (threadIdx.x != 0)
            continue;
        sum = 0;
        for (int i = 0; i < WARPS; i++)
            sum += sums[turn][i];
        out[j] = sum * static_cast<float>(how.scale);
    }
}

extern "C" assay_status assay_device_index_scores(void *stream, assay_rows scores, assay_rows q,
                                                  assay_rows w, const assay_device_cache *keys,
                                                  const assay_device_rows *rows,
                                                  const assay_indexer *how)
{
    unsigned most = MOST_BLOCKS / static_cast<unsigned>(rows->n) + 1;
    dim3 grid(keys->capacity < most ? static_cast<unsigned>(keys->capacity) : most,
              static_cast<unsigned>(rows->n));
    return kernel_launch("index scores", stream, score_keys, grid, 32 * WARPS, 0, scores, q, w,
                         *keys, *rows, *how);
}

/* Ascending keys are descending scores, equal ones by position; NaN comes last. */
static __device__ uint64_t key_of(float score, int position)
{
    if (score == 0)
        score = 0; /* -0 ties with 0 */
    uint32_t u = __float_as_uint(score);
    u = u & 0x80000000u ? u : ~(u | 0x80000000u);
    if (isnan(score))
        u = 0xFFFFFFFEu;
    return static_cast<uint64_t>(u) << 32 | static_cast<uint32_t>(position);
}

static __device__ void sort(uint64_t *keys, int n)
{
    for (int width = 2; width <= n; width *= 2)
        for (int d = width / 2; d > 0; d /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < n; i += blockDim.x) {
                int other = i ^ d;
                bool up = (i & width) == 0;
                if (other > i && (keys[i] > keys[other]) == up) {
                    uint64_t k = keys[i];
                    keys[i] = keys[other];
                    keys[other] = k;
                }
            }
        }
    __syncthreads();
}

static __global__ void select_keys(int32_t *ids, int n_ids, assay_rows scores,
                                   assay_device_rows rows, int top_k)
{
    kernel_begin();
    extern __shared__ uint64_t keys[];
    int64_t t = blockIdx.x;
    int seen = rows.sequences[t] < 0 ? 0 : rows.positions[t] + 1;
    int n = top_k < seen ? top_k : seen, kept = 0;
    for (int from = 0; from < seen;) {
        int more = seen - from < SORT_ROOM - kept ? seen - from : SORT_ROOM - kept, room = 2;
        while (room < kept + more)
            room *= 2;
        for (int i = kept + threadIdx.x; i < room; i += blockDim.x)
            keys[i] = i < kept + more
                          ? key_of(scores.at[t * scores.stride + from + i - kept], from + i - kept)
                          : ~static_cast<uint64_t>(0);
        sort(keys, room);
        from += more;
        kept = kept + more < n ? kept + more : n;
    }
    for (int i = threadIdx.x; i < n_ids; i += blockDim.x)
        ids[t * n_ids + i] = i < n ? static_cast<int32_t>(keys[i] & 0xFFFFFFFFu) : -1;
}

extern "C" assay_status assay_device_index_select(void *stream, int32_t *ids, int64_t n_ids,
                                                  assay_rows scores, const assay_device_rows *rows,
                                                  const assay_indexer *how)
{
    const int bytes = SORT_ROOM * static_cast<int>(sizeof(uint64_t));
    if (how->top_k > SORT_ROOM / 2)
        return assay_fail(ASSAY_UNSUPPORTED, "%lld keys to select, at most %d on the device",
                          static_cast<long long>(how->top_k), SORT_ROOM / 2);
    cudaFuncSetAttribute(select_keys, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return kernel_launch("selection of keys", stream, select_keys, static_cast<unsigned>(rows->n),
                         SORT_THREADS, bytes, ids, static_cast<int>(n_ids), scores, *rows,
                         static_cast<int>(how->top_k));
}
