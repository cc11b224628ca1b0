#include "engine/ops/pointwise.h"

#include <math.h>

#include "engine/base/number.h"

void assay_op_swiglu(assay_rows y, assay_rows gate, assay_rows up)
{
    ASSAY_BUG_IF(y.n != gate.n || y.n != up.n || y.width != gate.width || y.width != up.width);
    for (int64_t t = 0; t < y.n; t++)
        for (int64_t i = 0; i < y.width; i++) {
            float z = gate.at[t * gate.stride + i];
            y.at[t * y.stride + i] = z / (1.0f + expf(-z)) * up.at[t * up.stride + i];
        }
}

void assay_op_geglu(assay_rows y, assay_rows gate, assay_rows up)
{
    ASSAY_BUG_IF(y.n != gate.n || y.n != up.n || y.width != gate.width || y.width != up.width);
    for (int64_t t = 0; t < y.n; t++)
        for (int64_t i = 0; i < y.width; i++) {
            float z = gate.at[t * gate.stride + i];
            y.at[t * y.stride + i] =
                0.5f * z * (1.0f + erff(z * 0.70710678f)) * up.at[t * up.stride + i];
        }
}

void assay_op_scale(assay_rows y, double factor)
{
    for (int64_t t = 0; t < y.n && factor != 1; t++)
        for (int64_t i = 0; i < y.width; i++)
            y.at[t * y.stride + i] *= (float)factor;
}

void assay_op_cap(assay_rows y, double cap)
{
    for (int64_t t = 0; t < y.n && cap > 0; t++)
        for (int64_t i = 0; i < y.width; i++)
            y.at[t * y.stride + i] = (float)cap * tanhf(y.at[t * y.stride + i] / (float)cap);
}

void assay_op_add_times(assay_rows y, assay_rows a, assay_rows b, double times)
{
    ASSAY_BUG_IF(y.n != a.n || y.n != b.n || y.width != a.width || y.width != b.width);
    for (int64_t t = 0; t < y.n; t++)
        for (int64_t i = 0; i < y.width; i++)
            y.at[t * y.stride + i] = a.at[t * a.stride + i] + (float)times * b.at[t * b.stride + i];
}

void assay_op_add(assay_rows y, assay_rows a, assay_rows b)
{
    assay_op_add_times(y, a, b, 1);
}

int32_t assay_op_greedy(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i])))
            best = i;
    return (int32_t)best;
}

void assay_op_round_bf16(assay_rows y)
{
    for (int64_t t = 0; t < y.n; t++)
        for (int64_t i = 0; i < y.width; i++)
            y.at[t * y.stride + i] = assay_bf16_to_f32(assay_f32_to_bf16(y.at[t * y.stride + i]));
}
