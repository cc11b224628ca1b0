/*
 * Between a captured value and the oracle's own: engines keep fewer rows (only the last row of the
 * last layer), longer key axes (padded to a multiple of 256) or longer lists of selected keys. The
 * functions here show the oracle's value in the captured shape, and put a captured value into a
 * pass in the oracle's shape. Missing rows are the last ones kept: the first rows are filled with
 * the oracle's own.
 */
#ifndef ASSAY_REFERENCES_FORCED_PART_H
#define ASSAY_REFERENCES_FORCED_PART_H

#include "references/forced.h"

typedef struct assay_part { /* a step of a prompt, seen from both sides */
    assay_pass *pass;
    const assay_run *run;
    int prompt, step;
} assay_part;

/* Elements of the value in judged shape: captured rows, the oracle's columns; -1: the shape does
 * not fit the model (recorded). */
int64_t assay_part_count(const assay_part *at, const assay_seen *seen);
/* Puts the captured value. Fails: ASSAY_BAD_SHAPE, both shapes named. */
assay_status assay_part_put(const assay_part *at, const assay_seen *seen);
assay_status assay_part_read(double *out, const assay_part *at, const assay_seen *seen);
/* The oracle's expectation; knobs NULL: the pass's own. */
assay_status assay_part_expect(double *out, const assay_part *at, const assay_seen *seen,
                               const assay_knobs *knobs);
/* The value the pass has at another point of this step, first rows cut off as `seen` has it. */
assay_status assay_part_value(double *out, const assay_part *at, assay_point point, int layer,
                              int64_t n_rows);

#endif
