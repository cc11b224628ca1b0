/*
 * Median of n values (the mean of the middle two for even n), NaN for n = 0. The values are
 * reordered. Infinities sort to the ends; a NaN among the values gives NaN.
 */
#ifndef ASSAY_REFERENCES_MEDIAN_H
#define ASSAY_REFERENCES_MEDIAN_H

#include <stdint.h>

double assay_median(double *values, int64_t n);

/* 1.4826 x median of |x - center|: the standard deviation when the values are normal. Overwrites
 * the values. */
double assay_median_spread(double *values, int64_t n, double center);

#endif
