/* Every kind of fault of ranks at 2, 4 and 8 ranks: planted, captured per rank, named with its
 * ranks. */
#include <stdio.h>

#include "data.h"
#include "diagnosed.h"
#include "expect.h"
#include "suites/campaign_ranks.h"
#include "suites/forge_model.h"

typedef struct tally {
    int tried, right;
} tally;

/* Every step-th fault. */
static void try_all(tally *t, assay_rank_campaign *campaign, int n_ranks, int step)
{
    for (int i = 0; i < assay_rank_fault_count(); i += step) {
        assay_rank_outcome o;
        EXPECT_OK(assay_rank_campaign_try(&o, campaign, i, n_ranks, false));
        bool counts = o.is_tried && o.is_visible, right = o.class_right && o.ranks_right;
        t->tried += counts;
        t->right += counts && right;
        if (counts && !right)
            printf("%s\n", o.text);
    }
}

static void expect_right(const tally *t, int at_least)
{
    printf("class and ranks right: %d of %d\n", t->right, t->tried);
    ck_assert_int_ge(t->tried, at_least);
    ck_assert_msg(100 * t->right >= 95 * t->tried, "class and ranks right: %d of %d", t->right,
                  t->tried);
}

START_TEST(shard_faults_are_named_with_their_ranks)
{
    assay_rank_campaign *campaign;
    tally t = {0};
    EXPECT_OK(assay_rank_campaign_new(&campaign, data_shipped("glm5-tiny-Q4_K_M.gguf")));
    for (int n_ranks = 2; n_ranks <= ASSAY_RANK_CAMPAIGN_MOST; n_ranks *= 2)
        try_all(&t, campaign, n_ranks, n_ranks / 2); /* all: assay faults --ranks N */
    assay_rank_campaign_free(campaign);
    expect_right(&t, 45);
}
END_TEST

/* Grouped queries with biases; from 4 ranks on, two ranks hold the same key head. */
START_TEST(shard_faults_of_grouped_queries_are_named_with_their_ranks)
{
    assay_forge_options options = {.like = "llama-tiny", .type = "f32", .biases = true};
    assay_forge_result made;
    assay_rank_campaign *campaign;
    tally t = {0};
    EXPECT_OK(assay_forge_model(&made, data_scratch("biases.gguf"), &options, NULL, NULL));
    EXPECT_OK(assay_rank_campaign_new(&campaign, made.path));
    for (int n_ranks = 2; n_ranks <= 4; n_ranks *= 2)
        try_all(&t, campaign, n_ranks, 2);
    assay_rank_campaign_free(campaign);
    expect_right(&t, 18);
}
END_TEST

START_TEST(shard_faults_are_not_found_where_there_are_none)
{
    assay_rank_campaign *campaign;
    EXPECT_OK(assay_rank_campaign_new(&campaign, data_shipped("glm5-tiny-Q4_K_M.gguf")));
    for (int i = 0; i < 6; i++) {
        assay_rank_outcome o;
        EXPECT_OK(assay_rank_campaign_try(&o, campaign, -1, 2 << i / 2, i % 2));
        ck_assert(o.is_tried);
        ck_assert_msg(o.class_right, "%s", o.text);
    }
    assay_rank_campaign_free(campaign);
}
END_TEST

/* Four ranks that took every fourth head for their own. */
START_TEST(shard_faults_heads_dealt_out_in_turn_are_told_from_exchanged_ones)
{
    static const int32_t tokens[] = {5, 118, 231, 344, 457, 570, 683, 796};
    const assay_seam_setting dealt = {.seam = ASSAY_SEAM_HEAD_ORDER,
                                      .layer = 1,
                                      .head = -1,
                                      .rank = -1,
                                      .step = -1,
                                      .sequence = -1,
                                      .n_ints = 8,
                                      .ints = {0, 4, 1, 5, 2, 6, 3, 7}};
    char capture[512];
    assay_result result;
    snprintf(capture, sizeof capture, "%s", data_scratch("dealt.h5"));
    const char *model = data_shipped("glm5-tiny-Q4_K_M.gguf");
    EXPECT_OK(capture_planted(capture, model, tokens, 8, 1, ASSAY_DTYPE_F32, &dealt, 1));
    EXPECT_OK(diagnosed(&result, capture, model));
    ck_assert_msg(result.n_findings == 1, "%s", diagnosed_text(&result));
    ck_assert_str_eq(result.findings[0].kind, "slices dealt out in turn");
    ck_assert_msg(strstr(result.findings[0].evidence.items[0], "rank r of 4 holds r, r + 4") !=
                      NULL,
                  "%s", result.findings[0].evidence.items[0]);
    assay_result_clear(&result);
}
END_TEST

EXPECT_MAIN("shard_faults", shard_faults_are_named_with_their_ranks,
            shard_faults_heads_dealt_out_in_turn_are_told_from_exchanged_ones,
            shard_faults_of_grouped_queries_are_named_with_their_ranks,
            shard_faults_are_not_found_where_there_are_none)
