#include <math.h>
#include <string.h>

#include "engine/base/wide.h"
#include "probes/recorder.h"

#define GOLDEN 0x9E3779B97F4A7C15u
#define SEED 0x61737361795F3031u

static inline uint64_t mixed(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

int64_t assay_sketch_groups(int64_t n_rows)
{
    return (n_rows + ASSAY_SKETCH_ROWS - 1) / ASSAY_SKETCH_ROWS;
}

/* Adds one element to all sums: the sign goes into the sign bit, which is exact. */
ASSAY_WIDEST_INT static void add_elements(double *sums, const double *x, uint64_t element, int n)
{
    for (int e = 0; e < n; e++) {
        uint64_t plain;
        memcpy(&plain, x + e, sizeof plain);
        if (!isfinite(x[e]) || x[e] == 0)
            continue;
        for (uint64_t word = 0; word < ASSAY_SKETCH_N / 64; word++) {
            uint64_t bits = mixed(SEED + (4 * (element + (uint64_t)e) + word + 1) * GOLDEN);
            double *sum = sums + 64 * word;
#pragma omp simd
            for (int j = 0; j < 64; j++) {
                uint64_t turned = plain ^ (bits >> j) << 63;
                double value;
                memcpy(&value, &turned, sizeof value);
                sum[j] += value;
            }
        }
    }
}

/* The sums of one group: elements [first, last) of the value. */
static void sum_group(double sums[ASSAY_SKETCH_N], const assay_buffer *values, int64_t first,
                      int64_t last)
{
    enum { BLOCK = 256 };
    double x[BLOCK];
    memset(sums, 0, ASSAY_SKETCH_N * sizeof *sums);
    for (int64_t i = first; i < last; i += BLOCK) {
        int count = (int)(last - i < BLOCK ? last - i : BLOCK);
        for (int k = 0; k < count; k++)
            x[k] = assay_element(values, i + k);
        add_elements(sums, x, (uint64_t)(i - first), count);
    }
}

/* Into out or, at full precision, into exact. */
static void sketch(float *out, double *exact, const assay_buffer *values)
{
    int64_t n = assay_buffer_count(values);
    int64_t n_rows = values->n_dims ? values->dims[0] : 1;
    int64_t n_cols = n_rows ? n / n_rows : 0;
    int64_t n_groups = assay_sketch_groups(n_rows);
#pragma omp parallel for schedule(dynamic, 1) if (n_groups > 1 && n > 1 << 12)
    for (int64_t g = 0; g < n_groups; g++) {
        double sums[ASSAY_SKETCH_N];
        int64_t first = g * ASSAY_SKETCH_ROWS * n_cols;
        int64_t last =
            first + ASSAY_SKETCH_ROWS * n_cols < n ? first + ASSAY_SKETCH_ROWS * n_cols : n;
        sum_group(sums, values, first, last);
        for (int j = 0; j < ASSAY_SKETCH_N; j++)
            if (exact)
                exact[g * ASSAY_SKETCH_N + j] = sums[j] / 16;
            else
                out[g * ASSAY_SKETCH_N + j] = (float)(sums[j] / 16);
    }
}

void assay_sketch_of(float *out, const assay_buffer *values)
{
    sketch(out, NULL, values);
}

void assay_sketch_exact(double *out, const assay_buffer *values)
{
    sketch(NULL, out, values);
}

/* Static: gcc shows the other versions of a function to everybody, hidden or not. */
static ASSAY_WIDEST_INT void back(double *x, const double *y, int64_t n)
{
    static const assay_u64s lane = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int64_t e = 0; e < n; e++) {
        assay_f64s sum = {0};
        for (uint64_t word = 0; word < ASSAY_SKETCH_N / 64; word++) {
            uint64_t bits = mixed(SEED + (4 * (uint64_t)e + word + 1) * GOLDEN);
            for (uint64_t j = 0; j < 64; j += ASSAY_LANES_F64) {
                assay_u64s at;
                assay_f64s signed_at;
                memcpy(&at, y + 64 * word + j, sizeof at);
                at ^= (bits >> (j + lane) & 1) << 63;
                memcpy(&signed_at, &at, sizeof at);
                sum += signed_at;
            }
        }
        x[e] = assay_lanes_total(&sum) / 16;
    }
}

void assay_sketch_back(double *x, const double *y, int64_t n)
{
    back(x, y, n);
}

void assay_sketch_signs(double *signs, int64_t element)
{
    for (uint64_t word = 0; word < ASSAY_SKETCH_N / 64; word++) {
        uint64_t bits = mixed(SEED + (4 * (uint64_t)element + word + 1) * GOLDEN);
        for (int j = 0; j < 64; j++)
            signs[64 * word + (uint64_t)j] = (bits >> j & 1) ? -1.0 / 16 : 1.0 / 16;
    }
}

assay_record_fn assay_record_sketch;

assay_status assay_record_sketch(assay_recorded *out, const assay_buffer *values)
{
    int64_t n_rows = values->n_dims ? values->dims[0] : 1;
    out->n_groups = assay_sketch_groups(n_rows);
    ASSAY_TRY(assay_alloc(&out->sketch, (size_t)out->n_groups * ASSAY_SKETCH_N, sizeof *out->sketch,
                          "sketch"));
    assay_sketch_of(out->sketch, values);
    return ASSAY_OK;
}
