/*
 * What a diagnosis costs, in passes of the oracle over the prompt: the same few for a short prompt
 * and a long one, and never more than it may.
 */
#include "data.h"
#include "diagnosed.h"
#include "expect.h"

#include <stdio.h>

#include "engine/seam.h"

enum { LONG = 160 };

static int32_t tokens[LONG];
static assay_result result;

static assay_seam_setting noise_at(assay_point point, int layer)
{
    return (assay_seam_setting){.seam = ASSAY_SEAM_ROW_NOISE,
                                .layer = layer,
                                .head = -1,
                                .rank = -1,
                                .step = -1,
                                .sequence = -1,
                                .value = 0.3,
                                .n_ints = 3,
                                .ints = {point, -1, 1}};
}

/* Diagnoses a run of n tokens in one step and hands back what it cost. */
static double cost_of(int n, const assay_seam_setting *settings, int n_settings)
{
    char model[600], capture[600];
    for (int i = 0; i < n; i++)
        tokens[i] = 8 + (i * 37 + 11) % 1000;
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(capture, sizeof capture, "%s", data_scratch("cost.h5"));
    EXPECT_OK(
        capture_planted(capture, model, tokens, n, 1, ASSAY_DTYPE_BF16, settings, n_settings));
    EXPECT_OK(diagnosed(&result, capture, model));
    return diagnosed_passes();
}

static bool says(const char *text)
{
    for (int i = 0; i < result.notes.n; i++)
        if (strstr(result.notes.items[i], text))
            return true;
    return false;
}

/* The pass itself, and the same with rounding. */
START_TEST(a_healthy_run_costs_a_few_passes)
{
    for (int n = 8; n <= LONG; n += LONG - 8) {
        double cost = cost_of(n, NULL, 0);
        ck_assert_msg(cost > 1 && cost < 4, "%d tokens: %g passes", n, cost);
        ck_assert_int_eq(result.n_findings, 0);
        assay_result_clear(&result);
    }
}
END_TEST

/* No class explains noise, so every class was asked. */
START_TEST(a_fault_that_no_class_explains_stays_within_the_passes)
{
    assay_seam_setting noise = noise_at(ASSAY_POINT_PROJ, 1);
    for (int n = 8; n <= LONG; n += LONG - 8) {
        double cost = cost_of(n, &noise, 1);
        ck_assert_int_eq(result.n_findings, 1);
        ck_assert_msg(cost <= ASSAY_DIAGNOSE_PASSES, "%d tokens: %g passes", n, cost);
        ck_assert(!says("passes are spent"));
        assay_result_clear(&result);
    }
}
END_TEST

START_TEST(faults_everywhere_stay_within_the_passes_and_a_note_says_so)
{
    static const assay_point points[] = {
        ASSAY_POINT_IN_NORM, ASSAY_POINT_Q_A_NORM, ASSAY_POINT_KV_LATENT,   ASSAY_POINT_Q_ROPE,
        ASSAY_POINT_K_ROPE,  ASSAY_POINT_PROJ,     ASSAY_POINT_MOE_WEIGHTS, ASSAY_POINT_FFN_NORM};
    enum { N = sizeof points / sizeof *points };
    assay_seam_setting settings[N];
    for (int i = 0; i < N; i++)
        settings[i] = noise_at(points[i], -1);
    double cost = cost_of(8, settings, N);
    ck_assert_int_gt(result.n_findings, 3);
    ck_assert_msg(cost <= ASSAY_DIAGNOSE_PASSES, "%g passes", cost);
    ck_assert_msg(says("passes are spent") == (cost > ASSAY_DIAGNOSE_PASSES - 3), "%g passes",
                  cost);
    assay_result_clear(&result);
}
END_TEST

EXPECT_MAIN("cost", a_healthy_run_costs_a_few_passes,
            a_fault_that_no_class_explains_stays_within_the_passes,
            faults_everywhere_stay_within_the_passes_and_a_note_says_so)
