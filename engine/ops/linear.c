#include "engine/ops/linear.h"

#include <cblas.h>
#include <limits.h>
#include <string.h>

#define LANES 16
#define MANY (1 << 18) /* multiplications from which on threads pay */

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

static inline float sum_of(const lanes *v)
{
    float s[LANES];
    memcpy(s, v, sizeof s);
    for (int n = LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            s[i] += s[i + n];
    return s[0];
}

/* out[j] = dot(x, w row j): rows w_stride apart, n_out of them. No contraction, so all versions
 * give the same bits. */
WIDEST static void dots(float *out, const float *x, const float *w, int64_t w_stride, int64_t n_out,
                        int64_t k, bool add)
{
    for (int64_t j = 0; j < n_out; j++) {
        const float *row = w + j * w_stride;
        lanes sum = {0}, a, b;
        int64_t i = 0;
        for (; i + LANES <= k; i += LANES) {
            memcpy(&a, x + i, sizeof a);
            memcpy(&b, row + i, sizeof b);
            sum += a * b;
        }
        if (i < k) {
            size_t rest = (size_t)(k - i) * sizeof *x;
            a = b = (lanes){0};
            memcpy(&a, x + i, rest);
            memcpy(&b, row + i, rest);
            sum += a * b;
        }
        float dot = sum_of(&sum);
        out[j] = add ? out[j] + dot : dot;
    }
}

static void narrow(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add)
{
    enum { BLOCK = 32 }; /* weight rows that stay in the cache while all rows of x pass */
#pragma omp parallel for schedule(static) if (y.n * y.width * x.width > MANY)
    for (int64_t first = 0; first < y.width; first += BLOCK) {
        int64_t n = y.width - first < BLOCK ? y.width - first : BLOCK;
        for (int64_t t = 0; t < y.n; t++)
            dots(y.at + t * y.stride + first, x.at + t * x.stride, w + first * w_stride, w_stride,
                 n, x.width, add);
    }
}

static void product(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add,
                    CBLAS_TRANSPOSE side)
{
    if (y.n == 0 || y.width == 0)
        return;
    ASSAY_BUG_IF(y.n != x.n || x.width < 1);
    ASSAY_BUG_IF(y.n > INT_MAX || y.width > INT_MAX || x.width > INT_MAX || x.stride > INT_MAX ||
                 y.stride > INT_MAX || w_stride > INT_MAX);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, side, (int)y.n, (int)y.width, (int)x.width, 1.0f, x.at,
                (int)x.stride, w, (int)w_stride, add ? 1.0f : 0.0f, y.at, (int)y.stride);
}

void assay_op_linear(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add)
{
    ASSAY_BUG_IF(y.n != x.n);
    if (y.n <= ASSAY_NARROW)
        narrow(y, x, w, w_stride, add);
    else
        product(y, x, w, w_stride, add, CblasTrans);
}

void assay_op_linear_steady(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add)
{
    ASSAY_BUG_IF(y.n != x.n);
    narrow(y, x, w, w_stride, add);
}

/* y += sum_k x[k] w row k, in the order of k; rows whose factor is zero are not touched. */
WIDEST static void add_rows(float *restrict y, const float *x, const float *w, int64_t w_stride,
                            int64_t n, int64_t k)
{
    for (int64_t j = 0; j < k; j++) {
        const float *restrict row = w + j * w_stride;
        if (x[j] != 0)
            for (int64_t i = 0; i < n; i++)
                y[i] += x[j] * row[i];
    }
}

void assay_op_linear_t_steady(assay_rows y, assay_rows x, const float *w, int64_t w_stride,
                              bool add)
{
    ASSAY_BUG_IF(y.n != x.n);
#pragma omp parallel for schedule(static) if (y.n * y.width * x.width > MANY)
    for (int64_t t = 0; t < y.n; t++) {
        if (!add)
            memset(y.at + t * y.stride, 0, (size_t)y.width * sizeof *y.at);
        add_rows(y.at + t * y.stride, x.at + t * x.stride, w, w_stride, y.width, x.width);
    }
}

void assay_op_linear_t(assay_rows y, assay_rows x, const float *w, int64_t w_stride, bool add)
{
    product(y, x, w, w_stride, add, CblasNoTrans);
}

void assay_op_bias(assay_rows y, const float *b)
{
    for (int64_t t = 0; t < y.n; t++)
        for (int64_t i = 0; i < y.width; i++)
            y.at[t * y.stride + i] += b[i];
}
