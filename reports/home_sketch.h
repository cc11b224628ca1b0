/*
 * What home.c does where only the sketch of a home's value is known. Nothing else includes it.
 */
#ifndef ASSAY_REPORTS_HOME_SKETCH_H
#define ASSAY_REPORTS_HOME_SKETCH_H

#include "reports/home.h"

/* How a variant may hold in a part of the value alone. */
typedef enum { ASSAY_BY_ROWS, ASSAY_BY_HEADS, ASSAY_BY_CELLS, ASSAY_N_WAYS } assay_partly;

/* Part p of a way: the elements first + r * row + c, r < n_rows, c < width. */
void assay_home_part_at(int64_t *first, int64_t *n_rows, int64_t *width, const assay_judged *j,
                        assay_partly way, int64_t p);
/* Relative rest of `out`, groups of 32 rows equally, and the share of the error it removes. */
void assay_home_rest_of_sketch(double *rest, double *explained, const assay_home *h,
                               const double *out);
/* The variant in the parts where the sketch shows its difference from the expected value once, the
 * expected value elsewhere. Returns how many parts take the variant; 0 or all: nothing new. */
int64_t assay_home_take_fitting(double *out, const assay_home *h, const double *variant,
                                assay_partly way);
/* <rest, slope> and <slope, slope> of a number between whose logarithms -h and h low and high lie.
 */
assay_status assay_home_newton_sums(double *cross, double *square, const assay_home *home,
                                    const double *low, const double *high, double h);

#endif
