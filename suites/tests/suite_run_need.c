/*
 * What a capture takes is known beforehand: by the tables, what an engine then shows, to the byte.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "data.h"
#include "diagnosed.h"
#include "expect.h"
#include "probes/capture.h"
#include "references/run_need.h"
#include "suites/forge_model.h"

#define MAX_LAYERS 128
#define N_PROMPT 40
#define N_NEW 3
#define LAST_CHUNKS (1024 * 156 + 64 * 1032) /* tables lie in chunks of 1024 and 64 rows */

static assay_run_need needs[MAX_LAYERS + 1];
static int32_t tokens[N_PROMPT];

static assay_oracle *open_oracle(assay_gguf **file, const char *path)
{
    assay_oracle *oracle;
    EXPECT_OK(assay_gguf_open(file, path));
    EXPECT_OK(assay_oracle_open(&oracle, *file, 0));
    ck_assert_int_lt(assay_oracle_shape_of(oracle)->n_layer, MAX_LAYERS);
    memset(needs, 0, sizeof needs);
    return oracle;
}

static void run_engine(const char *capture, const char *path, assay_path attention,
                       const char *tier)
{
    assay_model *model;
    assay_engine *engine;
    assay_capture *c;
    int32_t ids[N_NEW];
    assay_capture_about about = {.producer = "assay",
                                 .dtype = "f32",
                                 .path = attention == ASSAY_PATH_LATENT ? "latent" : "expanded",
                                 .n_ranks = 1};
    assay_engine_options e = assay_engine_options_default();
    for (int i = 0; i < N_PROMPT; i++)
        tokens[i] = 3 + i;
    EXPECT_OK(assay_model_open(&model, path, NULL));
    EXPECT_OK(assay_capture_create(&c, capture, &about, &(assay_capture_options){.tier = tier}));
    EXPECT_OK(assay_capture_prompt(c, "default", NULL, tokens, N_PROMPT));
    e.path = attention;
    e.max_positions = N_PROMPT + N_NEW;
    e.tap = assay_capture_tap;
    e.tap_user = c;
    EXPECT_OK(assay_engine_new(&engine, model, &e));
    EXPECT_OK(assay_engine_generate(ids, engine, tokens, N_PROMPT, N_NEW, 0, NULL, NULL));
    EXPECT_OK(assay_capture_finish(c));
    assay_engine_free(engine);
    assay_model_close(model);
}

static void add_steps(assay_oracle *oracle, bool latent)
{
    EXPECT_OK(assay_run_need_add_step(needs, oracle, latent, 0, N_PROMPT));
    for (int i = 0; i < N_NEW - 1; i++)
        EXPECT_OK(assay_run_need_add_step(needs, oracle, latent, N_PROMPT + i, 1));
}

static void count_run(assay_run_need *out, const char *capture)
{
    assay_run *run;
    assay_run_options plain = assay_run_options_default();
    *out = (assay_run_need){0};
    EXPECT_OK(assay_run_open(&run, &capture, 1, &plain));
    for (int step = 0; step < N_NEW; step++)
        for (int i = 0; i < assay_run_n_seen(run, 0, step); i++) {
            const assay_seen *seen = assay_run_seen_at(run, 0, step, i);
            int64_t n = assay_seen_count(seen);
            out->n_values++;
            out->full_bytes += 4 * n;
        }
    assay_run_close(run);
}

START_TEST(run_need_is_what_the_engine_shows)
{
    const char *models[] = {data_shipped("glm5-tiny-Q4_K_M.gguf"),
                            data_large("models/dsv2lite-tiny-bf16.gguf"),
                            data_large("models/llama-tiny-bf16.gguf")};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int path = 0; models[i] && path < 2; path++) {
            char model[600], capture[600];
            assay_gguf *file;
            assay_run_need seen;
            snprintf(model, sizeof model, "%s", models[i]);
            snprintf(capture, sizeof capture, "%s", data_scratch("full.h5"));
            assay_oracle *oracle = open_oracle(&file, model);
            int n_layers = assay_oracle_shape_of(oracle)->n_layer;
            if (path && !assay_oracle_shape_of(oracle)->is_mla)
                path = 2;
            add_steps(oracle, path == 1);
            assay_run_need sum = assay_run_need_sum(needs, n_layers);
            run_engine(capture, model, path == 1 ? ASSAY_PATH_LATENT : ASSAY_PATH_EXPANDED, "full");
            count_run(&seen, capture);
            ck_assert_msg(sum.n_values == seen.n_values && sum.full_bytes == seen.full_bytes,
                          "%s, path %d: %lld values of %lld bytes, expected %lld of %lld", model,
                          path, (long long)seen.n_values, (long long)seen.full_bytes,
                          (long long)sum.n_values, (long long)sum.full_bytes);
            assay_oracle_close(oracle);
            assay_gguf_close(file);
        }
}
END_TEST

START_TEST(run_need_of_sketches_is_the_size_of_their_file)
{
    char model[600], capture[600];
    assay_gguf *file;
    struct stat st;
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(capture, sizeof capture, "%s", data_scratch("sketch.h5"));
    assay_oracle *oracle = open_oracle(&file, model);
    add_steps(oracle, false);
    assay_run_need sum = assay_run_need_sum(needs, assay_oracle_shape_of(oracle)->n_layer);
    run_engine(capture, model, ASSAY_PATH_EXPANDED, "sketch");
    ck_assert_int_eq(stat(capture, &st), 0);
    ck_assert_int_ge(st.st_size, sum.sketch_bytes);
    ck_assert_msg((double)st.st_size < 1.02 * (double)sum.sketch_bytes + LAST_CHUNKS,
                  "%lld bytes, expected %lld", (long long)st.st_size, (long long)sum.sketch_bytes);
    assay_oracle_close(oracle);
    assay_gguf_close(file);
}
END_TEST

/* GLM-5: 78 layers, 64 heads, 256 experts; the data of the file is a hole. */
START_TEST(sketches_of_every_point_of_glm5_and_512_tokens_take_less_than_200_mb)
{
    char model[600];
    assay_gguf *file;
    assay_forge_result made;
    assay_forge_options options = {.like = "glm-5", .skeleton = true};
    snprintf(model, sizeof model, "%s", data_scratch("glm5.gguf"));
    EXPECT_OK(assay_forge_model(&made, model, &options, NULL, NULL));
    assay_oracle *oracle = open_oracle(&file, model);
    ck_assert_int_eq(assay_oracle_shape_of(oracle)->n_layer, 78);
    EXPECT_OK(assay_run_need_add_step(needs, oracle, false, 0, 512));
    assay_run_need sum = assay_run_need_sum(needs, 78);
    printf("glm-5, 512 tokens: %lld values, full %.3f GB, sketches %.1f MB\n",
           (long long)sum.n_values, (double)sum.full_bytes * 1e-9, (double)sum.sketch_bytes * 1e-6);
    ck_assert_int_gt(sum.n_values, 78 * 30);
    ck_assert_int_lt(sum.sketch_bytes, 200 * 1000 * 1000);
    assay_oracle_close(oracle);
    assay_gguf_close(file);
}
END_TEST

EXPECT_MAIN("run_need", run_need_is_what_the_engine_shows,
            run_need_of_sketches_is_the_size_of_their_file,
            sketches_of_every_point_of_glm5_and_512_tokens_take_less_than_200_mb)
