/*
 * Conventions that no profile lists: found, named with their numbers, and no fault. What only looks
 * like one stays a fault.
 */
#include "data.h"
#include "diagnosed.h"
#include "expect.h"

#include <stdio.h>

#include "engine/seam.h"
#include "references/layout.h"

static assay_result result;

static const char *note(const char *text)
{
    for (int i = 0; i < result.notes.n; i++)
        if (strstr(result.notes.items[i], text))
            return result.notes.items[i];
    return NULL;
}

/* A llama.cpp dump of which nothing is said. */
START_TEST(a_dump_of_an_unknown_engine_is_clean_and_its_conventions_are_named)
{
    char dump[600], model[600];
    const char *path = data_large("foreign/glm5-tiny-Q4_K_M.llama_cpp.h5");
    if (!path)
        return;
    snprintf(dump, sizeof dump, "%s", path);
    snprintf(model, sizeof model, "%s", data_large("models/glm5-tiny-Q4_K_M.gguf"));
    EXPECT_OK(diagnosed_as(&result, dump, model, "plain"));
    ck_assert_msg(result.n_findings == 0, "%s", diagnosed_text(&result));
    double share = 0;
    const char *q8 = note("8-bit blocks");
    ck_assert_ptr_nonnull(q8);
    ck_assert_int_eq(sscanf(strstr(q8, "takes away"), "takes away %lf", &share), 1);
    ck_assert_double_gt(share, 0.99);
    ck_assert_ptr_nonnull(note("Hadamard matrix at attn.index.q"));
    ck_assert_ptr_nonnull(note("fitted epsilon 0, the model has 1e-06"));
    assay_result_clear(&result);
}
END_TEST

/* Noise of the size of that rounding, in most products: no function of their inputs. */
START_TEST(noise_of_the_same_size_is_no_convention)
{
    static const int32_t tokens[] = {289, 285, 230, 31, 275, 230, 434, 35};
    static const assay_point points[] = {ASSAY_POINT_PROJ,
                                         ASSAY_POINT_Q,
                                         ASSAY_POINT_FFN_OUT,
                                         ASSAY_POINT_SHARED_GATE,
                                         ASSAY_POINT_SHARED_UP,
                                         ASSAY_POINT_SHARED,
                                         ASSAY_POINT_MOE_EXPERT_DOWN,
                                         ASSAY_POINT_FFN_GATE};
    enum { N = sizeof points / sizeof *points };
    assay_seam_setting settings[N];
    char capture[600], model[600];
    for (int i = 0; i < N; i++)
        settings[i] = (assay_seam_setting){.seam = ASSAY_SEAM_ROW_NOISE,
                                           .layer = -1,
                                           .head = -1,
                                           .rank = -1,
                                           .step = -1,
                                           .sequence = -1,
                                           .value = 0.006,
                                           .n_ints = 3,
                                           .ints = {points[i], -1, i + 1}};
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(capture, sizeof capture, "%s", data_scratch("noise.h5"));
    EXPECT_OK(capture_planted(capture, model, tokens, 8, 1, ASSAY_DTYPE_F32, settings, N));
    EXPECT_OK(diagnosed(&result, capture, model));
    ck_assert_int_gt(result.n_findings, 0);
    ck_assert_ptr_null(note("8-bit blocks"));
    assay_result_clear(&result);
}
END_TEST

START_TEST(the_hadamard_transform_is_its_own_inverse)
{
    double x[8] = {1, 2, 3, 4, 5, 6, 7, 9};
    assay_layout_hadamard(x, 8);
    EXPECT_NEAR(x[0], 37 / sqrt(8), 1e-14);
    assay_layout_hadamard(x, 8);
    for (int i = 0; i < 7; i++)
        EXPECT_NEAR(x[i], i + 1, 1e-14);
}
END_TEST

EXPECT_MAIN("conventions", a_dump_of_an_unknown_engine_is_clean_and_its_conventions_are_named,
            noise_of_the_same_size_is_no_convention, the_hadamard_transform_is_its_own_inverse)
