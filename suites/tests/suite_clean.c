/*
 * Healthy runs of the shipped model in which values are few: rows of one to four numbers, of which
 * a single realisation of the rounding says little. Nothing must be found.
 */
#include "data.h"
#include "expect.h"

#include <stdio.h>

#include "suites/campaign.h"

static void expect_nothing(assay_path path, assay_dtype dtype, int prompt, int chunk)
{
    char path_text[600];
    snprintf(path_text, sizeof path_text, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    const char *const models[] = {path_text};
    assay_campaign_options options = {.models = models, .n_models = 1, .quick = true};
    assay_trial trial = {
        .path = path, .dtype = dtype, .prompt = prompt, .chunk = chunk, .n_new = 2};
    assay_campaign *campaign;
    assay_outcome o;
    EXPECT_OK(assay_campaign_new(&campaign, &options));
    EXPECT_OK(assay_campaign_run_one(&o, campaign, &trial));
    assay_campaign_free(campaign);
    ck_assert_msg(o.n_findings == 0, "%d findings, first: %s", o.n_findings, o.first);
}

START_TEST(one_token_at_a_time_in_float32_gives_nothing)
{
    expect_nothing(ASSAY_PATH_EXPANDED, ASSAY_DTYPE_F32, 0, 1);
    expect_nothing(ASSAY_PATH_LATENT, ASSAY_DTYPE_F32, 0, 1);
    expect_nothing(ASSAY_PATH_EXPANDED, ASSAY_DTYPE_F32, 1, 1);
}
END_TEST

START_TEST(one_token_at_a_time_in_bfloat16_gives_nothing)
{
    expect_nothing(ASSAY_PATH_EXPANDED, ASSAY_DTYPE_BF16, 0, 1);
    expect_nothing(ASSAY_PATH_LATENT, ASSAY_DTYPE_BF16, 0, 1);
}
END_TEST

START_TEST(two_tokens_at_a_time_give_nothing)
{
    expect_nothing(ASSAY_PATH_EXPANDED, ASSAY_DTYPE_F32, 0, 2);
    expect_nothing(ASSAY_PATH_LATENT, ASSAY_DTYPE_BF16, 0, 2);
}
END_TEST

EXPECT_MAIN("clean", one_token_at_a_time_in_float32_gives_nothing,
            one_token_at_a_time_in_bfloat16_gives_nothing, two_tokens_at_a_time_give_nothing)
