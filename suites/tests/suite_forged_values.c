/*
 * Faults that no seam of the engine made: values of a healthy capture changed in its file, at
 * points that no later op is judged on (probabilities where the kernel takes them itself, logits).
 */
#include "data.h"
#include "diagnosed.h"
#include "expect.h"

#include <hdf5.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int32_t text[] = {593, 283, 286, 76,  300, 340, 271, 208, 60, 290, 303, 346,
                               292, 336, 335, 274, 325, 371, 583, 594, 93, 21,  402, 373};

static assay_result result;

typedef void forger(float *values, size_t rows, size_t cols);

/* Changes one dataset of a step in place; rows: all axes but the last. */
static void forge_step(const char *capture, int step, const char *point, forger *change)
{
    char path[200];
    hsize_t dims[4] = {0};
    snprintf(path, sizeof path, "prompts/default/steps/%04d/%s", step, point);
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

static void forge_dataset(const char *capture, const char *point, forger *change)
{
    forge_step(capture, 0, point, change);
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

static void capture_steps(char capture[600], char model[600]);

static float lse[64]; /* of each head, in the step that is forged */

static void read_lse(float *values, size_t rows, size_t cols)
{
    ck_assert_uint_le(rows * cols, sizeof lse / sizeof *lse);
    memcpy(lse, values, rows * cols * sizeof *values);
}

/* What a decode step's probabilities are when all keys but its own are read 1.2 times as large. */
static void scale_cached_keys(float *values, size_t rows, size_t cols)
{
    for (size_t h = 0; h < rows; h++) {
        float *p = values + h * cols;
        double sum = 0;
        for (size_t i = 0; i < cols; i++) {
            double score = log(p[i]) + lse[h];
            p[i] = (float)exp(i + 1 < cols ? 1.2 * score : score);
            sum += p[i];
        }
        for (size_t i = 0; i < cols; i++)
            p[i] = (float)(p[i] / sum);
    }
}

START_TEST(keys_of_earlier_steps_read_larger_are_a_scale_of_the_cache)
{
    char capture[600], model[600];
    capture_steps(capture, model);
    forge_step(capture, 1, "blk.1.attn.lse", read_lse);
    forge_step(capture, 1, "blk.1.attn.probs", scale_cached_keys);
    EXPECT_OK(diagnosed(&result, capture, model));
    ck_assert_msg(result.n_findings == 1, "%s", diagnosed_text(&result));
    EXPECT_NEAR(json_number_value(json_object_get(result.findings[0].fitted, "cache scale")), 1.2,
                1e-3);
    expect_only("KV-SCALE", "attn.probs");
}
END_TEST

/* Takes points of the last layer, and what comes behind it, out of a step: nobody captured them. */
static void forget(const char *capture, int step, const char *const *points, size_t n)
{
    hid_t file = H5Fopen(capture, H5F_ACC_RDWR, H5P_DEFAULT);
    for (size_t i = 0; i < n; i++) {
        char path[200];
        bool global = !strcmp(points[i], "final_norm") || !strcmp(points[i], "logits");
        snprintf(path, sizeof path, "prompts/default/steps/%04d/%s%s", step, global ? "" : "blk.3.",
                 points[i]);
        if (H5Lexists(file, path, H5P_DEFAULT) > 0)
            H5Ldelete(file, path, H5P_DEFAULT);
    }
    H5Fclose(file);
}

static const char *const behind_attention[] = {
    "attn.kernel_out", "attn.out",       "attn.proj",       "attn_resid",  "ffn.in_norm",
    "moe.logits",      "moe.probs",      "moe.topk",        "moe.weights", "moe.expert.gate",
    "moe.expert.up",   "moe.expert.act", "moe.expert.down", "moe.routed",  "moe.shared.gate",
    "moe.shared.up",   "moe.shared.act", "moe.shared",      "moe.out",     "out",
    "final_norm",      "logits"};

static void capture_steps(char capture[600], char model[600])
{
    snprintf(model, 600, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(capture, 600, "%s", data_scratch("forged.h5"));
    EXPECT_OK(capture_planted(capture, model, text, (int)(sizeof text / sizeof *text), 2,
                              ASSAY_DTYPE_F32, NULL, 0));
}

static void clear(float *values, size_t rows, size_t cols)
{
    memset(values, 0, rows * cols * sizeof *values);
}

/* The newest key in the slot before its own, which stays empty. */
static void write_one_early(float *values, size_t rows, size_t cols)
{
    for (size_t h = 0; h < rows; h++) {
        float *p = values + h * cols;
        double sum = 0;
        p[cols - 2] = p[cols - 1];
        p[cols - 1] = expf(-lse[h]); /* a score of 0 */
        for (size_t i = 0; i < cols; i++)
            sum += p[i];
        for (size_t i = 0; i < cols; i++)
            p[i] = (float)(p[i] / sum);
    }
}

START_TEST(a_slot_too_early_is_one_finding_where_the_cache_is_shown)
{
    char capture[600], model[600];
    capture_steps(capture, model);
    forge_step(capture, 1, "blk.3.attn.lse", read_lse);
    forge_step(capture, 1, "blk.3.attn.probs", write_one_early);
    forge_step(capture, 1, "blk.3.attn.k", clear);
    forge_step(capture, 1, "blk.3.attn.k_rope", clear);
    forge_step(capture, 1, "blk.3.attn.v", clear);
    forget(capture, 1, (const char *const[]){"attn.lse"}, 1);
    forget(capture, 1, behind_attention, sizeof behind_attention / sizeof *behind_attention);
    EXPECT_OK(diagnosed(&result, capture, model));
    expect_only("KV-ADDR", "attn.probs");
}
END_TEST

static float kv_a[64 * 512];

static void read_kv_a(float *values, size_t rows, size_t cols)
{
    ck_assert_uint_le(rows * cols, sizeof kv_a / sizeof *kv_a);
    memcpy(kv_a, values, rows * cols * sizeof *values);
}

static void not_rotated(float *values, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++) /* behind 256 channels of the latent */
        memcpy(values + r * cols, kv_a + r * (256 + cols) + 256, cols * sizeof *values);
}

/* What the prefill's attention was handed is wrong, what it cached is right. */
START_TEST(a_right_cache_behind_a_wrong_key_is_no_second_finding)
{
    char capture[600], model[600];
    capture_steps(capture, model);
    forge_step(capture, 0, "blk.3.attn.kv_a", read_kv_a);
    forge_step(capture, 0, "blk.3.attn.k_rope", not_rotated);
    forget(capture, 0, (const char *const[]){"attn.k", "attn.probs", "attn.lse"}, 3);
    forget(capture, 0, behind_attention, sizeof behind_attention / sizeof *behind_attention);
    EXPECT_OK(diagnosed(&result, capture, model));
    ck_assert_msg(result.n_findings == 1, "%s", diagnosed_text(&result));
    ck_assert_int_eq(result.findings[0].steps.n, 1);
    expect_only("ROPE-PHASE", "attn.k_rope");
}
END_TEST

static void set_text(hid_t object, const char *name, const char *value)
{
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, strlen(value));
    if (H5Aexists(object, name) > 0)
        ck_assert_int_ge(H5Adelete(object, name), 0);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(H5Awrite(attribute, type, value), 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
}

/* Products say that they are bfloat16. */
static void say_bf16(hid_t step, const char *name)
{
    static const char *const ends[] = {".q_a",        ".kv_a", ".q",     ".kv_b", ".proj",
                                       ".gate",       ".up",   ".down",  ".k",    ".v",
                                       ".kernel_out", ".out",  ".shared"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t n = strlen(name), end = strlen(ends[i]);
        if (n < end || strcmp(name + n - end, ends[i]) != 0)
            continue;
        hid_t set = H5Dopen2(step, name, H5P_DEFAULT);
        set_text(set, "origin", "bf16");
        H5Dclose(set);
        break;
    }
}

/* A run in bfloat16 whose parameters are float32, as automatic mixed precision has it. */
START_TEST(mixed_precision_is_judged_by_the_smaller_format)
{
    char capture[600], model[600];
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(capture, sizeof capture, "%s", data_scratch("forged.h5"));
    for (int is_fault = 0; is_fault < 2; is_fault++) {
        EXPECT_OK(capture_planted(capture, model, text, (int)(sizeof text / sizeof *text), 2,
                                  ASSAY_DTYPE_BF16, NULL, 0));
        hid_t file = H5Fopen(capture, H5F_ACC_RDWR, H5P_DEFAULT);
        set_text(file, "dtype", "f32");
        for (int step = 0; step < 2; step++) {
            char path[64];
            snprintf(path, sizeof path, "prompts/default/steps/%04d", step);
            hid_t group = H5Gopen2(file, path, H5P_DEFAULT);
            H5G_info_t about;
            ck_assert_int_ge(H5Gget_info(group, &about), 0);
            for (hsize_t i = 0; i < about.nlinks; i++) {
                char name[64];
                ck_assert_int_gt(H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, name,
                                                    sizeof name, H5P_DEFAULT),
                                 0);
                say_bf16(group, name);
            }
            H5Gclose(group);
        }
        H5Fclose(file);
        if (is_fault)
            forge_dataset(capture, "logits", repeat_a_row);
        EXPECT_OK(diagnosed(&result, capture, model));
        if (is_fault)
            expect_only("ADDR-ARITH", "logits");
        else
            ck_assert_msg(result.n_findings == 0, "found %s", diagnosed_text(&result));
        if (!is_fault)
            assay_result_clear(&result);
    }
}
END_TEST

EXPECT_MAIN("forged_values", a_capture_that_nobody_touched_is_clean,
            a_row_that_repeats_the_one_before_is_a_row_index_off,
            quarters_of_a_row_in_reverse_order_are_found_as_such,
            probabilities_that_lose_a_share_per_row_are_a_denominator, a_tail_of_zeros_is_unwritten,
            keys_of_earlier_steps_read_larger_are_a_scale_of_the_cache,
            mixed_precision_is_judged_by_the_smaller_format,
            a_slot_too_early_is_one_finding_where_the_cache_is_shown,
            a_right_cache_behind_a_wrong_key_is_no_second_finding)
