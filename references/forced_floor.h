/*
 * The rule that makes a home: does an added error stand out of its floor?
 *
 * Input: got, expected [rows, cols], and `rounded`, what the oracle gives for the same interval
 * when it rounds as the run does. Rounding twice is independent of rounding once, so the size of
 * rounded - expected is the size of a healthy got - expected; of products in float32 it is that
 * size exactly (oracle_ops.h, sum_variance), never small by luck. The floor is never below one
 * rounding to the format (0.45 * 2^-mantissa of the size: the measured mean over uniform
 * mantissas), nor below one of float32. Heads of a row are judged apart, so "row" below is a row or
 * a head of a row.
 *
 * WHOLE: relative error > 3 floors, and > 1 + 6 / sqrt(n) of n elements. Three times a known size
 * is no rounding where many elements are pooled. Of few elements the error is that of few draws:
 * the norm of n independent Gaussian numbers exceeds sqrt(n) + 6 with a probability below e^-18
 * (concentration of measure: a norm is 1-Lipschitz). From n = 9 on the 3 is the larger one.
 *
 * ROW: row error > 4 x max(floor of the row, median floor), > 1 + 6 / sqrt(n) of them, and
 * > 2 x 2^-mantissa, twice what one rounding can do to an element at most. Where a row's floor has
 * a long tail, one realisation of it says little: float32 (sums cancel) has 16 x; attention on
 * scores that were not captured (the softmax is exponential in their noise) takes the largest floor
 * of any row for every row.
 *
 * GAIN: |median row gain - 1| > 6 standard errors, and > 2^-mantissa / 4, > floor / 4, > 2^-22 (a
 * float32 root or exponential may be off by some units, always to one side), > 3 x what the
 * oracle's rounding does to the same gains; also per head.
 *
 * MASK: a finite value is expected and it is not finite.
 *
 * Without `rounded` (a hand-over) the floor is 2^-22: a dump may hold a rotation of the value that
 * the import has undone in float32, never more.
 */
#ifndef ASSAY_REFERENCES_FORCED_FLOOR_H
#define ASSAY_REFERENCES_FORCED_FLOOR_H

#include "references/forced.h"

typedef struct assay_floor_input {
    const double *got, *expected, *rounded; /* rounded NULL: equality to the bit is asked */
    int64_t rows, cols;
    int n_groups;
    assay_dtype format; /* of the values */
    bool ignore_added_nonfinite;
    bool long_tail; /* of the floors of rows */
} assay_floor_input;

/* Fills the numbers and the verdict of judged (not its place). Fails: ASSAY_NO_MEMORY. */
assay_status assay_floor_judge(assay_judged *judged, const assay_floor_input *in);

/* The narrowest of bf16, f16, f32 that holds all the values exactly; F64 otherwise. */
assay_dtype assay_floor_format(const double *values, int64_t n);

#endif
