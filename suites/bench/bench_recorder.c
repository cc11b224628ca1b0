/*
 * How fast the statistics recorder reads: one buffer of 4 GB against a kernel that only adds up, in
 * one run. Prints rows of a table; exits 1 below 85 %.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/runtime.h"
#include "engine/ops/device_ops.h"
#include "probes/recorder_device.h"

#define N_FLOATS ((int64_t)1 << 30)
#define N_SEED ((int64_t)1 << 22)
#define N_RUNS 11
#define LEAST 0.85

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Random values in -1 ... 1: a seed from the host, copied over and over. */
static assay_status fill(float *at, void *stream)
{
    float *seed;
    uint32_t x = 7;
    ASSAY_TRY(assay_alloc(&seed, (size_t)N_SEED, sizeof *seed, "seed"));
    for (int64_t i = 0; i < N_SEED; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        seed[i] = (float)(int32_t)x * 0x1p-31f;
    }
    assay_status s = assay_cuda_to_device(stream, at, seed, (size_t)N_SEED * sizeof *seed);
    for (int64_t n = N_SEED; n < N_FLOATS && s == ASSAY_OK; n *= 2)
        s = assay_cuda_within(stream, at + n, at, (size_t)n * sizeof *seed);
    if (s == ASSAY_OK)
        s = assay_cuda_sync(stream);
    free(seed);
    return s;
}

static assay_status time_recorder(float *ms, assay_recorder_device *recorder, const float *values,
                                  void *stream, void *from, void *to)
{
    ASSAY_TRY(assay_cuda_record(from, stream));
    ASSAY_TRY(assay_recorder_device_one(NULL, recorder, values, N_FLOATS, stream));
    ASSAY_TRY(assay_cuda_record(to, stream));
    ASSAY_TRY(assay_cuda_sync(stream));
    return assay_cuda_elapsed(ms, from, to);
}

static assay_status measure(double *share)
{
    void *stream, *memory, *from, *to;
    assay_recorder_device *recorder;
    assay_device_recorded seen;
    float plain[N_RUNS], stats[N_RUNS];
    double sum;
    ASSAY_TRY(assay_cuda_stream_new(&stream));
    ASSAY_TRY(assay_cuda_event_new(&from, true));
    ASSAY_TRY(assay_cuda_event_new(&to, true));
    ASSAY_TRY(assay_cuda_alloc(&memory, (size_t)N_FLOATS * 4, "4 GB"));
    ASSAY_TRY(fill(memory, stream));
    ASSAY_TRY(assay_recorder_device_new(&recorder, ASSAY_DEVICE_STATS, 2));
    ASSAY_TRY(assay_recorder_device_one(&seen, recorder, memory, N_FLOATS, stream));
    for (int i = 0; i < N_RUNS; i++) {
        ASSAY_TRY(assay_recorder_device_plain_sum(&sum, memory, N_FLOATS, stream, &plain[i]));
        ASSAY_TRY(time_recorder(&stats[i], recorder, memory, stream, from, to));
    }
    qsort(plain, N_RUNS, sizeof *plain, by_size);
    qsort(stats, N_RUNS, sizeof *stats, by_size);
    double a = plain[N_RUNS / 2], b = stats[N_RUNS / 2], bytes = (double)N_FLOATS * 4;
    *share = a / b;
    printf("| plain sum of 4 GB | %.3f ms | %.2f TB/s\n", a, bytes / a * 1e-9);
    printf("| statistics of 4 GB | %.3f ms | %.2f TB/s\n", b, bytes / b * 1e-9);
    printf("| statistics / plain sum, read rate | %.1f %% | at least 85 %%\n", 100 * *share);
    printf("sum %.9g, mean times n %.9g, l2 %.9g\n", sum, seen.stats.mean * (double)N_FLOATS,
           seen.stats.l2);
    assay_recorder_device_free(recorder);
    assay_cuda_free(memory);
    return ASSAY_OK;
}

int main(void)
{
    double share;
    assay_status s = measure(&share);
    if (s != ASSAY_OK) {
        fprintf(stderr, "%s\n", assay_error_text());
        return assay_status_exit(s);
    }
    return share >= LEAST ? 0 : 1;
}
