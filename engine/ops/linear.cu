/*
 * Products of few rows with a packed weight, read straight from its blocks: one warp per row of the
 * weight, the rows of x in shared memory. Types without wide loads, and shapes that do not align,
 * go the general way (engine/quant/quant_device.cu); Q4_K has kernels of its own
 * (linear_matrix.cu).
 *
 * Order of summation of one output: lane i of a warp takes units i, i + 32, ... in order; of a run
 * the products of codes in order, then the run's scale; then the tree of kernel_warp_sum. It
 * depends on the weight's width alone.
 */
#include "engine/ops/linear_matrix.cuh"
#include "engine/ops/product_pairs.cuh"
#include "engine/ops/units.cuh"

extern "C" {
#include "engine/quant.h"
}

#define LANES 32
#define WARPS 8
#define NARROW 8
#define CHUNK_FLOATS 8192  /* of x in shared memory, all rows together */
#define RESIDENT (132 * 4) /* blocks of a large device at once */

/* Runs of 16 are 20 floats apart: the lanes of a quarter warp then read different banks. */
__device__ __forceinline__ int padded(int e)
{
    return e + (e >> 4) * 4;
}

struct place {
    const float *x;
    float *y;
    int64_t first; /* row of the weight */
    int n;         /* rows of x */
    bool left_out;
};

template <int MANY> __device__ place place_of(const assay_packed_product &p)
{
    place at;
    int64_t head = p.ids ? 0 : blockIdx.z;
    at.left_out = false;
    if (p.ids) {
        int64_t pair = blockIdx.z;
        at.left_out = product_leaves_out(p, pair);
        at.first = p.first_row + (at.left_out ? 0 : p.ids[pair] * p.expert_rows);
        at.x = p.x + pair / p.per * p.x_stride;
        at.y = p.y + pair * p.y_stride;
        at.n = 1;
        return at;
    }
    int64_t t = blockIdx.y * static_cast<int64_t>(MANY);
    at.first = p.first_row + head * p.w_head;
    at.x = p.x + t * p.x_stride + head * p.x_head;
    at.y = p.y + t * p.y_stride + head * p.y_head;
    at.n = static_cast<int>(p.n - t < MANY ? p.n - t : MANY);
    return at;
}

/* Elements from ... to - 1 of all rows to shared memory; rows that are not there are zero. */
template <int MANY>
__device__ void stage(float *xs, const assay_packed_product &p, const place &at, int from, int n)
{
    constexpr int CHUNK = CHUNK_FLOATS / MANY;
    for (int i = threadIdx.x; i < MANY * n / 4; i += blockDim.x) {
        int t = i / (n / 4), e = i % (n / 4) * 4;
        float4 v = make_float4(0, 0, 0, 0);
        if (t < at.n)
            v = *reinterpret_cast<const float4 *>(at.x + t * p.x_stride + from + e);
        *reinterpret_cast<float4 *>(xs + t * padded(CHUNK) + padded(e)) = v;
    }
    __syncthreads();
}

/* The sum of every run of x, in the gap behind it: what a format's minimum is multiplied with. */
template <int MANY> __device__ void stage_sums(float *xs, int n)
{
    constexpr int CHUNK = CHUNK_FLOATS / MANY;
    for (int i = threadIdx.x; i < MANY * n / 16; i += blockDim.x) {
        float *run = xs + i / (n / 16) * padded(CHUNK) + i % (n / 16) * 20;
        float sum = 0;
#pragma unroll
        for (int k = 0; k < 16; k++)
            sum += run[k];
        run[16] = sum;
    }
    __syncthreads();
}

template <class U, int MANY, bool ROUNDED>
__device__ void add_unit(float *sum, const float *xs, const assay_packed &w,
                         const assay_packed_product &p, int64_t row, int u, int from)
{
    constexpr int CHUNK = CHUNK_FLOATS / MANY;
    float values[16 * U::RUNS];
    U::load(values, w, row, p.column, u);
#pragma unroll
    for (int i = 0; ROUNDED && i < 16 * U::RUNS; i++)
        values[i] = kernel_round_bf16(values[i]);
#pragma unroll
    for (int run = 0; run < U::RUNS; run++) {
        const float *x = xs + padded(U::start(run, u) - from);
#pragma unroll
        for (int t = 0; t < MANY; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float4 v = *reinterpret_cast<const float4 *>(x + t * padded(CHUNK) + 4 * i);
                const float *at = values + 16 * run + 4 * i;
                sum[t] = fmaf(at[0], v.x, sum[t]);
                sum[t] = fmaf(at[1], v.y, sum[t]);
                sum[t] = fmaf(at[2], v.z, sum[t]);
                sum[t] = fmaf(at[3], v.w, sum[t]);
            }
    }
}

/* The same without rounding: sums of codes first, then the scale of the run; ROWS rows of the
 * weight, WARPS apart, share what is read of x. */
template <class U, int MANY, int ROWS>
__device__ void add_exact(float (*sum)[MANY], const float *xs, const assay_packed &w,
                          const assay_packed_product &p, const int64_t *row, int u, int from)
{
    constexpr int CHUNK = CHUNK_FLOATS / MANY;
    typename U::raw raw[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        U::fetch(&raw[r], w, row[r], p.column, u);
#pragma unroll
    for (int run = 0; run < U::RUNS; run++) {
        const float *x = xs + padded(U::start(run, u) - from);
        float step[ROWS], below[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            U::scale(&step[r], &below[r], raw[r], run, u);
#pragma unroll
        for (int t = 0; t < MANY; t++) {
            float part[ROWS] = {0};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float4 v = *reinterpret_cast<const float4 *>(x + t * padded(CHUNK) + 4 * i);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    part[r] = fmaf(U::code(raw[r], run, 4 * i), v.x, part[r]);
                    part[r] = fmaf(U::code(raw[r], run, 4 * i + 1), v.y, part[r]);
                    part[r] = fmaf(U::code(raw[r], run, 4 * i + 2), v.z, part[r]);
                    part[r] = fmaf(U::code(raw[r], run, 4 * i + 3), v.w, part[r]);
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                sum[r][t] = fmaf(step[r], part[r], sum[r][t]);
                if (U::HAS_MIN)
                    sum[r][t] = fmaf(-below[r], x[t * padded(CHUNK) + 16], sum[r][t]);
            }
        }
    }
}

template <class U, int MANY, int ROWS, bool ROUNDED, int PER>
__device__ void add_chunk(float (*sum)[MANY], const float *xs, const assay_packed &w,
                          const assay_packed_product &p, const int64_t *row, int from, int n)
{
    int lane = threadIdx.x % PER;
#pragma unroll 2
    for (int u = from / U::ELEMENTS + lane; u < (from + n) / U::ELEMENTS; u += PER)
        if (ROUNDED)
            add_unit<U, MANY, ROUNDED>(sum[0], xs, w, p, row[0], u, from);
        else
            add_exact<U, MANY, ROWS>(sum, xs, w, p, row, u, from);
}

/* PER lanes to a row of the weight: fewer than a warp for narrow ones, with the same bits. */
template <class U, int MANY, int ROWS, bool ROUNDED, int PER = LANES>
__global__ void __launch_bounds__(LANES *WARPS, MANY == 1 ? 4 : 1)
    product_units(assay_packed_product p, assay_packed w)
{
    kernel_begin();
    constexpr int CHUNK = CHUNK_FLOATS / MANY;
    __shared__ __align__(16) float xs[CHUNK_FLOATS + CHUNK_FLOATS / 4];
    constexpr int GROUPS = WARPS * LANES / PER;
    int lane = threadIdx.x % PER, group = threadIdx.x / PER;
    int k = static_cast<int>(p.n_in);
    place at = place_of<MANY>(p);
    if (at.left_out)
        return;
    bool staged = false;
    for (int64_t out0 = blockIdx.x * static_cast<int64_t>(GROUPS * ROWS); out0 < p.n_out;
         out0 += gridDim.x * static_cast<int64_t>(GROUPS * ROWS)) {
        float sum[ROWS][MANY] = {{0}};
        int64_t row[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) { /* a row beyond the last is computed and thrown away */
            int64_t out = out0 + r * GROUPS + group;
            row[r] = at.first + (out < p.n_out ? out : p.n_out - 1);
        }
        for (int from = 0; from < k; from += CHUNK) {
            int n = k - from < CHUNK ? k - from : CHUNK;
            if (!staged || k > CHUNK) {
                __syncthreads();
                stage<MANY>(xs, p, at, from, n);
                if (U::HAS_MIN && !ROUNDED)
                    stage_sums<MANY>(xs, n);
                staged = true;
            }
            add_chunk<U, MANY, ROWS, ROUNDED, PER>(sum, xs, w, p, row, from, n);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int t = 0; t < MANY; t++) {
                int64_t out = out0 + r * GROUPS + group;
                float all = sum[r][t];
                for (int d = PER / 2; d > 0; d >>= 1)
                    all += __shfl_xor_sync(0xFFFFFFFFu, all, d);
                if (lane == 0 && t < at.n && out < p.n_out)
                    at.y[t * p.y_stride + out] = all;
            }
    }
}

/* Whole units of rows first ... as float32 or bfloat16; a thread writes what it decodes. */
template <class U>
__global__ void unpack_units(void *out, int64_t out_stride, assay_packed w, int64_t first,
                             int64_t column, int n_units, bool rounded, bool as_bf16)
{
    kernel_begin();
    int u = blockIdx.y * blockDim.x + threadIdx.x;
    int64_t row = blockIdx.x;
    float values[16 * U::RUNS];
    if (u >= n_units)
        return;
    U::load(values, w, first + row, column, u);
#pragma unroll
    for (int run = 0; run < U::RUNS; run++) {
        int64_t at = row * out_stride + U::start(run, u);
        float *v = values + 16 * run;
#pragma unroll
        for (int i = 0; rounded && i < 16; i++)
            v[i] = kernel_round_bf16(v[i]);
        if (!as_bf16) {
            float4 *to = reinterpret_cast<float4 *>(static_cast<float *>(out) + at);
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[i] = make_float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
            continue;
        }
        uint32_t pairs[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            pairs[i] =
                __float_as_uint(v[2 * i]) >> 16 | (__float_as_uint(v[2 * i + 1]) & 0xFFFF0000u);
        uint4 *to = reinterpret_cast<uint4 *>(static_cast<uint16_t *>(out) + at);
        to[0] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        to[1] = make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
    }
}

typedef void product_fn(assay_packed_product, assay_packed);
typedef void unpack_fn(void *, int64_t, assay_packed, int64_t, int64_t, int, bool, bool);

struct kernels {
    int number, elements; /* of a block; columns must be whole blocks */
    product_fn *of[4][2]; /* 1, 2, 4, 8 rows; exact, rounded */
    product_fn *two;      /* one row of x, two of the weight */
    product_fn *narrow;   /* one row of x, NARROW lanes to a row of the weight */
    unpack_fn *unpack;
};

#define BOTH(unit, many)                                                                           \
    {                                                                                              \
        product_units<unit, many, 1, false>, product_units<unit, many, 1, true>                    \
    }
#define ROW(number, elements, unit)                                                                \
    {                                                                                              \
        number, elements, {BOTH(unit, 1), BOTH(unit, 2), BOTH(unit, 4), BOTH(unit, 8)},            \
            product_units<unit, 1, 2, false>, product_units<unit, 1, 1, false, NARROW>,            \
            unpack_units<unit>                                                                     \
    }
static const kernels table[] = {
    ROW(0, 16, unit_F32),    ROW(1, 16, unit_F16),    ROW(6, 32, unit_Q5_0),
    ROW(8, 32, unit_Q8_0),   ROW(12, 256, unit_Q4_K), ROW(13, 256, unit_Q5_K),
    ROW(14, 256, unit_Q6_K), ROW(30, 16, unit_BF16),
};

/* Elements of a unit. */
static int unit_of(const kernels &k)
{
    return k.elements == 256 || k.number == 6 ? 32 : 16;
}

static bool fits(const kernels *k, const assay_packed_product *p)
{
    auto of_four = [](int64_t n) { return n % 4 == 0; };
    return k->number == p->w->type && !p->transposed && p->n_in % k->elements == 0 &&
           p->column % k->elements == 0 && p->w->width % k->elements == 0 && of_four(p->x_stride) &&
           of_four(p->x_head) && reinterpret_cast<uintptr_t>(p->x) % 16 == 0 && p->n_in < (1 << 24);
}

/* As many blocks as the device holds at once, each with the same number of rows. */
static unsigned blocks_of(int64_t n_out, int rows, unsigned others)
{
    unsigned all = kernel_blocks(n_out, WARPS * rows);
    unsigned most = RESIDENT / others > 0 ? RESIDENT / others : 1;
    unsigned rounds = (all + most - 1) / most;
    return (all + rounds - 1) / rounds;
}

extern "C" assay_status assay_device_product(void *stream, const assay_packed_product *p)
{
    if (linear_matrix_fits(p))
        return linear_matrix_product(stream, p);
    for (const kernels &k : table) {
        if (!fits(&k, p))
            continue;
        int which = p->ids || p->n == 1 ? 0 : p->n == 2 ? 1 : p->n <= 4 ? 2 : 3;
        unsigned others = p->ids          ? static_cast<unsigned>(p->n)
                          : p->n_head > 1 ? static_cast<unsigned>(p->n_head)
                                          : 1;
        bool one = which == 0 && !p->rounded, narrow = one && p->n_in <= NARROW * unit_of(k);
        bool two = one && !narrow && p->n_out * others >= RESIDENT * 2 * WARPS;
        dim3 grid(blocks_of(p->n_out,
                            narrow ? LANES / NARROW
                            : two  ? 2
                                   : 1,
                            others),
                  p->ids ? 1 : kernel_blocks(p->n, 1 << which), others);
        product_fn *f = narrow ? k.narrow : two ? k.two : k.of[which][p->rounded];
        return kernel_launch("product", stream, f, grid, LANES * WARPS, 0, *p, *p->w);
    }
    return assay_device_product_any(stream, p);
}

extern "C" assay_status assay_device_unpack_wide(bool *done, void *stream, void *out,
                                                 int64_t out_stride, const assay_packed *w,
                                                 int64_t first, int64_t n, int64_t column,
                                                 int64_t n_columns, bool rounded, bool as_bf16)
{
    *done = false;
    for (const kernels &k : table) {
        int elements = unit_of(k);
        if (k.number != w->type || n_columns % k.elements || column % k.elements ||
            w->width % k.elements || out_stride % 16 || reinterpret_cast<uintptr_t>(out) % 16)
            continue;
        int n_units = static_cast<int>(n_columns / elements);
        dim3 grid(static_cast<unsigned>(n), kernel_blocks(n_units, 128));
        *done = true;
        return kernel_launch("decode", stream, k.unpack, grid, 128, 0, out, out_stride, *w, first,
                             column, n_units, rounded, as_bf16);
    }
    return ASSAY_OK;
}

static __global__ void add_bias(assay_rows y, const float *b)
{
    kernel_begin();
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < y.n * y.width)
        y.at[i / y.width * y.stride + i % y.width] += b[i % y.width];
}

extern "C" assay_status assay_device_bias(void *stream, assay_rows y, const float *b)
{
    return kernel_launch("bias", stream, add_bias, kernel_blocks(y.n * y.width, 256), 256, 0, y, b);
}

static __global__ void move_rows(assay_rows to, assay_rows from, const int32_t *index, bool gather)
{
    kernel_begin();
    int64_t row = blockIdx.x;
    const float *x = from.at + (gather ? index[row] : row) * from.stride;
    float *y = to.at + (gather ? row : index[row]) * to.stride;
    for (int64_t i = threadIdx.x; i < to.width; i += blockDim.x)
        y[i] = x[i];
}

extern "C" assay_status assay_device_gather(void *stream, assay_rows to, assay_rows from,
                                            const int32_t *index)
{
    return kernel_launch("gather", stream, move_rows, static_cast<unsigned>(to.n), 256, 0, to, from,
                         index, true);
}

extern "C" assay_status assay_device_scatter(void *stream, assay_rows to, assay_rows from,
                                             const int32_t *index)
{
    return kernel_launch("scatter", stream, move_rows, static_cast<unsigned>(from.n), 256, 0, to,
                         from, index, false);
}
