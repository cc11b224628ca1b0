/*
 * Ids from a sketch (forced_pursue.c). Shared by the files of the forced pass.
 */
#ifndef ASSAY_REFERENCES_FORCED_PURSUE_H
#define ASSAY_REFERENCES_FORCED_PURSUE_H

#include "references/projection.h"

typedef struct assay_pursuit {
    int64_t rows, width, n_scores;
    const double *scores; /* [rows, n_scores] that decide */
    const double *noise;  /* [rows]: scores so near each other may change places */
    bool may_replace;     /* a left-out id may stand for a chosen one */
} assay_pursuit;

/* ids [rows, width]: the right ones, then those whose sketch is within `least` (square) of it.
 * -1: no id. *found false: exchanges do not lead there. */
assay_status assay_pursue_ids(bool *found, double *ids, const assay_projection *sketch,
                              const assay_pursuit *pursuit, double least);

#endif
