/*
 * Relations: is a tensor the expected tensor under a simple map?
 *
 *   got, expected   [rows, cols] float64, row-major; rows are tokens. Elements that are not finite
 *                   on either side count as 0 on both (the caller judges masks).
 *
 * Every function fits one map with at most a few free numbers or a search over a small set, writes
 * what the map makes of `expected` to out [rows, cols], and describes the fit. It does not decide:
 * whether the rest is rounding is for the caller, who knows the floor.
 *
 *   explained   share of the error's energy that the map removes: 1 - |got - out|^2 / |got -
 *               expected|^2; negative when the map makes it worse
 *   residual    |got - out| / |got| (for a zero `got`: 0 if out is zero too, else infinite)
 *   complexity  free numbers of the fit; a choice out of n counts log2(n) / 10
 *
 * Nothing here allocates more than O(cols + blocks^2). The library knows no point and no model.
 */
#ifndef ASSAY_REFERENCES_RELATION_H
#define ASSAY_REFERENCES_RELATION_H

#include <stdbool.h>
#include <stdint.h>

#include "references/projection.h"

#define ASSAY_RELATION_BLOCKS 256
#define ASSAY_RELATION_PARTS 5

typedef enum {
    ASSAY_REL_ZERO,
    ASSAY_REL_SCALE,      /* one factor */
    ASSAY_REL_SCALE_ROWS, /* a factor per row */
    ASSAY_REL_SCALE_COLS, /* a factor per channel */
    ASSAY_REL_SCALE_BLOCKS,
    ASSAY_REL_ZERO_ROWS,   /* some rows zero, the rest as expected */
    ASSAY_REL_ZERO_BLOCKS, /* some blocks (heads) zero */
    ASSAY_REL_TAIL,        /* columns from `index` on are zero */
    ASSAY_REL_PERMUTED,    /* blocks of equal width, each once */
    ASSAY_REL_REPEATED,    /* blocks of equal width, some twice, some never */
    ASSAY_REL_PARTS,       /* parts of unequal width in another order */
    ASSAY_REL_RIFFLE,      /* two halves interleaved, or taken apart */
    ASSAY_REL_INSIDE,      /* one permutation inside every block */
    ASSAY_REL_TRANSPOSED,  /* [a, b] read as [b, a] inside every row */
    ASSAY_REL_SHIFTED_ROWS,
    ASSAY_REL_EQUALS,     /* another tensor */
    ASSAY_REL_COMPONENTS, /* a sum of given components with other counts */
    ASSAY_REL_CONSTANT,   /* expected + a vector that is the same for all rows */
    ASSAY_REL_KIND_COUNT
} assay_relation_kind;

const char *assay_relation_kind_name(assay_relation_kind kind);

typedef struct assay_relation {
    assay_relation_kind kind;
    double explained, residual, complexity;
    double value;  /* the factor, the median factor, the shift, the added vector's RMS */
    double spread; /* of per-row, per-channel or per-block factors: (max - min) / |median| */
    int64_t index; /* block, row or column that the kind speaks of; -1 */
    int n_blocks;  /* of map */
    int map[ASSAY_RELATION_BLOCKS];      /* out block i = expected block map[i] */
    double count[ASSAY_RELATION_BLOCKS]; /* COMPONENTS, SCALE_BLOCKS: factor of each */
} assay_relation;

typedef struct assay_relation_pair {
    const double *got, *expected;
    int64_t rows, cols;
    /*
     * Where only the sketch of got is known: every fit and score is of sketches, and `got` is what
     * assay_projection_approach makes of expected. is_noisy: so it is right on average alone, and
     * searches that look at its elements do it again from what they found. NULL: got is known.
     */
    const assay_projection *sketch;
    bool is_noisy;
} assay_relation_pair;

/* Fills explained and residual of a map whose result is in out. */
void assay_relation_score(assay_relation *rel, const double *out, const assay_relation_pair *pair);

/*
 * factors: of the rectangles of rows x cols that expected is cut into, counted along the rows
 * first, fitted to the sketch all at once. Rectangles of less than all rows are of one group of 32
 * rows each. False: more of them than the sketch's numbers tell apart.
 */
bool assay_relation_fit_parts(double *factors, const assay_relation_pair *pair, int64_t rows,
                              int64_t cols);

void assay_relation_zero(assay_relation *rel, double *out, const assay_relation_pair *pair);
void assay_relation_scale(assay_relation *rel, double *out, const assay_relation_pair *pair);
void assay_relation_scale_rows(assay_relation *rel, double *out, const assay_relation_pair *pair);
void assay_relation_scale_cols(assay_relation *rel, double *out, const assay_relation_pair *pair);
/* cols = n_blocks * width; factor per block over all rows. */
void assay_relation_scale_blocks(assay_relation *rel, double *out, const assay_relation_pair *pair,
                                 int n_blocks);
/* One block's factor alone, the others at 1; index = the block that profits most. */
void assay_relation_scale_one_block(assay_relation *rel, double *out,
                                    const assay_relation_pair *pair, int n_blocks);
void assay_relation_zero_rows(assay_relation *rel, double *out, const assay_relation_pair *pair);
void assay_relation_zero_blocks(assay_relation *rel, double *out, const assay_relation_pair *pair,
                                int n_blocks);
void assay_relation_tail(assay_relation *rel, double *out, const assay_relation_pair *pair);
void assay_relation_constant(assay_relation *rel, double *out, const assay_relation_pair *pair);

/*
 * Blocks of equal width: every block of got is given the block of expected that is nearest. A
 * bijection is PERMUTED, anything else REPEATED. Where two blocks want the same one although a
 * bijection fits as well (within 1 % of the residual), the assignment with the least total distance
 * is taken.
 */
void assay_relation_blocks(assay_relation *rel, double *out, const assay_relation_pair *pair,
                           int n_blocks);
/* One permutation of the columns inside each of n_blocks blocks, the same in all of them. */
void assay_relation_inside(assay_relation *rel, double *out, const assay_relation_pair *pair,
                           int n_blocks);
/* Parts of the given widths (their sum is cols), in the best order of all n_parts! orders but the
 * right one: map[i] = the part that stands at place i. */
void assay_relation_parts(assay_relation *rel, double *out, const assay_relation_pair *pair,
                          const int64_t *widths, int n_parts);
/* The same where got is the columns [first, first + cols of `own`) of the whole whose parts `whole`
 * [rows, all] holds in the right order; out: the whole, [rows, all]. */
void assay_relation_parts_within(assay_relation *rel, double *out, const assay_relation_pair *own,
                                 const double *whole, int64_t first, const int64_t *widths,
                                 int n_parts);
/* out[2i], out[2i+1] = halves (value 1), or halves = even and odd columns (value -1), per block. */
void assay_relation_riffle(assay_relation *rel, double *out, const assay_relation_pair *pair,
                           int n_blocks);
/* What a riffle makes of expected; apart: halves = even and odd columns. */
void assay_relation_lay_riffle(double *out, const assay_relation_pair *pair, int n_blocks,
                               bool apart);
/* Each row is [a, b] read as [b, a]. */
void assay_relation_transposed(assay_relation *rel, double *out, const assay_relation_pair *pair,
                               int64_t a, int64_t b);
/* out[r] = expected[r - s], s the best of -max_shift ... max_shift without 0; rows without a source
 * keep got (they are not explained, and not counted against the map). */
void assay_relation_shifted_rows(assay_relation *rel, double *out, const assay_relation_pair *pair,
                                 int max_shift);
void assay_relation_equals(assay_relation *rel, double *out, const assay_relation_pair *pair,
                           const double *other);
/*
 * got = sum_i count[i] * component_i, fitted by least squares; components: n pointers to
 * [rows, cols]. Counts within 2 % of a whole number are taken as that number. n at most 64.
 */
void assay_relation_components(assay_relation *rel, double *out, const assay_relation_pair *pair,
                               const double *const *components, int n);

#endif
