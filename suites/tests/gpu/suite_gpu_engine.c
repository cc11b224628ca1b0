/*
 * The engine on a device against the oracle in float64, at every point: prefill, chunks, decode,
 * both paths, every model at hand.
 */
#include "data.h"
#include "expect_gpu.h"
#include "forge_watch.h"
#include "references/oracle/oracle.h"

#define BOUND 2e-5
#define N_DECODE 3
#define MOST_TOKENS 200

static const char *const models[] = {"dsv2lite-tiny-bf16", "dsv3-tiny-bf16", "glm5-tiny-Q4_K_M",
                                     "glm5-tiny-bf16", "llama-tiny-bf16"};
#define N_MODELS ((int)(sizeof models / sizeof *models))

/* NULL: not here. */
static const char *path_of(const char *model)
{
    char name[96];
    snprintf(name, sizeof name, "models/%s.gguf", model);
    const char *large = data_large(name);
    if (large || strcmp(model, "glm5-tiny-Q4_K_M"))
        return large;
    return data_shipped("glm5-tiny-Q4_K_M.gguf");
}

static void seeded_prompt(int32_t *ids, int64_t n, int n_vocab)
{
    uint32_t x = 12345;
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)((x >> 8) % (uint32_t)n_vocab);
    }
}

static assay_engine *new_engine(assay_model *model, assay_backend backend, assay_path path,
                                assay_dtype dtype, watch *seen)
{
    assay_engine *engine;
    assay_engine_options o = assay_engine_options_default();
    o.backend = backend;
    o.path = path;
    o.dtype = dtype;
    o.max_positions = MOST_TOKENS + 8;
    o.max_sequences = 4;
    o.tap = seen ? watch_tap : NULL;
    o.tap_user = seen;
    EXPECT_OK(assay_engine_new(&engine, model, &o));
    return engine;
}

/* The ids that decode steps are fed with: what greedy decoding chose. */
static void run(watch *seen, int32_t *ids, assay_model *model, assay_path path, int64_t n,
                int64_t chunk)
{
    assay_engine *engine = new_engine(model, ASSAY_BACKEND_CUDA, path, ASSAY_DTYPE_F32, seen);
    EXPECT_OK(assay_engine_generate(ids + n, engine, ids, n, N_DECODE + 1, chunk, NULL, NULL));
    for (int i = 0; i < assay_engine_n_buffer_faults(engine); i++)
        ck_abort_msg("ledger: %s", assay_engine_buffer_fault_at(engine, i)->text);
    assay_engine_free(engine);
}

static void add_steps(assay_pass *pass, const int32_t *ids, int64_t n, int64_t chunk)
{
    int step;
    if (chunk <= 0 || chunk > n)
        chunk = n;
    for (int64_t at = 0; at < n; at += chunk)
        EXPECT_OK(assay_pass_add_step(&step, pass, ids + at, n - at < chunk ? n - at : chunk, at));
    for (int i = 0; i < N_DECODE; i++)
        EXPECT_OK(assay_pass_add_step(&step, pass, ids + n + i, 1, n + i));
}

/* Choices of experts and keys are followed: a near tie may fall either way. */
static void put_choices(assay_pass *pass, const watch *seen)
{
    for (int i = 0; i < seen->n; i++) {
        const watched *w = &seen->all[i];
        if (assay_point_at(w->point)->is_ids)
            EXPECT_OK(assay_pass_put(pass, (int)w->step, w->point, w->layer, w->values, w->n));
    }
}

static double expect_points(assay_pass *pass, const watch *seen, const char *what)
{
    double worst = 0;
    for (int i = 0; i < seen->n; i++) {
        const watched *w = &seen->all[i];
        char name[ASSAY_POINT_NAME_BYTES];
        const double *want;
        if (assay_point_at(w->point)->is_ids)
            continue;
        EXPECT_OK(assay_pass_value(&want, pass, (int)w->step, w->point, w->layer));
        double error = watch_error(w->values, want, w->n);
        assay_point_format(name, w->point, w->layer);
        ck_assert_msg(error <= BOUND, "%s: step %d: %s differs by %.3g", what, (int)w->step, name,
                      error);
        worst = error > worst ? error : worst;
    }
    return worst;
}

static double judge(assay_model *model, assay_oracle *oracle, assay_path path, int64_t n,
                    int64_t chunk, const char *what)
{
    watch seen = {0};
    int32_t ids[MOST_TOKENS + N_DECODE + 1];
    assay_pass *pass;
    seeded_prompt(ids, n, assay_model_hparams(model)->n_vocab);
    run(&seen, ids, model, path, n, chunk);
    assay_pass_options o = {.latent = path == ASSAY_PATH_LATENT};
    EXPECT_OK(assay_pass_new(&pass, oracle, &o));
    add_steps(pass, ids, n, chunk);
    put_choices(pass, &seen);
    double worst = expect_points(pass, &seen, what);
    ck_assert_int_gt(seen.n, 20);
    assay_pass_free(pass);
    watch_clear(&seen);
    return worst;
}

static void judge_model(const char *name)
{
    static const struct {
        int64_t n, chunk;
    } runs[] = {{8, 0}, {40, 0}, {40, 7}, {20, 3}, {160, 0}};
    const char *file = path_of(name);
    assay_model *model;
    assay_oracle *oracle;
    if (!file)
        return;
    EXPECT_OK(assay_model_open(&model, file, NULL));
    EXPECT_OK(assay_oracle_open(&oracle, assay_model_gguf(model), 0));
    int n_paths = assay_model_hparams(model)->is_mla ? 2 : 1;
    for (int path = 0; path < n_paths; path++)
        for (int i = 0; i < (int)(sizeof runs / sizeof *runs); i++) {
            char what[160];
            snprintf(what, sizeof what, "%s, %s path, %d tokens, chunks of %d", name,
                     path ? "latent" : "expanded", (int)runs[i].n, (int)runs[i].chunk);
            double worst = judge(model, oracle, (assay_path)path, runs[i].n, runs[i].chunk, what);
            printf("# oracle: %s: worst %.2e\n", what, worst);
        }
    assay_oracle_close(oracle);
    assay_model_close(model);
}

START_TEST(gpu_equals_the_oracle_on_dsv2lite)
{
    judge_model(models[0]);
}
END_TEST

START_TEST(gpu_equals_the_oracle_on_dsv3)
{
    judge_model(models[1]);
}
END_TEST

START_TEST(gpu_equals_the_oracle_on_glm5_q4_k_m)
{
    judge_model(models[2]);
}
END_TEST

START_TEST(gpu_equals_the_oracle_on_glm5_bf16)
{
    judge_model(models[3]);
}
END_TEST

START_TEST(gpu_equals_the_oracle_on_llama)
{
    judge_model(models[4]);
}
END_TEST

static void greedy(int32_t *out, assay_model *model, assay_backend backend, assay_path path,
                   assay_dtype dtype, int64_t n_new)
{
    int32_t prompt[24];
    assay_engine *engine = new_engine(model, backend, path, dtype, NULL);
    seeded_prompt(prompt, 24, assay_model_hparams(model)->n_vocab);
    EXPECT_OK(assay_engine_generate(out, engine, prompt, 24, n_new, 0, NULL, NULL));
    assay_engine_free(engine);
}

START_TEST(gpu_writes_the_text_that_the_host_writes)
{
    for (int i = 0; i < N_MODELS; i++) {
        const char *file = path_of(models[i]);
        assay_model *model;
        if (!file)
            continue;
        EXPECT_OK(assay_model_open(&model, file, NULL));
        int n_paths = assay_model_hparams(model)->is_mla ? 2 : 1;
        for (int path = 0; path < n_paths; path++) {
            int32_t host[32], device[32];
            greedy(host, model, ASSAY_BACKEND_CPU, (assay_path)path, ASSAY_DTYPE_F32, 32);
            greedy(device, model, ASSAY_BACKEND_CUDA, (assay_path)path, ASSAY_DTYPE_F32, 32);
            int same = 0;
            while (same < 32 && host[same] == device[same])
                same++;
            ck_assert_msg(same == 32, "%s, path %d: token %d differs", models[i], path, same);
        }
        assay_model_close(model);
    }
}
END_TEST

/* bfloat16: every value shown is one, and the run stays near the float32 run. */
START_TEST(gpu_in_bf16_is_near_and_every_value_is_a_bf16)
{
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, path_of("glm5-tiny-Q4_K_M"), NULL));
    for (int path = 0; path < 2; path++) {
        watch exact = {0}, rounded = {0};
        int32_t ids[64], next;
        seeded_prompt(ids, 40, assay_model_hparams(model)->n_vocab);
        for (int dtype = 0; dtype < 2; dtype++) {
            assay_engine *engine =
                new_engine(model, ASSAY_BACKEND_CUDA, (assay_path)path,
                           dtype ? ASSAY_DTYPE_BF16 : ASSAY_DTYPE_F32, dtype ? &rounded : &exact);
            EXPECT_OK(assay_engine_generate(&next, engine, ids, 40, 1, 0, NULL, NULL));
            assay_engine_free(engine);
        }
        const watched *a = watch_find(&exact, 0, ASSAY_POINT_OUT, 0);
        const watched *b = watch_find(&rounded, 0, ASSAY_POINT_OUT, 0);
        ck_assert_ptr_nonnull(a);
        ck_assert_ptr_nonnull(b);
        double error = watch_error(b->values, a->values, a->n);
        ck_assert_msg(error > 1e-4 && error < 2e-2, "layer 0 differs by %.3g", error);
        for (int64_t i = 0; i < b->n; i++) {
            float x = (float)b->values[i];
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            ck_assert_msg(!(bits & 0xFFFFu), "element %lld is no bfloat16", (long long)i);
        }
        watch_clear(&exact);
        watch_clear(&rounded);
    }
    assay_model_close(model);
}
END_TEST

START_TEST(gpu_repeats_bit_for_bit)
{
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, path_of("glm5-tiny-Q4_K_M"), NULL));
    int n_vocab = assay_model_hparams(model)->n_vocab;
    for (int path = 0; path < 2; path++) {
        int32_t ids[40], positions[40];
        float *logits[2];
        seeded_prompt(ids, 40, n_vocab);
        for (int i = 0; i < 40; i++)
            positions[i] = i;
        for (int i = 0; i < 2; i++) {
            assay_engine *engine =
                new_engine(model, ASSAY_BACKEND_CUDA, (assay_path)path, ASSAY_DTYPE_F32, NULL);
            assay_batch batch = {40, ids, positions, NULL};
            logits[i] = calloc((size_t)n_vocab * 40, sizeof(float));
            EXPECT_OK(assay_engine_forward(engine, &batch, logits[i]));
            assay_engine_free(engine);
        }
        ck_assert_mem_eq(logits[0], logits[1], (size_t)n_vocab * 40 * sizeof(float));
        free(logits[0]);
        free(logits[1]);
    }
    assay_model_close(model);
}
END_TEST

EXPECT_GPU_MAIN("gpu_engine", gpu_equals_the_oracle_on_dsv2lite, gpu_equals_the_oracle_on_dsv3,
                gpu_equals_the_oracle_on_glm5_q4_k_m, gpu_equals_the_oracle_on_glm5_bf16,
                gpu_equals_the_oracle_on_llama, gpu_writes_the_text_that_the_host_writes,
                gpu_in_bf16_is_near_and_every_value_is_a_bf16, gpu_repeats_bit_for_bit)
