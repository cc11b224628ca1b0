/*
 * What the engine needs of the CUDA runtime and of cuBLAS, as plain C: memory, streams, events,
 * copies, graphs and dense products. Handles are opaque pointers.
 *
 * Every failure is ASSAY_DEVICE (ASSAY_NO_DEVICE where there is none, ASSAY_NO_MEMORY where memory
 * is short) with the runtime's own words; the error is cleared.
 */
#ifndef ASSAY_ENGINE_DEVICE_RUNTIME_H
#define ASSAY_ENGINE_DEVICE_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 0 without a driver or a device; *why (may be NULL) then says what is missing. */
int assay_cuda_count(const char **why);
assay_status assay_cuda_use(int device);
/* Name, e.g. "NVIDIA H200"; returns out. */
const char *assay_cuda_name(char out[128]);

assay_status assay_cuda_alloc(void **out, size_t bytes, const char *what);
void assay_cuda_free(void *memory);
/* Host memory that copies run from and to without waiting. */
assay_status assay_cuda_pinned(void **out, size_t bytes);
void assay_cuda_pinned_free(void *memory);

assay_status assay_cuda_stream_new(void **out);
void assay_cuda_stream_free(void *stream);
/* `after` goes on only when what is queued on `before` so far is done; event: from event_new. */
assay_status assay_cuda_event_new(void **out, bool timing);
void assay_cuda_event_free(void *event);
assay_status assay_cuda_record(void *event, void *stream);
assay_status assay_cuda_wait(void *stream, void *event);
assay_status assay_cuda_wait_host(void *event);
assay_status assay_cuda_elapsed(float *milliseconds, void *from, void *to);
assay_status assay_cuda_sync(void *stream);
assay_status assay_cuda_wait_all(void);

assay_status assay_cuda_to_device(void *stream, void *to, const void *from, size_t bytes);
assay_status assay_cuda_to_host(void *stream, void *to, const void *from, size_t bytes);
assay_status assay_cuda_within(void *stream, void *to, const void *from, size_t bytes);
/* Rows of `width` bytes. */
assay_status assay_cuda_rows_to_host(void *stream, void *to, size_t to_pitch, const void *from,
                                     size_t from_pitch, size_t width, size_t n);
assay_status assay_cuda_rows_to_device(void *stream, void *to, size_t to_pitch, const void *from,
                                       size_t from_pitch, size_t width, size_t n);
/* What a failed run left in the device, cleared. */
assay_status assay_cuda_check(const char *what);

/* ---- graphs ---- */
assay_status assay_cuda_capture_begin(void *stream);
/* The captured work, ready to be launched; *n_nodes may be NULL. Capture ends in any case. */
assay_status assay_cuda_capture_end(void **graph, int64_t *n_nodes, void *stream);
assay_status assay_cuda_graph_launch(void *graph, void *stream);
void assay_cuda_graph_free(void *graph);

/* ---- ranks on devices of their own (NCCL) ---- */
#define ASSAY_CUDA_ID_BYTES 128
bool assay_cuda_has_ranks(void);
/* One rank makes an id, all ranks come together by it, at the same time. Fails: ASSAY_PEER. */
assay_status assay_cuda_ranks_id(char id[ASSAY_CUDA_ID_BYTES]);
assay_status assay_cuda_ranks_new(void **out, const char id[ASSAY_CUDA_ID_BYTES], int rank,
                                  int n_ranks);
void assay_cuda_ranks_free(void *ranks);
/* all[r * n ...] = what rank r gave, on the stream. */
assay_status assay_cuda_ranks_gather(void *ranks, void *stream, float *all, const float *mine,
                                     int64_t n);

/* ---- dense products (cuBLAS; TF32 off) ---- */
assay_status assay_cuda_blas_new(void **out, void *stream);
void assay_cuda_blas_free(void *blas);
/*
 * For each of n_batch: y[t, n] = sum_k x[t, k] w[n, k] (transposed: w[k, n]), row-major with the
 * given strides between rows and between members of the batch; all float32.
 */
typedef struct assay_cuda_product {
    int64_t n_rows, n_out, n_in, n_batch;
    void *y;
    const void *x, *w;
    int64_t y_stride, x_stride, w_stride, y_step, x_step, w_step;
    bool transposed;
    bool is_bf16; /* x and w are bfloat16; accumulation and y stay float32 */
} assay_cuda_product;

assay_status assay_cuda_multiply(void *blas, const assay_cuda_product *p);

#ifdef __cplusplus
}
#endif

#endif
