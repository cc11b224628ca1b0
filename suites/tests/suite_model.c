/*
 * Opening a model: metadata with what is assumed, tensors by role and shape, refusals by name.
 */
#include <stdio.h>

#include "data.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "expect.h"
#include "forge_mini.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

typedef void change_fn(forge_plain *m);

static assay_status open_changed(assay_model **out, mini_kind kind, change_fn *change)
{
    forge_plain m = {0};
    const char *file = data_scratch("model.gguf");
    forge_mini(&m, kind, 2);
    if (change)
        change(&m);
    forge_plain_write(&m, file);
    return assay_model_open(out, file, NULL);
}

static void expect_refused(mini_kind kind, change_fn *change, assay_status code, const char *says)
{
    assay_model *model;
    EXPECT_FAILS(code, open_changed(&model, kind, change));
    EXPECT_SAYS(says);
    EXPECT_SAYS("model.gguf");
}

static const assay_assumed *assumed(const assay_hparams *hp, const char *key)
{
    for (int i = 0; i < hp->n_assumed; i++)
        if (strstr(hp->assumed[i].key, key))
            return &hp->assumed[i];
    return NULL;
}

START_TEST(model_lists_what_it_assumes)
{
    assay_model *model;
    EXPECT_OK(open_changed(&model, MINI_GLM_DSA, NULL));
    const assay_hparams *hp = assay_model_hparams(model);
    static const char *const keys[] = {"rope.freq_base", "vocab_size", "attention.indexer.types",
                                       "layer_norm_epsilon (indexer)"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const assay_assumed *row = assumed(hp, keys[i]);
        ck_assert_msg(row != NULL, "'%s' is assumed in silence", keys[i]);
        ck_assert_int_gt(strlen(row->why), 10);
        ck_assert_int_gt(strlen(row->value), 0);
    }
    EXPECT_NEAR(hp->rope_base, 10000, 0);
    EXPECT_NEAR(hp->eps_index, 1e-6, 0);
    assay_model_close(model);
}
END_TEST

START_TEST(model_reads_the_shipped_file_without_assuming_what_it_says)
{
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    const assay_hparams *hp = assay_model_hparams(model);
    ck_assert_str_eq(hp->architecture, "glm-dsa");
    ck_assert_int_eq(hp->n_layer, 4);
    ck_assert_int_eq(hp->n_head, 8);
    ck_assert_int_eq(hp->d_nope, 64);
    ck_assert_int_eq(hp->d_rope, 32);
    ck_assert_int_eq(hp->n_rank_kv, 256);
    ck_assert_int_eq(hp->gating, ASSAY_GATING_SIGMOID);
    EXPECT_NEAR(hp->weights_scale, 2.5, 0);
    EXPECT_NEAR(hp->rope_base, 1e6, 0);
    ck_assert_ptr_nonnull(assumed(hp, "expert_gating_func")); /* the file does not say */
    ck_assert_ptr_null(assumed(hp, "expert_weights_scale"));
    ck_assert_ptr_null(assumed(hp, "rope.freq_base"));
    assay_model_close(model);
}
END_TEST

/* softmax scales of real models: widths and YaRN as in their files */
typedef struct scale_golden {
    double multiplier, factor;
    int yarn, nope, rope;
    double scale;
} scale_golden;

START_TEST(model_softmax_scale_is_the_published_one)
{
    static const scale_golden goldens[] = {
        {0.1, 40, 1, 128, 64, 0.1352337788608801},
        {0.0707, 40, 1, 128, 64, 0.11472138679292612},
        {0.1, 32, 1, 128, 64, 0.13086079996295008},
        {0.1, 64, 1, 128, 64, 0.14467962580268925},
        {0, 1, 0, 192, 64, 0.0625},
        {0, 1, 0, 128, 64, 0.07216878364870323},
    };
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        const scale_golden *g = &goldens[i];
        forge_plain m = {0};
        assay_gguf *file;
        assay_hparams hp;
        const char *path = data_scratch("scale.gguf");
        forge_plain_str(&m, "general.architecture", "deepseek2");
        forge_plain_u32(&m, "deepseek2.block_count", 1);
        forge_plain_u32(&m, "deepseek2.context_length", 163840);
        forge_plain_u32(&m, "deepseek2.embedding_length", 8);
        forge_plain_u32(&m, "deepseek2.feed_forward_length", 8);
        forge_plain_u32(&m, "deepseek2.leading_dense_block_count", 1);
        forge_plain_u32(&m, "deepseek2.vocab_size", 8);
        forge_plain_u32(&m, "deepseek2.attention.head_count", 2);
        forge_plain_u32(&m, "deepseek2.attention.q_lora_rank", 8);
        forge_plain_u32(&m, "deepseek2.attention.kv_lora_rank", 8);
        forge_plain_u32(&m, "deepseek2.attention.key_length_mla", (uint32_t)(g->nope + g->rope));
        forge_plain_u32(&m, "deepseek2.attention.value_length_mla", 128);
        forge_plain_u32(&m, "deepseek2.rope.dimension_count", (uint32_t)g->rope);
        forge_plain_f32(&m, "deepseek2.attention.layer_norm_rms_epsilon", 1e-6f);
        if (g->yarn) {
            forge_plain_str(&m, "deepseek2.rope.scaling.type", "yarn");
            forge_plain_f32(&m, "deepseek2.rope.scaling.factor", (float)g->factor);
            forge_plain_u32(&m, "deepseek2.rope.scaling.original_context_length", 4096);
            forge_plain_f32(&m, "deepseek2.rope.scaling.yarn_log_multiplier", (float)g->multiplier);
        }
        forge_plain_write(&m, path);
        EXPECT_OK(assay_gguf_open(&file, path));
        EXPECT_OK(assay_hparams_read(&hp, file));
        EXPECT_NEAR(hp.softmax_scale / g->scale, 1, 1e-7); /* the keys are float32 */
        EXPECT_NEAR(hp.rope_magnitude, 1, 1e-12);
        assay_gguf_close(file);
    }
}
END_TEST

static void add_unknown(forge_plain *m)
{
    forge_plain_tensor(m, "blk.0.attn_extra.weight", 1, DIMS(8), NULL);
}

static void add_out_of_place(forge_plain *m)
{
    forge_plain_tensor(m, "blk.0.ffn_gate_inp.weight", 2, DIMS(2, 8), NULL);
}

static void add_layer_too_many(forge_plain *m)
{
    forge_plain_tensor(m, "blk.1.attn_norm.weight", 1, DIMS(8), NULL);
}

static void add_odd_name(forge_plain *m)
{
    forge_plain_tensor(m, "blk.00.attn_norm.weight", 1, DIMS(8), NULL);
}

static void add_wrong_head(forge_plain *m)
{
    forge_plain_tensor(m, "output.weight", 2, DIMS(16, 9), NULL);
}

START_TEST(model_refuses_tensors_by_name)
{
    expect_refused(MINI_DEEPSEEK2, add_unknown, ASSAY_BAD_FILE, "'blk.0.attn_extra.weight'");
    expect_refused(MINI_DEEPSEEK2, add_out_of_place, ASSAY_BAD_FILE, "'blk.0.ffn_gate_inp.weight'");
    expect_refused(MINI_DEEPSEEK2, add_layer_too_many, ASSAY_BAD_FILE, "'blk.1.attn_norm.weight'");
    expect_refused(MINI_DEEPSEEK2, add_odd_name, ASSAY_BAD_FILE, "'blk.00.attn_norm.weight'");
    expect_refused(MINI_DEEPSEEK2, add_wrong_head, ASSAY_BAD_FILE, "[16, 9], expected [16, 8]");
}
END_TEST

typedef struct bad_value {
    const char *key;
    uint32_t value;
    const char *says;
} bad_value;

/* A model of keys alone: shapes are never reached. */
static assay_status read_keys(const char *architecture, const bad_value *changes, int n)
{
    static const struct {
        const char *key;
        uint32_t value;
    } keys[] = {{"block_count", 3},
                {"context_length", 64},
                {"embedding_length", 8},
                {"feed_forward_length", 8},
                {"attention.head_count", 2},
                {"attention.head_count_kv", 2},
                {"vocab_size", 16},
                {"attention.kv_lora_rank", 8},
                {"attention.q_lora_rank", 8},
                {"attention.key_length_mla", 8},
                {"attention.value_length_mla", 4},
                {"rope.dimension_count", 4},
                {"leading_dense_block_count", 1},
                {"expert_count", 8},
                {"expert_used_count", 2},
                {"expert_shared_count", 1},
                {"expert_feed_forward_length", 8},
                {"expert_group_count", 4},
                {"expert_group_used_count", 2},
                {"nextn_predict_layers", 1},
                {"attention.indexer.head_count", 2},
                {"attention.indexer.key_length", 8},
                {"attention.indexer.top_k", 4}};
    forge_plain m = {0};
    char name[128];
    forge_plain_str(&m, "general.architecture", architecture);
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", architecture);
    forge_plain_f32(&m, name, 1e-6f);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        uint32_t value = keys[i].value;
        bool gone = false;
        for (int c = 0; c < n; c++)
            if (!strcmp(changes[c].key, keys[i].key)) {
                value = changes[c].value;
                gone = value == UINT32_MAX;
            }
        snprintf(name, sizeof name, "%s.%s", architecture, keys[i].key);
        if (!gone)
            forge_plain_u32(&m, name, value);
    }
    const char *path = data_scratch("keys.gguf");
    assay_gguf *file;
    assay_hparams hp;
    forge_plain_write(&m, path);
    EXPECT_OK(assay_gguf_open(&file, path));
    assay_status s = assay_hparams_read(&hp, file);
    assay_gguf_close(file);
    return s;
}

#define GONE UINT32_MAX

static const bad_value bad_values[] = {
    {"block_count", 0, "block_count' is 0"},
    {"block_count", 513, "block_count' is 513"},
    {"block_count", GONE, "block_count' is missing"},
    {"context_length", GONE, "context_length' is missing"},
    {"embedding_length", 0, "embedding_length' is 0"},
    {"embedding_length", 0x7FFFFFFF, "embedding_length' is 2147483647"},
    {"attention.head_count", 0, "head_count' is 0"},
    {"attention.head_count", GONE, "head_count' is missing"},
    {"attention.head_count", 0x80000000u, "head_count' is 2147483648"},
    {"attention.key_length_mla", GONE, "key_length_mla' is missing"},
    {"attention.value_length_mla", GONE, "only one is there"},
    {"attention.key_length_mla", 4, "less than the key width"},
    {"attention.value_length_mla", 0, "value_length_mla' is 0"},
    {"attention.kv_lora_rank", GONE, "kv_lora_rank' is missing"},
    {"attention.q_lora_rank", GONE, "q_lora_rank' is missing"},
    {"rope.dimension_count", GONE, "dimension_count' is missing"},
    {"rope.dimension_count", 3, "even number"},
    {"expert_count", 513, "expert_count' is 513"},
    {"expert_count", 0, "expert_used_count' is 2, expected 0 to 0"},
    {"expert_used_count", 9, "expert_used_count' is 9"},
    {"expert_used_count", 0, "expert_used_count' is missing or 0"},
    {"expert_used_count", 5, "cannot give 5 experts"},
    {"expert_feed_forward_length", GONE, "expert_feed_forward_length' is missing"},
    {"expert_shared_count", GONE, "expert_shared_count' is missing"},
    {"expert_group_count", 8, "expert_group_count' is 8"},
    {"expert_group_count", 3, "groups of equal size"},
    {"expert_group_used_count", 0, "groups of equal size"},
    {"expert_group_used_count", 4, "groups of equal size"},
    {"nextn_predict_layers", 3, "nextn_predict_layers' is 3"},
    {"feed_forward_length", GONE, "feed_forward_length"},
    {"attention.indexer.head_count", GONE, "indexer.head_count' is missing"},
    {"attention.indexer.key_length", 3, "at least the rotary width"},
    {"attention.indexer.top_k", 0, "top_k' is 0"},
};

START_TEST(model_refuses_hostile_metadata_by_key)
{
    EXPECT_OK(read_keys("glm-dsa", NULL, 0));
    for (size_t i = 0; i < sizeof bad_values / sizeof *bad_values; i++) {
        EXPECT_FAILS(ASSAY_BAD_FILE, read_keys("glm-dsa", &bad_values[i], 1));
        EXPECT_SAYS(bad_values[i].says);
    }
    EXPECT_FAILS(ASSAY_UNSUPPORTED, read_keys("gpt2", NULL, 0));
    EXPECT_SAYS("glm-dsa, deepseek2");
    static const bad_value heads = {"attention.head_count", 3, ""};
    EXPECT_FAILS(ASSAY_BAD_FILE, read_keys("llama", &heads, 1));
    EXPECT_SAYS("do not divide");
}
END_TEST

/* A model that fits in no memory runs the same numbers from the file at each use. */
START_TEST(model_kept_or_streamed_gives_the_same_bits)
{
    const assay_seams none = {NULL, 0};
    float *logits[3];
    int32_t ids[20], positions[20];
    int64_t n = 0;
    for (int i = 0; i < 20; i++) {
        ids[i] = 31 * i;
        positions[i] = i;
    }
    for (int path = 0; path < 2; path++) {
        for (int kept = 0; kept < 3; kept++) { /* 2: copies in float32 of all, as seams want them */
            assay_model *model;
            assay_engine *engine;
            assay_model_options options = assay_model_options_default();
            assay_engine_options run = assay_engine_options_default();
            options.keep_bytes = kept ? 0 : -1;
            run.path = (assay_path)path;
            EXPECT_OK(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), &options));
            ck_assert_int_eq(assay_model_keeps(model), kept > 0);
            run.seams = kept == 2 ? &none : NULL;
            EXPECT_OK(assay_engine_new(&engine, model, &run));
            n = 20 * assay_model_hparams(model)->n_vocab;
            logits[kept] = calloc((size_t)n, sizeof **logits);
            EXPECT_OK(assay_engine_forward(engine, &(assay_batch){20, ids, positions, NULL},
                                           logits[kept]));
            assay_engine_free(engine);
            assay_model_close(model);
        }
        for (int way = 1; way < 3; way++)
            ck_assert_mem_eq(logits[0], logits[way], (size_t)n * sizeof **logits);
        for (int way = 0; way < 3; way++)
            free(logits[way]);
    }
}
END_TEST

START_TEST(model_opens_some_layers_and_gives_no_logits_then)
{
    assay_model *model;
    assay_engine *engine;
    assay_model_options options = assay_model_options_default();
    options.last_layer = 1;
    EXPECT_OK(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), &options));
    EXPECT_OK(assay_engine_new(&engine, model, NULL));
    int32_t id = 3, position = 0;
    float *logits = calloc((size_t)assay_model_hparams(model)->n_vocab, sizeof *logits);
    EXPECT_OK(assay_engine_forward(engine, &(assay_batch){1, &id, &position, NULL}, NULL));
    ck_assert_int_eq(assay_engine_n_buffer_faults(engine), 0);
    assay_engine_reset(engine, -1);
    EXPECT_FAILS(ASSAY_USAGE,
                 assay_engine_forward(engine, &(assay_batch){1, &id, &position, NULL}, logits));
    EXPECT_SAYS("logits need the last layer");
    free(logits);
    assay_engine_free(engine);
    assay_model_close(model);
    options.first_layer = 2;
    EXPECT_FAILS(ASSAY_USAGE,
                 assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), &options));
}
END_TEST

EXPECT_MAIN("model", model_lists_what_it_assumes,
            model_reads_the_shipped_file_without_assuming_what_it_says,
            model_softmax_scale_is_the_published_one, model_refuses_tensors_by_name,
            model_refuses_hostile_metadata_by_key, model_kept_or_streamed_gives_the_same_bits,
            model_opens_some_layers_and_gives_no_logits_then)
