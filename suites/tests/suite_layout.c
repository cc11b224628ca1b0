/* How values lie in other engines' dumps. */
#include "expect.h"
#include "references/layout.h"

/* A dump of dims whose elements count up, through the layout; the first element that comes out. */
static double *laid_out(assay_plan *plan, const assay_layout *layout, const char *point_axes,
                        const int64_t *dims, int n_dims, const assay_sizes *sizes)
{
    EXPECT_OK(assay_layout_plan(plan, layout, point_axes, dims, n_dims, sizes, NULL));
    int64_t n_in = assay_plan_n_in(plan), n_out = assay_plan_n_out(plan);
    double *in = malloc((size_t)n_in * sizeof *in), *out = malloc((size_t)n_out * sizeof *out);
    for (int64_t i = 0; i < n_in; i++)
        in[i] = (double)i;
    assay_plan_apply(out, in, plan);
    free(in);
    return out;
}

/* 3 steps of 2 tokens; a kernel that is handed the whole cache of 6 keys. */
START_TEST(rows_of_all_keys_are_cut_to_those_of_the_step)
{
    const assay_sizes sizes = {.of = {['T'] = 2, ['S'] = 6, ['H'] = 3, ['K'] = 4, ['B'] = 5}};
    assay_plan plan;
    double *x =
        laid_out(&plan, &(assay_layout){"HTK", "", ""}, "THK", (int64_t[]){1, 3, 6, 4}, 4, &sizes);
    ck_assert_int_eq(plan.n_out, 3);
    ck_assert_int_eq(plan.dims[0], 2);
    ck_assert_int_eq(plan.dims[1], 3);
    for (int t = 0; t < 2; t++)
        for (int h = 0; h < 3; h++)
            for (int k = 0; k < 4; k++)
                ck_assert_double_eq(x[(t * 3 + h) * 4 + k], (h * 6 + 4 + t) * 4 + k);
    free(x);
    /* heads and channels in one axis, two axes of size one in front */
    x = laid_out(&plan, &(assay_layout){"", "", ""}, "THB", (int64_t[]){1, 1, 6, 15}, 4, &sizes);
    ck_assert_int_eq(plan.dims[0], 2);
    ck_assert_double_eq(x[0], 4 * 15);
    free(x);
}
END_TEST

START_TEST(one_token_of_many_keys_is_not_taken_for_a_batch_axis)
{
    const assay_sizes sizes = {.of = {['T'] = 1, ['S'] = 25, ['H'] = 8, ['B'] = 128}};
    assay_plan plan;
    double *x =
        laid_out(&plan, &(assay_layout){"", "", ""}, "THB", (int64_t[]){1, 25, 1024}, 3, &sizes);
    ck_assert_int_eq(plan.dims[0], 1);
    ck_assert_int_eq(plan.dims[1], 8);
    ck_assert_int_eq(plan.dims[2], 128);
    ck_assert_double_eq(x[0], 24 * 1024);
    free(x);
}
END_TEST

START_TEST(other_row_counts_are_refused_in_words)
{
    const assay_sizes sizes = {.of = {['T'] = 2, ['S'] = 6, ['D'] = 4}};
    assay_plan plan;
    EXPECT_FAILS(ASSAY_BAD_SHAPE, assay_layout_plan(&plan, &(assay_layout){"", "", ""}, "TD",
                                                    (int64_t[]){5, 4}, 2, &sizes, NULL));
    EXPECT_SAYS("5 x 4 has 5 rows, the step has 2 tokens");
}
END_TEST

EXPECT_MAIN("layout", rows_of_all_keys_are_cut_to_those_of_the_step,
            one_token_of_many_keys_is_not_taken_for_a_batch_axis,
            other_row_counts_are_refused_in_words)
