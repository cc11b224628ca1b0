/*
 * One tensor read once (private to suites/audit_*.c).
 */
#ifndef ASSAY_SUITES_AUDIT_SCAN_H
#define ASSAY_SUITES_AUDIT_SCAN_H

#include "engine/gguf.h"
#include "engine/quant.h"

#define AUDIT_EXPONENTS 320 /* binary exponents of row sizes, from 2^-160 on */

typedef struct audit_scan {
    int64_t n_rows;
    int64_t n_bad, first_bad_row, first_bad_element; /* not finite: blocks (elements, if scalar) */
    int64_t n_zero, first_zero_row;
    int64_t n_repeated, first_repeated_row, repeats_row;
    double square_sum; /* of the sample */
    int64_t n_sampled;
    double largest_square; /* mean square of the sampled block */
    int64_t largest_row_at;
    int64_t exponents[AUDIT_EXPONENTS]; /* rows by the exponent of their size */
    uint64_t hash;                      /* of all rows in order; 0: all rows are zero */
    uint64_t bytes_read, bytes_hole;
} audit_scan;

/* fd: the tensor's file, to find holes (-1: none are looked for). */
assay_status audit_scan_tensor(audit_scan *out, const assay_gguf_tensor_info *tensor, int fd,
                               int n_threads);

/* Root mean square of the sample; exponent of the median row (0 where no row has one). */
double audit_scan_size(const audit_scan *scan);
int audit_scan_median_exponent(const audit_scan *scan);

#endif
