/* Checkpoints of safetensors as the model behind a forced pass. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "data.h"
#include "diagnosed.h"
#include "engine/base/number.h"
#include "expect.h"
#include "forge_safetensors.h"
#include "references/checkpoint.h"
#include "reports/repro.h"

#define MODEL "glm5-tiny-Q4_K_M.gguf"

static const char config[] =
    "{\"model_type\": \"glm_moe_dsa\", \"vocab_size\": 1024, \"hidden_size\": 256,"
    " \"intermediate_size\": 512, \"num_hidden_layers\": 4, \"num_attention_heads\": 8,"
    " \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-05,"
    " \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1000000.0},"
    " \"q_lora_rank\": 256, \"kv_lora_rank\": 256, \"qk_rope_head_dim\": 32,"
    " \"qk_nope_head_dim\": 64, \"v_head_dim\": 64, \"first_k_dense_replace\": 1,"
    " \"n_routed_experts\": 8, \"num_experts_per_tok\": 2, \"n_shared_experts\": 1,"
    " \"moe_intermediate_size\": 256, \"routed_scaling_factor\": 2.5, \"norm_topk_prob\": true,"
    " \"n_group\": 1, \"topk_group\": 1, \"scoring_func\": \"sigmoid\","
    " \"index_n_heads\": 4, \"index_head_dim\": 64, \"index_topk\": 128,"
    " \"indexer_types\": [\"full\", \"full\", \"full\", \"full\"]}";

static char folder[4096], model[4096];
static assay_gguf *file;
static assay_hparams hp;
static forge_checkpoint made;

static void write_text(const char *name, const char *text)
{
    char path[5000];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    ck_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* A checkpoint of the shipped model. */
static void make(bool merged)
{
    snprintf(folder, sizeof folder, "%s", data_scratch(merged ? "merged" : "apart"));
    snprintf(model, sizeof model, "%s", data_shipped(MODEL));
    EXPECT_OK(assay_gguf_open(&file, model));
    EXPECT_OK(assay_hparams_read(&hp, file));
    forge_checkpoint_of(&made, file, &hp, merged);
}

static void unmake(void)
{
    forge_checkpoint_free(&made);
    assay_gguf_close(file);
}

static void store(int n_files, bool fp8)
{
    forge_checkpoint_write(&made, folder, n_files, fp8);
    write_text("config.json", config);
}

/* Every weight of the checkpoint's oracle is the GGUF's. */
static void expect_same_weights(void)
{
    assay_checkpoint *c;
    assay_oracle *a, *b;
    EXPECT_OK(assay_checkpoint_open(&c, folder));
    EXPECT_OK(assay_checkpoint_oracle(&a, c, 0));
    EXPECT_OK(assay_oracle_open(&b, file, 0));
    const assay_gguf *header = assay_checkpoint_file(c);
    int n = 0;
    for (int64_t i = 0; i < assay_gguf_n_tensors(header); i++) {
        const char *name = assay_gguf_tensor_at(header, i)->name;
        const double *x, *y;
        int64_t dims[4], same[4];
        if (!assay_gguf_find_tensor(file, name))
            continue; /* kv_b, which this file has in halves */
        EXPECT_OK(assay_oracle_weight(&y, same, b, name));
        EXPECT_OK(assay_oracle_weight(&x, dims, a, name));
        ck_assert_msg(!memcmp(dims, same, sizeof dims), "%s", name);
        size_t count = (size_t)(dims[0] * dims[1] * dims[2] * dims[3]);
        ck_assert_msg(!memcmp(x, y, count * sizeof *x), "%s", name);
        n++;
    }
    ck_assert_int_gt(n, 70);
    assay_oracle_close(a);
    assay_oracle_close(b);
    assay_checkpoint_close(c);
}

START_TEST(checkpoint_gives_the_weights_of_the_gguf_file)
{
    for (int merged = 0; merged < 2; merged++) {
        make(merged);
        store(merged ? 1 : 3, false);
        expect_same_weights();
        unmake();
    }
}
END_TEST

START_TEST(checkpoint_judges_a_clean_run_clean)
{
    assay_result result;
    make(false);
    store(2, false);
    EXPECT_OK(diagnosed(&result, data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"), folder));
    ck_assert_int_gt(result.n_judged, 400);
    ck_assert_msg(result.n_findings == 0, "%s", diagnosed_text(&result));
    assay_result_clear(&result);
    unmake();
}
END_TEST

START_TEST(checkpoint_names_the_layer_whose_weight_was_not_run)
{
    assay_result result;
    make(false);
    forge_matrix *a = forge_checkpoint_find(&made, "model.layers.1.self_attn.o_proj.weight");
    forge_matrix *b = forge_checkpoint_find(&made, "model.layers.2.self_attn.o_proj.weight");
    float *values =
        a->values; /* the run had layer 1's weight in layer 2, and the other way round */
    a->values = b->values;
    b->values = values;
    store(1, false);
    EXPECT_OK(diagnosed(&result, data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"), folder));
    const assay_finding *f = diagnosed_find(&result, "WEIGHT-SOURCE|UNKNOWN", "attn.proj");
    ck_assert_msg(f != NULL, "%s", diagnosed_text(&result));
    for (int i = 0; i < result.n_findings; i++)
        ck_assert_msg(strstr(result.findings[i].point, "attn.proj") != NULL, "%s",
                      diagnosed_text(&result));
    assay_result_clear(&result);
    unmake();
}
END_TEST

/* What float8 with a scale for each 128 x 128 block makes of a matrix. */
static void round_to_f8(forge_matrix *m)
{
    int64_t rows = m->dims[0], cols = m->dims[1];
    for (int64_t r = 0; r < rows; r += 128)
        for (int64_t c = 0; c < cols; c += 128) {
            float most = 0;
            for (int64_t i = r; i < r + 128 && i < rows; i++)
                for (int64_t j = c; j < c + 128 && j < cols; j++)
                    most = fmaxf(most, fabsf(m->values[i * cols + j]));
            float scale = most / 448;
            for (int64_t i = r; i < r + 128 && i < rows; i++)
                for (int64_t j = c; j < c + 128 && j < cols; j++) {
                    float *x = &m->values[i * cols + j];
                    *x = scale > 0 ? assay_f8e4m3_to_f32(assay_f32_to_f8e4m3(*x / scale)) * scale
                                   : 0;
                }
        }
}

START_TEST(checkpoint_in_float8_is_its_codes_times_their_scales)
{
    assay_checkpoint *c[2];
    assay_oracle *o[2];
    make(false);
    for (int rounded = 0; rounded < 2; rounded++) {
        snprintf(folder, sizeof folder, "%s", data_scratch(rounded ? "rounded" : "float8"));
        for (int i = 0; rounded && i < made.n; i++)
            if (made.list[i].n_dims == 2 && strstr(made.list[i].name, "_proj."))
                round_to_f8(&made.list[i]);
        store(2, !rounded);
        EXPECT_OK(assay_checkpoint_open(&c[rounded], folder));
        EXPECT_OK(assay_checkpoint_oracle(&o[rounded], c[rounded], 0));
    }
    const assay_gguf *header = assay_checkpoint_file(c[0]);
    for (int64_t i = 0; i < assay_gguf_n_tensors(header); i++) {
        const char *name = assay_gguf_tensor_at(header, i)->name;
        const double *x, *y;
        int64_t dims[4];
        EXPECT_OK(assay_oracle_weight(&x, dims, o[0], name));
        EXPECT_OK(assay_oracle_weight(&y, dims, o[1], name));
        for (int64_t k = 0; k < dims[0] * dims[1] * dims[2] * dims[3]; k++)
            ck_assert_msg(fabs(x[k] - y[k]) <= 1e-7 * fabs(y[k]), "%s [%lld]: %g, expected %g",
                          name, (long long)k, x[k], y[k]);
    }
    for (int i = 0; i < 2; i++) {
        assay_oracle_close(o[i]);
        assay_checkpoint_close(c[i]);
    }
    unmake();
}
END_TEST

/* The same finding, judged where neither the folder nor the capture is. */
static void expect_shown_again(const assay_finding *f)
{
    assay_result again;
    ck_assert_msg(f->bundle != NULL, "%s at %s has no bundle", f->fault_class, f->point);
    EXPECT_OK(assay_result_init(&again, "repro"));
    EXPECT_OK(assay_repro_replay(&again, f->bundle));
    ck_assert_msg(again.n_findings == 1, "%s: %s", f->bundle, diagnosed_text(&again));
    ck_assert_str_eq(again.findings[0].fault_class, f->fault_class);
    ck_assert_str_eq(again.findings[0].kind, f->kind);
    ck_assert_str_eq(again.findings[0].point, f->point);
    EXPECT_NEAR(again.findings[0].error_rel, f->error_rel, 1e-6 * f->error_rel);
    assay_result_clear(&again);
}

START_TEST(checkpoint_findings_are_shown_again_from_bundles)
{
    static const int32_t tokens[] = {3, 17, 5, 250, 33, 8, 91, 64, 120, 7, 300, 45};
    static const char *const plants[] = {"file-order:layer=3", "expert-shift:layer=2"};
    for (int k = 0; k < 2; k++) { /* experts apart, and merged */
        char capture[5000], bundles[5000];
        assay_plant plant;
        assay_seam_setting settings[4];
        assay_result result;
        int n = 0;
        make(k);
        store(2, false);
        snprintf(capture, sizeof capture, "%s/run.h5", folder);
        snprintf(bundles, sizeof bundles, "%s/bundles", folder);
        EXPECT_OK(assay_plant_parse(&plant, plants[k]));
        EXPECT_OK(assay_plant_make(settings, &n, 4, &plant, &hp));
        EXPECT_OK(capture_planted(capture, model, tokens, 12, 1, ASSAY_DTYPE_F32, settings, n));
        EXPECT_OK(diagnosed_bundled(&result, capture, folder, bundles));
        ck_assert_msg(result.n_findings == 1, "%s: %s", plants[k], diagnosed_text(&result));
        expect_shown_again(&result.findings[0]);
        assay_result_clear(&result);
        unmake();
    }
}
END_TEST

/* One matrix of the checkpoint is narrower than what was run: the bundle holds it to the bit,
 * float8 with its scales multiplied in. */
START_TEST(checkpoint_bundles_hold_weights_of_every_format_exactly)
{
    static const forge_format formats[] = {FORGE_BF16, FORGE_F16, FORGE_F8};
    for (int k = 0; k < 3; k++) {
        char bundles[5000];
        assay_result result;
        make(false);
        forge_checkpoint_find(&made, "model.layers.2.self_attn.o_proj.weight")->format = formats[k];
        store(1, false);
        snprintf(bundles, sizeof bundles, "%s/bundles", folder);
        EXPECT_OK(diagnosed_bundled(&result, data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"), folder,
                                    bundles));
        ck_assert_msg(result.n_findings == 1, "%s", diagnosed_text(&result));
        ck_assert_str_eq(result.findings[0].point, "blk.2.attn.proj");
        expect_shown_again(&result.findings[0]);
        assay_result_clear(&result);
        unmake();
    }
}
END_TEST

/* config with one piece replaced. */
static void expect_refused(assay_status code, const char *says, const char *from, const char *to)
{
    char text[sizeof config + 256];
    const char *at = strstr(config, from);
    assay_checkpoint *c;
    ck_assert_msg(at != NULL, "%s", from);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - config), config, to, at + strlen(from));
    write_text("config.json", text);
    EXPECT_FAILS(code, assay_checkpoint_open(&c, folder));
    EXPECT_SAYS(says);
}

START_TEST(checkpoint_refuses_in_words)
{
    assay_checkpoint *c;
    make(false);
    store(1, false);
    expect_refused(ASSAY_BAD_FILE, "'hidden_size' is missing", "\"hidden_size\": 256,", "");
    expect_refused(ASSAY_BAD_FILE, "'hidden_size' is \"wide\", expected a count", "256,",
                   "\"wide\",");
    expect_refused(ASSAY_BAD_FILE, "line 1, column", "{", "{{");
    expect_refused(ASSAY_UNSUPPORTED, "model_type 'bert' is not known", "glm_moe_dsa", "bert");
    expect_refused(ASSAY_UNSUPPORTED, "rotary scaling 'longrope'", "\"default\"", "\"longrope\"");
    expect_refused(ASSAY_BAD_FILE, "'scoring_func' is \"dice\"", "\"sigmoid\"", "\"dice\"");
    expect_refused(ASSAY_BAD_FILE, "indexer_types", "[\"full\"", "[\"half\"");
    expect_refused(ASSAY_BAD_SHAPE, "self_attn.q_a_proj.weight", "\"q_lora_rank\": 256",
                   "\"q_lora_rank\": 128");
    expect_refused(ASSAY_BAD_FILE, "is an array of 4, expected 5", "\"num_hidden_layers\": 4",
                   "\"num_hidden_layers\": 5");
    char path[5000];
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    EXPECT_FAILS(ASSAY_IO, assay_checkpoint_open(&c, folder));
    EXPECT_SAYS("config.json");
    write_text("config.json", config);
    forge_checkpoint_drop(&made, "model.layers.2.mlp.experts.5.up_proj.weight");
    forge_checkpoint_write(&made, folder, 1, false);
    EXPECT_FAILS(ASSAY_MISSING, assay_checkpoint_open(&c, folder));
    EXPECT_SAYS("model.layers.2.mlp.experts.5.up_proj.weight");
    unmake();
}
END_TEST

EXPECT_MAIN("checkpoint", checkpoint_gives_the_weights_of_the_gguf_file,
            checkpoint_judges_a_clean_run_clean,
            checkpoint_names_the_layer_whose_weight_was_not_run,
            checkpoint_in_float8_is_its_codes_times_their_scales,
            checkpoint_findings_are_shown_again_from_bundles,
            checkpoint_bundles_hold_weights_of_every_format_exactly, checkpoint_refuses_in_words)
