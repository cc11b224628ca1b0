/*
 * The probe may lie: a hook that keeps a reference to memory which is used again, or a capture that
 * shows one buffer under two names, gives values that are bit-equal where they should differ.
 *
 * Prints (name, place, checksum) of values go in; pairs of equal ones that should differ come out.
 * Not suspicious: ids, constant values (an all-zero tensor is a fault of the run, not of the
 * probe), values of another shape, hand-overs of one point, and the pairs that are equal by
 * arithmetic in a healthy run: kernel_out and out, and what rotation leaves alone at position 0.
 * (The other half of the check, equal logits with probes on and off, needs the engine: suites.)
 */
#ifndef ASSAY_PROBES_SELFCHECK_H
#define ASSAY_PROBES_SELFCHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/point.h"

typedef struct assay_print {
    assay_point point;
    int layer, prompt, step, rank, hand_over;
    int64_t n;         /* elements */
    uint64_t checksum; /* of float64 values, as recorder.h defines it */
    bool is_constant;
    uint64_t tokens; /* a number for the step's tokens: equal tokens may give equal values */
} assay_print;

/* Whether two points of one layer hold the same numbers in a healthy run of a single token at
 * position 0: rotation by 0, and the weight 1 of the only key. */
bool assay_points_equal_at_start(assay_point a, assay_point b);

/* The print of n values; place fields are the caller's. */
void assay_print_of(assay_print *out, const double *values, int64_t n);

/* Called for each pair that should differ. */
typedef assay_status assay_suspect_fn(void *user, const assay_print *a, const assay_print *b);

/* Sorts prints. Values of one step are compared with each other, and with the same point of
 * steps that had other tokens. */
assay_status assay_selfcheck(assay_print *prints, int n, assay_suspect_fn *suspect, void *user);

#endif
