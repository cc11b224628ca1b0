/*
 * A trace: what one engine run showed at its points, in memory, put together over the steps.
 *
 * Rows are token positions in order, so that a run in one chunk and a run in many compare row by
 * row. Where the width of a row depends on the keys so far (scores, selections), only its causal
 * part is kept: scores of positions up to the row's own, ids of the keys chosen. Points that do not
 * begin with the token axis (probs) are kept as checksums only.
 */
#ifndef ASSAY_SUITES_TRACE_H
#define ASSAY_SUITES_TRACE_H

#include "engine/tap.h"

typedef struct assay_trace assay_trace;

typedef struct assay_trace_item {
    assay_point point;
    int layer;              /* -1: global */
    int64_t n_rows, n_cols; /* n_cols: of the widest row */
    int64_t *starts;        /* [n_rows + 1]: row r is values[starts[r] ... starts[r + 1] - 1] */
    float *values;          /* ids as exact floats; NULL: checksum only */
    uint64_t checksum;      /* of the float32 bits in canonical order, over all steps */
    bool is_constant;       /* every element has the same bits */
    int shard_axis;         /* axis that ranks share; -1: whole */
    int n_copies;           /* so many neighbouring ranks hold the same shard */
    int64_t n_outer;        /* product of the axes between the token axis and that one */
    int64_t n_elements;
    int64_t rows_room, values_room;
    uint32_t first_bits;
} assay_trace_item;

/* keep_values false: checksums only. sequence -1: all rows, else the rows of one request of a
 * batch. */
assay_status assay_trace_new(assay_trace **out, bool keep_values, int sequence);
void assay_trace_free(assay_trace *trace);
/* The tap to give to the engine (user = the trace). */
assay_status assay_trace_tap(void *trace, const assay_tap_event *event);

/* The traces of n ranks as one: shards put side by side in rank order. */
assay_status assay_trace_join(assay_trace **out, assay_trace *const *ranks, int n);

/* In the order in which the engine showed them first. */
int assay_trace_n(const assay_trace *trace);
const assay_trace_item *assay_trace_at(const assay_trace *trace, int index);
const assay_trace_item *assay_trace_find(const assay_trace *trace, assay_point point, int layer);

/* What two traces differ in. */
typedef struct assay_trace_difference {
    int n_compared;            /* points compared */
    int n_left_out;            /* rows behind a flip, summed over points */
    int n_flips;               /* choices that differ */
    double worst, worst_bound; /* largest median row error, measured by its bound */
    assay_point worst_point;
    int worst_layer;
    bool failed; /* some point is beyond its bound; the first in the order of computation: */
    assay_point point;
    int layer;
    int64_t row, col;
    double got, expected, rel, bound;
} assay_trace_difference;

/*
 * Per point over the rows both have: |got - expected| / |expected| of each row; the median and the
 * largest against the analytic bound of references/tolerance.def for this format (and activations
 * rounded to 8-bit blocks), times the square root of two, since both sides are rounded. NaN on
 * either side never passes. Values of chosen experts are matched by expert, not by rank. Behind a
 * row whose choice of experts or keys differs neither it nor a later row is judged: the scores that
 * led to the choice were judged just before, so it is a near tie; such rows are counted.
 */
assay_status assay_trace_compare(assay_trace_difference *out, const assay_trace *got,
                                 const assay_trace *expected, int n_layers, assay_dtype dtype,
                                 bool activations_q8);

#endif
