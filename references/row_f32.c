#include "references/row_f32.h"

#include "engine/base/wide.h"

bool assay_channels_fit(double weight, double dd)
{
    return weight >= 0x1p-60 && weight <= 0x1p60 && dd * weight <= 0x1p40;
}

/* Sixteen sums in float64, and as many numbers that are added to them. */
ASSAY_INSIDE void add_sixteen(double *sums, const assay_f32w *more)
{
    assay_f64s low, high, low_sums, high_sums;
    assay_widen_f32(&low, &high, (const float *)more);
    memcpy(&low_sums, sums, sizeof low_sums);
    memcpy(&high_sums, sums + ASSAY_LANES_F64, sizeof high_sums);
    low_sums += low;
    high_sums += high;
    memcpy(sums, &low_sums, sizeof low_sums);
    memcpy(sums + ASSAY_LANES_F64, &high_sums, sizeof high_sums);
}

ASSAY_WIDEST_INT static void add_channels(double *de, double *ee, const float *const *got,
                                          const float *const *ref, const float *weight, int64_t n)
{
    int64_t i = 0;
    for (; i + ASSAY_LANES_F32 <= n; i += ASSAY_LANES_F32) {
        assay_f32w d = {0}, e = {0};
#pragma GCC unroll 8
        for (int k = 0; k < ASSAY_ROWS_AT_ONCE; k++) {
            assay_f32w g, r, wr;
            memcpy(&g, got[k] + i, sizeof g);
            memcpy(&r, ref[k] + i, sizeof r);
            wr = weight[k] * r;
            d += (g - r) * wr;
            e += wr * r;
        }
        add_sixteen(de + i, &d);
        add_sixteen(ee + i, &e);
    }
    for (; i < n; i++) {
        float d = 0, e = 0;
        for (int k = 0; k < ASSAY_ROWS_AT_ONCE; k++) {
            float r = ref[k][i], wr = weight[k] * r;
            d += (got[k][i] - r) * wr;
            e += wr * r;
        }
        de[i] += d;
        ee[i] += e;
    }
}

void assay_channels_add_f32(double *de, double *ee, const float *const got[ASSAY_ROWS_AT_ONCE],
                            const float *const ref[ASSAY_ROWS_AT_ONCE],
                            const float weight[ASSAY_ROWS_AT_ONCE], int64_t n)
{
    add_channels(de, ee, got, ref, weight, n);
}

void assay_channels_add_wide(double *de, double *ee, const float *got, const float *ref,
                             double weight, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double r = ref[i], wr = weight * r;
        de[i] += (got[i] - r) * wr;
        ee[i] += wr * r;
    }
}
