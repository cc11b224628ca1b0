/*
 * Diagnosis of dumps that other engines made: healthy ones come out clean, faulty ones with their
 * cause and with nothing else.
 */
#include "data.h"
#include "diagnosed.h"
#include "expect.h"

#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/tokenizer.h"
#include "probes/capture.h"

static assay_result result;

static bool large(const char *capture, const char *model)
{
    char a[600], b[600];
    const char *path = data_large(capture);
    if (!path)
        return false; /* the larger data is not here */
    snprintf(a, sizeof a, "%s", path);
    snprintf(b, sizeof b, "%s", data_large(model));
    EXPECT_OK(diagnosed(&result, a, b));
    return true;
}

static void expect_layers(const assay_finding *f, int first, int last)
{
    ck_assert_int_eq(f->layers.n, last - first + 1);
    for (int i = 0; i < f->layers.n; i++)
        ck_assert_int_eq(f->layers.items[i], first + i);
}

static const assay_finding *expect_found(const char *classes, const char *point, int first,
                                         int last)
{
    const assay_finding *f = diagnosed_find(&result, classes, point);
    ck_assert_msg(f != NULL, "expected %s at %s, found %s", classes, point,
                  diagnosed_text(&result));
    expect_layers(f, first, last);
    ck_assert_msg(f->confidence > 0.5, "confidence %g", f->confidence);
    ck_assert(f->evidence.n > 0 && f->advice && f->sentence);
    return f;
}

static void expect_n(int n)
{
    ck_assert_msg(result.n_findings == n, "expected %d findings, found %s", n,
                  diagnosed_text(&result));
    ck_assert_int_eq(assay_result_exit(&result), n > 0);
    assay_result_clear(&result);
}

START_TEST(the_shipped_reference_is_clean)
{
    EXPECT_OK(diagnosed(&result, data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"),
                        data_shipped("glm5-tiny-Q4_K_M.gguf")));
    ck_assert_int_gt(result.n_judged, 100);
    expect_n(0);
}
END_TEST

START_TEST(the_shipped_twin_in_bf16_is_clean)
{
    EXPECT_OK(diagnosed(&result, data_shipped("glm5-tiny-Q4_K_M.hf-bf16.h5"),
                        data_shipped("glm5-tiny-Q4_K_M.gguf")));
    ck_assert_int_gt(result.n_judged, 100);
    expect_n(0);
}
END_TEST

START_TEST(references_and_twins_of_all_models_are_clean)
{
    static const char *const pairs[][2] = {
        {"references/glm5-tiny-bf16.hf-fp32.h5", "models/glm5-tiny-bf16.gguf"},
        {"references/dsv3-tiny-bf16.hf-fp32.h5", "models/dsv3-tiny-bf16.gguf"},
        {"references/dsv3-tiny-bf16.hf-bf16.h5", "models/dsv3-tiny-bf16.gguf"},
        {"references/dsv2lite-tiny-bf16.hf-fp32.h5", "models/dsv2lite-tiny-bf16.gguf"},
        {"references/llama-tiny-bf16.hf-fp32.h5", "models/llama-tiny-bf16.gguf"},
        {"references/llama-tiny-bf16.hf-bf16.h5", "models/llama-tiny-bf16.gguf"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (large(pairs[i][0], pairs[i][1]))
            expect_n(0);
}
END_TEST

START_TEST(long_prompts_are_clean_in_both_precisions)
{
    if (large("references/glm5-tiny-Q4_K_M.hf-fp32.h5", "models/glm5-tiny-Q4_K_M.gguf"))
        expect_n(0);
    if (large("references/glm5-tiny-Q4_K_M.hf-bf16.h5", "models/glm5-tiny-Q4_K_M.gguf"))
        expect_n(0);
}
END_TEST

START_TEST(a_llama_cpp_dump_with_its_conventions_is_clean)
{
    if (large("foreign/glm5-tiny-Q4_K_M.llama_cpp.h5", "models/glm5-tiny-Q4_K_M.gguf"))
        expect_n(0);
}
END_TEST

START_TEST(a_healthy_candidate_gives_no_finding)
{
    if (large("candidates/none.h5", "models/glm5-tiny-bf16.gguf"))
        expect_n(0);
}
END_TEST

START_TEST(a_phantom_output_is_found_in_every_layer_and_nothing_else)
{
    if (!large("candidates/phantom_all.h5", "models/glm5-tiny-bf16.gguf"))
        return;
    expect_found("UNWRITTEN|BUFFER", "attn.proj", 0, 3);
    expect_n(1);
}
END_TEST

START_TEST(a_fused_swap_is_explained_from_both_outputs_together)
{
    if (!large("candidates/fused_swap.h5", "models/glm5-tiny-bf16.gguf"))
        return;
    const assay_finding *f = expect_found("FUSED-ORDER", "attn.q_a", 0, 3);
    ck_assert_ptr_eq(f, diagnosed_find(&result, "FUSED-ORDER", "attn.kv_a"));
    ck_assert_ptr_nonnull(json_object_get(f->fitted, "permutation"));
    ck_assert_int_eq(f->prompts.n, 2);
    expect_n(1);
}
END_TEST

START_TEST(two_faults_in_one_run_come_apart)
{
    if (!large("candidates/two.h5", "models/glm5-tiny-bf16.gguf"))
        return;
    expect_found("UNWRITTEN|BUFFER", "attn.proj", 1, 1);
    expect_found("FUSED-ORDER", "attn.q_a", 3, 3);
    expect_n(2);
}
END_TEST

START_TEST(exchanged_heads_are_found_at_the_output_projection)
{
    if (!large("candidates/headswap.h5", "models/glm5-tiny-bf16.gguf"))
        return;
    expect_found("RANK-SLICE|FUSED-ORDER", "attn.proj", 0, 3);
    expect_n(1);
}
END_TEST

START_TEST(half_split_pairs_are_found_at_queries_and_keys)
{
    if (!large("candidates/neox.h5", "models/glm5-tiny-bf16.gguf"))
        return;
    const assay_finding *f = expect_found("ROPE-PAIR", "attn.q_rope", 0, 3);
    ck_assert_ptr_eq(f, diagnosed_find(&result, "ROPE-PAIR", "attn.k_rope"));
    expect_n(1);
}
END_TEST

START_TEST(a_lost_shared_expert_is_a_hand_over_whose_first_side_is_right)
{
    if (!large("candidates/noshared.h5", "models/glm5-tiny-bf16.gguf"))
        return;
    expect_found("BUFFER|UNWRITTEN", "moe.shared", 1, 3);
    expect_n(1);
}
END_TEST

START_TEST(the_first_element_that_is_not_finite_is_named)
{
    if (!large("candidates/nan.h5", "models/glm5-tiny-bf16.gguf"))
        return;
    const assay_finding *f = expect_found("RANGE", "moe.out", 2, 2);
    ck_assert_str_eq(f->point, "blk.2.moe.out");
    ck_assert(f->has_first_bad);
    ck_assert_int_eq(f->first_bad[0], 3);
    ck_assert_int_eq(f->first_bad[1], 17);
    ck_assert(isnan(f->first_bad_got) && isfinite(f->first_bad_expected));
    expect_n(1);
}
END_TEST

/* Once it is NaN, any op on NaN "gives" what the layer behind it holds. */
START_TEST(an_overflow_is_not_another_layers_buffer)
{
    static const int32_t tokens[] = {1, 17, 42, 99, 7, 23, 64, 5, 81, 3, 120, 11};
    char model[600], capture[600], text[64];
    const char *path = data_large("models/llama-tiny-bf16.gguf");
    if (!path)
        return;
    snprintf(model, sizeof model, "%s", path);
    snprintf(capture, sizeof capture, "%s", data_scratch("overflow.h5"));
    for (int layer = 0; layer < 2; layer++) {
        assay_seam_setting settings[4];
        assay_plant plant;
        assay_model *m;
        int n = 0;
        snprintf(text, sizeof text, "f16-overflow:layer=%d", layer);
        EXPECT_OK(assay_plant_parse(&plant, text));
        EXPECT_OK(assay_model_open(&m, model, NULL));
        EXPECT_OK(assay_plant_make(settings, &n, 4, &plant, assay_model_hparams(m)));
        assay_model_close(m);
        EXPECT_OK(capture_planted(capture, model, tokens, sizeof tokens / sizeof *tokens, 1,
                                  ASSAY_DTYPE_BF16, settings, n));
        EXPECT_OK(diagnosed(&result, capture, model));
        expect_found("RANGE", "ffn.out", layer, layer);
        expect_n(1);
    }
}
END_TEST

START_TEST(a_capture_of_another_model_is_not_judged)
{
    const char *model = data_large("models/llama-tiny-bf16.gguf");
    if (!model)
        return;
    char path[600];
    snprintf(path, sizeof path, "%s", model);
    EXPECT_FAILS(ASSAY_CANNOT_JUDGE,
                 diagnosed(&result, data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"), path));
}
END_TEST

/* A small capture whose prompt has a text. */
static void vocab_capture(const char *path, const int32_t *tokens, int n, const char *text)
{
    assay_capture *c;
    assay_capture_about about = {.producer = "assay",
                                 .producer_version = ASSAY_VERSION,
                                 .architecture = "glm-dsa",
                                 .dtype = "f32",
                                 .path = "expanded",
                                 .backend = "cpu",
                                 .mode = "eager",
                                 .n_ranks = 1};
    assay_model *model;
    assay_engine *engine;
    int32_t id;
    EXPECT_OK(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    assay_engine_options options = assay_engine_options_default();
    EXPECT_OK(assay_capture_create(&c, path, &about, NULL));
    EXPECT_OK(assay_capture_prompt(c, "default", text, tokens, n));
    options.max_positions = n + 1;
    options.tap = assay_capture_tap;
    options.tap_user = c;
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    EXPECT_OK(assay_engine_generate(&id, engine, tokens, n, 1, 0, NULL, NULL));
    EXPECT_OK(assay_capture_finish(c));
    assay_engine_free(engine);
    assay_model_close(model);
}

START_TEST(ids_that_the_text_does_not_give_are_a_finding_of_the_token_side)
{
    static const char text[] = "Count from 6 to 10:";
    assay_gguf *file;
    assay_tokenizer *tokenizer;
    assay_ids ids = {0};
    char path[600];
    EXPECT_OK(assay_gguf_open(&file, data_shipped("glm5-tiny-Q4_K_M.gguf")));
    EXPECT_OK(assay_tokenizer_new(&tokenizer, file, NULL));
    EXPECT_OK(assay_tokenizer_encode(&ids, tokenizer, text, strlen(text), true, true));
    snprintf(path, sizeof path, "%s", data_scratch("vocab.h5"));
    vocab_capture(path, ids.ids, (int)ids.n, text);
    EXPECT_OK(diagnosed(&result, path, data_shipped("glm5-tiny-Q4_K_M.gguf")));
    expect_n(0);
    ids.ids[2]++;
    snprintf(path, sizeof path, "%s", data_scratch("vocab2.h5"));
    vocab_capture(path, ids.ids, (int)ids.n, text);
    EXPECT_OK(diagnosed(&result, path, data_shipped("glm5-tiny-Q4_K_M.gguf")));
    ck_assert_msg(diagnosed_find(&result, "VOCAB", "tokens") != NULL, "found %s",
                  diagnosed_text(&result));
    ck_assert_int_eq(result.findings[0].first_bad[0], 2);
    expect_n(1);
    assay_ids_clear(&ids);
    assay_tokenizer_free(tokenizer);
    assay_gguf_close(file);
}
END_TEST

EXPECT_MAIN("diagnose", ids_that_the_text_does_not_give_are_a_finding_of_the_token_side,
            the_shipped_reference_is_clean, the_shipped_twin_in_bf16_is_clean,
            references_and_twins_of_all_models_are_clean, long_prompts_are_clean_in_both_precisions,
            a_llama_cpp_dump_with_its_conventions_is_clean, a_healthy_candidate_gives_no_finding,
            a_phantom_output_is_found_in_every_layer_and_nothing_else,
            a_fused_swap_is_explained_from_both_outputs_together, two_faults_in_one_run_come_apart,
            exchanged_heads_are_found_at_the_output_projection,
            half_split_pairs_are_found_at_queries_and_keys,
            a_lost_shared_expert_is_a_hand_over_whose_first_side_is_right,
            the_first_element_that_is_not_finite_is_named, an_overflow_is_not_another_layers_buffer,
            a_capture_of_another_model_is_not_judged)
