/*
 * The rule that makes a home: does an added error stand out of its floor?
 *
 * Input: got, expected [rows, cols], and `rounded`, what the oracle gives for the same interval
 * when it rounds as the run does. Rounding twice is independent of rounding once, so the size of
 * rounded - expected is the size of a healthy got - expected; where an engine rounds more often
 * inside an op than the oracle does, forced_op.def says how often, and the floor grows by the root.
 *
 *   WHOLE   rel > 3 floor                          three times a measured size is no rounding
 *   ROW     row error > 4 x max(floor of the row, median floor)   and > what elementwise rounding
 *           can do at most (roundings * 2^-mantissa)
 *   GAIN    |median row gain - 1| > 6 standard errors and > 2^-mantissa / 4;  the same per head
 *   MASK    a finite expected value that is not finite
 *
 * float32 sums: floor is at least 2^-24 (1 + sqrt(terms) / 2).
 */
#ifndef ASSAY_REFERENCES_FORCED_FLOOR_H
#define ASSAY_REFERENCES_FORCED_FLOOR_H

#include "references/forced.h"

typedef struct assay_floor_input {
    const double *got, *expected, *rounded; /* rounded NULL: equality to the bit is asked */
    int64_t rows, cols;
    int n_groups;
    assay_dtype format; /* of the values */
    int n_roundings;    /* per element and op, >= 1 */
    int64_t n_terms;    /* of the op's sum; 0: none */
    bool ignore_added_nonfinite;
} assay_floor_input;

/* Fills the numbers and the verdict of judged (not its place). Fails: ASSAY_NO_MEMORY. */
assay_status assay_floor_judge(assay_judged *judged, const assay_floor_input *in);

/* The narrowest of bf16, f16, f32 that holds all the values exactly; F64 otherwise. */
assay_dtype assay_floor_format(const double *values, int64_t n);

int assay_floor_roundings(assay_point point);
/* 0: the op has no sum. */
char assay_floor_terms(assay_point point);

#endif
