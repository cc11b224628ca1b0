/*
 * Sketches on the device (recorder.h): a block takes a piece of a group of rows; thread j keeps the
 * sum of number j. The last block of a group to finish adds the pieces in order.
 */
#include "probes/recorder/device_table.cuh"

#define GOLDEN 0x9E3779B97F4A7C15u
#define SEED 0x61737361795F3031u
#define TILE 64 /* elements whose signs are in shared memory at once */

static __device__ double element(const table_entry &e, int64_t width, int64_t i)
{
    int64_t at = i / width * e.stride + i % width;
    double x =
        e.is_ids ? static_cast<const int32_t *>(e.at)[at] : static_cast<const float *>(e.at)[at];
    return isfinite(x) ? x : 0.0;
}

static __global__ void __launch_bounds__(ASSAY_SKETCH_N)
    sketch_all(float *results, double *partial, int *arrived, const table_entry *entries, int n,
               int n_groups, const int32_t *counts, const int *step, int ring)
{
    kernel_begin();
    __shared__ double x[TILE];
    __shared__ uint64_t signs[TILE][4];
    __shared__ bool is_last;
    int piece = static_cast<int>(blockIdx.x), j = static_cast<int>(threadIdx.x);
    int which = table_find(n, piece, [entries](int i) { return entries[i].first_piece; });
    table_entry e = entries[which];
    int per_group = e.n_pieces / e.n_groups, group = (piece - e.first_piece) / per_group;
    int in_group = (piece - e.first_piece) % per_group;
    int64_t rows, width;
    table_shape(&rows, &width, e, counts);
    int64_t first = static_cast<int64_t>(group) * ASSAY_SKETCH_ROWS * width;
    int64_t last = first + ASSAY_SKETCH_ROWS * width;
    if (last > rows * width)
        last = rows * width;
    int64_t from = first + static_cast<int64_t>(in_group) * SKETCH_PIECE;
    int64_t to = from + SKETCH_PIECE < last ? from + SKETCH_PIECE : last;
    double sum = 0;
    for (; from < to; from += TILE) {
        int here = static_cast<int>(to - from < TILE ? to - from : TILE);
        int el = j / 4, word = j % 4;
        __syncthreads();
        if (el < here) {
            uint64_t at = static_cast<uint64_t>(from - first + el);
            signs[el][word] = table_mix(SEED + (4 * at + static_cast<uint64_t>(word) + 1) * GOLDEN);
            if (word == 0)
                x[el] = element(e, width, from + el);
        }
        __syncthreads();
        for (int i = 0; i < here; i++)
            sum += signs[i][j / 64] >> (j % 64) & 1 ? -x[i] : x[i];
    }
    partial[static_cast<int64_t>(piece) * ASSAY_SKETCH_N + j] = sum;
    __threadfence();
    __syncthreads();
    if (j == 0)
        is_last = atomicAdd(&arrived[e.first_group + group], 1) == per_group - 1;
    __syncthreads();
    if (!is_last)
        return;
    __threadfence();
    const double *parts =
        partial + static_cast<int64_t>(e.first_piece + group * per_group) * ASSAY_SKETCH_N;
    sum = 0;
    for (int i = 0; i < per_group; i++)
        sum += parts[static_cast<int64_t>(i) * ASSAY_SKETCH_N + j];
    int64_t slot = static_cast<int64_t>(*step % ring) * n_groups + e.first_group + group;
    results[slot * ASSAY_SKETCH_N + j] = static_cast<float>(sum / 16);
    if (j == 0)
        arrived[e.first_group + group] = 0;
}

assay_status device_sketch_queue(void *stream, float *results, double *partial, int *arrived,
                                 const table_entry *entries, int n, int n_pieces, int n_groups,
                                 const int32_t *counts, const int *step, int ring)
{
    return kernel_launch("sketches", stream, sketch_all, static_cast<unsigned>(n_pieces),
                         ASSAY_SKETCH_N, 0, results, partial, arrived, entries, n, n_groups, counts,
                         step, ring);
}
