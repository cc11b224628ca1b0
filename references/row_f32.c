#include "references/row_f32.h"

#include "engine/base/wide.h"

bool assay_channels_fit(double weight, double dd)
{
    return weight >= 0x1p-60 && weight <= 0x1p60 && dd * weight <= 0x1p40;
}

ASSAY_WIDEST_INT static void add_channels(double *de, double *ee, const float *const *got,
                                          const float *const *ref, const float *weight, int64_t n)
{
    int64_t i = 0;
    for (; i + ASSAY_LANES_F32 <= n; i += ASSAY_LANES_F32) {
        assay_f32w d = {0}, e = {0};
        assay_f64s wide[4], sums[4];
        for (int k = 0; k < ASSAY_ROWS_AT_ONCE; k++) {
            assay_f32w g, r, wr;
            memcpy(&g, got[k] + i, sizeof g);
            memcpy(&r, ref[k] + i, sizeof r);
            wr = weight[k] * r;
            d += (g - r) * wr;
            e += wr * r;
        }
        assay_widen_f32(&wide[0], &wide[1], (const float *)&d);
        assay_widen_f32(&wide[2], &wide[3], (const float *)&e);
        memcpy(&sums[0], de + i, 2 * sizeof *sums);
        memcpy(&sums[2], ee + i, 2 * sizeof *sums);
        for (int k = 0; k < 4; k++)
            sums[k] += wide[k];
        memcpy(de + i, &sums[0], 2 * sizeof *sums);
        memcpy(ee + i, &sums[2], 2 * sizeof *sums);
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
