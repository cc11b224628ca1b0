/*
 * The rule that makes a home, on numbers made for it.
 */
#include "expect.h"

#include <string.h>

#include "references/forced_floor.h"
#include "references/forced_ids.h"

enum { ROWS = 40, HEADS = 8, WIDTH = 64, COLS = HEADS * WIDTH, N = ROWS * COLS };

static double expected[N], got[N], rounded[N];
static assay_judged judged;

static double noise(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(int64_t)(*state >> 11) / 9007199254740992.0 - 0.5;
}

static double to_bf16(double x)
{
    return assay_bf16_to_f32(assay_f32_to_bf16((float)x));
}

/* A healthy bf16 op: the oracle rounds the exact value, the engine a value that differs in the last
 * bits of float32. */
static void fill(void)
{
    uint64_t state = 11;
    for (int i = 0; i < N; i++) {
        expected[i] = noise(&state) * (1 + i % 7);
        rounded[i] = to_bf16(expected[i]);
        got[i] = to_bf16(expected[i] * (1 + 1e-6 * noise(&state)));
    }
}

static bool judge(void)
{
    assay_floor_input in = {.got = got,
                            .expected = expected,
                            .rounded = rounded,
                            .rows = ROWS,
                            .cols = COLS,
                            .n_groups = HEADS,
                            .format = ASSAY_DTYPE_BF16};
    memset(&judged, 0, sizeof judged);
    EXPECT_OK(assay_floor_judge(&judged, &in));
    return judged.is_home;
}

START_TEST(rounding_alone_makes_no_home)
{
    fill();
    ck_assert_msg(!judge(), "%s", judged.why);
    ck_assert_double_gt(judged.floor_rel, 1e-3);
}
END_TEST

START_TEST(one_head_off_by_half_a_percent_is_a_home_below_the_noise)
{
    fill();
    for (int r = 0; r < ROWS; r++)
        for (int c = 3 * WIDTH; c < 4 * WIDTH; c++)
            got[r * COLS + c] = to_bf16(expected[r * COLS + c] * 0.995);
    ck_assert(judge());
    ck_assert_int_eq(judged.worst_group, 3);
    ck_assert_double_lt(judged.rel, 3 * judged.floor_rel); /* the whole does not show it */
}
END_TEST

START_TEST(one_noisy_row_of_forty_is_a_home)
{
    fill();
    uint64_t state = 5;
    for (int c = 0; c < COLS; c++)
        got[17 * COLS + c] *= 1 + 0.17 * noise(&state);
    ck_assert(judge());
    ck_assert_int_eq(judged.worst_row, 17);
}
END_TEST

START_TEST(a_value_that_is_not_finite_is_a_home_unless_it_is_expected)
{
    fill();
    got[5 * COLS + 9] = NAN;
    ck_assert(judge());
    ck_assert_int_eq(judged.first_bad, 5 * COLS + 9);
    ck_assert_int_eq(judged.n_nonfinite_added, 1);
    expected[5 * COLS + 9] = rounded[5 * COLS + 9] = NAN;
    ck_assert_msg(!judge(), "%s", judged.why);
}
END_TEST

START_TEST(a_hand_over_must_be_equal)
{
    fill();
    assay_floor_input in = {.got = got,
                            .expected = got,
                            .rows = ROWS,
                            .cols = COLS,
                            .n_groups = 1,
                            .format = ASSAY_DTYPE_BF16};
    EXPECT_OK(assay_floor_judge(&judged, &in));
    ck_assert(!judged.is_home);
    in.expected = expected;
    EXPECT_OK(assay_floor_judge(&judged, &in));
    ck_assert(judged.is_home);
}
END_TEST

START_TEST(zeros_where_values_are_expected_are_a_home)
{
    fill();
    memset(got, 0, sizeof got);
    ck_assert(judge());
    EXPECT_NEAR(judged.rel, 1, 1e-12);
}
END_TEST

static double normal(uint64_t *state)
{
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += noise(state);
    return sum;
}

/* 20,000 values of one row each, every element off by a number of the size that is expected. */
START_TEST(rows_of_one_to_four_numbers_make_no_home_by_chance)
{
    uint64_t state = 3;
    for (int cols = 1; cols <= 4; cols++)
        for (int trial = 0; trial < 20000; trial++) {
            double e[4], g[4], r[4];
            for (int i = 0; i < cols; i++) {
                e[i] = 1 + noise(&state);
                double size = e[i] * 0x1p-22;
                r[i] = e[i] + (trial >> i & 1 ? size : -size);
                g[i] = e[i] + normal(&state) * size;
            }
            assay_floor_input in = {.got = g,
                                    .expected = e,
                                    .rounded = r,
                                    .rows = 1,
                                    .cols = cols,
                                    .format = ASSAY_DTYPE_F32};
            memset(&judged, 0, sizeof judged);
            EXPECT_OK(assay_floor_judge(&judged, &in));
            ck_assert_msg(!judged.is_home, "%d columns: %s", cols, judged.why);
            g[0] = e[0] * (1 + 12 * cols * 0x1p-22);
            EXPECT_OK(assay_floor_judge(&judged, &in));
            ck_assert_msg(judged.is_home, "%d columns, one far off", cols);
        }
}
END_TEST

START_TEST(values_show_their_own_format)
{
    double x[3] = {1, 0.5, 1.0078125};
    ck_assert_int_eq(assay_floor_format(x, 3), ASSAY_DTYPE_BF16);
    x[1] = 1.0009765625;
    ck_assert_int_eq(assay_floor_format(x, 3), ASSAY_DTYPE_F16);
    x[1] = (double)0.1f;
    ck_assert_int_eq(assay_floor_format(x, 3), ASSAY_DTYPE_F32);
    x[1] = 0.1;
    ck_assert_int_eq(assay_floor_format(x, 3), ASSAY_DTYPE_F64);
}
END_TEST

static assay_ids_input ids_of(const double *chosen, const double *right, const double *scores,
                              const double *allowance, int64_t width, int64_t n_scores)
{
    return (assay_ids_input){.got = chosen,
                             .expected = right,
                             .rows = 1,
                             .width = width,
                             .scores = scores,
                             .noise = allowance,
                             .n_scores = n_scores};
}

START_TEST(a_flip_is_free_within_the_noise_and_a_home_outside)
{
    static const double scores[4] = {0.9, 0.5, 0.499, 0.1}, allowance[1] = {0.002};
    static const double right[2] = {0, 1}, near[2] = {2, 0}, far[2] = {3, 0};
    assay_ids_input in = ids_of(near, right, scores, allowance, 2, 4);
    EXPECT_OK(assay_ids_judge(&judged, &in));
    ck_assert_int_eq(judged.n_flips, 1);
    ck_assert(!judged.is_home);
    in.got = far;
    EXPECT_OK(assay_ids_judge(&judged, &in));
    ck_assert(judged.is_home);
    EXPECT_NEAR(judged.worst_gap, 0.4, 1e-12);
}
END_TEST

START_TEST(order_and_exact_ties_are_free)
{
    static const double scores[4] = {0, 0.7, 0, 0}, allowance[1] = {0};
    static const double right[2] = {1, 0}, tied[2] = {3, 1};
    assay_ids_input in = ids_of(tied, right, scores, allowance, 2, 4);
    EXPECT_OK(assay_ids_judge(&judged, &in));
    ck_assert(!judged.is_home);
}
END_TEST

START_TEST(keys_that_the_mask_forbids_do_not_count)
{
    static const double scores[4] = {0.1, 0.2, 9, 9}, allowance[1] = {0};
    static const double right[4] = {0, 1, -1, -1}, padded[4] = {3, 1, 0, 2};
    assay_ids_input in = ids_of(padded, right, scores, allowance, 4, 4);
    in.n_visible_first = 2;
    EXPECT_OK(assay_ids_judge(&judged, &in));
    ck_assert_msg(!judged.is_home, "%s", judged.why);
}
END_TEST

START_TEST(an_id_out_of_range_or_twice_is_a_home)
{
    static const double scores[4] = {4, 3, 2, 1}, allowance[1] = {10};
    static const double right[2] = {0, 1}, outside[2] = {0, 4}, twice[2] = {0, 0};
    assay_ids_input in = ids_of(outside, right, scores, allowance, 2, 4);
    EXPECT_OK(assay_ids_judge(&judged, &in));
    ck_assert(judged.is_home);
    in.got = twice;
    EXPECT_OK(assay_ids_judge(&judged, &in));
    ck_assert(judged.is_home);
}
END_TEST

START_TEST(an_expert_of_a_weaker_group_is_judged_by_the_group)
{
    static const double scores[4] = {0.9, 0.8, 0.85, 0.1}, allowance[1] = {0.01};
    static const double right[2] = {0, 1}, other[2] = {0, 2};
    assay_ids_input in = ids_of(other, right, scores, allowance, 2, 4);
    in.n_group = 2;
    in.n_group_used = 1;
    in.group_rule = ASSAY_GROUPS_TOP2_SUM;
    EXPECT_OK(assay_ids_judge(&judged, &in));
    ck_assert(judged.is_home);
    ck_assert_double_gt(judged.worst_gap, 0.5);
}
END_TEST

EXPECT_MAIN("forced_floor", rounding_alone_makes_no_home,
            one_head_off_by_half_a_percent_is_a_home_below_the_noise,
            one_noisy_row_of_forty_is_a_home,
            a_value_that_is_not_finite_is_a_home_unless_it_is_expected, a_hand_over_must_be_equal,
            zeros_where_values_are_expected_are_a_home,
            rows_of_one_to_four_numbers_make_no_home_by_chance, values_show_their_own_format,
            a_flip_is_free_within_the_noise_and_a_home_outside, order_and_exact_ties_are_free,
            keys_that_the_mask_forbids_do_not_count, an_id_out_of_range_or_twice_is_a_home,
            an_expert_of_a_weaker_group_is_judged_by_the_group)
