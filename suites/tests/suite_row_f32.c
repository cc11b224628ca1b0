#include <float.h>
#include <math.h>

#include "data.h"
#include "expect.h"
#include "probes/recorder.h"
#include "references/row_f32.h"

enum { MOST = 100, ROWS = ASSAY_ROWS_AT_ONCE };

static float got[ROWS][MOST], ref[ROWS][MOST];

/* Values over many powers of two, the candidate off by parts in a million. */
static void fill(uint64_t seed)
{
    for (int k = 0; k < ROWS; k++)
        for (int i = 0; i < MOST; i++) {
            uint64_t z = assay_mix(seed + (uint64_t)(k * MOST + i));
            ref[k][i] = ldexpf((float)(int)(z & 0xFFFFFF) - 0x800000, (int)(z >> 60) - 30);
            got[k][i] = ref[k][i] * (1 + 1e-6f * (float)(int)(z >> 32 & 63));
        }
}

static void expect_sums(int64_t n)
{
    double wide_got[MOST], wide_ref[MOST];
    for (int64_t i = 0; i < n; i++) {
        wide_got[i] = got[0][i];
        wide_ref[i] = ref[0][i];
    }
    assay_row_sums mine, first, wanted = assay_row_sums_of(wide_got, wide_ref, n);
    for (int way = 0; way < (n % 2 ? 2 : 4); way++) {
        assay_row_proof proof = {.proves = way / 2, .masked = way % 2};
        assay_row_sums_of_f32(&mine, &proof, got[0], ref[0], 0, n);
        ck_assert_int_eq(mine.n, wanted.n);
        ck_assert_int_eq(mine.n_nan, wanted.n_nan);
        ck_assert_int_eq(mine.n_mask_differ, wanted.n_mask_differ);
        ck_assert(!way || !memcmp(&mine, &first, sizeof mine)); /* whatever was expected of it */
        first = mine;
        EXPECT_NEAR(mine.rr, wanted.rr, 1e-15 * wanted.rr);
        EXPECT_NEAR(mine.dd, wanted.dd, 0x1p-23 * wanted.dd);
        EXPECT_NEAR(mine.gg, wanted.gg, 0x1p-22 * sqrt(wanted.gg * wanted.dd) + 1e-12 * wanted.gg);
        EXPECT_NEAR(mine.dr, wanted.dr, 0x1p-23 * sqrt(wanted.rr * wanted.dd));
        EXPECT_NEAR(mine.max_abs, wanted.max_abs, 0x1p-24 * wanted.max_abs);
    }
}

START_TEST(rows_of_float32_sum_to_what_their_widened_values_do)
{
    for (int64_t n = 0; n <= MOST; n++) {
        fill((uint64_t)n);
        expect_sums(n);
    }
}
END_TEST

START_TEST(rows_with_values_that_are_not_finite_count_as_their_widened_values_do)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 0, -0.0f, 1e-45f};
    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++)
        for (int at = 0; at < 40; at++)
            for (int side = 0; side < 3; side++) {
                fill(b);
                if (side != 1)
                    got[0][at] = bad[b];
                if (side != 0)
                    ref[0][at] = bad[b];
                expect_sums(40);
            }
}
END_TEST

START_TEST(rows_prove_the_checksum_of_the_value_they_are_rows_of)
{
    for (int64_t n = 2; n <= MOST; n += 2) {
        assay_row_proof proof = {.proves = true};
        assay_row_sums sums;
        uint64_t parts = 0;
        fill((uint64_t)n);
        float value[2][2 * MOST];
        for (int k = 0; k < 2; k++) {
            memcpy(value[0] + k * n, got[k], (size_t)n * sizeof(float));
            memcpy(value[1] + k * n, ref[k], (size_t)n * sizeof(float));
        }
        for (int k = 1; k >= 0; k--) { /* in any order */
            assay_row_sums_of_f32(&sums, &proof, value[0] + k * n, value[1] + k * n, k * n, n);
            parts += assay_checksum_part(value[0], sizeof(float), k * n, (k + 1) * n);
        }
        uint64_t sum_got = 0, sum_ref = 0;
        for (int j = 0; j < ASSAY_LANES_F64; j++) {
            sum_got += proof.got[j];
            sum_ref += proof.ref[j];
        }
        ck_assert_uint_eq(sum_got, assay_checksum_of(value[0], sizeof(float), 2 * n));
        ck_assert_uint_eq(sum_ref, assay_checksum_of(value[1], sizeof(float), 2 * n));
        ck_assert_uint_eq(parts, sum_got);
    }
}
END_TEST

static void expect_channels(int64_t n, const float *weight)
{
    double de[MOST] = {0}, ee[MOST] = {0};
    const float *g[ROWS], *r[ROWS];
    for (int k = 0; k < ROWS; k++) {
        g[k] = got[k];
        r[k] = ref[k];
    }
    assay_channels_add_f32(de, ee, g, r, weight, n);
    for (int64_t i = 0; i < n; i++) {
        double wanted_de = 0, wanted_ee = 0, size = 0;
        for (int k = 0; k < ROWS; k++) {
            double e = ref[k][i], d = got[k][i] - e;
            wanted_de += weight[k] * d * e;
            wanted_ee += weight[k] * e * e;
            size += fabs(weight[k] * d * e);
        }
        EXPECT_NEAR(de[i], wanted_de, 4e-7 * size);
        EXPECT_NEAR(ee[i], wanted_ee, 4e-7 * wanted_ee);
    }
}

START_TEST(channels_of_float32_are_within_its_rounding)
{
    static const float weights[ROWS] = {1, 0x1p-20f, 0x1p90f, 0};
    for (int64_t n = 0; n <= MOST; n++) {
        fill((uint64_t)n);
        expect_channels(n, weights);
    }
}
END_TEST

/* The largest that assay_channels_fit lets through, and the smallest. */
START_TEST(channels_that_fit_stay_within_float32)
{
    const double weights[] = {0x1p-60, 1, 0x1p60};
    for (int w = 0; w < 3; w++) {
        double row = sqrt(1 / weights[w]), off = 0x1p20 * row;
        ck_assert(assay_channels_fit(weights[w], off * off));
        ck_assert(!assay_channels_fit(weights[w], 2 * off * off));
        float weight[ROWS] = {(float)(weights[w] * ASSAY_CHANNELS_SCALE)};
        const float *g[ROWS], *r[ROWS];
        double de[MOST] = {0}, ee[MOST] = {0};
        fill(7);
        for (int k = 0; k < ROWS; k++) {
            ref[k][0] = (float)row;
            got[k][0] = (float)(row + off);
            ref[k][1] = got[k][1] = (float)(row * 0x1p-80); /* its square would leave float32 */
            g[k] = got[k];
            r[k] = ref[k];
        }
        assay_channels_add_f32(de, ee, g, r, weight, 2);
        EXPECT_NEAR(ee[0], ASSAY_CHANNELS_SCALE, 1e-6 * ASSAY_CHANNELS_SCALE);
        EXPECT_NEAR(de[0], 0x1p20 * ASSAY_CHANNELS_SCALE, 0x1p4 * ASSAY_CHANNELS_SCALE);
        EXPECT_NEAR(ee[1], 0x1p-160 * ASSAY_CHANNELS_SCALE, 0x1p-180 * ASSAY_CHANNELS_SCALE);
    }
    ck_assert(!assay_channels_fit(0, 0));
    ck_assert(!assay_channels_fit(0x1p61, 0));
    ck_assert(!assay_channels_fit(1, NAN));
}
END_TEST

EXPECT_MAIN("row_f32", rows_of_float32_sum_to_what_their_widened_values_do,
            rows_with_values_that_are_not_finite_count_as_their_widened_values_do,
            rows_prove_the_checksum_of_the_value_they_are_rows_of,
            channels_of_float32_are_within_its_rounding, channels_that_fit_stay_within_float32)
