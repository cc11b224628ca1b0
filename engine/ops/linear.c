#include "engine/ops/linear.h"

#include <string.h>

#include "engine/base/wide.h"

#define LANES 16
#define MANY (1 << 18) /* multiplications from which on threads pay */

enum {
    TILE_X =
        4, /* rows of x, where there are 32 vector registers; rows of w: so many sums at once */
    TILE_X_16 = 2, /* where there are 16 */
    TILE_W = 4,
    BLOCK_X = 64, /* rows of x that stay in the cache while a block of weights passes */
    BLOCK_W = 32,
    WIDTH_T = 4 * LANES /* columns of a thread where the weight lies the other way */
};

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef float half __attribute__((vector_size(LANES / 2 * sizeof(float))));
typedef float quarter __attribute__((vector_size(LANES / 4 * sizeof(float))));

#define INLINE static inline __attribute__((always_inline))

/* Element i + n on i, n = 8, 4, 2, 1. */
INLINE float sum_of(const lanes *v)
{
    half a, b;
    quarter c, d;
    memcpy(&a, v, sizeof a);
    memcpy(&b, (const char *)v + sizeof a, sizeof b);
    a += b;
    memcpy(&c, &a, sizeof c);
    memcpy(&d, (const char *)&a + sizeof c, sizeof d);
    c += d;
    return (c[0] + c[2]) + (c[1] + c[3]);
}

/* n values, and zeros behind them. */
INLINE void rest_of(lanes *out, const float *x, int64_t n)
{
    float values[LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        values[i] = x[i];
    memcpy(out, values, sizeof *out);
}

/* Dot products of n_x rows of x with n_w rows of w, both constants where this is inlined. */
INLINE void tile(const int n_x, const int n_w, float *y, int64_t y_stride, const float *x,
                 int64_t x_stride, const float *w, int64_t w_stride, int64_t k, bool add)
{
    lanes sum[TILE_X * TILE_W], a[TILE_X], b;
    int64_t i = 0;
#pragma GCC unroll 16
    for (int j = 0; j < n_x * n_w; j++)
        sum[j] = (lanes){0};
    for (; i + LANES <= k; i += LANES) {
#pragma GCC unroll 4
        for (int t = 0; t < n_x; t++)
            memcpy(&a[t], x + t * x_stride + i, sizeof a[t]);
#pragma GCC unroll 4
        for (int j = 0; j < n_w; j++) {
            memcpy(&b, w + j * w_stride + i, sizeof b);
#pragma GCC unroll 4
            for (int t = 0; t < n_x; t++)
                sum[t * n_w + j] += a[t] * b;
        }
    }
    if (i < k) {
        lanes c, d;
#pragma GCC unroll 4
        for (int t = 0; t < n_x; t++) {
            rest_of(&c, x + t * x_stride + i, k - i);
#pragma GCC unroll 4
            for (int j = 0; j < n_w; j++) {
                rest_of(&d, w + j * w_stride + i, k - i);
                sum[t * n_w + j] += c * d;
            }
        }
    }
#pragma GCC unroll 4
    for (int t = 0; t < n_x; t++)
#pragma GCC unroll 4
        for (int j = 0; j < n_w; j++) {
            float *out = y + t * y_stride + j, dot = sum_of(&sum[t * n_w + j]);
            *out = add ? *out + dot : dot;
        }
}

/* TILE_W rows of w stay in the nearest cache while x passes. */
INLINE void block(const int n_x, assay_rows y, assay_rows x, const float *w, int64_t w_stride,
                  bool add)
{
#define TILE(rows, columns)                                                                        \
    tile(rows, columns, y.at + t * y.stride + j, y.stride, x.at + t * x.stride, x.stride,          \
         w + j * w_stride, w_stride, x.width, add)
    int64_t j = 0, t;
    for (; j + TILE_W <= y.width; j += TILE_W) {
        for (t = 0; t + n_x <= y.n; t += n_x)
            TILE(n_x, TILE_W);
        for (; n_x > 2 && t + 2 <= y.n; t += 2)
            TILE(2, TILE_W);
        for (; t < y.n; t++)
            TILE(1, TILE_W);
    }
    for (; j < y.width; j++)
        for (t = 0; t < y.n; t++)
            TILE(1, 1);
#undef TILE
}

typedef void block_fn(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add);

ASSAY_WIDEST static void block_16(assay_rows y, assay_rows x, const float *w, int64_t w_stride,
                                  bool add)
{
    block(TILE_X_16, y, x, w, w_stride, add);
}

#ifdef ASSAY_HAS_TARGETS
__attribute__((target("avx512f"))) static void block_32(assay_rows y, assay_rows x, const float *w,
                                                        int64_t w_stride, bool add)
{
    block(TILE_X, y, x, w, w_stride, add);
}

static block_fn *best_block(void)
{
    return __builtin_cpu_supports("avx512f") ? block_32 : block_16;
}
#else
static block_fn *best_block(void)
{
    return block_16;
}
#endif

static assay_rows rows_of(assay_rows x, int64_t first, int64_t n)
{
    return (assay_rows){x.at + first * x.stride, n, x.width, x.stride};
}

void assay_op_linear_alone(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add)
{
    ASSAY_BUG_IF(y.n != x.n);
    block_fn *multiply = best_block();
    for (int64_t t = 0; t < y.n; t += BLOCK_X) {
        int64_t rows = y.n - t < BLOCK_X ? y.n - t : BLOCK_X;
        multiply(rows_of(y, t, rows), rows_of(x, t, rows), w, w_stride, add);
    }
}

/* Not worth a team: one of a single thread, too, ends with a call of the kernel. */
static bool is_small(assay_rows y, assay_rows x)
{
    return y.n * y.width * x.width <= MANY;
}

void assay_op_linear(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add)
{
    ASSAY_BUG_IF(y.n != x.n);
    if (is_small(y, x)) {
        assay_op_linear_alone(y, x, w, w_stride, add);
        return;
    }
    int64_t n_w = (y.width + BLOCK_W - 1) / BLOCK_W, n_x = (y.n + BLOCK_X - 1) / BLOCK_X;
    block_fn *multiply = best_block();
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t bx = 0; bx < n_x; bx++)
        for (int64_t bw = 0; bw < n_w; bw++) {
            int64_t t = bx * BLOCK_X, j = bw * BLOCK_W;
            int64_t rows = y.n - t < BLOCK_X ? y.n - t : BLOCK_X;
            int64_t columns = y.width - j < BLOCK_W ? y.width - j : BLOCK_W;
            multiply(assay_rows_columns(rows_of(y, t, rows), j, columns), rows_of(x, t, rows),
                     w + j * w_stride, w_stride, add);
        }
}

/* One row and LANES columns: the partial sums of LANES dot products lie side by side. */
INLINE void tile_t(float *y, const float *x, const float *w, int64_t w_stride, int64_t k, bool add)
{
    lanes sum[LANES], b;
    int64_t i = 0;
#pragma GCC unroll 16
    for (int r = 0; r < LANES; r++)
        sum[r] = (lanes){0};
    for (; i + LANES <= k; i += LANES)
#pragma GCC unroll 16
        for (int r = 0; r < LANES; r++) {
            memcpy(&b, w + (i + r) * w_stride, sizeof b);
            sum[r] += x[i + r] * b;
        }
#pragma GCC unroll 16
    for (int r = 0; r < LANES; r++)
        if (i + r < k) {
            memcpy(&b, w + (i + r) * w_stride, sizeof b);
            sum[r] += x[i + r] * b;
        }
#pragma GCC unroll 4
    for (int n = LANES / 2; n > 0; n /= 2)
#pragma GCC unroll 8
        for (int r = 0; r < n; r++)
            sum[r] += sum[r + n];
    lanes dot = sum[0];
    memcpy(&b, y, sizeof b);
    dot = add ? b + dot : dot;
    memcpy(y, &dot, sizeof dot);
}

static float one_column(const float *x, const float *w, int64_t w_stride, int64_t k)
{
    float sum[LANES] = {0};
    for (int64_t i = 0; i < k; i++)
        sum[i % LANES] += x[i] * w[i * w_stride];
    for (int n = LANES / 2; n > 0; n /= 2)
        for (int r = 0; r < n; r++)
            sum[r] += sum[r + n];
    return sum[0];
}

ASSAY_WIDEST static void columns_t(assay_rows y, assay_rows x, const float *w, int64_t w_stride,
                                   bool add)
{
    int64_t j = 0;
    for (; j + LANES <= y.width; j += LANES)
        for (int64_t t = 0; t < y.n; t++)
            tile_t(y.at + t * y.stride + j, x.at + t * x.stride, w + j, w_stride, x.width, add);
    for (; j < y.width; j++)
        for (int64_t t = 0; t < y.n; t++) {
            float *out = y.at + t * y.stride + j,
                  dot = one_column(x.at + t * x.stride, w + j, w_stride, x.width);
            *out = add ? *out + dot : dot;
        }
}

void assay_op_linear_t(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add)
{
    ASSAY_BUG_IF(y.n != x.n);
    if (is_small(y, x)) {
        columns_t(y, x, w, w_stride, add);
        return;
    }
    int64_t n_w = (y.width + WIDTH_T - 1) / WIDTH_T, n_x = (y.n + BLOCK_X - 1) / BLOCK_X;
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t bx = 0; bx < n_x; bx++)
        for (int64_t bw = 0; bw < n_w; bw++) {
            int64_t t = bx * BLOCK_X, j = bw * WIDTH_T;
            int64_t rows = y.n - t < BLOCK_X ? y.n - t : BLOCK_X;
            int64_t columns = y.width - j < WIDTH_T ? y.width - j : WIDTH_T;
            columns_t(assay_rows_columns(rows_of(y, t, rows), j, columns), rows_of(x, t, rows),
                      w + j, w_stride, add);
        }
}

/* y += sum_k x[k] w row k, in the order of k; rows whose factor is zero are not touched. */
ASSAY_WIDEST static void add_rows(float *restrict y, const float *x, const float *w,
                                  int64_t w_stride, int64_t n, int64_t k)
{
    for (int64_t j = 0; j < k; j++) {
        const float *restrict row = w + j * w_stride;
        if (x[j] != 0)
            for (int64_t i = 0; i < n; i++)
                y[i] += x[j] * row[i];
    }
}

static void add_rows_of(assay_rows y, assay_rows x, const float *w, int64_t w_stride, int64_t t,
                        bool add)
{
    if (!add)
        memset(y.at + t * y.stride, 0, (size_t)y.width * sizeof *y.at);
    add_rows(y.at + t * y.stride, x.at + t * x.stride, w, w_stride, y.width, x.width);
}

void assay_op_linear_t_steady(assay_rows y, assay_rows x, const float *w, int64_t w_stride,
                              bool add)
{
    ASSAY_BUG_IF(y.n != x.n);
    if (is_small(y, x)) {
        for (int64_t t = 0; t < y.n; t++)
            add_rows_of(y, x, w, w_stride, t, add);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < y.n; t++)
        add_rows_of(y, x, w, w_stride, t, add);
}

void assay_op_bias(assay_rows y, const float *b)
{
    for (int64_t t = 0; t < y.n; t++)
        for (int64_t i = 0; i < y.width; i++)
            y.at[t * y.stride + i] += b[i];
}
