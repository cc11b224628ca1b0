#include <omp.h>
#include <stdlib.h>

#include "engine/point.h"
#include "expect.h"
#include "probes/recorder.h"

/* splitmix64 seeded with 0 begins with these (its published test sequence). */
START_TEST(recorder_mixes_as_splitmix64_does)
{
    const uint64_t golden = 0x9E3779B97F4A7C15u;
    ck_assert_uint_eq(assay_mix(golden), 0xE220A8397B1DCDAFu);
    ck_assert_uint_eq(assay_mix(2 * golden), 0x6E789E6AA1B965F4u);
    ck_assert_uint_eq(assay_mix(3 * golden), 0x06C45D188009454Fu);
}
END_TEST

static uint64_t state = 1;

/* Uniform in -1 ... 1, the sum of four: near enough to a bell. */
static double noise(void)
{
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (double)(assay_mix(state++ * 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53 - 0.5;
    return sum;
}

START_TEST(recorder_statistics_count_before_they_compute)
{
    float x[8] = {1, -2, 0, NAN, INFINITY, -INFINITY, 3, -0.0f};
    assay_buffer b = assay_buffer_view(x, ASSAY_DTYPE_F32, 1, (int64_t[]){8});
    assay_stats s;
    assay_stats_of(&s, &b);
    ck_assert_int_eq(s.n, 8);
    ck_assert_int_eq(s.n_nan, 1);
    ck_assert_int_eq(s.n_pos_inf, 1);
    ck_assert_int_eq(s.n_neg_inf, 1);
    ck_assert_int_eq(s.n_zero, 2);
    ck_assert_int_eq(s.n_poison, 0);
    EXPECT_NEAR(s.min, -2, 0);
    EXPECT_NEAR(s.max, 3, 0);
    EXPECT_NEAR(s.mean, 0.4, 1e-16);
    EXPECT_NEAR(s.l2, sqrt(14), 1e-15);
}
END_TEST

/* By definition, element by element. */
static uint64_t sum_by_definition(const void *elements, size_t size, int64_t n)
{
    const int64_t per = size < 8 ? 2 : 1;
    uint64_t sum = 0;
    for (int64_t i = 0; i < (n + per - 1) / per; i++) {
        uint64_t half[2] = {0}, z;
        for (int64_t k = 0; k < per && per * i + k < n; k++)
            memcpy(&half[k], (const char *)elements + (size_t)(per * i + k) * size, size);
        z = half[0] + (half[1] << 32) + (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u;
        sum += z * (z >> 32 | 1);
    }
    return sum;
}

START_TEST(recorder_checksum_is_that_of_its_definition)
{
    const float five[] = {1, 2, 3, 4, 5};
    uint64_t words[80];
    ck_assert_uint_eq(assay_checksum_of(five, sizeof *five, 5), 0x51F5F8BCAB84331Eu);
    for (size_t i = 0; i < 80; i++)
        words[i] = assay_mix(i);
    for (size_t size = 1; size <= 8; size *= 2)
        for (int64_t n = 0; n <= 75; n++) {
            uint64_t wanted = sum_by_definition(words, size, n);
            ck_assert_uint_eq(assay_checksum_of(words, size, n), wanted);
            ck_assert_uint_eq(assay_checksum_part(words, size, 0, n / 4 * 2) +
                                  assay_checksum_part(words, size, n / 4 * 2, n),
                              wanted);
        }
}
END_TEST

START_TEST(recorder_older_checksum_mixes_every_word)
{
    static uint64_t words[150001];
    const int64_t most = sizeof words / sizeof *words;
    for (int64_t i = 0; i < most; i++)
        words[i] = assay_mix((uint64_t)i);
    for (size_t size = 1; size <= 8; size *= 2)
        for (int64_t n = 70; n <= most; n = n < 76 ? n + 1 : n < most ? most : most + 1) {
            const int64_t per = size < 8 ? 2 : 1;
            uint64_t wanted = 0;
            for (int64_t i = 0; i < (n + per - 1) / per; i++) {
                uint64_t half[2] = {0};
                for (int64_t k = 0; k < per && per * i + k < n; k++)
                    memcpy(&half[k], (const char *)words + (size_t)(per * i + k) * size, size);
                wanted +=
                    assay_mix(half[0] + (half[1] << 32) + (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u);
            }
            ck_assert_uint_eq(assay_checksum_mixed(words, size, n), wanted);
        }
}
END_TEST

START_TEST(recorder_checksum_sees_order_and_every_bit)
{
    enum { N = 64 };
    float x[N];
    for (int i = 0; i < N; i++) /* some of them close together, and zeros */
        x[i] = i % 4 ? 1 + 0x1p-20f * (float)i : 0;
    const uint64_t wanted = assay_checksum_of(x, sizeof *x, N);
    for (int i = 0; i < N; i++) {
        const float kept = x[i];
        for (int bit = 0; bit < 32; bit++) {
            uint32_t bits;
            memcpy(&bits, &kept, sizeof bits);
            bits ^= (uint32_t)1 << bit;
            memcpy(&x[i], &bits, sizeof bits);
            ck_assert_uint_ne(assay_checksum_of(x, sizeof *x, N), wanted);
        }
        for (int k = 0; k < i; k++) {
            x[i] = x[k];
            x[k] = kept;
            if (x[i] != x[k])
                ck_assert_uint_ne(assay_checksum_of(x, sizeof *x, N), wanted);
            x[k] = x[i];
        }
        x[i] = kept;
    }
    for (int n = 1; n <= N / 2; n++) { /* exchanged blocks */
        float y[N];
        memcpy(y, x, sizeof y);
        memcpy(y, x + n, (size_t)n * sizeof *y);
        memcpy(y + n, x, (size_t)n * sizeof *y);
        if (memcmp(x, y, sizeof x) != 0)
            ck_assert_uint_ne(assay_checksum_of(y, sizeof *y, N), wanted);
    }
}
END_TEST

START_TEST(recorder_statistics_of_nothing_are_zero)
{
    assay_buffer b = assay_buffer_view(NULL, ASSAY_DTYPE_F32, 2, (int64_t[]){0, 5});
    assay_stats s;
    assay_stats_of(&s, &b);
    ck_assert_int_eq(s.n, 0);
    ck_assert_double_eq(s.l2, 0);
    ck_assert_double_eq(s.mean, 0);
}
END_TEST

static double norm(const float *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

START_TEST(recorder_sketch_keeps_relative_distance)
{
    enum { ROWS = 32, COLS = 200, TRIALS = 100 };
    static float x[ROWS * COLS], y[ROWS * COLS];
    int n_near = 0;
    double worst = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        double scale = pow(10, -trial % 6);
        double d = 0, n = 0;
        for (int i = 0; i < ROWS * COLS; i++) {
            x[i] = (float)noise();
            y[i] = x[i] + (float)(scale * noise());
            n += (double)x[i] * x[i];
            d += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
        }
        float a[ASSAY_SKETCH_N], b[ASSAY_SKETCH_N];
        assay_buffer v = assay_buffer_view(x, ASSAY_DTYPE_F32, 2, (int64_t[]){ROWS, COLS});
        assay_buffer w = assay_buffer_view(y, ASSAY_DTYPE_F32, 2, (int64_t[]){ROWS, COLS});
        assay_sketch_of(a, &v);
        assay_sketch_of(b, &w);
        double na = norm(a, ASSAY_SKETCH_N);
        for (int j = 0; j < ASSAY_SKETCH_N; j++)
            b[j] -= a[j];
        double off = fabs(norm(b, ASSAY_SKETCH_N) / na / sqrt(d / n) - 1);
        n_near += off < 0.1;
        worst = off > worst ? off : worst;
    }
    /* the ratio of two sketches: standard deviation 1/sqrt(256) = 6 %, so 0.1 is 1.6 of them */
    ck_assert_int_ge(n_near, 80);
    EXPECT_NEAR(worst, 0, 0.25);
}
END_TEST

START_TEST(recorder_sketch_tells_exchanged_blocks_from_noise)
{
    enum { COLS = 64 };
    float x[COLS], swapped[COLS], want[ASSAY_SKETCH_N], got[ASSAY_SKETCH_N], ref[ASSAY_SKETCH_N];
    for (int i = 0; i < COLS; i++)
        x[i] = (float)noise();
    for (int i = 0; i < COLS; i++)
        swapped[i] = x[(i + COLS / 2) % COLS];
    int64_t dims[] = {1, COLS};
    assay_buffer v = assay_buffer_view(x, ASSAY_DTYPE_F32, 2, dims);
    assay_buffer w = assay_buffer_view(swapped, ASSAY_DTYPE_F32, 2, dims);
    assay_sketch_of(ref, &v);
    assay_sketch_of(got, &w);  /* what the candidate's sketch shows */
    assay_sketch_of(want, &w); /* the hypothesis, from the full reference */
    ck_assert_mem_eq(got, want, sizeof got);
    for (int j = 0; j < ASSAY_SKETCH_N; j++)
        ref[j] -= got[j];
    ck_assert_double_gt(norm(ref, ASSAY_SKETCH_N) / norm(got, ASSAY_SKETCH_N), 0.5);
}
END_TEST

START_TEST(recorder_sketch_follows_its_formula)
{
    enum { ROWS = 35, COLS = 3 };
    float x[ROWS * COLS], got[2 * ASSAY_SKETCH_N];
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = (float)noise();
    x[7] = NAN;
    x[100] = INFINITY;
    assay_buffer v = assay_buffer_view(x, ASSAY_DTYPE_F32, 2, (int64_t[]){ROWS, COLS});
    ck_assert_int_eq(assay_sketch_groups(ROWS), 2);
    assay_sketch_of(got, &v);
    for (int g = 0; g < 2; g++)
        for (int j = 0; j < ASSAY_SKETCH_N; j++) {
            double sum = 0;
            for (int r = 32 * g; r < 32 * g + 32 && r < ROWS; r++)
                for (int c = 0; c < COLS; c++) {
                    uint64_t e = (uint64_t)((r - 32 * g) * COLS + c);
                    uint64_t bits = assay_mix(0x61737361795F3031u +
                                              (4 * e + (uint64_t)j / 64 + 1) * 0x9E3779B97F4A7C15u);
                    double value = isfinite(x[r * COLS + c]) ? x[r * COLS + c] : 0;
                    sum += bits >> (j % 64) & 1 ? -value : value;
                }
            ck_assert_float_eq(got[g * ASSAY_SKETCH_N + j], (float)(sum / 16));
        }
}
END_TEST

/* Stretches of 65,536 with numbers that are not finite: in the order in which they lie. */
static void stats_by_definition(assay_stats *out, const float *x, int64_t n)
{
    int64_t n_finite = 0;
    double total = 0, squares = 0;
    *out = (assay_stats){.n = n};
    for (int64_t first = 0; first < n; first += 1 << 16) {
        double sum = 0, square = 0;
        for (int64_t i = first; i < n && i < first + (1 << 16); i++) {
            const double v = x[i];
            out->n_nan += isnan(v);
            out->n_pos_inf += v == INFINITY;
            out->n_neg_inf += v == -INFINITY;
            out->n_zero += v == 0;
            if (!isfinite(v))
                continue;
            out->min = !n_finite || v < out->min ? v : out->min;
            out->max = !n_finite || v > out->max ? v : out->max;
            n_finite++;
            sum += v;
            square += v * v;
        }
        total += sum;
        squares += square;
    }
    out->mean = n_finite ? total / (double)n_finite : 0;
    out->l2 = sqrt(squares);
}

START_TEST(recorder_statistics_of_masked_values_are_those_of_their_definition)
{
    enum { COLS = 331, N = 599 * COLS }; /* four stretches, the last one shorter */
    float *x = malloc(N * sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (int kind = 0; kind < 5; kind++) {
        for (int i = 0; i < N; i++) {
            const bool ahead = i % COLS > i / COLS / 2;
            x[i] = (float)noise();
            if (kind <= 1 && ahead) /* a causal mask */
                x[i] = kind ? INFINITY : -INFINITY;
            if (kind == 2 && i % 1777 == 0) /* few, of every kind */
                x[i] = (float[]){NAN, INFINITY, -INFINITY}[i % 3];
            if (kind == 3 && ahead) /* beside zeros of both signs */
                x[i] = i % 97 ? (i % 2 ? 0.0f : -0.0f) : -INFINITY;
            if (kind == 4) /* none is finite, but for one */
                x[i] = i == N / 2 ? -3 : -INFINITY;
        }
        assay_buffer b = assay_buffer_view(x, ASSAY_DTYPE_F32, 2, (int64_t[]){N / COLS, COLS});
        assay_stats got, wanted;
        assay_stats_of(&got, &b);
        stats_by_definition(&wanted, x, N);
        wanted.checksum = got.checksum;
        ck_assert_mem_eq(&got, &wanted, sizeof got);
    }
    free(x);
}
END_TEST

START_TEST(recorder_table_rows_are_found_by_name)
{
    for (int i = 0; i < assay_recorder_count(); i++)
        ck_assert_ptr_eq(assay_recorder_find(assay_recorder_at(i)->name), assay_recorder_at(i));
    ck_assert_ptr_null(assay_recorder_find("all"));
}
END_TEST

/* Long enough for vectors, threads and a rest; beside sums in plain order. */
START_TEST(recorder_statistics_of_long_values_do_not_depend_on_threads)
{
    enum { N = 700003 };
    float *x = malloc(N * sizeof *x);
    double sum = 0, squares = 0, low = INFINITY, high = -INFINITY;
    ck_assert_ptr_nonnull(x);
    for (int i = 0; i < N; i++)
        x[i] = i % 1000 == 0 ? 0 : (float)noise();
    for (int pass = 0; pass < 2; pass++) {
        assay_buffer b = assay_buffer_view(x, ASSAY_DTYPE_F32, 1, (int64_t[]){N});
        assay_stats one, three;
        sum = squares = 0;
        for (int i = 0; i < N; i++) {
            sum += isfinite(x[i]) ? x[i] : 0;
            squares += isfinite(x[i]) ? (double)x[i] * x[i] : 0;
            low = x[i] < low ? x[i] : low;
            high = isfinite(x[i]) && x[i] > high ? x[i] : high;
        }
        omp_set_num_threads(1);
        assay_stats_of(&one, &b);
        omp_set_num_threads(3);
        assay_stats_of(&three, &b);
        ck_assert_mem_eq(&one, &three, sizeof one);
        ck_assert_uint_eq(one.checksum, assay_checksum_of(x, sizeof *x, N));
        ck_assert_int_eq(one.n_zero, (N + 999) / 1000);
        ck_assert_int_eq(one.n_nan + one.n_pos_inf, 2 * pass);
        EXPECT_NEAR(one.min, low, 0);
        EXPECT_NEAR(one.max, high, 0);
        EXPECT_NEAR(one.mean, sum / (N - 2 * pass), 1e-12);
        EXPECT_NEAR(one.l2, sqrt(squares), 1e-9);
        x[N / 2] = NAN; /* the second time a stretch is not finite */
        x[N - 1] = INFINITY;
    }
    free(x);
}
END_TEST

/* Bytes of the sketches of one layer: rows in groups of 32, 256 numbers and their place. */
START_TEST(recorder_sketches_of_78_layers_and_512_tokens_fit_in_200_mb)
{
    const int64_t n_layers = 78, n_tokens = 512, n_heads = 64;
    int64_t bytes = 0;
    for (int p = 0; p < ASSAY_POINT_COUNT; p++) {
        const assay_point_info *info = assay_point_at((assay_point)p);
        ck_assert(info->axes[0] == 'T' || info->axes[0] == 'H');
        int64_t groups = assay_sketch_groups(info->axes[0] == 'T' ? n_tokens : n_heads);
        int64_t row = ASSAY_POINT_NAME_BYTES + 4 + 10 * 8 + 8; /* of the statistics */
        bytes += (info->per_layer ? n_layers : 1) *
                 (groups * (ASSAY_SKETCH_N * (int64_t)sizeof(float) + 8) + row);
    }
    ck_assert_int_le(bytes, 200000000);
    ck_assert_int_ge(bytes, 10000000);
}
END_TEST

EXPECT_MAIN("recorder", recorder_mixes_as_splitmix64_does,
            recorder_statistics_count_before_they_compute,
            recorder_checksum_is_that_of_its_definition, recorder_older_checksum_mixes_every_word,
            recorder_checksum_sees_order_and_every_bit, recorder_statistics_of_nothing_are_zero,
            recorder_sketch_keeps_relative_distance,
            recorder_sketch_tells_exchanged_blocks_from_noise, recorder_sketch_follows_its_formula,
            recorder_statistics_of_long_values_do_not_depend_on_threads,
            recorder_sketches_of_78_layers_and_512_tokens_fit_in_200_mb,
            recorder_statistics_of_masked_values_are_those_of_their_definition,
            recorder_table_rows_are_found_by_name)
