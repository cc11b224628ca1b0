#include "engine/ops/linear.h"

#include <cblas.h>
#include <limits.h>

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
    product(y, x, w, w_stride, add, CblasTrans);
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
