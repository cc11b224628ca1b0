#include "data.h"
#include "probes/selfcheck.h"
#include <stdio.h>

#include "expect.h"
#include "references/import.h"
#include "references/run.h"

static assay_status count(void *user, const assay_print *a, const assay_print *b)
{
    (void)a;
    (void)b;
    ++*(int *)user;
    return ASSAY_OK;
}

static assay_print print(assay_point point, int layer, int step, const double *x, int64_t n)
{
    assay_print p = {.point = point, .layer = layer, .step = step, .rank = -1};
    assay_print_of(&p, x, n);
    return p;
}

static int suspects(assay_print a, assay_print b)
{
    assay_print both[] = {a, b};
    int n = 0;
    EXPECT_OK(assay_selfcheck(both, 2, count, &n));
    return n;
}

START_TEST(selfcheck_suspects_equal_values_that_should_differ)
{
    const double x[4] = {1, 2, 3, 4}, y[4] = {1, 2, 3, 5}, zero[4] = {0};
    assay_print q = print(ASSAY_POINT_Q_A, 0, 0, x, 4);
    ck_assert_int_eq(suspects(q, print(ASSAY_POINT_Q_A_NORM, 0, 0, x, 4)), 1);
    ck_assert_int_eq(suspects(q, print(ASSAY_POINT_Q_A, 1, 0, x, 4)), 1);
    assay_print later = print(ASSAY_POINT_Q_A, 0, 1, x, 4);
    ck_assert_int_eq(suspects(q, later), 0); /* the same tokens */
    later.tokens = 7;
    ck_assert_int_eq(suspects(q, later), 1);
    ck_assert_int_eq(suspects(q, print(ASSAY_POINT_Q_A_NORM, 0, 0, y, 4)), 0);
    ck_assert_int_eq(suspects(q, print(ASSAY_POINT_Q_A_NORM, 0, 1, x, 4)), 0);
    ck_assert_int_eq(
        suspects(print(ASSAY_POINT_Q_A, 0, 0, zero, 4), print(ASSAY_POINT_Q_A, 1, 0, zero, 4)), 0);
    ck_assert_int_eq(suspects(print(ASSAY_POINT_KERNEL_OUT, 0, 0, x, 4),
                              print(ASSAY_POINT_OUT_ATTN, 0, 0, x, 4)),
                     0);
    ck_assert_int_eq(
        suspects(print(ASSAY_POINT_MOE_TOPK, 0, 0, x, 4), print(ASSAY_POINT_MOE_TOPK, 1, 0, x, 4)),
        0);
    assay_print early = q;
    early.hand_over = 1;
    ck_assert_int_eq(suspects(q, early), 0);
}
END_TEST

static assay_status keep(void *user, const char *text)
{
    snprintf(user, 512, "%s", text);
    return ASSAY_OK;
}

START_TEST(selfcheck_finds_nothing_in_the_dumps_of_healthy_and_faulty_engines)
{
    static const char *const files[] = {"references/glm5-tiny-bf16.hf-fp32.h5",
                                        "references/llama-tiny-bf16.hf-fp32.h5",
                                        "references/dsv3-tiny-bf16.hf-bf16.h5",
                                        "references/dsv2lite-tiny-bf16.hf-fp32.h5",
                                        "foreign/glm5-tiny-Q4_K_M.llama_cpp.h5",
                                        "candidates/phantom_all.h5",
                                        "candidates/two.h5"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = data_large(files[i]);
        if (!path)
            return;
        assay_run *run;
        char text[512] = "";
        EXPECT_OK(assay_run_open(&run, &path, 1, NULL));
        EXPECT_OK(assay_run_selfcheck(run, keep, text));
        ck_assert_msg(!text[0], "%s: %s", files[i], text);
        assay_run_close(run);
    }
}
END_TEST

START_TEST(selfcheck_notices_a_hook_that_kept_no_copy)
{
    const char *path = data_scratch("lying.h5");
    static const int32_t tokens[3] = {1, 2, 3};
    const assay_capture_about about = {.producer = "assay", .dtype = "f32"};
    assay_capture *c;
    EXPECT_OK(assay_capture_create(&c, path, &about, NULL));
    EXPECT_OK(assay_capture_prompt(c, "p", NULL, tokens, 3));
    EXPECT_OK(assay_capture_step(c, true, 0, tokens, 3));
    float x[6] = {1, 2, 3, 4, 5, 6};
    assay_buffer b = assay_buffer_view(x, ASSAY_DTYPE_F32, 2, (int64_t[]){3, 2});
    EXPECT_OK(assay_capture_value(c, "blk.0.out", NULL, &b, ASSAY_DTYPE_F32, -1));
    EXPECT_OK(assay_capture_value(c, "blk.1.out", NULL, &b, ASSAY_DTYPE_F32, -1));
    EXPECT_OK(assay_capture_finish(c));
    assay_run *run;
    char text[512] = "";
    EXPECT_OK(assay_run_open(&run, &path, 1, NULL));
    EXPECT_OK(assay_run_selfcheck(run, keep, text));
    ck_assert(strstr(text, "blk.0.out") && strstr(text, "blk.1.out"));
    assay_run_close(run);
}
END_TEST

EXPECT_MAIN("selfcheck", selfcheck_suspects_equal_values_that_should_differ,
            selfcheck_finds_nothing_in_the_dumps_of_healthy_and_faulty_engines,
            selfcheck_notices_a_hook_that_kept_no_copy)
