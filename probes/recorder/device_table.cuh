/* The table of buffers as the recorders' kernels see it. */
#ifndef ASSAY_PROBES_RECORDER_DEVICE_TABLE_CUH
#define ASSAY_PROBES_RECORDER_DEVICE_TABLE_CUH

#include "engine/ops/kernel.cuh"

extern "C" {
#include "probes/recorder.h"
}

#define STATS_THREADS 256

enum { WIDTH_AS_IT_IS, WIDTH_KEYS, WIDTH_AT_MOST_KEYS };

struct table_entry {
    const void *at;
    int64_t rows, width, stride; /* as large as they can become */
    int32_t width_rule;
    int32_t is_ids;
    int32_t first_chunk, n_chunks; /* of the statistics */
    int64_t chunk;                 /* elements in one */
    int32_t first_piece, n_pieces; /* of the sketch: pieces of a group, over all groups */
    int32_t n_groups, first_group;
    int64_t first_value; /* of the rows that are kept; of one step */
};

#define TABLE_ENDS 2 /* rows at either end that the tier `rows` keeps */

/* The entry's shape in this step. counts: rows, keys; NULL: as large as it can become. */
__device__ __forceinline__ void table_shape(int64_t *rows, int64_t *width, const table_entry &e,
                                            const int32_t *counts)
{
    *rows = e.rows;
    *width = e.width;
    if (!counts)
        return;
    if (counts[0] < e.rows)
        *rows = counts[0];
    if (e.width_rule != WIDTH_AS_IT_IS && (e.width_rule == WIDTH_KEYS || counts[1] < e.width))
        *width = counts[1];
}

/* Number of the entry that item `i` belongs to; first(entry) ascends. */
template <class F> __device__ int table_find(int n, int i, F first)
{
    int low = 0, high = n - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (first(middle) <= i)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* (high, low) *= (factor_high, factor_low), modulo 2^64 */
__device__ __forceinline__ void table_multiply(uint32_t *low, uint32_t *high, uint32_t factor_low,
                                               uint32_t factor_high)
{
    uint32_t l, h;
    asm("{ .reg .u64 t; mul.wide.u32 t, %2, %3; mov.b64 {%0, %1}, t; }"
        : "=r"(l), "=r"(h)
        : "r"(*low), "r"(factor_low));
    asm("mad.lo.u32 %0, %1, %2, %0;" : "+r"(h) : "r"(*low), "r"(factor_high));
    asm("mad.lo.u32 %0, %1, %2, %0;" : "+r"(h) : "r"(*high), "r"(factor_low));
    *low = l;
    *high = h;
}

/* mix() of recorder.h, in the 32-bit halves that the hardware has: two instructions fewer. */
__device__ __forceinline__ uint64_t table_mix(uint64_t z)
{
    uint32_t low, high;
    asm("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "l"(z));
    uint32_t shifted = __funnelshift_r(low, high, 30);
    low ^= shifted;
    high ^= high >> 30;
    table_multiply(&low, &high, 0x1CE4E5B9u, 0xBF58476Du);
    shifted = __funnelshift_r(low, high, 27);
    low ^= shifted;
    high ^= high >> 27;
    table_multiply(&low, &high, 0x133111EBu, 0x94D049BBu);
    shifted = __funnelshift_r(low, high, 31);
    low ^= shifted;
    high ^= high >> 31;
    asm("mov.b64 %0, {%1, %2};" : "=l"(z) : "r"(low), "r"(high));
    return z;
}

struct device_stats {
    assay_stats stats;
    int64_t first_bad;
};

/* Statistics of all entries: results[ring slot][entry]; one launch. */
assay_status device_stats_queue(void *stream, device_stats *results, device_stats *partial,
                                int *arrived, const table_entry *entries, int n, int n_chunks,
                                const int32_t *counts, const int *step, int ring);
/* Sketches: results[ring slot][group][ASSAY_SKETCH_N]; one launch. */
assay_status device_sketch_queue(void *stream, float *results, double *partial, int *arrived,
                                 const table_entry *entries, int n, int n_pieces, int n_groups,
                                 const int32_t *counts, const int *step, int ring);

/* Rows: values[ring slot][n_values], each entry's from first_value on, as wide as they are in this
 * step; shapes[ring slot][2] = rows and keys of the step. all: every row; else those at the ends.
 * One launch. */
assay_status device_rows_queue(void *stream, uint32_t *values, int64_t n_values, int32_t *shapes,
                               const table_entry *entries, int n, bool all, const int32_t *counts,
                               const int *step, int ring);

#define SKETCH_PIECE 4096 /* elements of a group that one block takes */

#endif
