/*
 * How far two rows of logits agree: their largest, and the divergence of the distributions. In
 * float32, sixteen side by side: a vocabulary of 100,000 makes these rows a large part of a
 * capture.
 */
#ifndef ASSAY_REFERENCES_LOGITS_ROW_H
#define ASSAY_REFERENCES_LOGITS_ROW_H

#include "references/run.h"

enum { ASSAY_LOGITS_TOP = 5 };

typedef struct assay_logits_row {
    double kl; /* sum p log(p / q), nats, of the reference's p and the candidate's q; a row with
                  NaN, or an id that q alone rules out: infinity */
    double overlap; /* share of the reference's five largest that are among the candidate's */
    bool same_top;  /* the candidate's largest is one of the reference's largest */
} assay_logits_row;

/* Of n_vocab elements from `first` on of either value, rounded to float32. The divergence has a
 * relative error of some 10^-7, whatever its size. The same with any instruction set. */
assay_logits_row assay_logits_row_of(const assay_stored *got, int64_t got_first,
                                     const assay_stored *ref, int64_t ref_first, int64_t n_vocab);

#endif
