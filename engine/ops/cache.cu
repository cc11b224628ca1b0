/*
 * Rows of the cache on the device (device_ops.h), byte for byte as engine/cache_row.c stores them:
 * written one block to a row, decoded one layer at a time where they are no float32. Lengths are
 * read on the device.
 */
#include "engine/ops/kernel.cuh"

#include "engine/ops/cache_row.cuh"

extern "C" {
#include "engine/cache_row.h"
}

#define THREADS 256
#define WARPS (THREADS / 32)
#define BLOCK 32
#define BLOCK_BYTES (2 + BLOCK) /* of q8_0 */
#define HALF_NAN 0x7E00u
#define HALF_POISON 0x7FE5u /* NaN in f16 and bf16 alike, as on the host */
#define MOST_BLOCKS 512     /* that decode one sequence */

/* Two rows side by side: what goes into one row of the cache. */
struct pair_of_rows {
    const float *a, *b;
    int64_t wa, width;
    __device__ float operator[](int64_t i) const
    {
        return i < wa ? a[i] : b[i - wa];
    }
};

static __device__ float largest_in_block(const pair_of_rows &x)
{
    __shared__ float maxima[WARPS];
    float most = 0;
    for (int64_t i = threadIdx.x; i < x.width; i += THREADS)
        most = fmaxf(most, fabsf(x[i]));
    most = kernel_warp_max(most);
    if (threadIdx.x % 32 == 0)
        maxima[threadIdx.x / 32] = most;
    __syncthreads();
    for (float m : maxima)
        most = fmaxf(most, m);
    return most;
}

/* A warp to a block of 32, an element to a lane. */
static __device__ void store_q8_0(uint8_t *to, const pair_of_rows &x)
{
    int lane = threadIdx.x % 32;
    for (int64_t first = threadIdx.x / 32 * BLOCK; first < x.width; first += THREADS) {
        uint8_t *block = to + first / BLOCK * BLOCK_BYTES;
        float v = first + lane < x.width ? x[first + lane] : 0.0f;
        float d = kernel_warp_max(fabsf(v)) / 127;
        float code = d > 0 ? roundf(v / d) : 0.0f;
        code = code > 127 ? 127.0f : code < -127 ? -127.0f : isnan(code) ? 0.0f : code;
        uint32_t half = __any_sync(0xFFFFFFFFu, isnan(v)) ? HALF_NAN : cache_f32_to_f16(d);
        block[2 + lane] = static_cast<uint8_t>(static_cast<int8_t>(code));
        if (lane < 2)
            block[lane] = static_cast<uint8_t>(half >> 8 * lane);
    }
}

static __device__ void store_f8(uint8_t *to, const pair_of_rows &x)
{
    float scale = largest_in_block(x) / 448;
    if (!(scale > 0))
        scale = 1;
    if (threadIdx.x < 4)
        to[threadIdx.x] = static_cast<uint8_t>(__float_as_uint(scale) >> 8 * threadIdx.x);
    for (int64_t i = threadIdx.x; i < x.width; i += THREADS)
        to[4 + i] = cache_f32_to_f8(x[i] / scale);
}

static __global__ void write_rows(assay_device_cache cache, assay_rows a, assay_rows b,
                                  assay_device_rows rows)
{
    kernel_begin();
    int64_t t = blockIdx.x;
    int32_t sequence = rows.sequences[t], position = rows.positions[t];
    if (sequence < 0 || position < 0)
        return;
    uint8_t *to = *reinterpret_cast<uint8_t *const *>(cache.base) +
                  cache_row(cache, sequence, position) * cache.row_bytes;
    pair_of_rows x = {a.at + t * a.stride, b.at + t * b.stride, a.width, a.width + b.width};
    if (cache.type == ASSAY_CACHE_Q8_0)
        store_q8_0(to, x);
    else if (cache.type == ASSAY_CACHE_F8E4M3)
        store_f8(to, x);
    else if (cache.type == ASSAY_CACHE_F32)
        for (int64_t i = threadIdx.x; i < x.width; i += THREADS)
            reinterpret_cast<float *>(to)[i] = x[i];
    else
        for (int64_t i = threadIdx.x; i < x.width; i += THREADS)
            reinterpret_cast<uint16_t *>(to)[i] =
                cache.type == ASSAY_CACHE_F16 ? cache_f32_to_f16(x[i]) : cache_f32_to_bf16(x[i]);
}

extern "C" assay_status assay_device_cache_write(void *stream, const assay_device_cache *cache,
                                                 assay_rows a, assay_rows b,
                                                 const assay_device_rows *rows)
{
    ASSAY_BUG_IF(a.width + b.width != cache->width);
    return kernel_launch("cache write", stream, write_rows, static_cast<unsigned>(a.n), THREADS, 0,
                         *cache, a, b, *rows);
}

/* One block per sequence. */
static __global__ void count_keys(int32_t *n_keys, assay_device_rows rows)
{
    kernel_begin();
    __shared__ int32_t most;
    if (threadIdx.x == 0)
        most = 0;
    __syncthreads();
    for (int64_t t = threadIdx.x; t < rows.n; t += THREADS)
        if (rows.sequences[t] == static_cast<int32_t>(blockIdx.x))
            atomicMax(&most, rows.positions[t] + 1);
    __syncthreads();
    if (threadIdx.x == 0)
        n_keys[blockIdx.x] = most;
}

extern "C" assay_status assay_device_cache_lengths(void *stream, int32_t *n_keys, int n_sequences,
                                                   const assay_device_rows *rows)
{
    return kernel_launch("lengths of the cache", stream, count_keys,
                         static_cast<unsigned>(n_sequences), THREADS, 0, n_keys, *rows);
}

static __device__ float element(const uint8_t *row, int type, int64_t i)
{
    const uint16_t *halves = reinterpret_cast<const uint16_t *>(row);
    if (type == ASSAY_CACHE_F16)
        return cache_f16_to_f32(halves[i]);
    if (type == ASSAY_CACHE_BF16)
        return __uint_as_float(static_cast<uint32_t>(halves[i]) << 16);
    if (type == ASSAY_CACHE_F8E4M3) {
        uint32_t scale = row[0] | row[1] << 8 | row[2] << 16 | static_cast<uint32_t>(row[3]) << 24;
        return __uint_as_float(scale) * cache_f8_to_f32(row[4 + i]);
    }
    if (type == ASSAY_CACHE_Q8_0) {
        const uint8_t *block = row + i / BLOCK * BLOCK_BYTES;
        return cache_f16_to_f32(block[0] | block[1] << 8) *
               static_cast<float>(static_cast<int8_t>(block[2 + i % BLOCK]));
    }
    return reinterpret_cast<const float *>(row)[i];
}

static __global__ void decode_rows(float *out, assay_device_cache cache, const int32_t *n_keys)
{
    kernel_begin();
    int sequence = blockIdx.y, n = n_keys[sequence];
    const uint8_t *base = *reinterpret_cast<uint8_t *const *>(cache.base);
    for (int p = blockIdx.x; p < n && p < cache.capacity; p += gridDim.x) {
        const uint8_t *row = base + cache_row(cache, sequence, p) * cache.row_bytes;
        float *to = out + (sequence * cache.capacity + p) * cache.width;
        for (int64_t i = threadIdx.x; i < cache.width; i += THREADS)
            to[i] = element(row, cache.type, i);
    }
}

extern "C" assay_status assay_device_cache_decode(void *stream, float *out,
                                                  const assay_device_cache *cache,
                                                  const int32_t *n_keys, int n_sequences)
{
    unsigned blocks =
        cache->capacity < MOST_BLOCKS ? static_cast<unsigned>(cache->capacity) : MOST_BLOCKS;
    dim3 grid(blocks, static_cast<unsigned>(n_sequences));
    return kernel_launch("decoding of the cache", stream, decode_rows, grid, THREADS, 0, out,
                         *cache, n_keys);
}

/* The bytes that assay_cache_row_poison() leaves. */
static __global__ void poison_rows(uint8_t *at, int type, int64_t row_bytes, int64_t n,
                                   uint32_t word)
{
    kernel_begin();
    int64_t i = blockIdx.x * static_cast<int64_t>(THREADS) + threadIdx.x;
    if (i >= n * row_bytes)
        return;
    int64_t in_row = i % row_bytes, in_block = in_row % BLOCK_BYTES;
    if (type == ASSAY_CACHE_F32)
        at[i] = static_cast<uint8_t>(word >> 8 * (in_row % 4));
    else if (type == ASSAY_CACHE_F8E4M3)
        at[i] = in_row < 4 ? static_cast<uint8_t>(word >> 8 * in_row) : 0x7F;
    else if (type == ASSAY_CACHE_Q8_0)
        at[i] = in_block < 2 ? static_cast<uint8_t>(HALF_POISON >> 8 * in_block) : 1;
    else
        at[i] = static_cast<uint8_t>(HALF_POISON >> 8 * (in_row % 2));
}

extern "C" assay_status assay_device_cache_poison(void *stream, void *at, int type,
                                                  int64_t row_bytes, int64_t n, uint32_t word)
{
    if (!n)
        return ASSAY_OK;
    return kernel_launch("poison of the cache", stream, poison_rows,
                         kernel_blocks(n * row_bytes, THREADS), THREADS, 0,
                         static_cast<uint8_t *>(at), type, row_bytes, n, word);
}
