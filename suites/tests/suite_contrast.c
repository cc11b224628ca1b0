#include <math.h>
#include <stdlib.h>

#include "expect.h"
#include "probes/recorder.h"
#include "references/contrast.h"

enum { TOKENS = 40 };

/* Values in -1 ... 1. */
static float *noise(int64_t n, uint64_t seed)
{
    float *x = malloc((size_t)n * sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(ldexp((double)(assay_mix(seed + (uint64_t)i) >> 11), -52) - 1);
    return x;
}

static assay_rows_seen rows_of(const float *x, int64_t n_sub, int64_t n_cols)
{
    return (assay_rows_seen){.n_tokens = TOKENS,
                             .n_sub = n_sub,
                             .n_cols = n_cols,
                             .values = {.data = x, .dtype = ASSAY_DTYPE_F32},
                             .n_t = TOKENS,
                             .n_middle = n_sub,
                             .n_inner = n_cols};
}

typedef struct outcome {
    assay_metrics metrics;
    assay_gain_verdict row, head, channel;
    double *errors; /* [TOKENS, n_sub] */
} outcome;

static outcome contrast(const float *got, const float *ref, int64_t n_sub, int64_t n_cols)
{
    outcome o = {.errors = malloc((size_t)(TOKENS * n_sub) * sizeof *o.errors)};
    uint8_t *state = calloc((size_t)(TOKENS * n_sub), 1);
    assay_rows_seen x = rows_of(got, n_sub, n_cols), y = rows_of(ref, n_sub, n_cols);
    assay_contrast_room room = {0};
    assay_gain *gain;
    EXPECT_OK(assay_gain_new(&gain));
    EXPECT_OK(assay_contrast(&o.metrics, o.errors, -INFINITY, gain, &room, ASSAY_POINT_FFN_UP, 0,
                             &x, &y, state, 1));
    assay_gain_verdict *out[] = {&o.row, &o.head, &o.channel};
    for (int k = 0; k < ASSAY_GAIN_KINDS; k++)
        EXPECT_OK(assay_gain_judge(out[k], gain, ASSAY_POINT_FFN_UP, 0, (assay_gain_kind)k,
                                   ASSAY_DTYPE_F32));
    assay_gain_free(gain);
    free(room.numbers);
    free(state);
    return o;
}

/* The candidate is the reference, one channel of all tokens `factor` times as large. */
static void scale_channel(float *got, int64_t width, int64_t channel, float factor)
{
    for (int64_t t = 0; t < TOKENS; t++)
        got[t * width + channel] *= factor;
}

START_TEST(gains_of_rows_heads_and_channels_are_those_of_the_value)
{
    static const int64_t shapes[][2] = {{1, 64}, {1, 5000}, {4, 48}, {128, 96}, {3, 100000}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        const int64_t n_sub = shapes[k][0], n_cols = shapes[k][1], width = n_sub * n_cols;
        float *ref = noise(TOKENS * width, 1), *got = noise(TOKENS * width, 2);
        for (int64_t i = 0; i < TOKENS * width; i++)
            got[i] = ref[i] * (1 + 0x1p-9f) + 0x1p-20f * got[i];
        outcome o = contrast(got, ref, n_sub, n_cols);
        EXPECT_NEAR(o.row.value, 1 + 0x1p-9, 1e-6);
        EXPECT_NEAR(o.channel.value, 1 + 0x1p-9, 1e-6);
        ck_assert(o.row.deviates && o.channel.deviates);
        ck_assert_int_eq(o.row.n, TOKENS);
        ck_assert_int_eq(o.head.n, n_sub > 1 ? n_sub : 0);
        if (n_sub > 1)
            EXPECT_NEAR(o.head.value, 1 + 0x1p-9, 1e-6);
        if (width <= ASSAY_GAIN_KEPT) /* else some of all parts of it */
            ck_assert_int_eq(o.channel.n, width);
        ck_assert_int_ge(o.channel.n, ASSAY_GAIN_KEPT / 2 < width ? ASSAY_GAIN_KEPT / 2 : width);
        ck_assert_int_le(o.channel.n, ASSAY_GAIN_KEPT + 100);
        EXPECT_NEAR(o.metrics.gain, 1 + 0x1p-9, 1e-6);
        EXPECT_NEAR(o.metrics.gain_row_median, 1 + 0x1p-9, 1e-6);
        free(o.errors);
        free(got);
        free(ref);
    }
}
END_TEST

START_TEST(metrics_and_row_errors_are_those_of_single_rows)
{
    const int64_t n_sub = 3, n_cols = 50, width = n_sub * n_cols;
    float *ref = noise(TOKENS * width, 3), *got = noise(TOKENS * width, 3);
    scale_channel(got, width, 77, 1.5f); /* of head 1 */
    outcome o = contrast(got, ref, n_sub, n_cols);
    double dd = 0, rr = 0, largest = 0;
    int64_t worst = -1;
    for (int64_t r = 0; r < TOKENS * n_sub; r++) {
        double row_dd = 0, row_rr = 0;
        for (int64_t i = r * n_cols; i < (r + 1) * n_cols; i++) {
            row_dd += ((double)got[i] - ref[i]) * ((double)got[i] - ref[i]);
            row_rr += (double)ref[i] * ref[i];
        }
        const double error = sqrt(row_dd / row_rr);
        EXPECT_NEAR(o.errors[r], error, 1e-6 * error);
        ck_assert(r % n_sub == 1 || error == 0);
        if (error > largest) {
            largest = error;
            worst = r;
        }
        dd += row_dd;
        rr += row_rr;
    }
    ck_assert_int_eq(o.metrics.worst_row, worst);
    EXPECT_NEAR(o.metrics.row_rel_max, largest, 1e-6 * largest);
    EXPECT_NEAR(o.metrics.rel, sqrt(dd / rr), 1e-6);
    ck_assert_int_eq(o.metrics.n, TOKENS * width);
    ck_assert_int_eq(o.metrics.n_rows, TOKENS * n_sub);
    free(o.errors);
    free(got);
    free(ref);
}
END_TEST

START_TEST(a_token_that_is_not_finite_takes_no_part_in_gains)
{
    const int64_t width = 6000;
    float *ref = noise(TOKENS * width, 5), *got = noise(TOKENS * width, 5);
    got[7 * width + 11] = INFINITY;
    outcome o = contrast(got, ref, 1, width);
    ck_assert_int_eq(o.metrics.n_mask_differ, 1);
    ck_assert(isinf(o.errors[7]) && o.errors[6] == 0);
    ck_assert_int_eq(o.metrics.worst_row, 7);
    ck_assert_int_eq(o.row.n, TOKENS - 1);
    EXPECT_NEAR(o.channel.value, 1, 0);
    free(o.errors);
    free(got);
    free(ref);
}
END_TEST

EXPECT_MAIN("contrast", gains_of_rows_heads_and_channels_are_those_of_the_value,
            metrics_and_row_errors_are_those_of_single_rows,
            a_token_that_is_not_finite_takes_no_part_in_gains)
