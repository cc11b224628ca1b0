/*
 * Faults that are small: most are far below the rounding noise of the whole tensor, and some leave
 * the text right. Each alone, the engine in bfloat16, forty tokens of text.
 */
#include "data.h"
#include "diagnosed.h"
#include "expect.h"

#include <stdio.h>

#include "engine/role.h"
#include "engine/seam.h"

static const int32_t text[] = {593, 283, 286, 76,  300, 340,  271, 208, 60,  290,
                               303, 346, 292, 336, 335, 274,  325, 371, 583, 594,
                               93,  21,  402, 373, 328, 1019, 79,  281, 86,  208,
                               556, 292, 230, 365, 86,  641,  305, 277, 623, 21};

static assay_result result;

/* The small fault alone; then the home, and one of the classes. */
static void expect_home(const assay_seam_setting *setting, const char *point, int layer,
                        const char *classes)
{
    char model[600], capture[600];
    const char *path = data_large("models/glm5-tiny-bf16.gguf");
    snprintf(model, sizeof model, "%s", path ? path : data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(capture, sizeof capture, "%s", data_scratch("small.h5"));
    EXPECT_OK(capture_planted(capture, model, text, (int)(sizeof text / sizeof *text), 1,
                              ASSAY_DTYPE_BF16, setting, 1));
    EXPECT_OK(diagnosed(&result, capture, model));
    const assay_finding *f = diagnosed_find(&result, classes, point);
    ck_assert_msg(f != NULL, "expected %s at %s, found %s", classes, point,
                  diagnosed_text(&result));
    ck_assert_msg(result.n_findings == 1, "expected one finding, found %s",
                  diagnosed_text(&result));
    if (layer >= 0) {
        ck_assert_int_eq(f->layers.n, 1);
        ck_assert_int_eq(f->layers.items[0], layer);
    }
}

static double fitted(const char *name)
{
    return json_number_value(json_object_get(result.findings[0].fitted, name));
}

#define ANYWHERE .head = -1, .rank = -1, .step = -1, .sequence = -1

START_TEST(a_softmax_scale_off_by_five_percent_is_named_with_its_value)
{
    expect_home(
        &(assay_seam_setting){
            .seam = ASSAY_SEAM_SOFTMAX_SCALE, .layer = -1, ANYWHERE, .value = 1.05},
        "attn.probs", -1, "LOGIT-SHAPE");
    EXPECT_NEAR(fitted("ratio"), 1.05, 5e-3);
    assay_result_clear(&result);
}
END_TEST

START_TEST(half_the_rotary_base_is_named_with_its_value)
{
    expect_home(
        &(assay_seam_setting){.seam = ASSAY_SEAM_ROPE_BASE, .layer = -1, ANYWHERE, .value = 5e5},
        "attn.q_rope", -1, "ROPE-PHASE");
    EXPECT_NEAR(fitted("base"), 5e5, 5e3);
    assay_result_clear(&result);
}
END_TEST

START_TEST(one_head_off_by_half_a_percent_is_named_with_head_and_factor)
{
    assay_seam_setting s = {.seam = ASSAY_SEAM_HEAD_GAIN, .layer = 2, ANYWHERE, .value = 0.995};
    s.head = 3;
    expect_home(&s, "attn.kernel_out", 2, "CONST");
    EXPECT_NEAR(fitted("factor"), 0.995, 1e-3);
    EXPECT_NEAR(fitted("head"), 3, 0);
    assay_result_clear(&result);
}
END_TEST

START_TEST(one_row_of_forty_with_five_percent_noise_is_found_with_its_shape)
{
    expect_home(&(assay_seam_setting){.seam = ASSAY_SEAM_ROW_NOISE,
                                      .layer = 1,
                                      ANYWHERE,
                                      .value = 0.05,
                                      .n_ints = 3,
                                      .ints = {ASSAY_POINT_PROJ, 17, 1}},
                "attn.proj", 1, "UNKNOWN");
    assay_result_clear(&result);
}
END_TEST

START_TEST(a_routed_scale_off_by_one_percent_is_named_with_its_value)
{
    expect_home(
        &(assay_seam_setting){.seam = ASSAY_SEAM_ROUTER_SCALE, .layer = 1, ANYWHERE, .value = 1.01},
        "moe.weights", 1, "ROUTE");
    EXPECT_NEAR(fitted("scale"), 2.525, 5e-3);
    assay_result_clear(&result);
}
END_TEST

START_TEST(a_hundredfold_epsilon_is_named_with_its_value)
{
    expect_home(&(assay_seam_setting){.seam = ASSAY_SEAM_NORM_EPS,
                                      .layer = 0,
                                      ANYWHERE,
                                      .value = 1e-3,
                                      .n_ints = 1,
                                      .ints = {0}},
                "attn.in_norm", 0, "CONST");
    EXPECT_NEAR(fitted("epsilon"), 1e-3, 2e-5);
    assay_result_clear(&result);
}
END_TEST

START_TEST(one_wrong_expert_for_one_token_is_found)
{
    expect_home(&(assay_seam_setting){.seam = ASSAY_SEAM_EXPERT_WRONG,
                                      .layer = 2,
                                      ANYWHERE,
                                      .value = 1,
                                      .n_ints = 3,
                                      .ints = {11, 1, 6}},
                "moe.expert.gate", 2, "EXPERT-MAP");
    assay_result_clear(&result);
}
END_TEST

START_TEST(one_key_beyond_the_mask_is_found)
{
    expect_home(
        &(assay_seam_setting){.seam = ASSAY_SEAM_MASK_SHIFT, .layer = 1, ANYWHERE, .value = 1},
        "attn.probs", 1, "VALID-SET");
    EXPECT_NEAR(fitted("shift"), 1, 0);
    assay_result_clear(&result);
}
END_TEST

START_TEST(the_router_bias_in_the_weights_is_found)
{
    expect_home(
        &(assay_seam_setting){.seam = ASSAY_SEAM_ROUTER_BIAS, .layer = 1, ANYWHERE, .value = 2},
        "moe.weights", 1, "ROUTE");
    assay_result_clear(&result);
}
END_TEST

/* Two tokens and forty decode steps: no value has rows enough to show a factor below its noise. */
static void expect_pooled(const assay_seam_setting *setting, const char *point, int layer,
                          double factor)
{
    char model[600], capture[600];
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(capture, sizeof capture, "%s", data_scratch("pooled.h5"));
    EXPECT_OK(capture_planted(capture, model, text, 2, 40, ASSAY_DTYPE_BF16, setting, 1));
    EXPECT_OK(diagnosed(&result, capture, model));
    const assay_finding *f = diagnosed_find(&result, "CONST", point);
    ck_assert_msg(f && result.n_findings == 1, "expected CONST at %s, found %s", point,
                  diagnosed_text(&result));
    if (layer >= 0)
        ck_assert_int_eq(f->layers.items[0], layer);
    EXPECT_NEAR(fitted("factor"), factor, 1e-4);
    ck_assert(strstr(f->evidence.items[1], "no single value shows it") != NULL);
    assay_result_clear(&result);
}

START_TEST(a_thousandth_too_much_in_every_logit_is_found_in_the_pool_of_steps)
{
    expect_pooled(
        &(assay_seam_setting){
            .seam = ASSAY_SEAM_LOGITS_SCALE, .layer = -1, ANYWHERE, .value = 1.0012},
        "logits", -1, 1.0012);
}
END_TEST

START_TEST(a_thousandth_too_much_in_one_weight_is_found_in_its_layer)
{
    expect_pooled(&(assay_seam_setting){.seam = ASSAY_SEAM_WEIGHT_SCALE,
                                        .layer = 2,
                                        ANYWHERE,
                                        .value = 1.0012,
                                        .n_ints = 1,
                                        .ints = {ASSAY_ROLE_ATTN_OUTPUT}},
                  "attn.proj", 2, 1.0012);
}
END_TEST

EXPECT_MAIN("small_faults", a_thousandth_too_much_in_every_logit_is_found_in_the_pool_of_steps,
            a_thousandth_too_much_in_one_weight_is_found_in_its_layer,
            a_softmax_scale_off_by_five_percent_is_named_with_its_value,
            half_the_rotary_base_is_named_with_its_value,
            one_head_off_by_half_a_percent_is_named_with_head_and_factor,
            one_row_of_forty_with_five_percent_noise_is_found_with_its_shape,
            a_routed_scale_off_by_one_percent_is_named_with_its_value,
            a_hundredfold_epsilon_is_named_with_its_value, one_wrong_expert_for_one_token_is_found,
            one_key_beyond_the_mask_is_found, the_router_bias_in_the_weights_is_found)
