/*
 * Products of integers: the rounding of activations, the product beside the exact one, and runs of
 * the engine with them.
 */
#include <math.h>
#include <stdlib.h>

#include "data.h"
#include "diagnosed.h"
#include "engine/ops/linear_integer.h"
#include "expect.h"
#include "forge_mini.h"
#include "probes/capture.h"
#include "references/oracle/oracle_quant.h"
#include "references/run.h"
#include "reports/fault.h"

enum { K = 512, N = 5, T = 7 };

static uint32_t state = 1;

static float noise(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) * 0x1p-23f - 1;
}

/* Rows of every kind: zeros, ties, one large element, two of largest size, tiny, large. */
static void fill(float *x)
{
    for (int i = 0; i < T * K; i++)
        x[i] = noise() * (i / K == 5 ? 1e-38f : i / K == 6 ? 1e6f : 1);
    for (int i = 0; i < K; i++) {
        x[i] = i < 256 ? 0 : x[i];
        x[K + i] = (float)(i % 255 - 127) * 0.5f;
        x[2 * K + i] = i == 3 || i == 300 ? -40 : x[2 * K + i];
        x[3 * K + i] = i % 64 == 9 ? -2.0f : i % 64 == 10 ? 2.0f : x[3 * K + i];
    }
}

START_TEST(integer_activations_are_rounded_as_the_oracle_rounds_them)
{
    static float x[T * K], y[T * K];
    const int blocks[] = {32, 256};
    const oracle_partner partners[] = {ORACLE_PARTNER_Q8_0, ORACLE_PARTNER_Q8_K};
    fill(x);
    for (int b = 0; b < 2; b++) {
        double row[K];
        void *memory = malloc(assay_op_q8_bytes(T, K, blocks[b]));
        assay_q8 q8 = assay_op_round_q8(memory, assay_rows_of(x, T, K), blocks[b]);
        assay_op_q8_values(assay_rows_of(y, T, K), &q8);
        for (int t = 0; t < T; t++) {
            for (int i = 0; i < K; i++)
                row[i] = x[t * K + i];
            assay_oracle_round_activation(row, K, partners[b]);
            for (int i = 0; i < K; i++)
                ck_assert_msg(y[t * K + i] == (float)row[i],
                              "blocks of %d, row %d, %d: %g is not %g", blocks[b], t, i,
                              (double)y[t * K + i], row[i]);
        }
        free(memory);
    }
}
END_TEST

START_TEST(integer_activations_that_are_not_finite_leave_nothing_finite)
{
    static float x[K], y[K];
    const int blocks[] = {32, 256};
    const float hostile[] = {NAN, INFINITY, -INFINITY};
    for (int b = 0; b < 2; b++)
        for (int h = 0; h < 3; h++) {
            fill(x);
            x[K - 1] = hostile[h];
            void *memory = malloc(assay_op_q8_bytes(1, K, blocks[b]));
            assay_q8 q8 = assay_op_round_q8(memory, assay_rows_of(x, 1, K), blocks[b]);
            assay_op_q8_values(assay_rows_of(y, 1, K), &q8);
            for (int i = 0; i < K; i++)
                ck_assert(isnan(y[i]) == (i >= K - blocks[b]));
            free(memory);
        }
}
END_TEST

/* Blocks of random codes with scales of moderate size. */
static void random_blocks(uint8_t *blocks, const assay_quant *quant, int64_t n)
{
    const uint8_t half[2] = {0x66, 0x2E}, second[2] = {0x66, 0xB2}; /* 0.1, -0.2 */
    int64_t bytes = assay_quant_bytes(quant, n);
    for (int64_t i = 0; i < bytes; i++)
        blocks[i] = (uint8_t)(noise() * 128);
    for (int64_t at = 0; at < bytes; at += quant->block_bytes) {
        memcpy(blocks + at + quant->scale_at, half, sizeof half);
        if (quant->second_at >= 0)
            memcpy(blocks + at + quant->second_at, second, sizeof second);
    }
}

static void product(float *y, int n, const float *x, const assay_quant *quant, const void *blocks)
{
    void *memory = malloc(assay_op_q8_bytes(n, K, quant->block_elements));
    void *codes = malloc(assay_op_codes_bytes(K, quant->block_elements));
    assay_q8 q8 = assay_op_round_q8(memory, assay_rows_of((float *)x, n, K), quant->block_elements);
    assay_op_linear_integer(assay_rows_of(y, n, N), &q8, quant, blocks, assay_quant_bytes(quant, K),
                            codes, false);
    free(codes);
    free(memory);
}

START_TEST(integer_products_are_exact_ones_of_rounded_activations)
{
    static float x[T * K], w[N * K], rounded[T * K], y[T * N], one[N];
    static uint8_t blocks[N * K * 2];
    int n_types = 0;
    fill(x);
    for (int i = 0; i < assay_quant_count(); i++) {
        const assay_quant *quant = assay_quant_at(i);
        if (!quant->unpack)
            continue;
        n_types++;
        random_blocks(blocks, quant, N * K);
        quant->decode(w, blocks, N * K);
        product(y, T, x, quant, blocks);
        void *memory = malloc(assay_op_q8_bytes(T, K, quant->block_elements));
        assay_q8 q8 = assay_op_round_q8(memory, assay_rows_of(x, T, K), quant->block_elements);
        assay_op_q8_values(assay_rows_of(rounded, T, K), &q8);
        free(memory);
        for (int t = 0; t < T; t++) {
            for (int n = 0; n < N; n++) {
                double exact = 0, size = 0;
                for (int k = 0; k < K; k++) {
                    double term = (double)rounded[t * K + k] * w[n * K + k];
                    exact += term;
                    size += fabs(term);
                }
                ck_assert_msg(fabs(y[t * N + n] - exact) <= 1e-6 * size, "%s, %d, %d: %g is not %g",
                              quant->name, t, n, (double)y[t * N + n], exact);
            }
            product(one, 1, x + t * K, quant, blocks); /* alone and in a batch */
            ck_assert_mem_eq(one, y + t * N, sizeof one);
        }
    }
    ck_assert_int_ge(n_types, 10);
}
END_TEST

typedef struct way {
    assay_products products;
    int n_threads, chunk;
    assay_path path;
} way;

static float *logits_at;

static assay_status keep_logits(void *user, int64_t first, int64_t n, const float *logits)
{
    int64_t width = *(int64_t *)user;
    memcpy(logits_at + first * width, logits, (size_t)(n * width) * sizeof *logits);
    return ASSAY_OK;
}

/* Logits of a prompt of 20 and one step behind it. */
static float *logits_of(int64_t *n, const char *path, way how)
{
    assay_model *model;
    assay_engine *engine;
    assay_engine_options options = assay_engine_options_default();
    int32_t prompt[20], ids[2];
    options.products = how.products;
    options.n_threads = how.n_threads;
    options.path = how.path;
    EXPECT_OK(assay_model_open(&model, path, NULL));
    int64_t width = assay_model_hparams(model)->n_vocab;
    for (int i = 0; i < 20; i++)
        prompt[i] = 31 * i % (int)width;
    *n = 21 * width;
    logits_at = calloc((size_t)*n, sizeof *logits_at);
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    EXPECT_OK(assay_engine_generate(ids, engine, prompt, 20, 2, how.chunk, keep_logits, &width));
    assay_engine_free(engine);
    assay_model_close(model);
    return logits_at;
}

static double distance(const float *a, const float *b, int64_t n)
{
    double rest = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        rest += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return sqrt(rest / size);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the rows' distances: single rows choose other experts. */
static double median_distance(const float *a, const float *b, int64_t n, int64_t n_rows)
{
    double rows[64];
    for (int64_t t = 0; t < n_rows; t++)
        rows[t] = distance(a + t * (n / n_rows), b + t * (n / n_rows), n / n_rows);
    qsort(rows, (size_t)n_rows, sizeof *rows, ascending);
    return rows[n_rows / 2];
}

/* 8 bits under the largest of a block: about 0.5 % a product. */
START_TEST(integer_runs_differ_from_exact_ones_by_the_rounding_and_by_nothing_else)
{
    const char *model = data_shipped("glm5-tiny-Q4_K_M.gguf");
    for (int path = 0; path < 2; path++) {
        int64_t n;
        float *exact = logits_of(&n, model, (way){ASSAY_PRODUCTS_EXACT, 1, 0, (assay_path)path});
        float *whole = logits_of(&n, model, (way){ASSAY_PRODUCTS_INTEGER, 1, 0, (assay_path)path});
        float *parts = logits_of(&n, model, (way){ASSAY_PRODUCTS_INTEGER, 2, 3, (assay_path)path});
        double error = median_distance(whole, exact, n, 21);
        ck_assert_msg(error > 1e-3 && error < 0.05, "error %g", error);
        ck_assert_mem_eq(whole, parts, (size_t)n * sizeof *whole);
        free(exact);
        free(whole);
        free(parts);
    }
}
END_TEST

START_TEST(integer_runs_of_types_without_such_a_product_are_exact)
{
    static forge_plain m;
    int64_t n;
    const char *path = data_scratch("mini.gguf");
    forge_mini(&m, MINI_GLM_DSA, 2);
    forge_plain_write(&m, path);
    float *exact = logits_of(&n, path, (way){ASSAY_PRODUCTS_EXACT, 1, 0, ASSAY_PATH_LATENT});
    float *integer = logits_of(&n, path, (way){ASSAY_PRODUCTS_INTEGER, 1, 0, ASSAY_PATH_LATENT});
    ck_assert_mem_eq(exact, integer, (size_t)n * sizeof *exact);
    free(exact);
    free(integer);
}
END_TEST

START_TEST(integer_products_are_refused_where_there_are_none)
{
    assay_model *model;
    assay_engine *engine;
    assay_engine_options options = assay_engine_options_default();
    options.products = ASSAY_PRODUCTS_INTEGER;
    options.dtype = ASSAY_DTYPE_BF16;
    EXPECT_OK(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    EXPECT_FAILS(ASSAY_UNSUPPORTED, assay_engine_new(&engine, model, &options));
    assay_model_close(model);
}
END_TEST

/* One run, captured and judged; plant NULL: healthy. */
static void judge(assay_result *result, assay_path path, const char *plant_text)
{
    const int32_t prompt[] = {41, 7, 300, 12, 900, 55, 620, 3, 77, 410, 18, 256};
    char model_path[600], capture_path[600];
    assay_model *model;
    assay_capture *capture;
    assay_engine *engine;
    assay_engine_options options = assay_engine_options_default();
    assay_seam_setting settings[4];
    assay_seams seams = {settings, 0};
    int32_t ids[3];
    snprintf(model_path, sizeof model_path, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(capture_path, sizeof capture_path, "%s", data_scratch("integer.h5"));
    EXPECT_OK(assay_model_open(&model, model_path, NULL));
    assay_capture_about about = {.producer = "assay",
                                 .producer_version = ASSAY_VERSION,
                                 .architecture = assay_model_hparams(model)->architecture,
                                 .dtype = "f32",
                                 .path = path == ASSAY_PATH_LATENT ? "latent" : "expanded",
                                 .backend = "cpu",
                                 .mode = "eager",
                                 .profile = assay_profile_of_own(true),
                                 .n_ranks = 1};
    EXPECT_OK(assay_capture_create(&capture, capture_path, &about, NULL));
    EXPECT_OK(assay_capture_prompt(capture, "default", NULL, prompt, 12));
    if (plant_text) {
        assay_plant plant;
        EXPECT_OK(assay_plant_parse(&plant, plant_text));
        EXPECT_OK(assay_plant_make(settings, &seams.n, 4, &plant, assay_model_hparams(model)));
        options.seams = &seams;
    }
    options.products = ASSAY_PRODUCTS_INTEGER;
    options.path = path;
    options.tap = assay_capture_tap;
    options.tap_user = capture;
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    EXPECT_OK(assay_engine_generate(ids, engine, prompt, 12, 3, 0, NULL, NULL));
    EXPECT_OK(assay_capture_finish(capture));
    assay_engine_free(engine);
    assay_model_close(model);
    EXPECT_OK(diagnosed(result, capture_path, model_path));
}

START_TEST(integer_runs_are_judged_clean)
{
    for (int path = 0; path < 2; path++) {
        assay_result result;
        judge(&result, (assay_path)path, NULL);
        ck_assert_msg(result.n_findings == 0, "%s", diagnosed_text(&result));
        assay_result_clear(&result);
    }
}
END_TEST

START_TEST(integer_runs_with_a_fault_have_it_named)
{
    static const struct {
        const char *plant, *classes, *point;
    } rows[] = {{"phantom-output:layer=1", "BUFFER", "attn.out"},
                {"file-order:layer=3", "FUSED-ORDER", "attn.q_a"},
                {"rope-base:layer=2", "ROPE-PHASE", "attn.q_rope"},
                {"softmax-scale:layer=1", "LOGIT-SHAPE", "attn.probs"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assay_result result;
        judge(&result, ASSAY_PATH_EXPANDED, rows[i].plant);
        ck_assert_msg(diagnosed_find(&result, rows[i].classes, rows[i].point), "%s: %s",
                      rows[i].plant, diagnosed_text(&result));
        ck_assert_msg(result.n_findings == 1, "%s: %s", rows[i].plant, diagnosed_text(&result));
        assay_result_clear(&result);
    }
}
END_TEST

EXPECT_MAIN("integer", integer_activations_are_rounded_as_the_oracle_rounds_them,
            integer_activations_that_are_not_finite_leave_nothing_finite,
            integer_products_are_exact_ones_of_rounded_activations,
            integer_runs_differ_from_exact_ones_by_the_rounding_and_by_nothing_else,
            integer_runs_of_types_without_such_a_product_are_exact,
            integer_products_are_refused_where_there_are_none, integer_runs_are_judged_clean,
            integer_runs_with_a_fault_have_it_named)
