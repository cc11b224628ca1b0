/*
 * Caches on the device in every stored type: the bytes and numbers of the host; the same run in
 * pages, contiguous, eager and replayed.
 */
#include "data.h"
#include "engine/cache_row.h"
#include "engine/device/runtime.h"
#include "engine/ops/device_ops.h"
#include "expect_gpu.h"

#define N_ROWS 48
#define WIDEST 160
#define MODEL "glm5-tiny-Q4_K_M.gguf"

/* Rows of every size of number, with zeros, values that are not finite, and rows of nothing else.
 */
static void fill(float *x, int64_t width)
{
    static const float odd[] = {0,     -0.0f, 1e-42f,   -3e-39f,   448,
                                65520, 1e38f, INFINITY, -INFINITY, NAN};
    uint32_t state = 99;
    for (int64_t t = 0; t < N_ROWS; t++)
        for (int64_t i = 0; i < width; i++) {
            state = state * 1664525u + 1013904223u;
            float u = (float)(int32_t)state * 0x1p-31f;
            x[t * width + i] = ldexpf(u, (int)(t % 24) * 4 - 48);
            if (t % 8 == 7 && state % 11 == 0)
                x[t * width + i] = odd[state / 11 % (sizeof odd / sizeof *odd)];
            if (t == 5)
                x[t * width + i] = 0;
            if (t == 6)
                x[t * width + i] = NAN;
        }
}

static bool same_number(float a, float b)
{
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a);
}

/* In pages of 16 whose order is turned round, or contiguous; the rows come in two parts. */
static void expect_bytes(assay_cache_type type, int64_t width, int64_t split, bool paged)
{
    const int64_t bytes = (int64_t)assay_cache_row_bytes(type, width);
    float x[N_ROWS * WIDEST], got[N_ROWS * WIDEST], want[WIDEST];
    int32_t at[3 * N_ROWS], pages[3] = {2, 1, 0};
    void *cache, *base, *rows_at, *in, *out, *pages_at, *n_keys;
    fill(x, width);
    for (int i = 0; i < N_ROWS; i++) {
        at[i] = 0;
        at[N_ROWS + i] = i;
        at[2 * N_ROWS + i] = 0;
    }
    EXPECT_OK(assay_cuda_alloc(&cache, (size_t)(N_ROWS * bytes), "test"));
    EXPECT_OK(assay_cuda_alloc(&base, sizeof cache, "test"));
    EXPECT_OK(assay_cuda_alloc(&rows_at, sizeof at, "test"));
    EXPECT_OK(assay_cuda_alloc(&in, sizeof x, "test"));
    EXPECT_OK(assay_cuda_alloc(&out, sizeof x, "test"));
    EXPECT_OK(assay_cuda_alloc(&pages_at, sizeof pages, "test"));
    EXPECT_OK(assay_cuda_alloc(&n_keys, sizeof(int32_t), "test"));
    EXPECT_OK(assay_cuda_to_device(NULL, base, &cache, sizeof cache));
    EXPECT_OK(assay_cuda_to_device(NULL, rows_at, at, sizeof at));
    EXPECT_OK(assay_cuda_to_device(NULL, in, x, (size_t)(N_ROWS * width) * sizeof *x));
    EXPECT_OK(assay_cuda_to_device(NULL, pages_at, pages, sizeof pages));
    int32_t *ids = rows_at;
    assay_device_rows rows = {ids, ids + N_ROWS, ids + 2 * N_ROWS, N_ROWS};
    assay_device_cache c = {.base = base,
                            .type = type,
                            .capacity = N_ROWS,
                            .width = width,
                            .row_bytes = bytes,
                            .pages = paged ? pages_at : NULL,
                            .page = 16,
                            .n_pages = 3};
    assay_rows a = {in, N_ROWS, split, width},
               b = {(float *)in + split, N_ROWS, width - split, width};
    uint32_t word = assay_poison_f32(0xCAC4Eu);
    uint8_t raw[N_ROWS * 4 * WIDEST], row[4 * WIDEST + 64];
    EXPECT_OK(assay_device_cache_poison(NULL, cache, type, bytes, N_ROWS, word));
    EXPECT_OK(assay_cuda_to_host(NULL, raw, cache, (size_t)(N_ROWS * bytes)));
    EXPECT_OK(assay_cuda_sync(NULL));
    assay_cache_row_poison(row, type, width);
    for (int t = 0; t < N_ROWS; t++)
        ck_assert_msg(!memcmp(raw + t * bytes, row, (size_t)bytes), "%s, %d wide: poison of row %d",
                      assay_cache_type_name(type), (int)width, t);
    EXPECT_OK(assay_device_cache_write(NULL, &c, a, b, &rows));
    EXPECT_OK(assay_device_cache_lengths(NULL, n_keys, 1, &rows));
    EXPECT_OK(assay_device_cache_decode(NULL, out, &c, n_keys, 1));
    EXPECT_OK(assay_cuda_to_host(NULL, raw, cache, (size_t)(N_ROWS * bytes)));
    EXPECT_OK(assay_cuda_to_host(NULL, got, out, (size_t)(N_ROWS * width) * sizeof *got));
    EXPECT_OK(assay_cuda_sync(NULL));
    for (int t = 0; t < N_ROWS; t++) {
        int at_row = paged ? pages[t / 16] * 16 + t % 16 : t;
        /* codes beside a value that is not finite mean nothing: the number is NaN or infinite */
        bool has_scale = type == ASSAY_CACHE_Q8_0 || type == ASSAY_CACHE_F8E4M3;
        assay_cache_row_store(row, type, x + t * width, width);
        assay_cache_row_load(want, type, row, width, ASSAY_CACHE_SCALE_RIGHT);
        bool odd = t % 8 == 7 || t == 6;
        if (!(has_scale && odd))
            ck_assert_msg(!memcmp(raw + at_row * bytes, row, (size_t)bytes),
                          "%s, %d wide: bytes of row %d", assay_cache_type_name(type), (int)width,
                          t);
        for (int64_t i = 0; i < width; i++)
            ck_assert_msg(same_number(got[t * width + i], want[i]),
                          "%s, %d wide: row %d: %g, expected %g", assay_cache_type_name(type),
                          (int)width, t, got[t * width + i], want[i]);
    }
    void *memory[] = {cache, base, rows_at, in, out, pages_at, n_keys};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        assay_cuda_free(memory[i]);
}

START_TEST(gpu_cache_holds_the_host_s_bytes_in_every_type)
{
    static const int64_t widths[] = {1, 33, 64, 100, 160};
    for (int type = 0; type < ASSAY_CACHE_TYPE_COUNT; type++)
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
            for (int paged = 0; paged < 2; paged++) {
                expect_bytes((assay_cache_type)type, widths[i], widths[i], paged);
                expect_bytes((assay_cache_type)type, widths[i], widths[i] / 3, paged);
            }
}
END_TEST

enum { N_PROMPT = 21, N_DECODE = 5 };

typedef struct way {
    assay_backend backend;
    assay_path path;
    assay_cache_type type;
    int page_size, chunk;
    bool use_graph;
} way;

/* Logits of decode steps behind a prompt. */
static float *run(assay_model *model, const way *w)
{
    int64_t vocab = assay_model_hparams(model)->n_vocab;
    float *logits = calloc((size_t)(N_DECODE * vocab), sizeof *logits);
    int32_t ids[N_PROMPT + N_DECODE], positions[N_PROMPT + N_DECODE];
    assay_engine *engine;
    assay_engine_options o = assay_engine_options_default();
    o.backend = w->backend;
    o.path = w->path;
    o.cache_type = w->type;
    o.page_size = w->page_size;
    o.use_graph = w->use_graph;
    o.max_positions = 64;
    o.max_sequences = 2;
    for (int i = 0; i < N_PROMPT + N_DECODE; i++) {
        ids[i] = (i * 7919 + 11) % (int32_t)vocab;
        positions[i] = i;
    }
    EXPECT_OK(assay_engine_new(&engine, model, &o));
    for (int i = 0; i < N_PROMPT; i += w->chunk) {
        int n = N_PROMPT - i < w->chunk ? N_PROMPT - i : w->chunk;
        EXPECT_OK(
            assay_engine_forward(engine, &(assay_batch){n, ids + i, positions + i, NULL}, NULL));
    }
    for (int i = 0; i < N_DECODE; i++)
        EXPECT_OK(assay_engine_forward(
            engine, &(assay_batch){1, ids + N_PROMPT + i, positions + N_PROMPT + i, NULL},
            logits + i * vocab));
    for (int i = 0; i < assay_engine_n_buffer_faults(engine); i++)
        ck_abort_msg("ledger: %s", assay_engine_buffer_fault_at(engine, i)->text);
    assay_engine_free(engine);
    return logits;
}

static double distance(const float *a, const float *b, int64_t n)
{
    double error = 0, square = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        square += (double)b[i] * b[i];
    }
    return sqrt(error / square);
}

/* What the type costs against float32, on the host and on the device, is alike; what it costs the
 * two apart is less: codes at a tie may fall either way. */
START_TEST(gpu_cache_types_change_a_run_as_they_do_on_the_host)
{
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, data_shipped(MODEL), NULL));
    int64_t n = N_DECODE * (int64_t)assay_model_hparams(model)->n_vocab;
    for (int path = 0; path < 2; path++) {
        way plain = {ASSAY_BACKEND_CUDA, (assay_path)path, ASSAY_CACHE_F32, 0, N_PROMPT, false};
        float *exact = run(model, &plain);
        for (int type = 0; type < ASSAY_CACHE_TYPE_COUNT; type++) {
            way w = plain;
            w.type = (assay_cache_type)type;
            float *whole = run(model, &w);
            way on_host = w;
            on_host.backend = ASSAY_BACKEND_CPU;
            float *host = run(model, &on_host);
            double cost = distance(host, exact, n), apart = distance(whole, host, n);
            printf("# cache %s, %s path: from float32 %.2e, device from host %.2e\n",
                   assay_cache_type_name(w.type), path ? "latent" : "expanded", cost, apart);
            ck_assert_msg(apart <= cost / 2 + 2e-5,
                          "%s: device from host %.3g, host from float32 %.3g",
                          assay_cache_type_name(w.type), apart, cost);
            way others[] = {w, w, w};
            others[0].page_size = 4;
            others[1].use_graph = true;
            others[2].page_size = 1;
            others[2].use_graph = true;
            for (int i = 0; i < 3; i++) {
                /* 21 rows at once go by dense steps when the cache is contiguous: compare few rows
                 */
                way few = others[i], base = w;
                few.chunk = base.chunk = 7;
                float *a = run(model, &few), *b = run(model, &base);
                ck_assert_msg(!memcmp(a, b, (size_t)n * sizeof *a), "%s, way %d: other bits",
                              assay_cache_type_name(w.type), i);
                free(a);
                free(b);
            }
            free(whole);
            free(host);
        }
        free(exact);
    }
    assay_model_close(model);
}
END_TEST

EXPECT_GPU_MAIN("gpu_cache", gpu_cache_holds_the_host_s_bytes_in_every_type,
                gpu_cache_types_change_a_run_as_they_do_on_the_host)
