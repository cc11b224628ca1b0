/*
 * Faults that no seam of the engine made: values of a healthy capture changed in its file, at
 * points that no later op is judged on (probabilities where the kernel takes them itself, logits).
 */
#include "data.h"
#include "diagnosed.h"
#include "expect.h"

#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

static const int32_t text[] = {593, 283, 286, 76,  300, 340, 271, 208, 60, 290, 303, 346,
                               292, 336, 335, 274, 325, 371, 583, 594, 93, 21,  402, 373};

static assay_result result;

typedef void forger(float *values, size_t rows, size_t cols);

/* Changes one dataset of prefill in place; rows: all axes but the last. */
static void forge_dataset(const char *capture, const char *point, forger *change)
{
    char path[200];
    hsize_t dims[4] = {0};
    snprintf(path, sizeof path, "prompts/default/steps/0000/%s", point);
    hid_t file = H5Fopen(capture, H5F_ACC_RDWR, H5P_DEFAULT);
    ck_assert_msg(file >= 0, "%s cannot be opened", capture);
    hid_t set = H5Dopen2(file, path, H5P_DEFAULT), space = H5Dget_space(set);
    int n_dims = H5Sget_simple_extent_dims(space, dims, NULL);
    ck_assert_int_ge(n_dims, 2);
    size_t cols = (size_t)dims[n_dims - 1], rows = 1;
    for (int i = 0; i < n_dims - 1; i++)
        rows *= (size_t)dims[i];
    float *values = calloc(rows * cols, sizeof *values);
    ck_assert_ptr_nonnull(values);
    ck_assert_int_ge(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0);
    change(values, rows, cols);
    ck_assert_int_ge(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0);
    if (H5Aexists(set, "word_sum") > 0) /* whoever means to change a value says so */
        H5Adelete(set, "word_sum");
    free(values);
    H5Sclose(space);
    H5Dclose(set);
    H5Fclose(file);
}

/* A healthy run in bfloat16 with one forged point; point NULL: none. */
static void diagnose_forged(const char *point, forger *change)
{
    char model[600], capture[600];
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(capture, sizeof capture, "%s", data_scratch("forged.h5"));
    EXPECT_OK(capture_planted(capture, model, text, (int)(sizeof text / sizeof *text), 1,
                              ASSAY_DTYPE_BF16, NULL, 0));
    if (point)
        forge_dataset(capture, point, change);
    EXPECT_OK(diagnosed(&result, capture, model));
}

static void expect_only(const char *classes, const char *point)
{
    ck_assert_msg(result.n_findings == 1 && diagnosed_find(&result, classes, point),
                  "expected %s at %s alone, found %s", classes, point, diagnosed_text(&result));
    assay_result_clear(&result);
}

static void repeat_a_row(float *values, size_t rows, size_t cols)
{
    ck_assert_uint_gt(rows, 9);
    memcpy(values + 9 * cols, values + 8 * cols, cols * sizeof *values);
}

static void reverse_quarters(float *values, size_t rows, size_t cols)
{
    size_t width = cols / 4;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < cols / 2; i++) {
            float *a = values + r * cols + i, *b = values + r * cols + (3 - i / width) * width;
            float kept = *a;
            *a = b[i % width];
            b[i % width] = kept;
        }
}

/* As a sink does: every row of probabilities loses a share of its own. */
static void widen_denominators(float *values, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < cols; i++)
            values[r * cols + i] *= 0.95F - 0.01F * (float)(r % 7);
}

static void clear_the_tail(float *values, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++)
        memset(values + r * cols + cols - 64, 0, 64 * sizeof *values);
}

START_TEST(a_capture_that_nobody_touched_is_clean)
{
    diagnose_forged(NULL, NULL);
    ck_assert_msg(result.n_findings == 0, "found %s", diagnosed_text(&result));
    assay_result_clear(&result);
}
END_TEST

START_TEST(a_row_that_repeats_the_one_before_is_a_row_index_off)
{
    diagnose_forged("logits", repeat_a_row);
    expect_only("ADDR-ARITH", "logits");
}
END_TEST

START_TEST(quarters_of_a_row_in_reverse_order_are_found_as_such)
{
    diagnose_forged("logits", reverse_quarters);
    expect_only("RANK-SLICE|FUSED-ORDER", "logits");
}
END_TEST

START_TEST(probabilities_that_lose_a_share_per_row_are_a_denominator)
{
    diagnose_forged("blk.1.attn.probs", widen_denominators);
    expect_only("LOGIT-SHAPE", "attn.probs");
}
END_TEST

START_TEST(a_tail_of_zeros_is_unwritten)
{
    diagnose_forged("logits", clear_the_tail);
    expect_only("UNWRITTEN", "logits");
}
END_TEST

EXPECT_MAIN("forged_values", a_capture_that_nobody_touched_is_clean,
            a_row_that_repeats_the_one_before_is_a_row_index_off,
            quarters_of_a_row_in_reverse_order_are_found_as_such,
            probabilities_that_lose_a_share_per_row_are_a_denominator, a_tail_of_zeros_is_unwritten)
