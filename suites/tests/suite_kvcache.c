/*
 * The cache: pages, stored types, prefixes that are reused, keys in parts. Every way gives what the
 * plain one gives.
 */
#include <stdio.h>

#include "data.h"
#include "engine/cache_row.h"
#include "engine/engine.h"
#include "engine/ops/attention_split.h"
#include "expect.h"
#include "forge_watch.h"

enum { MOST = 161, N_SEQUENCES = 7 };

static void prompt_of(int32_t *ids, int sequence, int64_t n)
{
    uint32_t x = 777u + 31u * (uint32_t)sequence;
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)(x >> 8) % 1000;
    }
}

static assay_model *open_shipped(void)
{
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    return model;
}

/* Logits of the last row of one sequence alone, in a plain cache. */
static float *alone(assay_model *model, assay_path path, int sequence, int64_t n)
{
    int32_t ids[MOST], positions[MOST];
    assay_engine *engine;
    assay_engine_options options = assay_engine_options_default();
    int64_t vocab = assay_model_hparams(model)->n_vocab;
    options.path = path;
    prompt_of(ids, sequence, n);
    for (int i = 0; i < n; i++)
        positions[i] = i;
    float *all = calloc((size_t)(n * vocab), sizeof *all);
    float *last = calloc((size_t)vocab, sizeof *last);
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    EXPECT_OK(assay_engine_forward(engine, &(assay_batch){n, ids, positions, NULL}, all));
    memcpy(last, all + (n - 1) * vocab, (size_t)vocab * sizeof *last);
    assay_engine_free(engine);
    free(all);
    return last;
}

static double distance(const float *a, const float *b, int64_t n)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += (a[i] - b[i]) * (double)(a[i] - b[i]);
        size += b[i] * (double)b[i];
    }
    return sqrt(difference / size);
}

typedef struct way {
    const char *name;
    int page_size, chunk, padding, key_split;
    assay_path path;
    bool backwards;
} way;

/* Rows of all sequences, `chunk` of each in a step, with padding rows between. */
static void run_together(assay_model *model, const way *w, const int64_t *lengths, int n,
                         float *expected[2][N_SEQUENCES])
{
    int64_t vocab = assay_model_hparams(model)->n_vocab, done[N_SEQUENCES] = {0};
    int32_t ids[N_SEQUENCES][MOST];
    assay_engine *engine;
    assay_engine_options options = assay_engine_options_default();
    options.path = w->path;
    options.page_size = w->page_size;
    options.key_split = w->key_split;
    options.max_sequences = N_SEQUENCES;
    options.max_positions = 192;
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    for (int s = 0; s < n; s++)
        prompt_of(ids[s], s, lengths[s]);
    float *last[N_SEQUENCES];
    for (int s = 0; s < n; s++)
        last[s] = calloc((size_t)vocab, sizeof **last);
    for (bool more = true; more;) {
        int32_t tokens[2048], positions[2048], sequences[2048];
        int64_t rows = 0, last_row[N_SEQUENCES];
        more = false;
        for (int i = 0; i < n; i++) {
            int s = w->backwards ? n - 1 - i : i;
            last_row[s] = -1;
            for (int c = 0; c < w->chunk && done[s] < lengths[s]; c++, rows++) {
                tokens[rows] = ids[s][done[s]];
                positions[rows] = (int32_t)done[s];
                sequences[rows] = s;
                last_row[s] = ++done[s] == lengths[s] ? rows : -1;
            }
            for (int p = 0; p < w->padding; p++, rows++) {
                tokens[rows] = 3;
                positions[rows] = 5;
                sequences[rows] = -1;
            }
            more = more || done[s] < lengths[s];
        }
        float *logits = calloc((size_t)(rows * vocab), sizeof *logits);
        EXPECT_OK(assay_engine_forward(engine, &(assay_batch){rows, tokens, positions, sequences},
                                       logits));
        for (int s = 0; s < n; s++)
            if (last_row[s] >= 0)
                memcpy(last[s], logits + last_row[s] * vocab, (size_t)vocab * sizeof **last);
        free(logits);
    }
    ck_assert_int_eq(assay_engine_n_buffer_faults(engine), 0);
    assay_engine_free(engine);
    for (int s = 0; s < n; s++) {
        double error = distance(last[s], expected[w->path][s], vocab);
        ck_assert_msg(error <= 1e-5, "%s: sequence %d of %d: %.3g", w->name, s, n, error);
        free(last[s]);
    }
}

START_TEST(cache_pages_chunks_orders_and_padding_do_not_change_a_sequence)
{
    static const int64_t lengths[] = {40, 1, 161, 5, 1, 40, 5};
    static const way ways[] = {
        {"contiguous", 0, 200, 0, 0, ASSAY_PATH_EXPANDED, false},
        {"pages of 1", 1, 16, 1, 0, ASSAY_PATH_LATENT, true},
        {"pages of 16", 16, 200, 3, 0, ASSAY_PATH_EXPANDED, true},
        {"pages of 64, keys in parts of 32", 64, 16, 0, 32, ASSAY_PATH_LATENT, false},
        {"keys in parts of 7", 0, 200, 0, 7, ASSAY_PATH_EXPANDED, false},
    };
    assay_model *model = open_shipped();
    float *expected[2][N_SEQUENCES];
    for (int i = 0; i < 2 * N_SEQUENCES; i++)
        expected[i % 2][i / 2] = alone(model, (assay_path)(i % 2), i / 2, lengths[i / 2]);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int n = 1; n <= N_SEQUENCES; n += n == 1 ? 1 : 5)
            run_together(model, &ways[i], lengths, n, expected);
    for (int i = 0; i < 2 * N_SEQUENCES; i++)
        free(expected[i % 2][i / 2]);
    assay_model_close(model);
}
END_TEST

START_TEST(cache_rows_decode_to_what_their_type_can_hold)
{
    static const double bounds[] = {0, 3e-4, 3e-3, 8e-3, 4e-2};
    enum { WIDTH = 45 };
    float row[WIDTH], back[WIDTH];
    uint8_t bytes[4 * WIDTH + 64];
    for (int i = 0; i < WIDTH; i++)
        row[i] = (float)(sin(i * 1.7) * (i == 3 ? 5 : 1));
    for (int type = 0; type < ASSAY_CACHE_TYPE_COUNT; type++) {
        ck_assert_uint_le(assay_cache_row_bytes((assay_cache_type)type, WIDTH), sizeof bytes);
        assay_cache_row_store(bytes, (assay_cache_type)type, row, WIDTH);
        assay_cache_row_load(back, (assay_cache_type)type, bytes, WIDTH, ASSAY_CACHE_SCALE_RIGHT);
        ck_assert_msg(distance(back, row, WIDTH) <= bounds[type], "%s: %.3g",
                      assay_cache_type_name((assay_cache_type)type), distance(back, row, WIDTH));
        ck_assert_int_eq(assay_cache_type_find(assay_cache_type_name((assay_cache_type)type)),
                         type);
        assay_cache_row_poison(bytes, (assay_cache_type)type, WIDTH);
        assay_cache_row_load(back, (assay_cache_type)type, bytes, WIDTH, ASSAY_CACHE_SCALE_RIGHT);
        for (int i = 0; i < WIDTH; i++)
            ck_assert(isnan(back[i]));
    }
    ck_assert_int_eq(assay_cache_type_find("q9"), ASSAY_CACHE_TYPE_COUNT);
}
END_TEST

/* Relative L2 of the last logits that each type may cost on the shipped model, and none on the
 * text. */
START_TEST(cache_types_stay_inside_their_floor)
{
    static const double bounds[] = {1e-6, 3e-3, 2e-2, 5e-2, 2e-1};
    assay_model *model = open_shipped();
    int64_t vocab = assay_model_hparams(model)->n_vocab;
    for (int path = 0; path < 2; path++) {
        float *expected = alone(model, (assay_path)path, 0, 40);
        for (int type = 0; type < ASSAY_CACHE_TYPE_COUNT; type++) {
            int32_t ids[40], positions[40];
            assay_engine *engine;
            assay_engine_options options = assay_engine_options_default();
            options.path = (assay_path)path;
            options.cache_type = (assay_cache_type)type;
            options.page_size = type % 2 ? 8 : 0;
            prompt_of(ids, 0, 40);
            for (int i = 0; i < 40; i++)
                positions[i] = i;
            float *logits = calloc((size_t)(40 * vocab), sizeof *logits);
            EXPECT_OK(assay_engine_new(&engine, model, &options));
            EXPECT_OK(
                assay_engine_forward(engine, &(assay_batch){40, ids, positions, NULL}, logits));
            double error = distance(logits + 39 * vocab, expected, vocab);
            ck_assert_msg(error <= bounds[type], "%s: %.3g",
                          assay_cache_type_name((assay_cache_type)type), error);
            ck_assert(type == ASSAY_CACHE_F32 || error > 0);
            assay_engine_free(engine);
            free(logits);
        }
        free(expected);
    }
    assay_model_close(model);
}
END_TEST

static assay_engine *paged_engine(assay_model *model, int n_pages, const assay_seams *seams)
{
    assay_engine *engine;
    assay_engine_options options = assay_engine_options_default();
    options.page_size = 8;
    options.n_pages = n_pages;
    options.max_sequences = 2;
    options.max_positions = 64;
    options.reuse_prefixes = true;
    options.seams = seams;
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    return engine;
}

/* Runs tokens n_reused ... n - 1 of a sequence; logits of the last row. */
static void run_rest(assay_engine *engine, const assay_model *model, float *last, int sequence,
                     const int32_t *ids, int64_t n_reused, int64_t n)
{
    int64_t vocab = assay_model_hparams(model)->n_vocab;
    int32_t positions[64], sequences[64];
    float *logits = calloc((size_t)((n - n_reused) * vocab), sizeof *logits);
    for (int64_t i = n_reused; i < n; i++) {
        positions[i - n_reused] = (int32_t)i;
        sequences[i - n_reused] = sequence;
    }
    assay_batch batch = {n - n_reused, ids + n_reused, positions, sequences};
    EXPECT_OK(assay_engine_forward(engine, &batch, logits));
    memcpy(last, logits + (n - n_reused - 1) * vocab, (size_t)vocab * sizeof *last);
    free(logits);
}

START_TEST(cache_prefix_reused_equals_a_cold_run)
{
    assay_model *model = open_shipped();
    int64_t vocab = assay_model_hparams(model)->n_vocab, reused;
    assay_engine *engine = paged_engine(model, 0, NULL);
    int32_t ids[40], other[40];
    float *cold = calloc((size_t)vocab, sizeof *cold), *warm = calloc((size_t)vocab, sizeof *warm);
    prompt_of(ids, 0, 40);
    EXPECT_OK(assay_engine_reuse(&reused, engine, 0, ids, 40));
    ck_assert_int_eq(reused, 0);
    run_rest(engine, model, cold, 0, ids, 0, 40);
    assay_engine_reset(engine, 0);
    EXPECT_OK(assay_engine_reuse(&reused, engine, 1, ids, 40)); /* by another sequence */
    ck_assert_int_eq(reused, 32); /* whole pages, and the last row is computed */
    run_rest(engine, model, warm, 1, ids, reused, 40);
    ck_assert(distance(warm, cold, vocab) <= 1e-5);
    memcpy(other, ids,
           sizeof other); /* the same beginning, another continuation, at the same time */
    other[20]++;
    EXPECT_OK(assay_engine_reuse(&reused, engine, 0, other, 40));
    ck_assert_int_eq(reused, 16);
    run_rest(engine, model, warm, 0, other, reused, 40);
    assay_engine *fresh = paged_engine(model, 0, NULL);
    run_rest(fresh, model, cold, 0, other, 0, 40);
    ck_assert(distance(warm, cold, vocab) <= 1e-5);
    EXPECT_FAILS(ASSAY_USAGE, assay_engine_reuse(&reused, engine, 0, ids, 40));
    assay_engine_free(fresh);
    assay_engine_free(engine);
    free(cold);
    free(warm);
    assay_model_close(model);
}
END_TEST

START_TEST(cache_gives_up_old_prefixes_when_pages_run_out)
{
    assay_model *model = open_shipped();
    int64_t vocab = assay_model_hparams(model)->n_vocab, reused;
    assay_engine *engine = paged_engine(model, 6, NULL); /* 48 positions in all */
    float *got = calloc((size_t)vocab, sizeof *got);
    for (int round = 0; round < 5; round++) {
        int32_t ids[40];
        prompt_of(ids, round % 3, 40);
        EXPECT_OK(assay_engine_reuse(&reused, engine, 0, ids, 40));
        run_rest(engine, model, got, 0, ids, reused, 40);
        float *expected = alone(model, ASSAY_PATH_EXPANDED, round % 3, 40);
        ck_assert_msg(distance(got, expected, vocab) <= 1e-5, "round %d, %d reused", round,
                      (int)reused);
        free(expected);
        assay_engine_reset(engine, 0);
    }
    free(got);
    assay_engine_free(engine);
    assay_model_close(model);
}
END_TEST

/* Hashes of one bit collide at once: noticed where tokens are compared, another prompt's state
 * where they are not. */
START_TEST(cache_collision_of_hashes_is_noticed)
{
    assay_model *model = open_shipped();
    int64_t vocab = assay_model_hparams(model)->n_vocab, reused;
    assay_seam_setting settings[] = {
        {ASSAY_SEAM_PREFIX_HASH_BITS, -1, -1, -1, -1, -1, 1, 0, {0}},
        {ASSAY_SEAM_PREFIX_UNCHECKED, -1, -1, -1, -1, -1, 1, 0, {0}},
    };
    float *got = calloc((size_t)vocab, sizeof *got);
    for (int n = 1; n <= 2; n++) {
        assay_seams seams = {settings, n};
        assay_engine *engine = paged_engine(model, 0, &seams);
        int32_t ids[40];
        for (int s = 0; s < 3; s++) {
            prompt_of(ids, s, 40);
            run_rest(engine, model, got, 0, ids, 0, 40);
            assay_engine_reset(engine, 0);
        }
        prompt_of(ids, 5, 40);
        EXPECT_OK(assay_engine_reuse(&reused, engine, 0, ids, 40));
        run_rest(engine, model, got, 0, ids, reused, 40);
        float *expected = alone(model, ASSAY_PATH_EXPANDED, 5, 40);
        double error = distance(got, expected, vocab);
        if (n == 1) {
            ck_assert_int_gt(assay_engine_n_collisions(engine), 0);
            ck_assert(error <= 1e-5);
        } else {
            ck_assert_int_gt(reused, 0);
            ck_assert(error > 1e-2);
        }
        free(expected);
        assay_engine_free(engine);
    }
    free(got);
    assay_model_close(model);
}
END_TEST

/* ---- keys in parts ---- */

enum { KEYS = 23, HEADS = 2, DK = 6, DV = 5, ROWS = 9 };

static void split_inputs(float *q, float *k, float *v)
{
    for (int i = 0; i < ROWS * HEADS * DK; i++)
        q[i] = (float)sin(0.37 * i);
    for (int i = 0; i < KEYS * HEADS * DK; i++)
        k[i] = (float)(2 * cos(0.91 * i));
    for (int i = 0; i < KEYS * HEADS * DV; i++)
        v[i] = (float)sin(1.3 * i + 1);
}

static double merged_error(int64_t n_part, assay_merge_kind kind, double *lse_error)
{
    float q[ROWS * HEADS * DK], k[KEYS * HEADS * DK], v[KEYS * HEADS * DV];
    float o[2][ROWS * HEADS * DV], l[2][ROWS * HEADS], probs[2][HEADS * ROWS * KEYS];
    int kv_head[HEADS] = {0, 1};
    int64_t rows[ROWS], begin[ROWS], end[ROWS];
    split_inputs(q, k, v);
    for (int i = 0; i < ROWS; i++) {
        rows[i] = i;
        begin[i] = i == 4 ? 12 : 0; /* a window that leaves the first part empty */
        end[i] = i == 0 ? 0 : 14 + i;
    }
    assay_attention a = {.n_head = HEADS,
                         .kv_head = kv_head,
                         .d_key = DK,
                         .d_value = DV,
                         .keys = k,
                         .values = v,
                         .key_stride = HEADS * DK,
                         .value_stride = HEADS * DV,
                         .key_head = DK,
                         .value_head = DV,
                         .n_keys = KEYS,
                         .n_rows = ROWS,
                         .rows = rows,
                         .begin = begin,
                         .end = end,
                         .scale = 0.4};
    for (int i = 0; i < 2; i++)
        EXPECT_OK(assay_op_attention_split(
            assay_rows_of(o[i], ROWS, HEADS * DV), assay_rows_of(l[i], ROWS, HEADS), probs[i], KEYS,
            assay_rows_of(q, ROWS, HEADS * DK), &a, i ? n_part : 0, kind));
    *lse_error = 0;
    for (int i = 0; i < ROWS * HEADS; i++)
        if (!(isinf(l[0][i]) && l[0][i] == l[1][i]) && !(fabs(l[1][i] - l[0][i]) <= *lse_error))
            *lse_error = fabs(l[1][i] - l[0][i]);
    if (kind == ASSAY_MERGE_RIGHT)
        for (int i = 0; i < HEADS * ROWS * KEYS; i++)
            EXPECT_NEAR(probs[1][i], probs[0][i], 1e-6);
    return distance(o[1], o[0], ROWS * HEADS * DV);
}

START_TEST(cache_keys_in_parts_merge_to_the_whole)
{
    static const int64_t parts[] = {1, 5, 8, 22};
    double lse;
    for (int i = 0; i < 4; i++) {
        ck_assert(merged_error(parts[i], ASSAY_MERGE_RIGHT, &lse) <= 1e-6);
        ck_assert(lse <= 1e-6);
    }
    for (int kind = ASSAY_MERGE_LOG2; kind <= ASSAY_MERGE_LOCAL_LSE; kind++)
        ck_assert_msg(merged_error(8, (assay_merge_kind)kind, &lse) > 1e-2, "kind %d", kind);
}
END_TEST

/* Last logits in a paged bf16 cache with keys in parts; seams NULL: healthy. */
static float *paged_logits(assay_model *model, const assay_seams *seams)
{
    int64_t vocab = assay_model_hparams(model)->n_vocab;
    int32_t ids[40], positions[40];
    assay_engine *engine;
    assay_engine_options options = assay_engine_options_default();
    options.page_size = 8;
    options.key_split = 16;
    options.cache_type = ASSAY_CACHE_BF16;
    options.seams = seams;
    prompt_of(ids, 0, 40);
    for (int t = 0; t < 40; t++)
        positions[t] = t;
    float *logits = calloc((size_t)(40 * vocab), sizeof *logits);
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    EXPECT_OK(assay_engine_forward(engine, &(assay_batch){40, ids, positions, NULL}, logits));
    assay_engine_free(engine);
    memmove(logits, logits + 39 * vocab, (size_t)vocab * sizeof *logits);
    return logits;
}

START_TEST(cache_wrong_page_codec_or_merge_changes_the_run)
{
    static const assay_seam seams_of[] = {ASSAY_SEAM_KV_PAGE, ASSAY_SEAM_KV_CODEC,
                                          ASSAY_SEAM_MERGE};
    assay_model *model = open_shipped();
    float *healthy = paged_logits(model, NULL);
    for (int i = 0; i < 3; i++) {
        assay_seam_setting setting = {seams_of[i], 1, -1, -1, -1, -1, 1, 0, {0}};
        assay_seams seams = {&setting, 1};
        float *bent = paged_logits(model, &seams);
        double error = distance(bent, healthy, assay_model_hparams(model)->n_vocab);
        ck_assert_msg(!(error <= 1e-3), "seam %s: %.3g", assay_seam_name(seams_of[i]), error);
        free(bent);
    }
    free(healthy);
    assay_model_close(model);
}
END_TEST

EXPECT_MAIN("kvcache", cache_pages_chunks_orders_and_padding_do_not_change_a_sequence,
            cache_rows_decode_to_what_their_type_can_hold, cache_types_stay_inside_their_floor,
            cache_prefix_reused_equals_a_cold_run, cache_gives_up_old_prefixes_when_pages_run_out,
            cache_collision_of_hashes_is_noticed, cache_keys_in_parts_merge_to_the_whole,
            cache_wrong_page_codec_or_merge_changes_the_run)
