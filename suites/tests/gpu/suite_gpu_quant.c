/*
 * Decoding on the device has the bits of decoding on the host, for every type; products of few rows
 * and of many are what float64 gives on the decoded weights.
 */
#include "engine/device/runtime.h"
#include "engine/ops/device_ops.h"
#include "engine/quant.h"
#include "expect_gpu.h"

#define N_ROWS 24
#define WIDTH 1024
#define MOST_X 16

static uint32_t state = 1;

static uint32_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

/* Random bytes; float16 and float32 scales that come out as NaN or infinite are made finite. */
static void random_blocks(uint8_t *blocks, const assay_quant *q, int64_t n)
{
    int64_t bytes = assay_quant_bytes(q, n);
    for (int64_t i = 0; i < bytes; i++)
        blocks[i] = (uint8_t)(next_random() >> 8);
    float *values = calloc((size_t)n, sizeof *values);
    for (int64_t b = 0; b < n / q->block_elements; b++)
        for (int try = 0; try < 200; try++) {
            uint8_t *at = blocks + b * q->block_bytes;
            bool fine = true;
            EXPECT_OK(assay_quant_decode(values, q->number, at, q->block_elements));
            for (int i = 0; i < q->block_elements; i++)
                fine = fine && isfinite(values[i]) && fabsf(values[i]) < 1e4f;
            if (fine)
                break;
            for (int i = 0; i < q->block_bytes; i++)
                at[i] = (uint8_t)(next_random() >> 8);
        }
    free(values);
}

typedef struct loaded {
    assay_packed packed;
    float *values; /* host, decoded */
    void *data, *scales;
} loaded;

static void load(loaded *w, const assay_quant *q, void *stream)
{
    int64_t n = N_ROWS * WIDTH, bytes = assay_quant_bytes(q, n);
    uint8_t *blocks = calloc((size_t)bytes, 1);
    void *raw;
    random_blocks(blocks, q, n);
    w->values = calloc((size_t)n, sizeof *w->values);
    EXPECT_OK(assay_quant_decode(w->values, q->number, blocks, n));
    EXPECT_OK(assay_cuda_alloc(&raw, (size_t)bytes, "blocks"));
    EXPECT_OK(assay_cuda_to_device(stream, raw, blocks, (size_t)bytes));
    w->data = raw;
    w->scales = NULL;
    if (q->number == 8) {
        EXPECT_OK(assay_cuda_alloc(&w->data, (size_t)n, "codes"));
        EXPECT_OK(assay_cuda_alloc(&w->scales, (size_t)n / 16, "scales"));
        EXPECT_OK(assay_device_split_q8_0(stream, w->data, w->scales, raw, n / 32));
    }
    EXPECT_OK(assay_cuda_sync(stream));
    if (w->data != raw)
        assay_cuda_free(raw);
    w->packed = (assay_packed){w->data, w->scales, q->number, N_ROWS, WIDTH, bytes / N_ROWS};
    free(blocks);
}

static void unload(loaded *w)
{
    assay_cuda_free(w->data);
    assay_cuda_free(w->scales);
    free(w->values);
}

START_TEST(gpu_decodes_every_type_to_the_host_s_bits)
{
    void *stream, *out;
    float *got = calloc(N_ROWS * WIDTH, sizeof *got);
    EXPECT_OK(assay_device_quant_tables());
    EXPECT_OK(assay_cuda_stream_new(&stream));
    EXPECT_OK(assay_cuda_alloc(&out, N_ROWS * WIDTH * sizeof *got, "values"));
    for (int i = 0; i < assay_quant_count(); i++) {
        const assay_quant *q = assay_quant_at(i);
        loaded w;
        if (!q->decode)
            continue;
        load(&w, q, stream);
        EXPECT_OK(assay_device_unpack(stream, out, WIDTH, &w.packed, 0, N_ROWS, 0, WIDTH, false));
        EXPECT_OK(assay_cuda_to_host(stream, got, out, N_ROWS * WIDTH * sizeof *got));
        EXPECT_OK(assay_cuda_sync(stream));
        for (int64_t e = 0; e < N_ROWS * WIDTH; e++)
            ck_assert_msg(!memcmp(&got[e], &w.values[e], sizeof *got) ||
                              (isnan(got[e]) && isnan(w.values[e])),
                          "%s: element %lld is %.9g, expected %.9g", q->name, (long long)e, got[e],
                          w.values[e]);
        unload(&w);
    }
    assay_cuda_free(out);
    assay_cuda_stream_free(stream);
    free(got);
}
END_TEST

static void expect_product(const loaded *w, const char *name, int n, void *stream, bool transposed)
{
    float x[MOST_X * WIDTH], y[MOST_X * WIDTH];
    void *dx, *dy;
    int64_t n_in = transposed ? N_ROWS : WIDTH, n_out = transposed ? WIDTH : N_ROWS;
    for (int64_t i = 0; i < n * n_in; i++)
        x[i] = (float)((int32_t)next_random()) * 0x1p-31f;
    EXPECT_OK(assay_cuda_alloc(&dx, sizeof x, "x"));
    EXPECT_OK(assay_cuda_alloc(&dy, sizeof y, "y"));
    EXPECT_OK(assay_device_fill(stream, dy, assay_poison_f32(1), MOST_X * WIDTH));
    EXPECT_OK(assay_cuda_to_device(stream, dx, x, sizeof x));
    assay_packed_product p = {.w = &w->packed,
                              .y = dy,
                              .x = dx,
                              .n = n,
                              .y_stride = n_out,
                              .x_stride = n_in,
                              .n_out = n_out,
                              .n_in = n_in,
                              .n_head = 1,
                              .transposed = transposed};
    EXPECT_OK(assay_device_product(stream, &p));
    EXPECT_OK(assay_cuda_to_host(stream, y, dy, sizeof y));
    EXPECT_OK(assay_cuda_sync(stream));
    for (int64_t t = 0; t < n; t++) {
        double square = 0, error = 0;
        for (int64_t o = 0; o < n_out; o++) {
            double sum = 0;
            for (int64_t k = 0; k < n_in; k++)
                sum += (double)x[t * n_in + k] *
                       (transposed ? w->values[k * WIDTH + o] : w->values[o * WIDTH + k]);
            square += sum * sum;
            error += (y[t * n_out + o] - sum) * (y[t * n_out + o] - sum);
        }
        ck_assert_msg(sqrt(error) <= 2e-6 * sqrt(square), "%s, %d rows, row %lld%s: %.3g", name, n,
                      (long long)t, transposed ? ", transposed" : "", sqrt(error / square));
    }
    assay_cuda_free(dx);
    assay_cuda_free(dy);
}

START_TEST(gpu_products_of_few_rows_are_those_of_the_decoded_weight)
{
    void *stream;
    static const int rows[] = {1, 2, 3, 8, 13};
    EXPECT_OK(assay_device_quant_tables());
    EXPECT_OK(assay_cuda_stream_new(&stream));
    for (int i = 0; i < assay_quant_count(); i++) {
        const assay_quant *q = assay_quant_at(i);
        loaded w;
        if (!q->decode)
            continue;
        load(&w, q, stream);
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            expect_product(&w, q->name, rows[r], stream, false);
        expect_product(&w, q->name, 3, stream, true);
        unload(&w);
    }
    assay_cuda_stream_free(stream);
}
END_TEST

EXPECT_GPU_MAIN("gpu_quant", gpu_decodes_every_type_to_the_host_s_bits,
                gpu_products_of_few_rows_are_those_of_the_decoded_weight)
