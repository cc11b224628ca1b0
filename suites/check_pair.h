/*
 * Rows that compare two ways of computing the same thing.
 */
#ifndef ASSAY_SUITES_CHECK_PAIR_H
#define ASSAY_SUITES_CHECK_PAIR_H

#include "suites/check.h"
#include "suites/trace.h"

typedef struct assay_check_pair {
    assay_check_row *row;
    const char *what; /* "latent = expanded" */
    int n_compared, n_flips, n_left_out, n_failed;
    double worst, bound; /* the median row error nearest its bound */
    char worst_point[ASSAY_POINT_NAME_BYTES];
    assay_strings first; /* the first failure */
} assay_check_pair;

/* What the engine shows over the prompt, run in chunks of `chunk` tokens (0: at once). */
assay_status assay_check_trace(assay_trace **out, assay_check_context *context,
                               const assay_engine_options *options,
                               const assay_check_prompt *prompt, int64_t chunk);
/* The same by N virtual ranks, their shards put together. */
assay_status assay_check_trace_ranks(assay_trace **out, assay_check_context *context,
                                     const assay_check_prompt *prompt, int n_ranks);
/* Compares one pair; bounds: see assay_trace_compare. */
assay_status assay_check_pair_add(assay_check_pair *pair, const assay_check_context *context,
                                  const assay_trace *expected, const assay_trace *got,
                                  const char *name);
/* Fills the row. Nothing compared is INCONCLUSIVE. */
assay_status assay_check_pair_end(assay_check_pair *pair);

#endif
