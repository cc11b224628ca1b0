/* Analytic bounds (rows of tolerance.def) for a value of a free-running computation. */
#ifndef ASSAY_REFERENCES_TOLERANCE_H
#define ASSAY_REFERENCES_TOLERANCE_H

#include <stdbool.h>

#include "engine/base/number.h"
#include "engine/point.h"

typedef struct assay_tolerance {
    const char *family, *reason; /* NULL: a point of ids, which has no bound (both numbers 0) */
    double row_median, row_max;  /* relative L2 of rows */
} assay_tolerance;

/* layer: -1 for global points; n_layers: those of the model, or as many as were seen. dtype: what
 * the candidate computes in. */
assay_tolerance assay_tolerance_of(assay_point point, int layer, int n_layers, assay_dtype dtype,
                                   bool activations_q8);

/* Rows of the table, for lists. */
typedef struct assay_tolerance_row {
    const char *family, *points, *reason;
    double depth, amplification;
} assay_tolerance_row;

int assay_tolerance_count(void);
const assay_tolerance_row *assay_tolerance_at(int index);

/* Root mean square of the relative error that one op of this format makes. */
double assay_tolerance_step(assay_dtype dtype, bool activations_q8);

#endif
