/*
 * Inside of a capture that is being written: what capture.c and capture_value.c share.
 */
#ifndef ASSAY_PROBES_CAPTURE_PRIVATE_H
#define ASSAY_PROBES_CAPTURE_PRIVATE_H

#include "probes/capture.h"
#include "probes/hdf5_write.h"
#include "probes/recorder.h"
#include "probes/selector.h"
#include "probes/write_queue.h"

#define ASSAY_CAPTURE_PATH 512
#define ASSAY_STATS_COLUMNS 10
#define ASSAY_BUFFER_COLUMNS 6

/* Rows of the cheap tiers that wait for the end of the step. */
typedef struct assay_table {
    int64_t n, room;
    char (*points)[ASSAY_POINT_NAME_BYTES];
    int32_t *steps;
    double *values; /* n * ASSAY_STATS_COLUMNS */
    uint64_t *checksums;
    uint64_t *buffers; /* n * ASSAY_BUFFER_COLUMNS */
    int64_t n_sketch, sketch_room;
    int32_t *sketch_rows; /* 2 per group: row of the table, group */
    float *sketch;        /* n_sketch * ASSAY_SKETCH_N */
} assay_table;

struct assay_capture {
    char *path, *temporary;
    bool is_there; /* the temporary file, ours to remove */
    hid_t file;
    assay_selector *selector;
    const assay_recorder *recorder;
    int64_t budget, used;
    char prompt[ASSAY_CAPTURE_PATH]; /* "/prompts/count"; "": none yet */
    int step;                        /* of the prompt; -1: none yet */
    char group[ASSAY_CAPTURE_PATH];  /* of the step */
    hid_t step_group;                /* the same, open; -1: none */
    assay_h5_kit kit;
    assay_write_queue *queue; /* of values; NULL: none yet. The file is flushed when it is empty */
    int64_t engine_step;      /* of the tap; -1: none */
    assay_table table;
    int64_t n_table; /* rows already in the file, of the prompt */
    char **dropped;
    int n_dropped;
    int64_t n_more_dropped, dropped_bytes;
    bool is_reference;
    int n_ranks, rank;
};

/* What is written beside a value. */
typedef struct assay_value_about {
    const char *name, *axes; /* axes NULL: the name map says them */
    assay_dtype origin;
    double floor;     /* < 0: none */
    int32_t shard[3]; /* axis (-1: whole), index, count */
    bool partial, has_buffer;
    uint64_t buffer[ASSAY_BUFFER_COLUMNS];
} assay_value_about;

assay_status assay_capture_write(assay_capture *c, const assay_value_about *about,
                                 const assay_buffer *values);
assay_status assay_capture_flush_table(assay_capture *c);
void assay_table_clear(assay_table *table);
/* SHA-256 of each dataset under /prompts as its attribute. */
assay_status assay_capture_hash_all(hid_t file);

#endif
