/*
 * A home in a run of several ranks: which ranks' part of the value is wrong, and whose part it is.
 *
 * A value is split (each rank holds a slice of one axis), a copy (each rank has all of it), or a
 * sum (a copy that a reduction made; each rank's addend was captured as partial). Where a rank's
 * value is not in the run, nothing is known and nothing is offered.
 */
#ifndef ASSAY_REPORTS_HOME_RANKS_H
#define ASSAY_REPORTS_HOME_RANKS_H

#include "reports/home.h"

#define ASSAY_HOME_RANKS 16

typedef struct assay_home_slices {
    int n;                               /* slices */
    int n_copies;                        /* ranks that hold the same slice, neighbours */
    int64_t size, inner;                 /* of the split axis, of those behind it */
    int64_t first[ASSAY_HOME_RANKS + 1]; /* along the axis; [n]: its size */
    bool bad[ASSAY_HOME_RANKS];
    int n_bad;
    const double *lost; /* [size] what rows that were not loaded give: the bias; NULL: zeros */
    int ranks[ASSAY_HOME_RANKS]; /* whose slice is bad */
    int n_ranks;
} assay_home_slices;

/* False: the value is not split over ranks, or along no axis of its columns. */
bool assay_home_slices_of(assay_home_slices *out, const assay_home *home);

/* Rank and position along the split axis of column c. */
int assay_home_slice_at(int64_t *at, const assay_home_slices *slices, int64_t c);

/* {"ranks": [...]} of the wrong slices; new reference. */
json_t *assay_home_slices_json(const assay_home_slices *slices);

/* Ranks whose slice or copy of the home's value is not what is expected. Fails: ASSAY_IO ... */
assay_status assay_home_bad_ranks(assay_numbers *out, assay_home *home);

/* Ranks of the run; 0: not a run of ranks, or none that is judged by rank. */
int assay_home_n_ranks(const assay_home *home);

/* The expected value with the wrong slices of `variant`. False: no slice is wrong, or all are. */
bool assay_home_take_slices(double *out, const assay_home *home, const double *variant);

/* RANK-SLICE: each wrong slice is another stretch of the expected axis, or ends too early. */
assay_status assay_home_try_slices(assay_home *home);

/* RANK-SLICE, of a sum: each rank's addend that is wrong is the product with other columns of the
 * weight: a stretch that begins elsewhere or ends too early, or one cut out along the other axis.
 */
assay_status assay_home_try_addends(assay_home *home);

/* RANK-SLICE, of what all ranks hold: a norm's weight begins late; the router's bias is one rank's
 * share in front and zeros behind. */
assay_status assay_home_try_vectors(assay_home *home);

/* FUSED-ORDER: the wrong slices of one of two parts of a fused product are slices of the other, or
 * both riffled, on their rank alone. */
assay_status assay_home_try_fused_slices(assay_home *home, assay_point first, assay_point second);

/* REDUCE-COUNT, RACE: the copy is this rank's own addend in all rows, or in the first ones. */
assay_status assay_home_try_own_addend(assay_home *home, bool some_rows);

#endif
