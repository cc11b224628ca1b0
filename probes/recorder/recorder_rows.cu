/*
 * Copies on the device: the rows at both ends of every buffer, or all of them, into the ring
 * (device_table.cuh). Which rows a step has is read on the device, so a captured launch copies what
 * each replay has.
 */
#include "probes/recorder/device_table.cuh"

#define THREADS 256
#define BLOCKS 16 /* of one buffer */

static __global__ void copy_rows(uint32_t *values, int64_t n_values, int32_t *shapes,
                                 const table_entry *entries, bool all, const int32_t *counts,
                                 const int *step, int ring)
{
    kernel_begin();
    const table_entry &e = entries[blockIdx.y];
    int64_t slot = *step % ring, rows, width;
    table_shape(&rows, &width, e, counts);
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x < 2)
        shapes[2 * slot + threadIdx.x] = counts ? counts[threadIdx.x] : INT32_MAX;
    int64_t kept = all || rows < 2 * TABLE_ENDS ? rows : 2 * TABLE_ENDS;
    uint32_t *to = values + slot * n_values + e.first_value;
    for (int64_t i = blockIdx.x * static_cast<int64_t>(THREADS) + threadIdx.x; i < kept * width;
         i += BLOCKS * THREADS) {
        int64_t r = i / width;
        if (kept < rows && r >= TABLE_ENDS)
            r += rows - kept;
        to[i] = static_cast<const uint32_t *>(e.at)[r * e.stride + i % width];
    }
}

assay_status device_rows_queue(void *stream, uint32_t *values, int64_t n_values, int32_t *shapes,
                               const table_entry *entries, int n, bool all, const int32_t *counts,
                               const int *step, int ring)
{
    return kernel_launch("rows", stream, copy_rows, dim3(BLOCKS, static_cast<unsigned>(n)), THREADS,
                         0, values, n_values, shapes, entries, all, counts, step, ring);
}
