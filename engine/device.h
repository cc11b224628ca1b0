/*
 * The engine on a device: the same points, slots, caches and seams as on the host, with all values
 * in device memory. Built with ASSAY_CUDA; without it, or without a device, opening fails with
 * ASSAY_NO_DEVICE and a line that says which of the two.
 *
 * A step is queued on one stream without waiting for it. Every point of every layer has memory of
 * its own while all of them fit (else layers share it, and steps wait after each layer if something
 * watches), so what a step made is still there when it is over: taps of the host get their values
 * then, in the order of the points; a device tap gets the table of all buffers and queues its own
 * work behind them.
 *
 * Graph mode: decode steps run in buckets of 1, 2, 4, 8 and 16 rows. A bucket's step runs once
 * eagerly, is captured once and replayed from then on; tokens, positions, sequences and lengths are
 * read from device memory, where they are written before each replay. Rows beyond the step's own
 * start as poison, and nobody sees them.
 */
#ifndef ASSAY_ENGINE_DEVICE_H
#define ASSAY_ENGINE_DEVICE_H

#include "engine/engine.h"

typedef struct assay_device assay_device;

/* Devices that can be used; *why (may be NULL) says why there are none. */
int assay_device_count(const char **why);
/* "NVIDIA H200"; returns out. */
const char *assay_device_name(char out[128]);

/* Weights, caches and streams for this engine; sets engine->device. */
assay_status assay_device_open(assay_engine *engine);
void assay_device_close(assay_engine *engine);
assay_status assay_device_reset(assay_engine *engine, int sequence);
/* The step that begin_step() set up; logits as in assay_engine_forward. */
assay_status assay_device_step(assay_engine *engine, float *logits);

/* Moves all caches to other addresses, as a serving engine does when it grows them. */
assay_status assay_device_move_cache(assay_engine *engine);

/*
 * n greedy steps of sequences 0 ... n_sequences - 1, each fed with the id that the device chose the
 * step before, without the host waiting in between; ids: [n, n_sequences], the choices; first:
 * [n_sequences] the ids that go in first. Only for engines on a device.
 */
assay_status assay_device_decode(int32_t *ids, assay_engine *engine, const int32_t *first,
                                 int n_sequences, int64_t n);

/* How the next steps run; what was planned and captured so far is dropped. */
assay_status assay_device_run_as(assay_engine *engine, bool use_graph, assay_device_tap_fn *tap,
                                 void *tap_user);

/* What steps cost, counted by the engine itself. */
typedef struct assay_device_counts {
    int64_t n_launches; /* kernels of the last eager step */
    int64_t n_nodes;    /* nodes of the last captured graph */
    int64_t n_captures, n_replays;
    int64_t weight_bytes; /* packed weights in device memory */
    double product_ms;    /* time inside cuBLAS, where timing was asked for */
} assay_device_counts;
assay_status assay_device_counts_of(assay_device_counts *out, assay_engine *engine);
/* Times every dense product from now on (waits for each; for measuring only). */
void assay_device_time_products(assay_engine *engine, bool on);
assay_status assay_device_wait(assay_engine *engine);

#endif
