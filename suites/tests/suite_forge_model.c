#include "suites/forge_model.h"

#include <stdio.h>

#include "data.h"
#include "engine/engine.h"
#include "engine/quant.h"
#include "expect.h"
#include "references/oracle/oracle.h"

#define N_TOKENS 7
#define MAX_VOCAB 1024

static const int32_t tokens[N_TOKENS] = {5, 100, 31, 100, 255, 0, 77};
static const int32_t positions[N_TOKENS] = {0, 1, 2, 3, 4, 5, 6};

/* Forges into the scratch folder; the path to open lives until the next call. */
static const char *forge(const assay_forge_options *options)
{
    static assay_forge_result made;
    char path[512];
    snprintf(path, sizeof path, "%s", data_scratch("forged.gguf"));
    EXPECT_OK(assay_forge_model(&made, path, options, NULL, NULL));
    return made.path;
}

static void run_engine(float *logits, const char *path, assay_path kind)
{
    assay_model_options as_is = assay_model_options_default();
    assay_engine_options options = assay_engine_options_default();
    assay_model *model = NULL;
    assay_engine *engine = NULL;
    assay_batch batch = {N_TOKENS, tokens, positions, NULL};
    options.path = kind;
    options.n_threads = 1;
    options.max_positions = 32;
    EXPECT_OK(assay_model_open(&model, path, &as_is));
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    EXPECT_OK(assay_engine_forward(engine, &batch, logits));
    ck_assert_int_eq(assay_engine_n_buffer_faults(engine), 0);
    assay_engine_free(engine);
    assay_model_close(model);
}

static double rel_l2(const float *a, const double *b, int64_t n)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(error / size);
}

/* The oracle's logits against both paths of the engine; their size is of order one. */
static void expect_agreement(const char *path, const char *what)
{
    static float expanded[N_TOKENS * MAX_VOCAB], latent[N_TOKENS * MAX_VOCAB];
    assay_gguf *file = NULL;
    assay_oracle *oracle = NULL;
    assay_pass *pass = NULL;
    assay_pass_options options = {0};
    const double *logits = NULL;
    int step = 0;
    EXPECT_OK(assay_gguf_open(&file, path));
    EXPECT_OK(assay_oracle_open(&oracle, file, 0));
    EXPECT_OK(assay_pass_new(&pass, oracle, &options));
    EXPECT_OK(assay_pass_add_step(&step, pass, tokens, N_TOKENS, 0));
    EXPECT_OK(assay_pass_value(&logits, pass, step, ASSAY_POINT_LOGITS, -1));
    const assay_oracle_shape *shape = assay_oracle_shape_of(oracle);
    int64_t n = (int64_t)N_TOKENS * shape->n_vocab;
    ck_assert_int_le(shape->n_vocab, MAX_VOCAB);
    run_engine(expanded, path, ASSAY_PATH_EXPANDED);
    double error = rel_l2(expanded, logits, n), square = 0;
    ck_assert_msg(error < 2e-5, "%s: engine against oracle %g", what, error);
    if (shape->is_mla) {
        run_engine(latent, path, ASSAY_PATH_LATENT);
        error = rel_l2(latent, logits, n);
        ck_assert_msg(error < 2e-5, "%s: latent path against oracle %g", what, error);
    }
    for (int64_t i = 0; i < n; i++)
        square += logits[i] * logits[i];
    ck_assert_msg(square > 0.3 * (double)n && square < 30 * (double)n, "%s: mean square %g", what,
                  square / (double)n);
    assay_pass_free(pass);
    assay_oracle_close(oracle);
    assay_gguf_close(file);
}

START_TEST(forge_model_runs_alike_in_engine_and_oracle)
{
    static const assay_forge_options models[] = {
        {.like = "glm5-tiny", .type = "q8_0"},
        {.like = "glm5-tiny", .type = "q4_k", .n_layer = 2, .order = ASSAY_FORGE_SORTED},
        {.like = "glm5-tiny", .type = "bf16", .n_nextn = 1, .order = ASSAY_FORGE_REVERSED},
        {.like = "dsv3-tiny", .type = "f32", .order = ASSAY_FORGE_SHUFFLED},
        {.like = "dsv3-tiny", .type = "q6_k", .kv_b = true},
        {.like = "dsv2lite-tiny", .type = "f16"},
        {.like = "dsv2lite-tiny", .type = "q5_k", .kv_b = true},
        {.like = "llama-tiny", .type = "q4_0", .n_layer = 1},
        {.like = "glm5-tiny", .type = "q8_0", .n_files = 4, .seed = 9},
        {.like = "glm5-tiny", .type = "q8_0", .n_layer = 1},
        {.like = "llama-tiny", .type = "q8_0", .n_layer = 12, .n_vocab = 512},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char what[64];
        snprintf(what, sizeof what, "model %d (%s %s)", (int)i, models[i].like, models[i].type);
        expect_agreement(forge(&models[i]), what);
    }
}
END_TEST

static float *decoded(const assay_gguf *file, const char *name, int64_t *n)
{
    const assay_gguf_tensor_info *t = assay_gguf_find_tensor(file, name);
    ck_assert_msg(t != NULL, "no tensor '%s'", name);
    *n = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    float *x = malloc((size_t)*n * sizeof *x);
    EXPECT_OK(assay_quant_decode(x, t->type, t->data, *n));
    return x;
}

/* Order and split say where a tensor is, never what is in it; the seed does. */
START_TEST(forge_model_weights_follow_from_seed_and_name)
{
    assay_forge_options base = {.like = "glm5-tiny", .type = "f32", .n_layer = 2};
    assay_forge_options moved = base, other = base;
    moved.order = ASSAY_FORGE_SHUFFLED;
    moved.n_files = 3;
    other.seed = 1;
    assay_gguf *a = NULL, *b = NULL;
    EXPECT_OK(assay_gguf_open(&a, forge(&base)));
    EXPECT_OK(assay_gguf_open(&b, forge(&moved)));
    ck_assert_int_eq(assay_gguf_n_tensors(a), assay_gguf_n_tensors(b));
    ck_assert_int_eq(assay_gguf_n_files(b), 3);
    for (int64_t i = 0; i < assay_gguf_n_tensors(a); i++) {
        const assay_gguf_tensor_info *x = assay_gguf_tensor_at(a, i);
        const assay_gguf_tensor_info *y = assay_gguf_find_tensor(b, x->name);
        ck_assert(y && y->n_bytes == x->n_bytes);
        ck_assert_mem_eq(y->data, x->data, x->n_bytes);
    }
    const assay_gguf_tensor_info *x = assay_gguf_find_tensor(a, "output.weight");
    float *copy = malloc(x->n_bytes);
    memcpy(copy, x->data, x->n_bytes);
    uint64_t n = x->n_bytes;
    assay_gguf_close(a);
    assay_gguf_close(b);
    EXPECT_OK(assay_gguf_open(&b, forge(&other)));
    ck_assert(memcmp(copy, assay_gguf_find_tensor(b, "output.weight")->data, n) != 0);
    assay_gguf_close(b);
    free(copy);
}
END_TEST

START_TEST(forge_model_of_another_type_is_the_same_model_rounded)
{
    static const struct {
        const char *type;
        double bound; /* relative L2 of a normal matrix: the type's step over the deviation */
    } types[] = {{"bf16", 2e-3}, {"f16", 3e-4},  {"q8_0", 8e-3}, {"q6_k", 0.03},
                 {"q5_k", 0.05}, {"q4_k", 0.09}, {"q4_0", 0.12}, {"q5_1", 0.05}};
    const char *name = "blk.0.attn_output.weight";
    assay_forge_options base = {.like = "glm5-tiny", .type = "f32", .n_layer = 1};
    assay_gguf *file = NULL;
    int64_t n = 0;
    EXPECT_OK(assay_gguf_open(&file, forge(&base)));
    float *exact = decoded(file, name, &n);
    assay_gguf_close(file);
    double *wide = malloc((size_t)n * sizeof *wide);
    for (int64_t i = 0; i < n; i++)
        wide[i] = exact[i];
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        base.type = types[k].type;
        EXPECT_OK(assay_gguf_open(&file, forge(&base)));
        float *rounded = decoded(file, name, &n);
        double error = rel_l2(rounded, wide, n);
        ck_assert_msg(error < types[k].bound && error > 0, "%s: %g", base.type, error);
        free(rounded);
        assay_gguf_close(file);
    }
    free(wide);
    free(exact);
}
END_TEST

/* GLM-5 as it is served: 78 layers and one nextn block, 1,809 tensors; and rows that cut blocks. */
START_TEST(forge_model_makes_skeletons_of_real_shape)
{
    assay_forge_options options = {
        .like = "glm-5", .type = "q4_k", .n_nextn = -1, .skeleton = true, .n_files = 10};
    assay_gguf *file = NULL;
    assay_hparams hp;
    EXPECT_OK(assay_gguf_open(&file, forge(&options)));
    ck_assert_int_eq(assay_gguf_n_tensors(file), 1809);
    ck_assert_int_eq(assay_gguf_n_files(file), 10);
    const assay_gguf_tensor_info *t = assay_gguf_find_tensor(file, "blk.78.attn_k_b.weight");
    ck_assert(t && t->ne[0] == 192 && t->ne[1] == 512 && t->ne[2] == 64);
    ck_assert_int_eq(t->type, assay_quant_by_name("q5_0")->number);
    EXPECT_OK(assay_hparams_read(&hp, file));
    ck_assert(hp.n_layer == 78 && hp.n_layer_nextn == 1 && hp.n_expert == 256);
    assay_gguf_close(file);
    for (int i = 0; i < assay_forge_shape_count(); i++) {
        assay_model *model = NULL;
        assay_model_options as_is = assay_model_options_default();
        options.like = assay_forge_shape_at(i)->name;
        EXPECT_OK(assay_model_open(&model, forge(&options), &as_is));
        assay_model_close(model);
    }
}
END_TEST

/* What the reader makes of the keys is what was asked for. */
START_TEST(forge_model_keys_give_its_hyperparameters)
{
    for (int i = 0; i < assay_forge_shape_count(); i++) {
        assay_forge_options options = {
            .like = assay_forge_shape_at(i)->name, .n_nextn = -1, .skeleton = true};
        const assay_forge_shape *shape = assay_forge_shape_at(i);
        assay_gguf *file = NULL;
        assay_hparams want, got;
        EXPECT_OK(assay_forge_hparams(&want, &options));
        EXPECT_OK(assay_gguf_open(&file, forge(&options)));
        EXPECT_OK(assay_hparams_read(&got, file));
        ck_assert_str_eq(got.architecture, want.architecture);
        ck_assert(got.n_layer == want.n_layer && got.n_layer_nextn == want.n_layer_nextn);
        ck_assert(got.n_embd == want.n_embd && got.n_head == want.n_head);
        ck_assert(got.n_head_kv == want.n_head_kv && got.n_ff == want.n_ff);
        ck_assert(got.n_rank_q == want.n_rank_q && got.n_rank_kv == want.n_rank_kv);
        ck_assert(got.d_nope == want.d_nope && got.d_rope == want.d_rope);
        ck_assert(got.d_value == want.d_value && got.n_vocab == want.n_vocab);
        ck_assert(got.n_expert == want.n_expert && got.n_expert_used == want.n_expert_used);
        ck_assert(got.n_layer_dense == want.n_layer_dense);
        ck_assert(got.rope_yarn == (shape->yarn_factor > 0));
        if (want.n_expert) {
            ck_assert(got.gating == want.gating && got.weights_norm == want.weights_norm);
            ck_assert(got.n_group == want.n_group && got.n_group_used == want.n_group_used);
            EXPECT_NEAR(got.weights_scale, want.weights_scale, 1e-6);
        }
        EXPECT_NEAR(got.rope_base, want.rope_base, 0);
        EXPECT_NEAR(got.eps_norm, want.eps_norm, 1e-12);
        ck_assert_mem_eq(got.index_full, want.index_full,
                         want.has_indexer ? (size_t)want.n_layer : 0);
        assay_gguf_close(file);
    }
}
END_TEST

/* Softmax scales of the model authors' formulas, in double precision. */
START_TEST(forge_model_scales_are_the_published_ones)
{
    static const struct {
        const char *like;
        double scale;
    } golden[] = {{"deepseek-v3", 0.1352337788608801},
                  {"deepseek-v2-lite", 0.11472138679292612},
                  {"kimi-k2", 0.13086079996295008},
                  {"glm-5", 0.0625}};
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        assay_forge_options options = {.like = golden[i].like, .n_layer = 2, .skeleton = true};
        assay_gguf *file = NULL;
        assay_hparams hp;
        EXPECT_OK(assay_gguf_open(&file, forge(&options)));
        EXPECT_OK(assay_hparams_read(&hp, file));
        EXPECT_NEAR(hp.softmax_scale, golden[i].scale, 1e-8);
        assay_gguf_close(file);
    }
}
END_TEST

START_TEST(forge_model_refuses_what_it_cannot_make)
{
    assay_forge_result made;
    const char *path = data_scratch("x.gguf");
    assay_forge_options o = {.like = "glm-6"};
    EXPECT_FAILS(ASSAY_USAGE, assay_forge_model(&made, path, &o, NULL, NULL));
    EXPECT_SAYS("known: glm-5");
    o = (assay_forge_options){.like = "glm5-tiny", .type = "q9"};
    EXPECT_FAILS(ASSAY_USAGE, assay_forge_model(&made, path, &o, NULL, NULL));
    o = (assay_forge_options){.like = "glm5-tiny", .type = "iq1_s"};
    EXPECT_FAILS(ASSAY_USAGE, assay_forge_model(&made, path, &o, NULL, NULL));
    o = (assay_forge_options){.like = "glm5-tiny", .kv_b = true};
    EXPECT_FAILS(ASSAY_USAGE, assay_forge_model(&made, path, &o, NULL, NULL));
    o = (assay_forge_options){.like = "glm5-tiny", .wrong = "odd"};
    EXPECT_FAILS(ASSAY_USAGE, assay_forge_model(&made, path, &o, NULL, NULL));
    o = (assay_forge_options){.like = "glm5-tiny", .wrong = "nan", .wrong_at = "blk.9.x"};
    EXPECT_FAILS(ASSAY_USAGE, assay_forge_model(&made, path, &o, NULL, NULL));
    EXPECT_SAYS("blk.9.x");
}
END_TEST

EXPECT_MAIN("forge_model", forge_model_runs_alike_in_engine_and_oracle,
            forge_model_weights_follow_from_seed_and_name,
            forge_model_of_another_type_is_the_same_model_rounded,
            forge_model_makes_skeletons_of_real_shape, forge_model_keys_give_its_hyperparameters,
            forge_model_scales_are_the_published_ones, forge_model_refuses_what_it_cannot_make)
