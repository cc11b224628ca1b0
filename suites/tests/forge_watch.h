/*
 * A tap for tests that keeps everything it sees, and comparisons of what two runs showed.
 */
#ifndef ASSAY_SUITES_TESTS_FORGE_WATCH_H
#define ASSAY_SUITES_TESTS_FORGE_WATCH_H

#include "engine/engine.h"

typedef struct watched {
    assay_point point;
    int layer;
    int64_t step;
    bool partial;
    int rank;
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS];
    int64_t n;
    double *values;     /* ids as doubles too */
    int32_t *positions; /* [dims[0]] of the rows */
    int32_t *sequences;
    int next; /* index + 1 of the next one of the same point and layer; 0: none */
} watched;

#define WATCH_LAYERS 16

typedef struct watch {
    watched *all;
    int n, room;
    int first[ASSAY_POINT_COUNT][WATCH_LAYERS + 1], last[ASSAY_POINT_COUNT][WATCH_LAYERS + 1];
} watch;

/* user = a watch, zeroed before. */
assay_status watch_tap(void *user, const assay_tap_event *event);
void watch_clear(watch *w);
/* NULL: not seen. */
const watched *watch_find(const watch *w, int64_t step, assay_point point, int layer);

/* Relative L2 of a against b over n values; infinities of equal sign and place count as equal. */
double watch_error(const double *a, const double *b, int64_t n);
/* Largest of the relative L2 of each of n_rows rows. */
double watch_row_error(const double *a, const double *b, int64_t n_rows, int64_t width);
/* One value of the run by position, whatever step it came in: its row, NULL if not seen. */
const double *watch_row(const watch *w, int64_t *width, assay_point point, int layer, int sequence,
                        int32_t position);

#endif
