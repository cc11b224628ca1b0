#include "data.h"
#include "expect.h"
#include "references/compare.h"
#include "references/gain.h"
#include "references/median.h"
#include "references/metric.h"

/* Repeatable numbers, roughly normal. */
static double noise(uint64_t *state)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*state >> 11) / 9007199254740992.0;
    }
    return sum - 6;
}

static void fill(double *x, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = noise(&seed);
}

START_TEST(metrics_of_equal_values_are_exact)
{
    double x[12];
    assay_metrics m;
    fill(x, 12, 1);
    assay_metrics_of(&m, x, x, 3, 4, 0);
    EXPECT_NEAR(m.rel, 0, 0);
    EXPECT_NEAR(m.one_minus_cos, 0, 0);
    EXPECT_NEAR(m.gain, 1, 0);
    EXPECT_NEAR(m.row_rel_max, 0, 0);
    EXPECT_NEAR(m.gain_row_median, 1, 0);
    ck_assert_int_eq(m.first_bad, -1);
    ck_assert_int_eq(m.n_mask_differ + m.n_nan, 0);
}
END_TEST

START_TEST(metrics_of_hand_computed_rows)
{
    /* rows: scaled by 2; orthogonal; exact */
    static const double ref[] = {3, 4, 1, 0, 5, 12}, got[] = {6, 8, 0, 1, 5, 12};
    assay_metrics m;
    assay_metrics_of(&m, got, ref, 3, 2, 0.5);
    EXPECT_NEAR(m.rel, sqrt(27.0 / 195), 1e-15);
    EXPECT_NEAR(m.gain, (50 + 0 + 169) / 195.0, 1e-15);
    EXPECT_NEAR(m.one_minus_cos, 1 - 219 / sqrt(195.0 * 270), 1e-14);
    EXPECT_NEAR(m.row_rel_max, sqrt(2), 1e-15);
    EXPECT_NEAR(m.row_rel_median, 1, 1e-15);
    EXPECT_NEAR(m.gain_row_median, 1, 1e-15);
    EXPECT_NEAR(m.max_abs, 4, 0);
    ck_assert_int_eq(m.worst_row, 1);
    ck_assert_int_eq(m.first_bad, 0); /* 6 for 3: off by more than half of the row's rms 3.54 */
}
END_TEST

START_TEST(metrics_let_no_nan_through)
{
    static const double values[] = {NAN, INFINITY, -INFINITY};
    double ref[6] = {1, 2, 3, 4, 5, 6}, got[6];
    assay_metrics m;
    for (size_t i = 0; i < 3; i++)
        for (int at = 0; at < 6; at++) {
            memcpy(got, ref, sizeof got);
            got[at] = values[i];
            for (int side = 0; side < 2; side++) {
                assay_metrics_of(&m, side ? ref : got, side ? got : ref, 2, 3, 1e9);
                ck_assert_int_eq(m.n_mask_differ, 1);
                ck_assert(!(m.rel <= 1e9) && !(m.row_rel_max <= 1e9) && !(m.max_abs <= 1e9));
                ck_assert_int_eq(m.worst_row, at / 3);
                ck_assert_int_eq(m.first_bad, at);
            }
        }
}
END_TEST

START_TEST(metrics_fail_nan_on_both_sides_but_accept_equal_infinities)
{
    double ref[] = {1, -INFINITY, 3, INFINITY}, got[] = {1, -INFINITY, 3, INFINITY};
    assay_metrics m;
    assay_metrics_of(&m, got, ref, 2, 2, 1e-9);
    EXPECT_NEAR(m.rel, 0, 0);
    ck_assert_int_eq(m.first_bad, -1);
    got[3] = -INFINITY;
    assay_metrics_of(&m, got, ref, 2, 2, 1e-9);
    ck_assert_int_eq(m.n_mask_differ, 1);
    ck_assert_int_eq(m.first_bad, 3);
    got[3] = ref[3] = NAN;
    assay_metrics_of(&m, got, ref, 2, 2, 1e-9);
    ck_assert_int_eq(m.n_mask_differ, 0);
    ck_assert_int_eq(m.n_nan, 1);
    ck_assert(!(m.rel <= 1e9));
    ck_assert_int_eq(m.first_bad, 3);
}
END_TEST

START_TEST(metrics_guard_a_zero_reference)
{
    static const double zero[4] = {0}, small[4] = {0, 0, 1e-300, 0};
    assay_metrics m;
    assay_metrics_of(&m, zero, zero, 2, 2, 1e-6);
    EXPECT_NEAR(m.rel, 0, 0);
    EXPECT_NEAR(m.one_minus_cos, 0, 0);
    ck_assert_int_eq(m.first_bad, -1);
    assay_metrics_of(&m, (const double[]){0, 0, 1, 0}, zero, 2, 2, 1e-6);
    ck_assert(isinf(m.rel) && isinf(m.row_rel_max));
    ck_assert_int_eq(m.worst_row, 1);
    ck_assert_int_eq(m.first_bad, 2);
    assay_metrics_of(&m, small, zero, 2, 2, 1e-6);
    ck_assert(!(m.row_rel_max <= 1));
    assay_metrics_of(&m, small, (const double[]){1, 1, 1e200, 1}, 2, 2, 1e-6);
    ck_assert(!(m.row_rel_max <= 1e9));
    assay_metrics_of(&m, zero, (const double[]){0, 0, 1, 0}, 2, 2, 1e-6);
    EXPECT_NEAR(m.rel, 1, 0);
    EXPECT_NEAR(m.one_minus_cos, 1, 0);
}
END_TEST

START_TEST(metrics_of_nothing_pass_no_bound)
{
    assay_metrics m;
    assay_metrics_of(&m, NULL, NULL, 0, 4, 1);
    ck_assert(!(m.rel <= 1e300) && !(m.row_rel_max <= 1e300) && !(m.row_rel_median <= 1e300));
    assay_metrics_of(&m, NULL, NULL, 4, 0, 1);
    ck_assert(!(m.rel <= 1e300) && !(m.row_rel_median <= 1e300));
}
END_TEST

START_TEST(metrics_report_the_worst_row_not_the_mean)
{
    enum { ROWS = 4096, COLS = 64 };
    double *ref = malloc(sizeof(double) * ROWS * COLS), *got = malloc(sizeof(double) * ROWS * COLS);
    assay_metrics m;
    fill(ref, ROWS * COLS, 7);
    memcpy(got, ref, sizeof(double) * ROWS * COLS);
    memset(got + 1234 * COLS, 0, sizeof(double) * COLS);
    assay_metrics_of(&m, got, ref, ROWS, COLS, 0.01);
    ck_assert(m.one_minus_cos < 2e-4);
    EXPECT_NEAR(m.row_rel_max, 1, 1e-12);
    ck_assert_int_eq(m.worst_row, 1234);
    ck_assert_int_eq(m.first_bad / COLS, 1234);
    free(ref);
    free(got);
}
END_TEST

START_TEST(metrics_keep_digits_of_a_small_angle)
{
    double ref[2] = {1, 0}, got[2] = {cos(1e-6), sin(1e-6)};
    assay_metrics m;
    assay_metrics_of(&m, got, ref, 1, 2, 1);
    EXPECT_NEAR(m.one_minus_cos, 5e-13, 1e-17);
}
END_TEST

START_TEST(median_is_right_for_every_small_length)
{
    for (int n = 1; n <= 40; n++) {
        double x[40];
        for (int i = 0; i < n; i++)
            x[i] = (i * 7) % n == 0 && n % 7 == 0 ? i : (i * 7) % n;
        double sorted[40];
        memcpy(sorted, x, sizeof x);
        for (int i = 0; i < n; i++)
            for (int j = i + 1; j < n; j++)
                if (sorted[j] < sorted[i]) {
                    double t = sorted[i];
                    sorted[i] = sorted[j];
                    sorted[j] = t;
                }
        EXPECT_NEAR(assay_median(x, n), (sorted[n / 2] + sorted[(n - 1) / 2]) / 2, 0);
    }
    double bad[3] = {1, NAN, 2};
    ck_assert(isnan(assay_median(bad, 3)));
    ck_assert(isnan(assay_median(bad, 0)));
    double inf[3] = {INFINITY, 1, INFINITY};
    ck_assert(isinf(assay_median(inf, 3)));
}
END_TEST

START_TEST(metric_table_has_names_and_meanings)
{
    assay_metrics m = {.rel = 0.5, .n_nan = 3};
    for (int i = 0; i < assay_metric_count(); i++)
        ck_assert(assay_metric_at(i)->name[0] && assay_metric_at(i)->meaning[0]);
    EXPECT_NEAR(assay_metric_at(0)->get(&m), 0.5, 0);
    EXPECT_NEAR(assay_metric_at(assay_metric_count() - 1)->get(&m), 3, 0);
}
END_TEST

enum { T = 24, H = 4, C = 16, N = T * H * C };

/* Adds three layers: expected values rounded with relative noise `step`, times `scale`. */
static void add_layers(assay_gain *gain, double step, double scale, bool loud_element)
{
    double expected[N], got[N];
    for (int layer = 0; layer < 3; layer++) {
        uint64_t seed = 100 + (uint64_t)layer;
        fill(expected, N, 11 + (uint64_t)layer);
        if (loud_element)
            for (int t = 0; t < T; t++)
                expected[t * H * C + 5] = 40;
        for (int i = 0; i < N; i++)
            got[i] = scale * expected[i] * (1 + step * noise(&seed));
        EXPECT_OK(assay_gain_add(gain, ASSAY_POINT_MOE_OUT, layer, got, expected, T, H, C));
    }
}

static assay_gain_verdict worst(double step, double scale, bool loud_element, assay_dtype dtype)
{
    assay_gain *gain;
    assay_gain_verdict v;
    EXPECT_OK(assay_gain_new(&gain));
    add_layers(gain, step, scale, loud_element);
    EXPECT_OK(assay_gain_worst(&v, gain, ASSAY_POINT_MOE_OUT, ASSAY_GAIN_ALL_LAYERS, dtype));
    assay_gain_free(gain);
    return v;
}

START_TEST(gain_is_silent_on_rounding)
{
    ck_assert(!worst(0.0017, 1, false, ASSAY_DTYPE_BF16).deviates);
    ck_assert(!worst(0.0017, 1, true, ASSAY_DTYPE_BF16).deviates);
    ck_assert(!worst(3e-8, 1, false, ASSAY_DTYPE_F32).deviates);
    ck_assert(!worst(0, 1, false, ASSAY_DTYPE_F32).deviates);
}
END_TEST

START_TEST(gain_finds_a_scale_below_the_rounding_of_an_element)
{
    assay_gain_verdict v = worst(0.0017, 1.003, false, ASSAY_DTYPE_BF16);
    ck_assert(v.deviates && v.kind == ASSAY_GAIN_ROW);
    EXPECT_NEAR(v.value, 1.003, 3e-4);
    v = worst(3e-8, 1 - 4e-6, false, ASSAY_DTYPE_F32);
    ck_assert(v.deviates);
    EXPECT_NEAR(v.value, 1 - 4e-6, 1e-7);
    ck_assert(!worst(3e-8, 1 - 4e-6, false, ASSAY_DTYPE_BF16).deviates);
}
END_TEST

START_TEST(gain_of_few_or_no_values_says_nothing)
{
    assay_gain *gain;
    assay_gain_verdict v;
    double expected[8] = {1, 2, 3, 4, 5, 6, 7, 8}, got[8];
    for (int i = 0; i < 8; i++)
        got[i] = 2 * expected[i];
    EXPECT_OK(assay_gain_new(&gain));
    EXPECT_OK(assay_gain_worst(&v, gain, ASSAY_POINT_Q_A, 0, ASSAY_DTYPE_F32));
    ck_assert(v.n == 0 && !v.deviates && isnan(v.value));
    EXPECT_OK(assay_gain_add(gain, ASSAY_POINT_Q_A, 0, got, expected, 2, 1, 4));
    EXPECT_OK(assay_gain_worst(&v, gain, ASSAY_POINT_Q_A, 0, ASSAY_DTYPE_F32));
    ck_assert(v.n == 2 && !v.deviates);
    EXPECT_NEAR(v.value, 2, 1e-15);
    got[0] = NAN; /* its row takes no part */
    EXPECT_OK(assay_gain_add(gain, ASSAY_POINT_Q_A, 1, got, expected, 2, 1, 4));
    EXPECT_OK(assay_gain_worst(&v, gain, ASSAY_POINT_Q_A, 1, ASSAY_DTYPE_F32));
    ck_assert_int_eq(v.n, 1);
    assay_gain_free(gain);
}
END_TEST

/* Where columns are keys. */
START_TEST(gain_from_sums_of_heads_alone_knows_no_channels)
{
    assay_gain *gain;
    assay_gain_verdict v;
    double rows[20], de[20], ee[20];
    for (int i = 0; i < 20; i++) {
        rows[i] = 1;
        ee[i] = 1 + i;
        de[i] = 0.25 * ee[i];
    }
    EXPECT_OK(assay_gain_new(&gain));
    EXPECT_OK(assay_gain_add_sums(gain, ASSAY_POINT_PROBS, 0, rows, 20,
                                  &(assay_gain_sums){20, de, ee}, &(assay_gain_sums){0}));
    EXPECT_OK(
        assay_gain_judge(&v, gain, ASSAY_POINT_PROBS, 0, ASSAY_GAIN_CHANNEL, ASSAY_DTYPE_F32));
    ck_assert_int_eq(v.n, 0);
    EXPECT_OK(assay_gain_judge(&v, gain, ASSAY_POINT_PROBS, 0, ASSAY_GAIN_HEAD, ASSAY_DTYPE_F32));
    ck_assert(v.n == 20 && v.deviates);
    EXPECT_NEAR(v.value, 1.25, 1e-15);
    assay_gain_free(gain);
}
END_TEST

EXPECT_MAIN("metrics", metrics_of_equal_values_are_exact, metrics_of_hand_computed_rows,
            metrics_let_no_nan_through, metrics_fail_nan_on_both_sides_but_accept_equal_infinities,
            metrics_guard_a_zero_reference, metrics_of_nothing_pass_no_bound,
            metrics_report_the_worst_row_not_the_mean, metrics_keep_digits_of_a_small_angle,
            median_is_right_for_every_small_length, metric_table_has_names_and_meanings,
            gain_is_silent_on_rounding, gain_finds_a_scale_below_the_rounding_of_an_element,
            gain_of_few_or_no_values_says_nothing, gain_from_sums_of_heads_alone_knows_no_channels)
