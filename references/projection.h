/*
 * A value of which only the sketch is known (probes/recorder.h): how far another value is from it,
 * and what it may have been.
 *
 * Distances are of sketches. The sketch is linear, so they are as good as float32 keeps 256 numbers
 * however large the value is; as an estimate of the distance of the values they are within about
 * 6 % (one deviation) for each group of 32 rows.
 */
#ifndef ASSAY_REFERENCES_PROJECTION_H
#define ASSAY_REFERENCES_PROJECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "probes/recorder.h"

typedef struct assay_projection {
    const float *y;      /* [n_groups, ASSAY_SKETCH_N] */
    int64_t n_groups;    /* of 32 rows */
    int64_t rows, inner; /* rows of the first axis, elements of one */
} assay_projection;

/* Elements of group g. */
int64_t assay_projection_size(const assay_projection *p, int64_t g);

/* out [n_groups, ASSAY_SKETCH_N]: the sketch of x [rows, inner]; what is not finite counts as 0. */
void assay_project(double *out, const assay_projection *p, const double *x);

/* rest[g] = |y - sketch of x|^2 of every group; rest may be NULL. Returns the sum; infinite without
 * memory. */
double assay_projection_rest(double *rest, const assay_projection *p, const double *x);

/*
 * x moved towards the sketch: out = x + S'(y - S x), S' the least squares solution where a group
 * has at most 256 elements (exact to about 1e-5 of the difference), else the transposed map, which
 * is right on average and noisy in every element. *exact: no group is noisy. out may be x.
 */
assay_status assay_projection_approach(double *out, bool *exact, const assay_projection *p,
                                       const double *x);

/*
 * Least squares: which factors of n parts bring `base` nearest to the sketch,
 * |y - S base - sum_i factor[i] S part_i|. parts: n pointers to [rows, inner]; group by group where
 * factors [n_groups, n], over all groups where shared. Parts without energy get 0. n at most 256.
 */
assay_status assay_projection_fit(double *factors, const assay_projection *p, const double *base,
                                  const double *const *parts, int n, bool shared);

/* Solves the symmetric positive definite a x = b [n, n], b [n], in place; the diagonal is raised by
 * `ridge`. x is left in b. False: not definite. */
bool assay_solve_definite(double *a, double *b, int n, double ridge);

#endif
