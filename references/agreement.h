/* Agreement of the logits of two runs: what a lead asks for beside the verdict. */
#ifndef ASSAY_REFERENCES_AGREEMENT_H
#define ASSAY_REFERENCES_AGREEMENT_H

#include "references/compare.h"

/* Starts with no rows; kl_max 0, worst_position -1. */
void assay_agreement_init(assay_agreement *agreement);

/*
 * Adds rows of logits: got, ref [n_rows, n_vocab] of positions first ... Divergence is
 * sum p log(p / q) of the reference's distribution p against the candidate's q, in nats. Ties of
 * the largest logit count as equal when the candidate's choice is one of them. A row with a NaN
 * diverges by infinity and agrees in nothing.
 */
void assay_agreement_add(assay_agreement *agreement, int prompt, int step, int64_t first,
                         const double *got, const double *ref, int64_t n_rows, int64_t n_vocab);
/* Turns sums into means. */
void assay_agreement_finish(assay_agreement *agreement);

#endif
