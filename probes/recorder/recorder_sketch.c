#include <math.h>
#include <string.h>

#include "probes/recorder.h"

#define GOLDEN 0x9E3779B97F4A7C15u
#define SEED 0x61737361795F3031u

int64_t assay_sketch_groups(int64_t n_rows)
{
    return (n_rows + ASSAY_SKETCH_ROWS - 1) / ASSAY_SKETCH_ROWS;
}

/* Adds one element to all sums: the sign goes into the sign bit, which is exact. */
static void add_element(double sums[ASSAY_SKETCH_N], double x, uint64_t element)
{
    for (uint64_t word = 0; word < ASSAY_SKETCH_N / 64; word++) {
        uint64_t bits = assay_mix(SEED + (4 * element + word + 1) * GOLDEN);
        double *sum = sums + 64 * word;
        for (int j = 0; j < 64; j++)
            sum[j] += bits >> j & 1 ? -x : x;
    }
}

void assay_sketch_of(float *out, const assay_buffer *values)
{
    int64_t n = assay_buffer_count(values);
    int64_t n_rows = values->n_dims ? values->dims[0] : 1;
    int64_t n_cols = n_rows ? n / n_rows : 0;
    for (int64_t g = 0; g < assay_sketch_groups(n_rows); g++) {
        double sums[ASSAY_SKETCH_N] = {0};
        int64_t first = g * ASSAY_SKETCH_ROWS * n_cols;
        int64_t last = first + ASSAY_SKETCH_ROWS * n_cols;
        for (int64_t i = first; i < last && i < n; i++) {
            double x = assay_element(values, i);
            if (isfinite(x) && x != 0)
                add_element(sums, x, (uint64_t)(i - first));
        }
        for (int j = 0; j < ASSAY_SKETCH_N; j++)
            out[g * ASSAY_SKETCH_N + j] = (float)(sums[j] / 16);
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
