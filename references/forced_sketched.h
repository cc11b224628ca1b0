/*
 * The forced pass over a run of which only sketches were kept (probes/recorder.h): a walk in the
 * order of computation that finds the values themselves, so that everything behind it judges a run
 * with values.
 *
 *   accepted   the sketch is that of the op's result on the values accepted so far, or of that
 *              result as the run's format rounds it, up to the floor: the nearer one is shown
 *   home       it is not. `explain` is asked what the value may be (it knows the fault classes);
 *              what it says is judged by the same rule, and shown: the walk goes on behind the
 *              fault on the values that the fault made. Zeros, non-finite values and copies of
 *              another value need no arithmetic: counts and checksum tell them
 *   estimate   nothing fits. A group of at most 256 elements is known by least squares all the
 *              same; else the values shown are an estimate, marked as such, and what depends on
 *              them is not judged
 *
 * Floor: beside the exact pass there is a second one, in which every value is rounded as the run's
 * format does, from values that were rounded so. Their distance is what all roundings up to here
 * can make, those that no sketch shows among them. Where the sketch fits the second one more
 * closely than its distance from the first, the run rounds as the oracle does: the two are the
 * same again from here on, and the floor is that of a single op. Where an estimate or an
 * accepted misfit comes in, the second pass is moved away by as much.
 *
 * Rule: WHOLE and ROW of forced_floor.h, with a group of 32 rows for a row (one row's error is that
 * much less visible); the masks by their counts. Ids: a list whose groups have at most 256 numbers
 * is known by least squares, for ids are whole numbers; else the right one is tried, and exchanges
 * within the noise of the scores.
 */
#ifndef ASSAY_REFERENCES_FORCED_SKETCHED_H
#define ASSAY_REFERENCES_FORCED_SKETCHED_H

#include "references/forced.h"
#include "references/projection.h"

/* Values [rows, cols] that a home may have; *found false: none that the rule accepts. */
typedef assay_status assay_forced_explain_fn(double *explained, bool *found, void *user,
                                             assay_forced *forced, int index);

typedef struct assay_sketch_walk {
    int64_t n_sketches;  /* that could be looked at */
    int64_t n_known;     /* whose values were found */
    int64_t n_estimated; /* homes that nothing explains, of more elements than numbers */
    int64_t n_behind;    /* not judged: they depend on an estimate */
} assay_sketch_walk;

/* Shows the values of every sketch of the run (assay_run_show). Fails: ASSAY_CANNOT_JUDGE as
 * assay_forced_new does. */
assay_status assay_forced_walk(assay_sketch_walk *out, assay_run *run, assay_oracle *oracle,
                               const assay_forced_options *options,
                               assay_forced_explain_fn *explain, void *user);

/* While a home of a walk is explained: its sketch. False: it is judged by its values. */
bool assay_forced_projection(assay_projection *out, const assay_forced *forced, int index);

#endif
