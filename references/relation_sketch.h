/*
 * Relations to a value of which only the sketch is known. Shared by the files of relation.h.
 */
#ifndef ASSAY_REFERENCES_RELATION_SKETCH_H
#define ASSAY_REFERENCES_RELATION_SKETCH_H

#include "references/relation.h"

/* A fit that looks at elements of got: done again from what it found while that brings it nearer.
 */
typedef void assay_relation_fit_fn(assay_relation *rel, double *out,
                                   const assay_relation_pair *pair, const void *how);
void assay_relation_fit_again(assay_relation *rel, double *out, const assay_relation_pair *pair,
                              assay_relation_fit_fn *fit, const void *how);

#endif
