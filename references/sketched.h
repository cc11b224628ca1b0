/*
 * A capture of sketches against a reference with values: the reference's values are sketched by the
 * same projection (probes/recorder.h), and the distance of two sketches is the relative L2 of the
 * values within about 6 % (one deviation, 256 numbers).
 *
 * What is judged, in the order in which it was computed: whole values of the reference's shape, of
 * steps with the same tokens. Bound: 12 x the reference's floor of the candidate's format, at least
 * the largest row error of tolerance.def. Ids: a choice that differs is told apart from one that
 * does not, but not by how much it was missed, so nothing behind it in its prompt is judged.
 */
#ifndef ASSAY_REFERENCES_SKETCHED_H
#define ASSAY_REFERENCES_SKETCHED_H

#include "references/run.h"

typedef struct assay_sketched {
    int64_t n_sketches, n_judged; /* of whole values */
    bool has_bad;                 /* the first one beyond its bound: */
    int prompt, step, layer;
    assay_point point;
    double rel, bound;
    bool has_flip; /* the first choice that differs, where nothing was bad before: */
    int flip_prompt, flip_layer;
    assay_point flip_point;
} assay_sketched;

/* Whether the run keeps sketches and no values. */
bool assay_run_is_sketched(const assay_run *run);

/* One whole value of both, by its sketch. */
typedef struct assay_sketched_value {
    int prompt, step, layer; /* of the candidate */
    assay_point point;
    double rel;   /* HUGE_VAL: not finite in other places */
    double bound; /* ids: what is no other choice */
} assay_sketched_value;

/* *stop: nothing behind the value in its prompt is judged. */
typedef assay_status assay_sketched_fn(bool *stop, void *user, const assay_sketched_value *value);

/* Shows every value that can be judged, in the order in which the candidate's prompt made them.
 * *n_sketches: of whole values that were gone through. Fails: as assay_sketched_compare, and what
 * fn fails with. */
assay_status assay_sketched_each(int64_t *n_sketches, const assay_run *candidate,
                                 const assay_run *reference, assay_sketched_fn *fn, void *user);

/* Fails: ASSAY_CANNOT_JUDGE (no sketch could be judged, layouts that differ), ASSAY_BAD_FILE. */
assay_status assay_sketched_compare(assay_sketched *out, const assay_run *candidate,
                                    const assay_run *reference);

#endif
