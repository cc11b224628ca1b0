/*
 * Small systematic deviations below the rounding floor: is the *median* gain of candidate on
 * expected away from 1, measured against its own spread? (Design section 5: a single tensor's gain
 * is no evidence, since one element can hold half of its energy.)
 *
 *   row      one gain for each row (token):   <got, exp> / <exp, exp> over heads and columns
 *   head     one for each head, over rows and columns; rows first brought to unit length, so that
 *            one loud token does not decide
 *   channel  one for each (head, column), over rows; rows first brought to unit length. Comparisons
 *            leave them out where columns are keys: what is off for one key is off in its rows
 *
 * Gains of one point are pooled over everything that is added: layers, steps, prompts. Reported:
 * median, spread (1.4826 x median absolute deviation), z = (median - 1) / (1.2533 spread / sqrt n).
 *
 * A deviation needs both: z beyond what dependent rounding errors reach (rows 8; heads and
 * channels, which share rows, 16) and a size beyond the biases that healthy arithmetic has (3 or 4
 * units of max(2^-22, roundoff / 16); measured on healthy runs: at most 1.3 for rows, 2.3 for
 * channels). Never from fewer than 16 gains.
 */
#ifndef ASSAY_REFERENCES_GAIN_H
#define ASSAY_REFERENCES_GAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/number.h"
#include "engine/point.h"

typedef enum {
    ASSAY_GAIN_ROW,
    ASSAY_GAIN_HEAD,
    ASSAY_GAIN_CHANNEL,
    ASSAY_GAIN_KINDS
} assay_gain_kind;

const char *assay_gain_kind_name(assay_gain_kind kind);

typedef struct assay_gain assay_gain; /* the pool */

typedef struct assay_gain_verdict {
    assay_point point;
    int layer; /* ASSAY_GAIN_ALL_LAYERS: pooled over layers */
    assay_gain_kind kind;
    double value, spread, z; /* value: the median gain */
    int64_t n;
    bool deviates;
} assay_gain_verdict;

#define ASSAY_GAIN_ALL_LAYERS (-2)
enum { ASSAY_GAIN_KEPT = 4096 };

assay_status assay_gain_new(assay_gain **out);
void assay_gain_free(assay_gain *gain);

/*
 * Adds one captured value: got, expected [n_rows, n_heads, n_cols] (n_heads 1 where the point has
 * no heads), canonical layout. Rows with a non-finite element or a zero expected row are left out.
 * Of more than ASSAY_GAIN_KEPT gains of one kind every k-th is kept. Ids are no place for this
 * test.
 */
assay_status assay_gain_add(assay_gain *gain, assay_point point, int layer, const double *got,
                            const double *expected, int64_t n_rows, int64_t n_heads,
                            int64_t n_cols);

/* Of each channel or head, over the rows that take part: the weighted <got - exp, exp> and
 * <exp, exp>. */
typedef struct assay_gain_sums {
    int64_t n;
    const double *de, *ee; /* [n] */
} assay_gain_sums;

/* The same from sums; row_gains [n_rows], NaN: takes no part. channels: any choice of them that
 * does not depend on the values; none: of heads alone. */
assay_status assay_gain_add_sums(assay_gain *gain, assay_point point, int layer,
                                 const double *row_gains, int64_t n_rows,
                                 const assay_gain_sums *heads, const assay_gain_sums *channels);

/* Takes over what was added to another pool, which is then empty. */
assay_status assay_gain_merge(assay_gain *gain, assay_gain *from);

/* Forgets what was added for a point of one layer. */
void assay_gain_drop(assay_gain *gain, assay_point point, int layer);

/* One kind at one point, of one layer (-1: global points) or of all layers. n = 0: nothing was
 * added; the numbers are then NaN and nothing deviates. dtype: format of the candidate's values. */
assay_status assay_gain_judge(assay_gain_verdict *out, const assay_gain *gain, assay_point point,
                              int layer, assay_gain_kind kind, assay_dtype dtype);

/* The strongest deviation at a point: of its row gains if they deviate, else channels, else heads;
 * if none deviates, the row verdict. */
assay_status assay_gain_worst(assay_gain_verdict *out, const assay_gain *gain, assay_point point,
                              int layer, assay_dtype dtype);

#endif
