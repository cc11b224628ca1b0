/*
 * Decoding on the device, for every type of quant.def: whole rows, the embedding, and products that
 * decode as they go. One kernel per type and job, picked from tables made of the rows of quant.def.
 */
#include <cuda_bf16.h>

#include "engine/ops/product_pairs.cuh"
#include "engine/quant/decode.cuh"

extern "C" {
#include "engine/base/iq_grids.h"
#include "engine/ops/device_ops.h"
#include "engine/quant.h"
}

#define LANES 32
#define WARPS 8
#define MANY 8 /* rows of x that share one decoded weight */

/* Where element `e` of row `row` is, whatever the type. */
template <class D, int BLOCK, int BYTES> struct reader {
    static __device__ float at(const assay_packed &w, int64_t row, int64_t e, bool rounded)
    {
        const uint8_t *p = static_cast<const uint8_t *>(w.data) + row * w.row_bytes;
        float x = D::at(p + e / BLOCK * BYTES, static_cast<int>(e % BLOCK));
        return rounded ? kernel_round_bf16(x) : x;
    }
};

template <> struct reader<decode_Q8_0, 32, 34> {
    static __device__ float at(const assay_packed &w, int64_t row, int64_t e, bool rounded)
    {
        const int8_t *codes = static_cast<const int8_t *>(w.data) + row * w.width;
        const __half *scales = static_cast<const __half *>(w.scales) + row * (w.width / 32);
        float x = static_cast<float>(codes[e]) * __half2float(scales[e / 32]);
        return rounded ? kernel_round_bf16(x) : x;
    }
};

__device__ __forceinline__ void store_as(float *out, float x)
{
    *out = x;
}

__device__ __forceinline__ void store_as(uint16_t *out, float x)
{
    *out = static_cast<uint16_t>(__float_as_uint(kernel_round_bf16(x)) >> 16);
}

template <class R, class T>
__global__ void decode_rows(T *out, int64_t out_stride, assay_packed w, int64_t first, int64_t n,
                            int64_t column, int64_t n_columns, bool rounded)
{
    kernel_begin();
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n * n_columns;
         i += step)
        store_as(out + i / n_columns * out_stride + i % n_columns,
                 R::at(w, first + i / n_columns, column + i % n_columns, rounded));
}

template <class R>
__global__ void embed_rows(float *y, int64_t y_stride, assay_packed w, assay_device_rows rows,
                           int64_t vocab, int64_t n_vocab, bool rounded)
{
    kernel_begin();
    int64_t t = blockIdx.x;
    int32_t sequence = rows.sequences[t], token = rows.tokens[t];
    bool is_here = sequence >= 0 && token >= vocab && token < vocab + n_vocab;
    if (sequence == ASSAY_ROW_BEYOND)
        return;
    for (int64_t i = blockIdx.y * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < w.width;
         i += static_cast<int64_t>(gridDim.y) * blockDim.x)
        y[t * y_stride + i] = is_here ? R::at(w, token, i, rounded) : 0.0f;
}

/* One warp per output element of up to MANY rows. */
template <class R> __global__ void product_rows(assay_packed_product p, assay_packed w)
{
    kernel_begin();
    int lane = threadIdx.x % LANES;
    int64_t out = blockIdx.x * static_cast<int64_t>(WARPS) + threadIdx.x / LANES;
    int64_t head = blockIdx.z, t0 = blockIdx.y * static_cast<int64_t>(MANY);
    int64_t first = p.first_row + head * p.w_head, x_row = t0;
    int n = static_cast<int>(p.n - t0 < MANY ? p.n - t0 : MANY);
    if (out >= p.n_out)
        return;
    if (p.ids) {
        if (product_leaves_out(p, blockIdx.y))
            return;
        t0 = blockIdx.y;
        n = 1;
        first += p.ids[t0] * p.expert_rows;
        x_row = t0 / p.per;
    }
    float sum[MANY] = {0};
    const float *x = p.x + x_row * p.x_stride + head * p.x_head;
    for (int64_t k = lane; k < p.n_in; k += LANES) {
        float value = p.transposed ? R::at(w, first + k, p.column + out, p.rounded)
                                   : R::at(w, first + out, p.column + k, p.rounded);
#pragma unroll
        for (int t = 0; t < MANY; t++)
            if (t < n)
                sum[t] = fmaf(value, x[t * p.x_stride + k], sum[t]);
    }
#pragma unroll
    for (int t = 0; t < MANY; t++) {
        float all = kernel_warp_sum(sum[t]);
        if (lane == 0 && t < n)
            p.y[(t0 + t) * p.y_stride + head * p.y_head + out] = all;
    }
}

struct jobs {
    int number;
    void (*to_f32)(float *, int64_t, assay_packed, int64_t, int64_t, int64_t, int64_t, bool);
    void (*to_bf16)(uint16_t *, int64_t, assay_packed, int64_t, int64_t, int64_t, int64_t, bool);
    void (*embed)(float *, int64_t, assay_packed, assay_device_rows, int64_t, int64_t, bool);
    void (*product)(assay_packed_product, assay_packed);
};

#define X(id, number, name, elements, bytes, ...)                                                  \
    {number, decode_rows<reader<decode_##id, elements, bytes>, float>,                             \
     decode_rows<reader<decode_##id, elements, bytes>, uint16_t>,                                  \
     embed_rows<reader<decode_##id, elements, bytes>>,                                             \
     product_rows<reader<decode_##id, elements, bytes>>},
static const jobs table[] = {
#include "engine/quant.def"
};
#undef X

static assay_status find(const jobs **out, int type)
{
    for (const jobs &row : table)
        if (row.number == type) {
            *out = &row;
            return ASSAY_OK;
        }
    return assay_fail(ASSAY_UNSUPPORTED, "tensor type %d is not known on the device", type);
}

extern "C" assay_status assay_device_quant_tables(void)
{
    static decode_tables host;
    memcpy(host.iq1, assay_grid_iq1, sizeof host.iq1);
    memcpy(host.iq2_xxs, assay_grid_iq2_xxs, sizeof host.iq2_xxs);
    memcpy(host.iq2_xs, assay_grid_iq2_xs, sizeof host.iq2_xs);
    memcpy(host.iq2_s, assay_grid_iq2_s, sizeof host.iq2_s);
    memcpy(host.iq3_xxs, assay_grid_iq3_xxs, sizeof host.iq3_xxs);
    memcpy(host.iq3_s, assay_grid_iq3_s, sizeof host.iq3_s);
    cudaError_t e = cudaMemcpyToSymbol(decode_grids, &host, sizeof host);
    return e == cudaSuccess ? ASSAY_OK
                            : assay_fail(ASSAY_DEVICE, "codebooks: %s", cudaGetErrorString(e));
}

static unsigned blocks_of(int64_t n)
{
    unsigned blocks = kernel_blocks(n, 256);
    return blocks < 16384 ? blocks : 16384;
}

extern "C" assay_status assay_device_unpack(void *stream, float *out, int64_t out_stride,
                                            const assay_packed *w, int64_t first, int64_t n,
                                            int64_t column, int64_t n_columns, bool rounded)
{
    const jobs *job = nullptr;
    bool done;
    ASSAY_TRY(assay_device_unpack_wide(&done, stream, out, out_stride, w, first, n, column,
                                       n_columns, rounded, false));
    if (done)
        return ASSAY_OK;
    ASSAY_TRY(find(&job, w->type));
    return kernel_launch("decode", stream, job->to_f32, blocks_of(n * n_columns), 256, 0, out,
                         out_stride, *w, first, n, column, n_columns, rounded);
}

extern "C" assay_status assay_device_unpack_bf16(void *stream, uint16_t *out, int64_t out_stride,
                                                 const assay_packed *w, int64_t first, int64_t n,
                                                 int64_t column, int64_t n_columns)
{
    const jobs *job = nullptr;
    bool done;
    ASSAY_TRY(assay_device_unpack_wide(&done, stream, out, out_stride, w, first, n, column,
                                       n_columns, true, true));
    if (done)
        return ASSAY_OK;
    ASSAY_TRY(find(&job, w->type));
    return kernel_launch("decode to bf16", stream, job->to_bf16, blocks_of(n * n_columns), 256, 0,
                         out, out_stride, *w, first, n, column, n_columns, true);
}

extern "C" assay_status assay_device_embed(void *stream, assay_rows y, const assay_packed *packed,
                                           const assay_device_rows *rows, int64_t vocab,
                                           int64_t n_vocab, bool rounded)
{
    const jobs *job = nullptr;
    ASSAY_TRY(find(&job, packed->type));
    dim3 grid(static_cast<unsigned>(rows->n), kernel_blocks(packed->width, 256));
    return kernel_launch("embedding", stream, job->embed, grid, 256, 0, y.at, y.stride, *packed,
                         *rows, vocab, n_vocab, rounded);
}

extern "C" assay_status assay_device_product_any(void *stream, const assay_packed_product *p)
{
    const jobs *job = nullptr;
    ASSAY_TRY(find(&job, p->w->type));
    dim3 grid(kernel_blocks(p->n_out, WARPS),
              p->ids ? static_cast<unsigned>(p->n) : kernel_blocks(p->n, MANY),
              p->n_head > 1 ? static_cast<unsigned>(p->n_head) : 1);
    return kernel_launch("product", stream, job->product, grid, LANES * WARPS, 0, *p, *p->w);
}

static __global__ void split_q8_0(int8_t *codes, uint16_t *scales, const uint8_t *blocks, int64_t n)
{
    kernel_begin();
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= n * 32)
        return;
    const uint8_t *b = blocks + i / 32 * 34;
    codes[i] = static_cast<int8_t>(b[2 + i % 32]);
    if (i % 32 == 0)
        scales[i / 32] = static_cast<uint16_t>(decode_u16(b));
}

extern "C" assay_status assay_device_split_q8_0(void *stream, void *codes, void *scales,
                                                const void *blocks, int64_t n_blocks)
{
    return kernel_launch("split of q8_0", stream, split_q8_0, kernel_blocks(n_blocks * 32, 256),
                         256, 0, static_cast<int8_t *>(codes), static_cast<uint16_t *>(scales),
                         static_cast<const uint8_t *>(blocks), n_blocks);
}
