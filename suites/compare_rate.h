/*
 * How fast two captures are compared, beside a plain loop that adds up squared differences over a
 * fresh mapping of the same files with as many threads. Taken in turns within one run, as
 * audit_rate.h does; page faults are paid by both. Packed captures are set beside inflating their
 * chunks, too.
 */
#ifndef ASSAY_SUITES_COMPARE_RATE_H
#define ASSAY_SUITES_COMPARE_RATE_H

#include <stdint.h>

#include "engine/base/status.h"

#define ASSAY_COMPARE_RATE_MOST_TURNS 101

/* Inflating the chunks and no more (inflate_rate.h). */
typedef struct assay_inflated {
    double seconds;   /* median */
    double ratio;     /* median of seconds / compare_s */
    double cpu_ratio; /* the same in processor time */
} assay_inflated;

typedef struct assay_compare_rate {
    uint64_t n_bytes;          /* of both files */
    double plain_s, compare_s; /* medians */
    double ratio;              /* median of plain_s / compare_s: 1 is as fast as the plain loop */
    double lowest, highest;    /* of the ratios */
    double cpu_ratio;          /* median of the same in processor time, which others' work on the
                                  machine does not count into */
    /* of packed captures, else 0: */
    uint64_t n_inflated; /* bytes of their chunks, unpacked */
    assay_inflated zlib, libdeflate;
} assay_compare_rate;

/* n_turns from 1 to ASSAY_COMPARE_RATE_MOST_TURNS. Fails: as assay_run_open and assay_compare_runs;
 * ASSAY_IO. */
assay_status assay_compare_rate_measure(assay_compare_rate *out, const char *a, const char *b,
                                        int n_turns);

#endif
