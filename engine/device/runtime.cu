/* The CUDA runtime and cuBLAS behind runtime.h. */
#include "engine/ops/kernel.cuh"

#include <cublas_v2.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/runtime.h"

#define BLAS_WORKSPACE (64 << 20)

static assay_status check(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return ASSAY_OK;
    cudaGetLastError();
    assay_status s = e == cudaErrorMemoryAllocation                               ? ASSAY_NO_MEMORY
                     : e == cudaErrorNoDevice || e == cudaErrorInsufficientDriver ? ASSAY_NO_DEVICE
                                                                                  : ASSAY_DEVICE;
    return assay_fail(s, "%s: %s", what, cudaGetErrorString(e));
}

int assay_cuda_count(const char **why)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess)
        cudaGetLastError();
    if (why)
        *why = e != cudaSuccess ? cudaGetErrorString(e) : "no device is there";
    return e == cudaSuccess ? n : 0;
}

assay_status assay_cuda_use(int device)
{
    return check(cudaSetDevice(device), "device");
}

const char *assay_cuda_name(char out[128])
{
    cudaDeviceProp p;
    int device = 0;
    strcpy(out, "unknown device");
    if (cudaGetDevice(&device) == cudaSuccess && cudaGetDeviceProperties(&p, device) == cudaSuccess)
        strncpy(out, p.name, 127);
    out[127] = '\0';
    return out;
}

assay_status assay_cuda_alloc(void **out, size_t bytes, const char *what)
{
    return check(cudaMalloc(out, bytes ? bytes : 256), what);
}

void assay_cuda_free(void *memory)
{
    if (memory)
        cudaFree(memory);
}

assay_status assay_cuda_pinned(void **out, size_t bytes)
{
    return check(cudaMallocHost(out, bytes ? bytes : 1), "host memory for copies");
}

void assay_cuda_pinned_free(void *memory)
{
    if (memory)
        cudaFreeHost(memory);
}

assay_status assay_cuda_stream_new(void **out)
{
    cudaStream_t stream;
    ASSAY_TRY(check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream"));
    *out = stream;
    return ASSAY_OK;
}

void assay_cuda_stream_free(void *stream)
{
    if (stream)
        cudaStreamDestroy(kernel_stream(stream));
}

assay_status assay_cuda_event_new(void **out, bool timing)
{
    cudaEvent_t event;
    ASSAY_TRY(
        check(cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming),
              "event"));
    *out = event;
    return ASSAY_OK;
}

void assay_cuda_event_free(void *event)
{
    if (event)
        cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

assay_status assay_cuda_record(void *event, void *stream)
{
    return check(cudaEventRecord(static_cast<cudaEvent_t>(event), kernel_stream(stream)), "event");
}

assay_status assay_cuda_wait(void *stream, void *event)
{
    return check(cudaStreamWaitEvent(kernel_stream(stream), static_cast<cudaEvent_t>(event), 0),
                 "wait");
}

assay_status assay_cuda_wait_host(void *event)
{
    return check(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "wait");
}

assay_status assay_cuda_elapsed(float *milliseconds, void *from, void *to)
{
    return check(cudaEventElapsedTime(milliseconds, static_cast<cudaEvent_t>(from),
                                      static_cast<cudaEvent_t>(to)),
                 "timing");
}

assay_status assay_cuda_sync(void *stream)
{
    return check(cudaStreamSynchronize(kernel_stream(stream)), "device");
}

assay_status assay_cuda_wait_all(void)
{
    return check(cudaDeviceSynchronize(), "device");
}

assay_status assay_cuda_to_device(void *stream, void *to, const void *from, size_t bytes)
{
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, kernel_stream(stream)),
                 "copy to the device");
}

assay_status assay_cuda_to_host(void *stream, void *to, const void *from, size_t bytes)
{
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, kernel_stream(stream)),
                 "copy from the device");
}

assay_status assay_cuda_within(void *stream, void *to, const void *from, size_t bytes)
{
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, kernel_stream(stream)),
                 "copy on the device");
}

assay_status assay_cuda_rows_to_host(void *stream, void *to, size_t to_pitch, const void *from,
                                     size_t from_pitch, size_t width, size_t n)
{
    return check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, n, cudaMemcpyDeviceToHost,
                                   kernel_stream(stream)),
                 "copy from the device");
}

assay_status assay_cuda_rows_to_device(void *stream, void *to, size_t to_pitch, const void *from,
                                       size_t from_pitch, size_t width, size_t n)
{
    return check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, n, cudaMemcpyHostToDevice,
                                   kernel_stream(stream)),
                 "copy to the device");
}

assay_status assay_cuda_check(const char *what)
{
    return check(cudaGetLastError(), what);
}

assay_status assay_cuda_capture_begin(void *stream)
{
    return check(cudaStreamBeginCapture(kernel_stream(stream), cudaStreamCaptureModeThreadLocal),
                 "capture");
}

assay_status assay_cuda_capture_end(void **graph, int64_t *n_nodes, void *stream)
{
    cudaGraph_t captured = nullptr;
    cudaGraphExec_t ready;
    size_t n = 0;
    ASSAY_TRY(check(cudaStreamEndCapture(kernel_stream(stream), &captured), "capture"));
    cudaGraphGetNodes(captured, nullptr, &n);
    assay_status s = check(cudaGraphInstantiate(&ready, captured, 0), "graph");
    cudaGraphDestroy(captured);
    if (s != ASSAY_OK)
        return s;
    if (n_nodes)
        *n_nodes = static_cast<int64_t>(n);
    *graph = ready;
    return ASSAY_OK;
}

assay_status assay_cuda_graph_launch(void *graph, void *stream)
{
    return check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), kernel_stream(stream)),
                 "graph");
}

void assay_cuda_graph_free(void *graph)
{
    if (graph)
        cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

struct blas {
    cublasHandle_t handle;
    void *workspace;
};

static assay_status check_blas(cublasStatus_t e, const char *what)
{
    return e == CUBLAS_STATUS_SUCCESS
               ? ASSAY_OK
               : assay_fail(ASSAY_DEVICE, "%s: %s", what, cublasGetStatusString(e));
}

assay_status assay_cuda_blas_new(void **out, void *stream)
{
    blas *b;
    ASSAY_TRY(assay_alloc(&b, 1, sizeof *b, "cuBLAS"));
    assay_status s = check_blas(cublasCreate(&b->handle), "cuBLAS");
    if (s == ASSAY_OK)
        s = assay_cuda_alloc(&b->workspace, BLAS_WORKSPACE, "cuBLAS");
    if (s == ASSAY_OK)
        s = check_blas(cublasSetStream(b->handle, kernel_stream(stream)), "cuBLAS");
    if (s == ASSAY_OK)
        s = check_blas(cublasSetWorkspace(b->handle, b->workspace, BLAS_WORKSPACE), "cuBLAS");
    /* Pedantic: no TF32, no split of float32 into lower formats, whatever the environment says. */
    if (s == ASSAY_OK)
        s = check_blas(cublasSetMathMode(b->handle, CUBLAS_PEDANTIC_MATH), "cuBLAS");
    if (s != ASSAY_OK) {
        assay_cuda_blas_free(b);
        return s;
    }
    *out = b;
    return ASSAY_OK;
}

void assay_cuda_blas_free(void *memory)
{
    blas *b = static_cast<blas *>(memory);
    if (!b)
        return;
    if (b->handle)
        cublasDestroy(b->handle);
    assay_cuda_free(b->workspace);
    free(b);
}

/* Column-major, the product is y^T = w x^T: w has n_in (or n_out) as its fast axis. */
assay_status assay_cuda_multiply(void *memory, const assay_cuda_product *p)
{
    blas *b = static_cast<blas *>(memory);
    const float one = 1, zero = 0;
    cudaDataType_t type = p->is_bf16 ? CUDA_R_16BF : CUDA_R_32F;
    return check_blas(
        cublasGemmStridedBatchedEx(
            b->handle, p->transposed ? CUBLAS_OP_N : CUBLAS_OP_T, CUBLAS_OP_N,
            static_cast<int>(p->n_out), static_cast<int>(p->n_rows), static_cast<int>(p->n_in),
            &one, p->w, type, static_cast<int>(p->w_stride), p->w_step, p->x, type,
            static_cast<int>(p->x_stride), p->x_step, &zero, p->y, CUDA_R_32F,
            static_cast<int>(p->y_stride), p->y_step, static_cast<int>(p->n_batch),
            p->is_bf16 ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_GEMM_DEFAULT),
        "matrix product");
}
