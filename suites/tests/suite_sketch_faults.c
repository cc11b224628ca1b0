/*
 * Faults named from captures that hold sketches and no values.
 */
#include "data.h"
#include "expect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "suites/campaign.h"

static assay_campaign *campaign;

static void open_campaign(void)
{
    char path[600];
    snprintf(path, sizeof path, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    const char *const models[] = {path};
    assay_campaign_options options = {
        .models = models, .n_models = 1, .quick = true, .tier = "sketch"};
    EXPECT_OK(assay_campaign_new(&campaign, &options));
}

static assay_plant plant(const char *kind, int layer)
{
    assay_plant p = {
        .layer = layer, .head = -1, .rank = -1, .step = -1, .sequence = -1, .value = NAN};
    snprintf(p.kind, sizeof p.kind, "%s", kind);
    return p;
}

static assay_outcome try_it(const assay_trial *trial)
{
    assay_outcome o;
    EXPECT_OK(assay_campaign_run_one(&o, campaign, trial));
    return o;
}

START_TEST(both_founding_faults_are_named_in_one_run_of_sketches)
{
    open_campaign();
    for (int path = 0; path < 2; path++) {
        assay_trial t = {.n_plants = 2,
                         .plants = {plant("phantom-output", 1), plant("file-order", 3)},
                         .path = path ? ASSAY_PATH_LATENT : ASSAY_PATH_EXPANDED,
                         .n_new = 2};
        assay_outcome o = try_it(&t);
        ck_assert_msg(o.class_right[0] && o.class_right[1], "%s and %s: %s", o.found_class[0],
                      o.found_class[1], o.first);
        ck_assert_msg(o.n_findings == 2 && o.n_elsewhere == 0, "%d findings: %s", o.n_findings,
                      o.first);
    }
    assay_campaign_free(campaign);
}
END_TEST

START_TEST(sketches_of_healthy_runs_are_clean)
{
    open_campaign();
    for (int i = 0; i < 4; i++) {
        assay_trial t = {.path = i % 2 ? ASSAY_PATH_LATENT : ASSAY_PATH_EXPANDED,
                         .dtype = i / 2 ? ASSAY_DTYPE_BF16 : ASSAY_DTYPE_F32,
                         .prompt = 1,
                         .n_new = 2};
        assay_outcome o = try_it(&t);
        ck_assert_msg(o.n_findings == 0, "run %d: %s", i, o.first);
    }
    assay_campaign_free(campaign);
}
END_TEST

/* A value at the border between two stored ones is stored as either, far from float32's noise. */
START_TEST(sketches_of_healthy_runs_with_a_coarse_cache_are_clean)
{
    static const assay_cache_type types[] = {ASSAY_CACHE_F16, ASSAY_CACHE_Q8_0, ASSAY_CACHE_F8E4M3};
    open_campaign();
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        assay_trial t = {.path = i % 2 ? ASSAY_PATH_LATENT : ASSAY_PATH_EXPANDED,
                         .n_new = 2,
                         .run = {.cache = types[i]}};
        assay_outcome o = try_it(&t);
        ck_assert_msg(o.n_findings == 0, "cache %zu: %s", i, o.first);
    }
    assay_campaign_free(campaign);
}
END_TEST

static void expect_named(const char *kind, int layer, bool latent, assay_dtype dtype)
{
    assay_trial t = {.n_plants = 1,
                     .plants = {plant(kind, layer)},
                     .path = latent ? ASSAY_PATH_LATENT : ASSAY_PATH_EXPANDED,
                     .dtype = dtype,
                     .n_new = 2};
    assay_outcome o = try_it(&t);
    ck_assert_msg(o.visible[0], "%s is not visible", kind);
    ck_assert_msg(o.class_right[0] && o.n_elsewhere == 0, "%s: %s, %s", kind, o.found_class[0],
                  o.first);
}

START_TEST(exchanged_blocks_heads_and_slices_are_named_from_sketches)
{
    open_campaign();
    expect_named("file-order", 2, true, ASSAY_DTYPE_F32);
    expect_named("kv-b-halves", 1, false, ASSAY_DTYPE_BF16);
    expect_named("head-slices", 1, false, ASSAY_DTYPE_F32);
    expect_named("heads-zero", 2, true, ASSAY_DTYPE_F32);
    assay_campaign_free(campaign);
}
END_TEST

START_TEST(wrong_constants_masks_and_buffers_are_named_from_sketches)
{
    open_campaign();
    expect_named("softmax-scale", 1, false, ASSAY_DTYPE_F32);
    expect_named("rope-base", 2, true, ASSAY_DTYPE_F32);
    expect_named("mask-shift", 1, false, ASSAY_DTYPE_F32);
    expect_named("phantom-previous", 3, false, ASSAY_DTYPE_BF16);
    expect_named("norm-sum", 3, false, ASSAY_DTYPE_BF16);
    expect_named("token-shift", -1, false, ASSAY_DTYPE_F32);
    assay_campaign_free(campaign);
}
END_TEST

EXPECT_MAIN("sketch_faults", both_founding_faults_are_named_in_one_run_of_sketches,
            sketches_of_healthy_runs_are_clean,
            sketches_of_healthy_runs_with_a_coarse_cache_are_clean,
            exchanged_blocks_heads_and_slices_are_named_from_sketches,
            wrong_constants_masks_and_buffers_are_named_from_sketches)
