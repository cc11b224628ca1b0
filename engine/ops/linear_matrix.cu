/*
 * Products of few rows with Q4_K on the matrix units, exact as those of linear.cu: the codes less 8
 * are small whole numbers, so bfloat16 holds them; a float32 x is the sum of three bfloat16 pieces
 * (eight bits of its mantissa each), which are three columns of the other operand. Their products
 * are exact, and no more than 32 of them are summed by a matrix unit before the run's scale is
 * applied in float32.
 *
 * A block of 8 warps takes 16 rows of the weight; warp i takes blocks i, i + 8, ... of each row.
 * Lane (g, q) = (lane / 4, lane % 4) holds 8 bytes of row g and of row g + 8: bytes 8q ... 8q + 7
 * of a pair of runs, low nibbles for the first run, high ones for the second. The order of elements
 * within a run is free as long as both operands have the same: 0 2 1 3 4 6 5 7 of a lane's eight,
 * as masks and shifts of a word give them.
 *
 * Order of summation of one output: pieces, blocks of a warp, the four lanes, then warps in order.
 * It depends on the weight's width alone.
 */
#include <cuda_bf16.h>

#include "engine/ops/linear_matrix.cuh"
#include "engine/ops/product_pairs.cuh"
#include "engine/ops/units.cuh"

#define WARPS 8
#define THREADS (32 * WARPS)
#define TILE 16 /* rows of the weight that a block takes at once */
#define PIECES 3
#define BLOCK 256 /* elements of a block of Q4_K */
#define BLOCK_BYTES 144
#define RUN 32
#define PER_SM 2
#define SMS 132 /* of a large device */
#define MOST_SHARED (200 * 1024)

/* Shared memory: pieces of x, sums of its runs, and two tiles' sums of each warp. */
template <int MANY> struct staged_layout {
    int k;
    __host__ __device__ size_t piece_bytes() const /* half of them start 64 bytes further */
    {
        return static_cast<size_t>(k) * 2 + 64;
    }
    __host__ __device__ size_t sums_at() const
    {
        return PIECES * MANY * piece_bytes();
    }
    __host__ __device__ size_t totals_at() const
    {
        return sums_at() + static_cast<size_t>(MANY * (k / RUN)) * sizeof(float);
    }
    __host__ __device__ size_t bytes() const
    {
        return totals_at() + sizeof(float) * 2 * WARPS * TILE * MANY;
    }
};

/* The next eight bits of what is left of x, as bfloat16 bits; NaN stays NaN, infinity infinity. */
static __device__ __forceinline__ uint32_t next_piece(float *left)
{
    uint32_t bits = __float_as_uint(*left), top = bits & 0xFFFF0000u;
    if ((bits & 0x7F800000u) == 0x7F800000u) {
        *left = 0;
        return (isnan(__uint_as_float(bits)) ? top | 0x400000u : top) >> 16;
    }
    *left -= __uint_as_float(top);
    return top >> 16;
}

/* Eight elements of a row of x: three times 16 bytes, and their sum. */
static __device__ float stage_eight(char *to, size_t piece_bytes, const float *x)
{
    float4 a = *reinterpret_cast<const float4 *>(x);
    float4 b = *reinterpret_cast<const float4 *>(x + 4);
    float left[8] = {a.x, a.z, a.y, a.w, b.x, b.z, b.y, b.w};
    float sum = ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t low = next_piece(&left[2 * i]);
            words[i] = low | next_piece(&left[2 * i + 1]) << 16;
        }
        *reinterpret_cast<uint4 *>(to + piece * piece_bytes) =
            make_uint4(words[0], words[1], words[2], words[3]);
    }
    return sum;
}

template <int MANY>
static __device__ void stage(char *shared, const staged_layout<MANY> &at, const float *x,
                             int64_t x_stride, int n)
{
    float *sums = reinterpret_cast<float *>(shared + at.sums_at());
    int eights = at.k / 8;
    for (int i = threadIdx.x; i < MANY * eights; i += THREADS) {
        int t = i / eights, e = i % eights; /* whole warps: k is a multiple of 256 */
        char *to = shared + static_cast<size_t>(t * PIECES) * at.piece_bytes() + 16 * e;
        float sum = 0;
        if (t < n)
            sum = stage_eight(to, at.piece_bytes(), x + t * x_stride + 8 * e);
        else
            for (int piece = 0; piece < PIECES; piece++)
                *reinterpret_cast<uint4 *>(to + piece * at.piece_bytes()) = make_uint4(0, 0, 0, 0);
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
        if (e % 4 == 0)
            sums[t * (at.k / RUN) + e / 4] = sum;
    }
    __syncthreads();
}

/* What a lane holds of one block of rows g and g + 8. */
struct held {
    uint4 header[2];
    uint2 codes[2][4];
};

static __device__ __forceinline__ void fetch(held *h, const uint8_t *const *rows, int block)
{
    int q = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const uint8_t *b = rows[r] + static_cast<int64_t>(block) * BLOCK_BYTES;
        h->header[r] = __ldg(reinterpret_cast<const uint4 *>(b));
#pragma unroll
        for (int pair = 0; pair < 4; pair++)
            h->codes[r][pair] = __ldg(reinterpret_cast<const uint2 *>(b + 16 + 32 * pair + 8 * q));
    }
}

/* Nibbles at bits 0 and 16 of a word as two bfloat16 numbers, less 8: 128 + c is exact. */
static __device__ __forceinline__ uint32_t codes_of(uint32_t word)
{
    uint32_t bits, middle = 0x43084308u;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" /* (a & b) | c */
        : "=r"(bits)
        : "r"(word), "r"(0x000F000Fu), "r"(0x43004300u));
    __nv_bfloat162 a, b;
    memcpy(&a, &bits, sizeof a);
    memcpy(&b, &middle, sizeof b);
    a = __hsub2(a, b);
    memcpy(&bits, &a, sizeof bits);
    return bits;
}

static __device__ __forceinline__ void multiply(float *c, uint32_t a0, uint32_t a1, uint32_t a2,
                                                uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* One run of 32: sum over its pieces, for rows g and g + 8. */
static __device__ __forceinline__ void add_run(float *sum, const float *step, uint2 first,
                                               uint2 second, int shift, uint4 x)
{
    float c[4] = {0, 0, 0, 0};
    multiply(c, codes_of(first.x >> shift), codes_of(second.x >> shift),
             codes_of(first.x >> (shift + 8)), codes_of(second.x >> (shift + 8)), x.x, x.y);
    multiply(c, codes_of(first.y >> shift), codes_of(second.y >> shift),
             codes_of(first.y >> (shift + 8)), codes_of(second.y >> (shift + 8)), x.z, x.w);
    sum[0] = fmaf(step[0], c[0] + c[1], sum[0]);
    sum[1] = fmaf(step[1], c[2] + c[3], sum[1]);
}

/* Sums of a lane for rows g and g + 8: of its columns of pieces, and what is below each row of x.
 */
template <int MANY> struct lane_sums {
    float sum[2], below[2][MANY];
};

template <int MANY>
static __device__ __forceinline__ void add_block(lane_sums<MANY> *t, const held &h,
                                                 const char *shared, const staged_layout<MANY> &at,
                                                 int block)
{
    int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const float *sums = reinterpret_cast<const float *>(shared + at.sums_at()) + block * 8 + 2 * q;
    bool has_piece = g % 4 < PIECES && g / 4 < MANY;
    const char *x = shared + static_cast<size_t>(g / 4 * PIECES + g % 4) * at.piece_bytes() +
                    block * BLOCK * 2 + 16 * q;
    float step[2][2];
#pragma unroll
    for (int r = 0; r < 2; r++) /* lane q makes the scales of pair q */
#pragma unroll
        for (int run = 0; run < 2; run++) {
            float below;
            unit_scale_min(&step[run][r], &below, h.header[r], 2 * q + run);
            below = fmaf(-8.0f, step[run][r], below);
#pragma unroll
            for (int n = 0; n < MANY; n++)
                t->below[r][n] = fmaf(below, sums[n * (at.k / RUN) + run], t->below[r][n]);
        }
#pragma unroll
    for (int pair = 0; pair < 4; pair++)
#pragma unroll
        for (int run = 0; run < 2; run++) {
            uint4 piece = make_uint4(0, 0, 0, 0);
            float scale[2];
            if (has_piece)
                piece = *reinterpret_cast<const uint4 *>(x + (2 * pair + run) * RUN * 2);
#pragma unroll
            for (int r = 0; r < 2; r++)
                scale[r] = __shfl_sync(0xFFFFFFFFu, step[run][r], (lane & ~3) | pair);
            add_run(t->sum, scale, h.codes[0][pair], h.codes[1][pair], 4 * run, piece);
        }
}

/* Sums of one warp to shared memory: total[row of the tile][row of x]. */
template <int MANY> static __device__ void put(float *total, lane_sums<MANY> *t)
{
    int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = t->sum[r] + __shfl_xor_sync(0xFFFFFFFFu, t->sum[r], 1);
#pragma unroll
        for (int n = 0; n < MANY; n++) {
            float below = t->below[r][n];
            below += __shfl_xor_sync(0xFFFFFFFFu, below, 1);
            below += __shfl_xor_sync(0xFFFFFFFFu, below, 2);
            if (q == 2 * n)
                total[(g + 8 * r) * MANY + n] = sum - below;
        }
    }
}

/* Which rows of which operands a block works on. */
struct operands {
    const float *x;
    float *y;
    int64_t first;
    int n;
};

template <int MANY>
static __device__ bool operands_of(operands *at, const assay_packed_product &p, int group)
{
    if (p.ids) {
        int64_t pair = blockIdx.z;
        if (product_leaves_out(p, pair))
            return false;
        *at = {p.x + pair / p.per * p.x_stride, p.y + pair * p.y_stride,
               p.first_row + p.ids[pair] * p.expert_rows, 1};
        return true;
    }
    int64_t head = blockIdx.z, t = group * static_cast<int64_t>(MANY);
    *at = {p.x + t * p.x_stride + head * p.x_head, p.y + t * p.y_stride + head * p.y_head,
           p.first_row + head * p.w_head, static_cast<int>(p.n - t < MANY ? p.n - t : MANY)};
    return true;
}

/* Rows g and g + 8 of the tile; a row beyond the last is computed and thrown away. */
static __device__ __forceinline__ void rows_of(const uint8_t **rows, const assay_packed_product &p,
                                               const assay_packed &w, int64_t first, int64_t out0)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int64_t out = out0 + threadIdx.x % 32 / 4 + 8 * r;
        rows[r] = static_cast<const uint8_t *>(w.data) +
                  (first + (out < p.n_out ? out : p.n_out - 1)) * w.row_bytes +
                  p.column / BLOCK * BLOCK_BYTES;
    }
}

/* Weights are no kernel's output, so the first of them are under way before kernel_begin(). */
template <int MANY>
static __global__ void __launch_bounds__(THREADS, PER_SM)
    product_q4_k(assay_packed_product p, assay_packed w, int n_groups)
{
    extern __shared__ __align__(16) char shared[];
    staged_layout<MANY> at = {static_cast<int>(p.n_in)};
    int warp = threadIdx.x / 32, n_blocks = at.k / BLOCK;
    int group = static_cast<int>(blockIdx.x) % n_groups;
    int64_t out0 = static_cast<int64_t>(blockIdx.x / n_groups) * TILE;
    int64_t stride = static_cast<int64_t>(gridDim.x / n_groups) * TILE;
    float *totals = reinterpret_cast<float *>(shared + at.totals_at());
    const uint8_t *rows[2];
    operands where;
    held now, next;
    bool known = !p.ids && operands_of<MANY>(&where, p, group);
    if (known && warp < n_blocks) {
        rows_of(rows, p, w, where.first, out0);
        fetch(&next, rows, warp);
    }
    kernel_begin();
    if (!known) {
        if (!operands_of<MANY>(&where, p, group))
            return;
        rows_of(rows, p, w, where.first, out0);
        if (warp < n_blocks)
            fetch(&next, rows, warp);
    }
    stage<MANY>(shared, at, where.x, p.x_stride, where.n);
    for (int turn = 0; out0 < p.n_out; out0 += stride, turn ^= 1) {
        float *total = totals + turn * (WARPS * TILE * MANY);
        lane_sums<MANY> t = {};
        for (int block = warp; block < n_blocks; block += WARPS) {
            now = next;
            int following = block + WARPS;
            if (following >= n_blocks) {
                following = warp;
                rows_of(rows, p, w, where.first, out0 + stride);
            }
            fetch(&next, rows, following);
            add_block<MANY>(&t, now, shared, at, block);
        }
        put<MANY>(total + warp * (TILE * MANY), &t);
        __syncthreads();
        int r = threadIdx.x / MANY, n = threadIdx.x % MANY;
        if (r < TILE && n < where.n && out0 + r < p.n_out) {
            float sum = total[threadIdx.x];
            for (int i = 1; i < WARPS; i++)
                sum += total[i * (TILE * MANY) + threadIdx.x];
            where.y[n * p.y_stride + out0 + r] = sum;
        }
    }
}

bool linear_matrix_fits(const assay_packed_product *p)
{
    auto of_four = [](int64_t n) { return n % 4 == 0; };
    return p->w->type == 12 && !p->transposed && !p->rounded && p->n_in >= BLOCK &&
           p->n_in % BLOCK == 0 && p->column % BLOCK == 0 && p->w->width % BLOCK == 0 &&
           of_four(p->x_stride) && of_four(p->x_head) &&
           reinterpret_cast<uintptr_t>(p->x) % 16 == 0 &&
           staged_layout<2>{static_cast<int>(p->n_in)}.bytes() <= MOST_SHARED;
}

template <int MANY> static assay_status launch(void *stream, const assay_packed_product *p)
{
    size_t bytes = staged_layout<MANY>{static_cast<int>(p->n_in)}.bytes();
    int n_groups = p->ids ? 1 : static_cast<int>(kernel_blocks(p->n, MANY));
    unsigned others = p->ids          ? static_cast<unsigned>(p->n)
                      : p->n_head > 1 ? static_cast<unsigned>(p->n_head)
                                      : 1;
    unsigned tiles = kernel_blocks(p->n_out, TILE);
    unsigned most = SMS * PER_SM / (others * static_cast<unsigned>(n_groups));
    unsigned rounds = most ? (tiles + most - 1) / most : tiles;
    unsigned blocks = (tiles + rounds - 1) / rounds;
    /* The same for every launch: ranks that share a device would take room from each other's. */
    cudaFuncSetAttribute(product_q4_k<MANY>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         MOST_SHARED);
    return kernel_launch("product", stream, product_q4_k<MANY>,
                         dim3(blocks * static_cast<unsigned>(n_groups), 1, others), THREADS, bytes,
                         *p, *p->w, n_groups);
}

assay_status linear_matrix_product(void *stream, const assay_packed_product *p)
{
    return p->ids || p->n == 1 ? launch<1>(stream, p) : launch<2>(stream, p);
}
