#include "references/row_f32.h"

#include <math.h>

#include "probes/mix.h"
#include "references/row_lanes.h"

#ifdef __FAST_MATH__
#error "isnan() must mean what it says"
#endif

ASSAY_INSIDE void add_sixteen(assay_row_lanes *s, const float *got, const float *ref, bool masked)
{
    assay_f64s g[2], r[2];
    assay_widen_f32(&g[0], &g[1], got);
    assay_widen_f32(&r[0], &r[1], ref);
    for (int half = 0; half < 2; half++)
        if (masked)
            assay_row_lanes_add_masked(s, &g[half], &r[half]);
        else
            assay_row_lanes_add(s, &g[half], &r[half]);
}

/* What is left behind element i: eight, then one by one. */
ASSAY_INSIDE void finish(assay_row_sums *out, assay_row_lanes *s, const float *got,
                         const float *ref, int64_t i, int64_t n, bool masked)
{
    assay_row_sums rest = {.n = n};
    if (i + ASSAY_LANES_F64 <= n) {
        float both[2][ASSAY_LANES_F32] = {{0}, {0}};
        memcpy(both[0], got + i, ASSAY_LANES_F64 * sizeof **both);
        memcpy(both[1], ref + i, ASSAY_LANES_F64 * sizeof **both);
        add_sixteen(s, both[0], both[1], masked);
        i += ASSAY_LANES_F64;
    }
    for (; i < n; i++)
        assay_row_add_one(&rest, got[i], ref[i]);
    assay_row_lanes_finish(&rest, s);
    *out = rest;
}

ASSAY_INSIDE void sum(assay_row_sums *out, const float *got, const float *ref, int64_t n,
                      bool masked)
{
    assay_row_lanes s = {.gg = {0}};
    int64_t i = 0;
    for (; i + ASSAY_LANES_F32 <= n; i += ASSAY_LANES_F32)
        add_sixteen(&s, got + i, ref + i, masked);
    finish(out, &s, got, ref, i, n, masked);
}

ASSAY_WIDEST_INT static void sum_row(assay_row_sums *out, const float *got, const float *ref,
                                     int64_t n)
{
    sum(out, got, ref, n, false);
}

ASSAY_WIDEST_INT static void sum_masked_row(assay_row_sums *out, const float *got, const float *ref,
                                            int64_t n)
{
    sum(out, got, ref, n, true);
}

enum { AHEAD = 512 }; /* elements */

/* The words of both sides are mixed between the sums: neither waits for the other. */
ASSAY_WIDEST_INT static void sum_and_prove_row(assay_row_sums *out, assay_row_proof *proof,
                                               const float *got, const float *ref, int64_t first,
                                               int64_t n)
{
    assay_row_lanes s = {.gg = {0}};
    assay_u64s mixed[2] = {{0}, {0}}, at, step;
    int64_t i = 0;
    assay_mix_begin(&at, &step, first / 2);
    for (; i + ASSAY_LANES_F32 <= n; i += ASSAY_LANES_F32) {
        assay_u64s g, r;
        __builtin_prefetch(got + i + AHEAD); /* the processor's own stops at the end of a page */
        __builtin_prefetch(ref + i + AHEAD);
        memcpy(&g, got + i, sizeof g);
        memcpy(&r, ref + i, sizeof r);
        g += at;
        r += at;
        at += step;
        ASSAY_MIX(g);
        ASSAY_MIX(r);
        mixed[0] += g;
        mixed[1] += r;
        add_sixteen(&s, got + i, ref + i, false);
    }
    proof->got += assay_mix_total(&mixed[0]);
    proof->ref += assay_mix_total(&mixed[1]);
    for (int64_t k = i; k < n; k += 2) {
        uint64_t g, r;
        memcpy(&g, got + k, sizeof g);
        memcpy(&r, ref + k, sizeof r);
        proof->got += assay_mix_word(g, (first + k) / 2);
        proof->ref += assay_mix_word(r, (first + k) / 2);
    }
    finish(out, &s, got, ref, i, n, false);
}

void assay_row_sums_of_f32(assay_row_sums *out, assay_row_proof *proof, const float *got,
                           const float *ref, int64_t first, int64_t n)
{
    ASSAY_BUG_IF(proof && (first % 2 || n % 2));
    if (proof)
        sum_and_prove_row(out, proof, got, ref, first, n);
    else
        sum_row(out, got, ref, n);
    if (!isfinite(out->gg) || !isfinite(out->rr) || out->n < n)
        sum_masked_row(out, got, ref, n);
}

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
