/* Rotary embedding (rotary.h): the step's cosines and sines once, in double; then every vector. */
#include "engine/ops/kernel.cuh"

extern "C" {
#include "engine/ops/device_ops.h"
}

static __global__ void angles(float *table, const double *f, assay_device_rows rows,
                              assay_rotary how)
{
    kernel_begin();
    int half = how.turned / 2;
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= rows.n * half)
        return;
    int32_t position = rows.positions[i / half];
    double angle = (position * how.position_scale + how.position_offset) * f[i % half];
    bool still = how.skip || position < 0;
    double s = sin(how.inverse ? -angle : angle);
    table[2 * i] = still ? 1.0f : static_cast<float>(cos(angle) * how.magnitude);
    table[2 * i + 1] = still ? 0.0f : static_cast<float>(s * how.magnitude);
}

/* Channels of all heads of one row. */
static __global__ void turn(assay_rows y, int64_t y_head, assay_rows x, int64_t x_head, int n_head,
                            const float *table, int turned, bool half_split)
{
    kernel_begin();
    int half = turned / 2, pairs = half + static_cast<int>(x.width) - turned;
    int64_t t = blockIdx.x;
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < n_head * pairs;
         i += gridDim.y * blockDim.x) {
        int h = i / pairs, p = i % pairs;
        const float *in = x.at + t * x.stride + h * x_head;
        float *out = y.at + t * y.stride + h * y_head;
        if (p >= half) { /* behind the turned part */
            out[turned + p - half] = in[turned + p - half];
            continue;
        }
        int a = half_split ? p : 2 * p, b = half_split ? p + half : 2 * p + 1;
        float re = in[a], im = in[b];
        float cosine = table[2 * (t * half + p)], sine = table[2 * (t * half + p) + 1];
        out[a] = re * cosine - im * sine;
        out[b] = re * sine + im * cosine;
    }
}

extern "C" assay_status assay_device_rotary_table(void *stream, float *table, const double *f,
                                                  const assay_device_rows *rows,
                                                  const assay_rotary *how)
{
    return kernel_launch("rotary angles", stream, angles,
                         kernel_blocks(rows->n * (how->turned / 2), 128), 128, 0, table, f, *rows,
                         *how);
}

extern "C" assay_status assay_device_rotary(void *stream, assay_rows y, int64_t y_head,
                                            assay_rows x, int64_t x_head, int n_head,
                                            const float *table, const assay_rotary *how)
{
    int64_t channels = n_head * (x.width - how->turned / 2);
    dim3 grid(static_cast<unsigned>(x.n), kernel_blocks(channels, 256));
    return kernel_launch("rotary", stream, turn, grid, 256, 0, y, y_head, x, x_head, n_head, table,
                         how->turned, how->half_split);
}
