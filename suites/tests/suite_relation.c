#include "expect.h"
#include "references/relation.h"

enum { ROWS = 6, COLS = 48, N = ROWS * COLS };

static double expected[N], got[N], out[N];
static assay_relation rel;
static const assay_relation_pair pair = {
    .got = got, .expected = expected, .rows = ROWS, .cols = COLS};

/* A fixed sequence that repeats nowhere in N elements. */
static double noise(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(int64_t)(*state >> 11) / 9007199254740992.0 - 0.5;
}

static void fill(void)
{
    uint64_t state = 7;
    for (int i = 0; i < N; i++)
        got[i] = expected[i] = noise(&state);
}

static void expect_full(void)
{
    ck_assert_msg(rel.explained > 1 - 1e-12 && rel.residual < 1e-7, "%s explains %g, leaves %g",
                  assay_relation_kind_name(rel.kind), rel.explained, rel.residual);
}

START_TEST(zero_explains_an_empty_buffer_and_nothing_else)
{
    fill();
    memset(got, 0, sizeof got);
    assay_relation_zero(&rel, out, &pair);
    expect_full();
    fill();
    got[5] += 0.1;
    assay_relation_zero(&rel, out, &pair);
    ck_assert(rel.explained < 0);
}
END_TEST

START_TEST(scale_and_sign_are_fitted)
{
    fill();
    for (int i = 0; i < N; i++)
        got[i] *= -1.05;
    assay_relation_scale(&rel, out, &pair);
    expect_full();
    EXPECT_NEAR(rel.value, -1.05, 1e-12);
}
END_TEST

START_TEST(a_factor_per_row_and_per_channel_are_told_apart)
{
    fill();
    for (int i = 0; i < N; i++)
        got[i] *= 1 + i / COLS;
    assay_relation_scale_rows(&rel, out, &pair);
    expect_full();
    assay_relation_scale_cols(&rel, out, &pair);
    ck_assert(rel.explained < 0.9);
    fill();
    for (int i = 0; i < N; i++)
        got[i] *= 1 + i % COLS;
    assay_relation_scale_cols(&rel, out, &pair);
    expect_full();
}
END_TEST

START_TEST(the_one_scaled_head_is_named)
{
    fill();
    for (int r = 0; r < ROWS; r++)
        for (int c = 24; c < 36; c++)
            got[r * COLS + c] *= 0.995;
    assay_relation_scale_one_block(&rel, out, &pair, 4);
    expect_full();
    ck_assert_int_eq(rel.index, 2);
    EXPECT_NEAR(rel.value, 0.995, 1e-12);
}
END_TEST

START_TEST(permuted_blocks_are_found_by_assignment)
{
    fill();
    static const int order[4] = {2, 3, 1, 0};
    for (int r = 0; r < ROWS; r++)
        for (int b = 0; b < 4; b++)
            memcpy(got + r * COLS + b * 12, expected + r * COLS + order[b] * 12, 12 * sizeof *got);
    assay_relation_blocks(&rel, out, &pair, 4);
    expect_full();
    ck_assert_int_eq(rel.kind, ASSAY_REL_PERMUTED);
    ck_assert_mem_eq(rel.map, order, sizeof order);
}
END_TEST

START_TEST(a_repeated_block_is_not_called_a_permutation)
{
    fill();
    for (int r = 0; r < ROWS; r++)
        memcpy(got + r * COLS + 24, expected + r * COLS, 24 * sizeof *got);
    assay_relation_blocks(&rel, out, &pair, 2);
    expect_full();
    ck_assert_int_eq(rel.kind, ASSAY_REL_REPEATED);
    ck_assert_int_eq(rel.map[1], 0);
}
END_TEST

START_TEST(equal_blocks_still_give_a_permutation)
{
    fill();
    for (int r = 0; r < ROWS; r++) /* blocks 0 and 1 hold the same; 2 and 3 are exchanged */
        memcpy(expected + r * COLS + 12, expected + r * COLS, 12 * sizeof *got);
    memcpy(got, expected, sizeof got);
    for (int r = 0; r < ROWS; r++) {
        memcpy(got + r * COLS + 24, expected + r * COLS + 36, 12 * sizeof *got);
        memcpy(got + r * COLS + 36, expected + r * COLS + 24, 12 * sizeof *got);
    }
    assay_relation_blocks(&rel, out, &pair, 4);
    expect_full();
    ck_assert_int_eq(rel.kind, ASSAY_REL_PERMUTED);
}
END_TEST

START_TEST(a_permutation_inside_every_head_is_found)
{
    fill();
    for (int r = 0; r < ROWS; r++)
        for (int b = 0; b < 4; b++)
            for (int c = 0; c < 12; c++)
                got[r * COLS + b * 12 + c] = expected[r * COLS + b * 12 + (c * 5) % 12];
    assay_relation_inside(&rel, out, &pair, 4);
    expect_full();
    ck_assert_int_eq(rel.map[1], 5);
}
END_TEST

START_TEST(parts_of_unequal_width_are_found_in_any_order)
{
    fill();
    static const int64_t widths[3] = {20, 18, 10};
    for (int r = 0; r < ROWS; r++) {
        memcpy(got + r * COLS, expected + r * COLS + 20, 28 * sizeof *got);
        memcpy(got + r * COLS + 28, expected + r * COLS, 20 * sizeof *got);
    }
    assay_relation_parts(&rel, out, &pair, widths, 3);
    expect_full();
    ck_assert_int_eq(rel.map[0], 1);
    ck_assert_int_eq(rel.map[1], 2);
    ck_assert_int_eq(rel.map[2], 0);
}
END_TEST

START_TEST(halves_and_pairs_are_riffled_both_ways)
{
    fill();
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < 24; i++) {
            got[r * COLS + 2 * i] = expected[r * COLS + i];
            got[r * COLS + 2 * i + 1] = expected[r * COLS + 24 + i];
        }
    assay_relation_riffle(&rel, out, &pair, 1);
    expect_full();
    EXPECT_NEAR(rel.value, 1, 0);
    for (int r = 0; r < ROWS; r++)
        for (int b = 0; b < 4; b++)
            for (int i = 0; i < 6; i++) {
                got[r * COLS + b * 12 + i] = expected[r * COLS + b * 12 + 2 * i];
                got[r * COLS + b * 12 + 6 + i] = expected[r * COLS + b * 12 + 2 * i + 1];
            }
    assay_relation_riffle(&rel, out, &pair, 4);
    expect_full();
    EXPECT_NEAR(rel.value, -1, 0);
}
END_TEST

START_TEST(shifted_rows_and_transposed_heads_are_found)
{
    fill();
    for (int r = 2; r < ROWS; r++)
        memcpy(got + r * COLS, expected + (r - 2) * COLS, COLS * sizeof *got);
    assay_relation_shifted_rows(&rel, out, &pair, 4);
    expect_full();
    EXPECT_NEAR(rel.value, 2, 0);
    fill();
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 12; j++)
                got[r * COLS + j * 4 + i] = expected[r * COLS + i * 12 + j];
    assay_relation_transposed(&rel, out, &pair, 4, 12);
    expect_full();
}
END_TEST

START_TEST(a_component_counted_twice_and_one_missing_are_counted)
{
    static double parts[3][N];
    uint64_t state = 3;
    for (int i = 0; i < N; i++) {
        expected[i] = 0;
        for (int k = 0; k < 3; k++)
            expected[i] += parts[k][i] = noise(&state);
        got[i] = 2 * parts[0][i] + parts[1][i];
    }
    const double *components[3] = {parts[0], parts[1], parts[2]};
    assay_relation_components(&rel, out, &pair, components, 3);
    expect_full();
    EXPECT_NEAR(rel.count[0], 2, 0);
    EXPECT_NEAR(rel.count[1], 1, 0);
    EXPECT_NEAR(rel.count[2], 0, 0);
}
END_TEST

START_TEST(a_bias_added_to_every_token_is_a_constant)
{
    fill();
    for (int i = 0; i < N; i++)
        got[i] += (i % COLS) * 0.01;
    assay_relation_constant(&rel, out, &pair);
    expect_full();
}
END_TEST

START_TEST(zero_rows_blocks_and_tails_have_their_border_named)
{
    fill();
    memset(got + 3 * COLS, 0, COLS * sizeof *got);
    assay_relation_zero_rows(&rel, out, &pair);
    expect_full();
    ck_assert_int_eq(rel.index, 3);
    fill();
    for (int r = 0; r < ROWS; r++)
        memset(got + r * COLS + 36, 0, 12 * sizeof *got);
    assay_relation_zero_blocks(&rel, out, &pair, 4);
    expect_full();
    ck_assert_int_eq(rel.index, 3);
    assay_relation_tail(&rel, out, &pair);
    expect_full();
    ck_assert_int_eq(rel.index, 36);
}
END_TEST

START_TEST(elements_that_are_not_finite_are_left_out_of_a_fit)
{
    fill();
    for (int i = 0; i < N; i++)
        got[i] *= 3;
    got[17] = NAN;
    got[18] = INFINITY;
    assay_relation_scale(&rel, out, &pair);
    EXPECT_NEAR(rel.value, 3, 1e-12);
}
END_TEST

EXPECT_MAIN("relation", zero_explains_an_empty_buffer_and_nothing_else, scale_and_sign_are_fitted,
            a_factor_per_row_and_per_channel_are_told_apart, the_one_scaled_head_is_named,
            permuted_blocks_are_found_by_assignment, a_repeated_block_is_not_called_a_permutation,
            equal_blocks_still_give_a_permutation, a_permutation_inside_every_head_is_found,
            parts_of_unequal_width_are_found_in_any_order, halves_and_pairs_are_riffled_both_ways,
            shifted_rows_and_transposed_heads_are_found,
            a_component_counted_twice_and_one_missing_are_counted,
            a_bias_added_to_every_token_is_a_constant,
            zero_rows_blocks_and_tails_have_their_border_named,
            elements_that_are_not_finite_are_left_out_of_a_fit)
