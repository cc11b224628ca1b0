/*
 * Recorders: what is kept of a value that the tap shows. One row in recorder.def and one file in
 * recorder/ each. All numbers here are defined so that any implementation (C, CUDA, Python) gives
 * the same.
 *
 * Statistics, of every value at every tier: x as float32 or float64, row-major.
 *
 *   n                  elements
 *   nan +inf -inf      counts, before anything else is computed
 *   zero               elements equal to 0 (either sign)
 *   poison             float32 words that still hold the buffer's fill (engine/base/number.h)
 *   min max mean l2    of the finite elements, in float64; 0 where there are none. l2 is the root
 *                      of the sum of squares
 *   checksum           u64, sum modulo 2^64 over i of z_i * (z_i >> 32 | 1), z_i = w_i + (i + 1) *
 * G, so that it can be summed in any order; w_i: bits of elements 2i and 2i + 1 (0: there is none),
 * each zero-extended to 32 bits, the first one low; of wider elements: the element's own. The
 * factor is odd: a change of one low half is always seen
 *
 * Sketch: rows (first axis) in groups of 32, the last group may be shorter. For each group 256
 * numbers
 *
 *   y[j] = 1/16 * sum over elements e = (r, c) of the group of sign(j, e) * x[r, c]
 *   sign(j, e) = bit (j mod 64) of mix(S + (4 * (r * n_cols + c) + j / 64 + 1) * G) ? -1 : +1
 *
 * with r counted from the group's first row, n_cols the product of the other axes, summed in
 * float64 in the order of e, kept as float32; elements that are not finite count as 0 (the counts
 * tell them). The sum of y^2 over j estimates the sum of x^2 without bias, its standard deviation
 * is at most sqrt(2/256) of it, so a relative L2 comes out within 10 % in 97 of 100 groups. The
 * sketch is linear: the sketch of a difference is the difference of sketches, and whether the
 * candidate is the reference with blocks exchanged is seen by sketching the exchanged reference.
 *
 *   G = 0x9E3779B97F4A7C15   S = 0x61737361795F3031 ("assay_01")
 *   mix(z): z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9; z = (z ^ z >> 27) * 0x94D049BB133111EB;
 *           z ^ z >> 31   (splitmix64; Steele, Lea, Flood 2014)
 */
#ifndef ASSAY_PROBES_RECORDER_H
#define ASSAY_PROBES_RECORDER_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"

#define ASSAY_SKETCH_N 256
#define ASSAY_SKETCH_ROWS 32

typedef struct assay_stats {
    int64_t n, n_nan, n_pos_inf, n_neg_inf, n_zero, n_poison;
    double min, max, mean, l2;
    uint64_t checksum;
} assay_stats;

/* Dense host memory. */
void assay_stats_of(assay_stats *out, const assay_buffer *values);

/* Element i of dense host memory, whatever its format. */
double assay_element(const assay_buffer *values, int64_t i);

uint64_t assay_mix(uint64_t z);
/* The checksum alone, of n elements of 1, 2, 4 or 8 bytes. */
uint64_t assay_checksum_of(const void *elements, size_t size, int64_t n);
/* What elements [first, end) of the same memory contribute to it; first is even. */
uint64_t assay_checksum_part(const void *elements, size_t size, int64_t first, int64_t end);
/* The checksum of captures before `word_sum`: with mix(z_i) for each term. */
uint64_t assay_checksum_mixed(const void *elements, size_t size, int64_t n);

int64_t assay_sketch_groups(int64_t n_rows);
/* out: assay_sketch_groups(dims[0]) * ASSAY_SKETCH_N */
void assay_sketch_of(float *out, const assay_buffer *values);
/* The same before it is rounded to float32. */
void assay_sketch_exact(double *out, const assay_buffer *values);
/* The transposed map of one group: x[e] = 1/16 * sum over j of sign(j, e) * y[j] for its elements
 * e < n. Of the sketch of a value it is that value without bias, with the noise of what else is in
 * the group. */
void assay_sketch_back(double *x, const double *y, int64_t n);
/* The 256 numbers that an element of value 1 adds to its group. */
void assay_sketch_signs(double *signs, int64_t element);

/* What a recorder keeps; memory belongs to the struct (values may point into the input). */
typedef struct assay_recorded {
    assay_stats stats;
    const void *values; /* NULL: none; dims and the input's dtype */
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS];
    int32_t *rows; /* NULL: all rows; else [dims[0]] which ones */
    void *owned;   /* behind values, where they were copied */
    float *sketch; /* NULL: none; n_groups * ASSAY_SKETCH_N */
    int64_t n_groups;
} assay_recorded;

typedef assay_status assay_record_fn(assay_recorded *out, const assay_buffer *values);

typedef struct assay_recorder {
    const char *name, *about;
    assay_record_fn *record;
} assay_recorder;

int assay_recorder_count(void);
const assay_recorder *assay_recorder_at(int index);
/* NULL: no such tier. */
const assay_recorder *assay_recorder_find(const char *name);

/* Statistics and what the tier keeps. Dense host memory, alive as long as *out is used. */
assay_status assay_record(assay_recorded *out, const assay_recorder *recorder,
                          const assay_buffer *values);
void assay_recorded_clear(assay_recorded *recorded);

#endif
