/*
 * Values of which only the sketch is known.
 */
#include "expect.h"

#include <math.h>
#include <stdlib.h>

#include "references/forced_pursue.h"
#include "references/relation.h"

enum { ROWS = 40, COLS = 96, GROUPS = 2 };

static double expected[ROWS * COLS], got[ROWS * COLS], out[ROWS * COLS];
static float y[GROUPS * ASSAY_SKETCH_N];

static void fill(double *x, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (double)(int64_t)assay_mix(seed + (uint64_t)i) / 9.3e18;
}

static assay_projection sketch_of(const double *x, int64_t rows, int64_t inner)
{
    assay_projection p = {y, assay_sketch_groups(rows), rows, inner};
    double exact[GROUPS * ASSAY_SKETCH_N];
    assay_project(exact, &p, x);
    for (int64_t k = 0; k < p.n_groups * ASSAY_SKETCH_N; k++)
        y[k] = (float)exact[k];
    return p;
}

START_TEST(distance_of_sketches_is_that_of_the_values)
{
    fill(expected, ROWS * COLS, 1);
    fill(got, ROWS * COLS, 2);
    assay_projection p = sketch_of(got, ROWS, COLS);
    double square = 0;
    for (int i = 0; i < ROWS * COLS; i++)
        square += (got[i] - expected[i]) * (got[i] - expected[i]);
    double seen = assay_projection_rest(NULL, &p, expected);
    ck_assert_double_lt(fabs(seen / square - 1), 0.3);
    ck_assert_double_lt(assay_projection_rest(NULL, &p, got), 1e-12 * square);
}
END_TEST

START_TEST(values_of_a_small_group_are_known_by_least_squares)
{
    bool exact;
    fill(expected, 200, 1);
    fill(got, 200, 2);
    assay_projection p = sketch_of(got, 1, 200);
    EXPECT_OK(assay_projection_approach(out, &exact, &p, expected));
    ck_assert(exact);
    for (int i = 0; i < 200; i++)
        ck_assert_double_lt(fabs(out[i] - got[i]), 1e-4);
}
END_TEST

START_TEST(estimate_of_a_large_group_is_right_on_average)
{
    bool exact;
    double cross = 0, size = 0;
    fill(expected, ROWS * COLS, 1);
    for (int i = 0; i < ROWS * COLS; i++)
        got[i] = 0.5 * expected[i];
    assay_projection p = sketch_of(got, ROWS, COLS);
    EXPECT_OK(assay_projection_approach(out, &exact, &p, expected));
    ck_assert(!exact);
    for (int i = 0; i < ROWS * COLS; i++) {
        cross += out[i] * expected[i];
        size += expected[i] * expected[i];
    }
    ck_assert_double_lt(fabs(cross / size - 0.5), 0.1);
}
END_TEST

START_TEST(exchanged_blocks_and_factors_of_rows_are_found_in_sketches)
{
    fill(expected, ROWS * COLS, 1);
    assay_relation rel;
    for (int i = 0; i < ROWS * COLS; i++) /* blocks 1 and 2 of four are exchanged */
        got[i] = expected[i / 24 % 4 == 1 ? i + 24 : i / 24 % 4 == 2 ? i - 24 : i];
    assay_projection p = sketch_of(got, ROWS, COLS);
    bool exact;
    EXPECT_OK(assay_projection_approach(got, &exact, &p, expected));
    assay_relation_pair pair = {.got = got,
                                .expected = expected,
                                .rows = ROWS,
                                .cols = COLS,
                                .sketch = &p,
                                .is_noisy = true};
    assay_relation_blocks(&rel, out, &pair, 4);
    ck_assert_int_eq(rel.map[1], 2);
    ck_assert_int_eq(rel.map[2], 1);
    ck_assert_double_gt(rel.explained, 0.999999);
    for (int i = 0; i < ROWS * COLS; i++)
        got[i] = expected[i] * (i / COLS == 7 ? 3 : 1);
    p = sketch_of(got, ROWS, COLS);
    assay_relation_scale_rows(&rel, out, &pair);
    ck_assert_double_gt(rel.explained, 0.999999);
    ck_assert_double_lt(fabs(out[7 * COLS] - 3 * expected[7 * COLS]), 1e-5);
}
END_TEST

START_TEST(ids_exchanged_within_the_noise_are_found_in_their_sketch)
{
    enum { T = 30, N = 40 };
    double ids[T * N], scores[T * N], noise[T], list[T * N];
    for (int t = 0; t < T; t++) {
        noise[t] = 0.1;
        for (int i = 0; i < N; i++) {
            ids[t * N + i] = (i * 7 + t) % N;
            scores[t * N + (i * 7 + t) % N] =
                (N - i) * 0.06; /* the next two are within the noise */
        }
    }
    for (int i = 0; i < T * N; i++)
        list[i] = ids[i];
    for (int t = 0; t < T; t += 5) {
        list[t * N + t] = ids[t * N + t + 1];
        list[t * N + t + 1] = ids[t * N + t];
    }
    assay_projection p = sketch_of(list, T, N);
    const assay_pursuit pursuit = {
        .rows = T, .width = N, .n_scores = N, .scores = scores, .noise = noise};
    bool found;
    EXPECT_OK(assay_pursue_ids(&found, ids, &p, &pursuit, 1e-2));
    ck_assert(found);
    for (int i = 0; i < T * N; i++)
        ck_assert_double_eq(ids[i], list[i]);
}
END_TEST

EXPECT_MAIN("projection", distance_of_sketches_is_that_of_the_values,
            values_of_a_small_group_are_known_by_least_squares,
            estimate_of_a_large_group_is_right_on_average,
            exchanged_blocks_and_factors_of_rows_are_found_in_sketches,
            ids_exchanged_within_the_noise_are_found_in_their_sketch)
