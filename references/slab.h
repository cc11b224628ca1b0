/*
 * Values of some tokens of a captured point: [n_tokens, n_sub, n_cols], token axis first, whatever
 * its place in the canonical layout (probs: [H, T, S] gives [T, H, S]).
 */
#ifndef ASSAY_REFERENCES_SLAB_H
#define ASSAY_REFERENCES_SLAB_H

#include "references/run.h"

typedef struct assay_slab {
    int64_t n_tokens, n_sub, n_cols;
    double *x;
} assay_slab;

/* Absolute positions [*first, *end) of the tokens that a value of a step has: a dump may hold the
 * last rows only (logits). Fails: ASSAY_CANNOT_JUDGE when it has no token axis or more rows than
 * the step has tokens. */
assay_status assay_slab_range(int64_t *first, int64_t *end, const assay_seen *seen,
                              const assay_run_step *step);

/* Values of positions [first, end), which the value must have. n_keys >= 0: of an axis of keys only
 * the first n_keys are kept. Memory is the caller's to free (assay_slab_clear). */
assay_status assay_slab_read(assay_slab *out, const assay_run *run, const assay_seen *seen,
                             const assay_run_step *step, int64_t first, int64_t end,
                             int64_t n_keys);
void assay_slab_clear(assay_slab *slab);

/* The same rows as they lie: nothing is copied until a row is asked for. */
typedef struct assay_rows_seen {
    int64_t n_tokens, n_sub, n_cols;
    assay_stored values;
    int64_t first, n_t, n_middle, n_inner; /* first of n_t token rows; [outer, T, middle, inner] */
    int32_t *order; /* [n_tokens, n_sub]: which sub stands there; NULL: each its own */
} assay_rows_seen;

/* Arguments as assay_slab_read. */
assay_status assay_rows_look(assay_rows_seen *out, const assay_run *run, const assay_seen *seen,
                             const assay_run_step *step, int64_t first, int64_t end,
                             int64_t n_keys);
/* The same for a reader who proves their checksum (assay_run_look_unproven). */
assay_status assay_rows_look_unproven(assay_rows_seen *out, const assay_run *run,
                                      const assay_seen *seen, const assay_run_step *step,
                                      int64_t first, int64_t end, int64_t n_keys);
void assay_rows_clear(assay_rows_seen *rows);
/* Whether each number of the stored value is in just one of the rows. */
bool assay_rows_are_all(const assay_rows_seen *rows);
/* Elements of the stored value in front of the row. Asked for each row, some of which are short:
 * nearly every value has one outer row, or one in the middle, and then nothing is divided. */
static inline int64_t assay_rows_place(const assay_rows_seen *rows, int64_t token, int64_t sub)
{
    int64_t s = rows->order ? rows->order[token * rows->n_sub + sub] : sub;
    int64_t outer = s < rows->n_middle ? 0 : rows->n_middle == 1 ? s : s / rows->n_middle;
    int64_t middle = s - outer * rows->n_middle;
    return ((outer * rows->n_t + rows->first + token) * rows->n_middle + middle) * rows->n_inner;
}
/* [n_cols]; room: as many, used where the values must be widened. */
const double *assay_rows_at(const assay_rows_seen *rows, int64_t token, int64_t sub, double *room);

void assay_rows_copy(double *out, const assay_rows_seen *rows, int64_t token, int64_t sub);

/* Coordinates in the canonical axes of the value at [token, sub, col] of the slab that began at
 * position `first`. */
void assay_slab_coordinates(int64_t out[ASSAY_MAX_DIMS], const assay_seen *seen,
                            const assay_run_step *step, int64_t first, int64_t token, int64_t sub,
                            int64_t col);

/* Number of keys of the value, -1 when it has no such axis. */
int64_t assay_slab_keys(const assay_seen *seen);

#endif
