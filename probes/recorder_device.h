/*
 * Recorders on a device: what each tier of probes/recorder.def keeps of every buffer of a step,
 * queued behind the step on its own stream. One launch for the statistics of all buffers, one more
 * for their sketches, or for the copy of their rows; nothing waits for the host, and under graph
 * capture they are part of the graph. Each step's results go into a ring in device memory, to be
 * read when the caller likes, as long as the ring has not come round. (The ring of `full` holds
 * every buffer as large as it can become, once per step.)
 *
 * Sums are taken per chunk of a buffer and then over chunks in order: the same bits for the same
 * buffer, eager or replayed; against the host they differ by rounding in float64 (counts, extremes
 * and checksum are equal).
 *
 * Set assay_recorder_device_tap as device_tap of the engine, with the recorder as its user.
 */
#ifndef ASSAY_PROBES_RECORDER_DEVICE_H
#define ASSAY_PROBES_RECORDER_DEVICE_H

#include "engine/engine.h"
#include "probes/recorder.h"

typedef struct assay_recorder_device assay_recorder_device;

typedef enum { /* as in recorder.def */
               ASSAY_DEVICE_STATS,
               ASSAY_DEVICE_SKETCH,
               ASSAY_DEVICE_ROWS,
               ASSAY_DEVICE_FULL
} assay_device_tier;

typedef struct assay_device_recorded {
    assay_point point;
    int layer;
    assay_stats stats;
    int64_t first_bad;   /* row-major index of the first element that is not finite; -1: none */
    int64_t n_groups;    /* of the sketch; 0: none */
    const float *sketch; /* [n_groups, ASSAY_SKETCH_N], valid until the next read */
    const void *values; /* [n_kept, width] float32 or (points of ids) int32, likewise; NULL: none */
    int64_t n_kept, width;
    int64_t n_rows; /* of the step; of `rows`, where there are more than n_kept, the first two and
                       the last two are kept */
} assay_device_recorded;

/* ring: steps whose results are kept. */
assay_status assay_recorder_device_new(assay_recorder_device **out, assay_device_tier tier,
                                       int ring);
void assay_recorder_device_free(assay_recorder_device *recorder);
assay_status assay_recorder_device_tap(void *recorder, const assay_device_table *table);

/* Results of the step `back` steps before the last one that was queued, waiting for it; in the
 * order of the points. Borrowed until the next call. */
assay_status assay_recorder_device_read(const assay_device_recorded **out, int *n,
                                        assay_recorder_device *recorder, int back);

/* One buffer of n float32 values in device memory: what the launches are measured on. */
assay_status assay_recorder_device_one(assay_device_recorded *out, assay_recorder_device *recorder,
                                       const float *values, int64_t n, void *stream);
/* Sum of n float32 values, as plainly as a device can: what the statistics are measured against. */
assay_status assay_recorder_device_plain_sum(double *out, const float *values, int64_t n,
                                             void *stream, float *milliseconds);

#endif
