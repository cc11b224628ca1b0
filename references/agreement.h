/* Agreement of the logits of two runs: what a lead asks for beside the verdict. */
#ifndef ASSAY_REFERENCES_AGREEMENT_H
#define ASSAY_REFERENCES_AGREEMENT_H

#include "references/compare.h"
#include "references/slab.h"

/* Starts with no rows; kl_max 0, worst_position -1. */
void assay_agreement_init(assay_agreement *agreement);

/* Adds rows of logits, one a token, of positions `position` ... (logits_row.h). */
void assay_agreement_add(assay_agreement *agreement, int prompt, int step, int64_t position,
                         const assay_rows_seen *got, const assay_rows_seen *ref);
/* Turns sums into means. */
void assay_agreement_finish(assay_agreement *agreement);

#endif
