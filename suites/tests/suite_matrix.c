/*
 * A request gives the same numbers however it is served: alone or among others, in any order,
 * padded or packed, in chunks, from pages, with its keys in parts. Every row of every sequence is
 * compared with the sequence alone in a plain cache: within 1e-5, and bit for bit where the engine
 * sums in one order (batch_invariant).
 *
 * The tests take a few ways in which every two values of the axes meet somewhere;
 * ASSAY_MATRIX=all takes all of them.
 */
#include <stdio.h>

#include "data.h"
#include "engine/engine.h"
#include "engine/tokenizer.h"
#include "expect.h"

enum { MOST = 161, N_MOST = 7, N_ORDERS = 3 };

static const int64_t lengths[N_MOST] = {40, 1, 161, 5, 1, 40, 5};

typedef struct way {
    int n, order, page_size, chunk, padding, key_split, path;
    bool steady;
} way;

static const char *describe(const way *w)
{
    static char text[200];
    snprintf(text, sizeof text,
             "%d sequences, order %d, pages of %d, chunks of %d, %d rows of padding, keys in parts "
             "of %d, %s path%s",
             w->n, w->order, w->page_size, w->chunk, w->padding, w->key_split,
             w->path ? "latent" : "expanded", w->steady ? ", steady" : "");
    return text;
}

static int32_t token_at(int sequence, int64_t position)
{
    uint32_t x = (uint32_t)position * 2654435761u + (uint32_t)sequence * 40503u + 12345u;
    return (int32_t)((x >> 10) % 1000);
}

/* [length, vocab] of each sequence alone */
typedef struct plain {
    float *logits[N_MOST];
} plain;

static assay_engine *open_engine(assay_model *model, const way *w, const assay_seams *seams)
{
    assay_engine *engine;
    assay_engine_options e = assay_engine_options_default();
    e.path = (assay_path)w->path;
    e.page_size = w->page_size;
    e.key_split = w->key_split;
    e.batch_invariant = w->steady;
    e.max_sequences = N_MOST;
    e.max_positions = 192;
    e.seams = seams;
    EXPECT_OK(assay_engine_new(&engine, model, &e));
    return engine;
}

static plain run_alone(assay_model *model, int n, int path, bool steady)
{
    plain p = {{NULL}};
    int64_t vocab = assay_model_hparams(model)->n_vocab;
    for (int q = 0; q < n; q++) {
        int32_t tokens[MOST], positions[MOST];
        const way alone = {.path = path, .steady = steady};
        assay_engine *engine = open_engine(model, &alone, NULL);
        for (int64_t i = 0; i < lengths[q]; i++) {
            tokens[i] = token_at(q, i);
            positions[i] = (int32_t)i;
        }
        p.logits[q] = calloc((size_t)(lengths[q] * vocab), sizeof(float));
        EXPECT_OK(assay_engine_forward(engine, &(assay_batch){lengths[q], tokens, positions, NULL},
                                       p.logits[q]));
        assay_engine_free(engine);
    }
    return p;
}

static void free_plain(plain *p)
{
    for (int q = 0; q < N_MOST; q++)
        free(p->logits[q]);
}

static void expect_row(const way *w, const float *got, const float *want, int64_t n, int q,
                       int64_t position)
{
    double error = 0, size = 0;
    bool same = !memcmp(got, want, (size_t)n * sizeof *got);
    for (int64_t i = 0; i < n; i++) {
        error += (got[i] - want[i]) * (double)(got[i] - want[i]);
        size += want[i] * (double)want[i];
    }
    error = sqrt(error / size);
    bool exact = w->steady && !w->key_split; /* parts are another order of summation by design */
    ck_assert_msg(exact ? same : error <= 1e-5, "%s: sequence %d, position %lld: %.3g off",
                  describe(w), q, (long long)position, error);
}

/* The sequence that comes k-th. */
static int in_order(const way *w, int k)
{
    return w->order == 0 ? k : w->order == 1 ? w->n - 1 - k : (3 * k + 1) % w->n;
}

typedef struct rows {
    int32_t tokens[2048], positions[2048], sequences[2048];
    int64_t n;
} rows;

static void add_row(rows *r, int32_t token, int64_t position, int32_t sequence)
{
    r->tokens[r->n] = token;
    r->positions[r->n] = (int32_t)position;
    r->sequences[r->n++] = sequence;
}

/* One step: up to a chunk of each sequence, padding behind each; false: all are through. */
static bool next_step(rows *r, int64_t done[N_MOST], const way *w)
{
    bool any = false;
    r->n = 0;
    for (int k = 0; k < w->n; k++) {
        int q = in_order(w, k);
        for (int c = 0; (w->chunk == 0 || c < w->chunk) && done[q] < lengths[q]; c++) {
            add_row(r, token_at(q, done[q]), done[q], q);
            done[q]++;
            any = true;
        }
        for (int i = 0; i < w->padding; i++)
            add_row(r, 3, 5, -1);
    }
    return any;
}

static void run_way(assay_model *model, const way *w, const plain *p, const assay_seams *seams)
{
    int64_t vocab = assay_model_hparams(model)->n_vocab, done[N_MOST] = {0};
    assay_engine *engine = open_engine(model, w, seams);
    rows *r = calloc(1, sizeof *r);
    while (next_step(r, done, w)) {
        float *logits = calloc((size_t)(r->n * vocab), sizeof *logits);
        EXPECT_OK(assay_engine_forward(
            engine, &(assay_batch){r->n, r->tokens, r->positions, r->sequences}, logits));
        for (int64_t t = 0; t < r->n; t++)
            if (r->sequences[t] >= 0)
                expect_row(w, logits + t * vocab,
                           p->logits[r->sequences[t]] + r->positions[t] * vocab, vocab,
                           r->sequences[t], r->positions[t]);
        free(logits);
    }
    ck_assert_int_eq(assay_engine_n_buffer_faults(engine), 0);
    assay_engine_free(engine);
    free(r);
}

static assay_model *open_shipped(void)
{
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    return model;
}

static const way few[] = {
    /* n, order, page, chunk, padding, split, path, steady */
    {2, 1, 1, 16, 1, 0, 0, false},
    {7, 2, 16, 0, 0, 32, 1, false},
    {1, 0, 64, 1, 1, 7, 1, false},
    {7, 1, 0, 16, 1, 0, 0, false},
};

static const way few_steady[] = {
    {2, 1, 1, 16, 1, 0, 0, true},
    {7, 2, 16, 0, 0, 0, 1, true},
    {1, 0, 64, 1, 1, 0, 1, true},
    {2, 0, 0, 1, 1, 0, 0, true},
};

static void run_few(const way *ways, size_t n)
{
    assay_model *model = open_shipped();
    plain p[2];
    for (int path = 0; path < 2; path++) {
        int most = 1;
        for (size_t i = 0; i < n; i++)
            most = ways[i].path == path && ways[i].n > most ? ways[i].n : most;
        p[path] = run_alone(model, most, path, ways[0].steady);
    }
    for (size_t i = 0; i < n; i++)
        run_way(model, &ways[i], &p[ways[i].path], NULL);
    free_plain(&p[0]);
    free_plain(&p[1]);
    assay_model_close(model);
}

START_TEST(matrix_every_way_of_serving_gives_each_row_of_the_sequence_alone)
{
    run_few(few, sizeof few / sizeof *few);
}
END_TEST

START_TEST(matrix_steady_products_give_the_same_bits_in_every_way)
{
    run_few(few_steady, sizeof few_steady / sizeof *few_steady);
}
END_TEST

/* What padding rows hold reaches no other row, not to the last bit. */
START_TEST(matrix_poison_in_padding_reaches_no_live_row)
{
    assay_model *model = open_shipped();
    const float poison[] = {1e4f, NAN};
    for (int path = 0; path < 2; path++) {
        plain p = run_alone(model, 2, path, true);
        for (size_t i = 0; i < 2; i++) {
            assay_seam_setting fill = {
                ASSAY_SEAM_PADDING_FILL, -1, -1, -1, -1, -1, poison[i], 0, {0}};
            assay_seams seams = {&fill, 1};
            way w = {2, 0, path ? 16 : 0, 16, 3, 0, path, true};
            run_way(model, &w, &p, &seams);
        }
        free_plain(&p);
    }
    assay_model_close(model);
}
END_TEST

/* The text of the trained model does not change with the 16-bit types of the cache. */
START_TEST(matrix_text_is_the_same_from_16_bit_caches)
{
    assay_model *model = open_shipped();
    assay_tokenizer *tokenizer;
    assay_ids prompt = {0};
    int32_t plain_ids[12], ids[12];
    static const char text[] = "Count from 6 to 10:";
    EXPECT_OK(assay_tokenizer_new(&tokenizer, assay_model_gguf(model), NULL));
    EXPECT_OK(assay_tokenizer_encode(&prompt, tokenizer, text, strlen(text), true, true));
    for (int path = 0; path < 2; path++)
        for (int type = ASSAY_CACHE_F32; type <= ASSAY_CACHE_BF16; type++) {
            assay_engine *engine;
            assay_engine_options e = assay_engine_options_default();
            e.path = (assay_path)path;
            e.cache_type = (assay_cache_type)type;
            e.page_size = type == ASSAY_CACHE_F16 ? 4 : 0;
            EXPECT_OK(assay_engine_new(&engine, model, &e));
            EXPECT_OK(assay_engine_generate(type == ASSAY_CACHE_F32 ? plain_ids : ids, engine,
                                            prompt.ids, prompt.n, 12, 0, NULL, NULL));
            if (type != ASSAY_CACHE_F32)
                ck_assert_mem_eq(ids, plain_ids, sizeof ids);
            assay_engine_free(engine);
        }
    assay_ids_clear(&prompt);
    assay_tokenizer_free(tokenizer);
    assay_model_close(model);
}
END_TEST

START_TEST(matrix_all_of_it_where_it_is_asked_for)
{
    static const int n[] = {1, 2, 7}, pages[] = {0, 1, 16, 64}, chunks[] = {1, 16, 0},
                     splits[] = {0, 32};
    const char *asked = getenv("ASSAY_MATRIX");
    if (!asked || strcmp(asked, "all"))
        return;
    assay_model *model = open_shipped();
    int n_run = 0;
    for (int path = 0; path < 2; path++)
        for (int steady = 0; steady < 2; steady++) {
            plain p = run_alone(model, N_MOST, path, steady);
            for (int i = 0; i < 3 * N_ORDERS * 4 * 3 * 2 * 2; i++) {
                way w = {n[i % 3],
                         i / 3 % N_ORDERS,
                         pages[i / 9 % 4],
                         chunks[i / 36 % 3],
                         i / 108 % 2 ? 2 : 0,
                         splits[i / 216 % 2],
                         path,
                         steady};
                if (w.n == 1 && w.order > 0)
                    continue;
                run_way(model, &w, &p, NULL);
                n_run++;
            }
            free_plain(&p);
        }
    printf("%d ways\n", n_run);
    assay_model_close(model);
}
END_TEST

EXPECT_MAIN("matrix", matrix_every_way_of_serving_gives_each_row_of_the_sequence_alone,
            matrix_steady_products_give_the_same_bits_in_every_way,
            matrix_poison_in_padding_reaches_no_live_row,
            matrix_text_is_the_same_from_16_bit_caches, matrix_all_of_it_where_it_is_asked_for)
