#include "engine/ops/norm.h"

#include <math.h>
#include <string.h>

static void copy(float *y, const float *x, int64_t n)
{
    memmove(y, x, (size_t)n * sizeof *y);
}

static float weight_at(const float *w, int64_t i, const assay_norm *how)
{
    return how->no_weight ? 1.0f : w[i] + (float)how->weight_offset;
}

void assay_op_rmsnorm(assay_rows y, assay_rows x, const float *w, const assay_norm *how)
{
    ASSAY_BUG_IF(y.n != x.n || y.width != x.width);
    for (int64_t t = 0; t < x.n; t++) {
        const float *in = x.at + t * x.stride;
        float *out = y.at + t * y.stride;
        double sum = 0;
        if (how->is_left_out) {
            copy(out, in, x.width);
            continue;
        }
        for (int64_t i = 0; i < x.width; i++)
            sum += (double)in[i] * in[i];
        float scale = (float)(1.0 / sqrt((how->sums ? sum : sum / (double)x.width) + how->eps));
        for (int64_t i = 0; i < x.width; i++)
            out[i] = in[i] * scale * weight_at(w, i, how);
    }
}

void assay_op_layernorm(assay_rows y, assay_rows x, const float *w, const float *b,
                        const assay_norm *how)
{
    ASSAY_BUG_IF(y.n != x.n || y.width != x.width);
    for (int64_t t = 0; t < x.n; t++) {
        const float *in = x.at + t * x.stride;
        float *out = y.at + t * y.stride;
        double sum = 0, square = 0;
        if (how->is_left_out) {
            copy(out, in, x.width);
            continue;
        }
        for (int64_t i = 0; i < x.width; i++)
            sum += in[i];
        double mean = sum / (double)x.width;
        for (int64_t i = 0; i < x.width; i++)
            square += (in[i] - mean) * (in[i] - mean);
        double scale = 1.0 / sqrt((how->sums ? square : square / (double)x.width) + how->eps);
        for (int64_t i = 0; i < x.width; i++)
            out[i] = (float)((in[i] - mean) * scale) * weight_at(w, i, how) + b[i];
    }
}
