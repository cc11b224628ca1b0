/*
 * How fast the contents of a model file are audited, beside a plain summing loop over a fresh
 * mapping of the same bytes with as many threads.
 *
 * Both are taken in turns within one run, since a machine that others use is never twice equally
 * fast: the ratio is the median of the ratios of single turns. The file's pages are in memory
 * before the first turn; each reading maps them anew, so both pay for the mapping.
 */
#ifndef ASSAY_SUITES_AUDIT_RATE_H
#define ASSAY_SUITES_AUDIT_RATE_H

#include <stdint.h>

#include "engine/base/status.h"

#define ASSAY_AUDIT_RATE_MOST_TURNS 101

typedef struct assay_audit_rate {
    uint64_t n_bytes;       /* of one reading */
    double plain_s, scan_s; /* medians */
    double ratio;           /* median of plain_s / scan_s: 1 is as fast as the plain loop */
    double lowest, highest; /* of the ratios */
} assay_audit_rate;

/*
 * n_threads 0: one for every core. n_turns from 1 to ASSAY_AUDIT_RATE_MOST_TURNS.
 * Fails: as assay_gguf_open; ASSAY_UNSUPPORTED where the file has holes, which are not read.
 */
assay_status assay_audit_rate_measure(assay_audit_rate *out, const char *path, int n_threads,
                                      int n_turns);

#endif
