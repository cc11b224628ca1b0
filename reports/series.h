/*
 * Numbers for pictures, carried in result->extra.series (reports/README.md): the HTML page draws
 * them, programs read them. Non-finite numbers are kept (as strings in JSON).
 */
#ifndef ASSAY_REPORTS_SERIES_H
#define ASSAY_REPORTS_SERIES_H

#include "reports/finding.h"

/* One judged point: relative L2 of the error the op added, of the error it was given (NaN:
 * unknown), and of what rounding alone can make. point without the layer ("attn.q_a"). */
assay_status assay_series_depth(assay_result *result, const char *prompt, int step,
                                const char *point, int layer, double added, double inherited,
                                double floor, bool is_home);

typedef struct assay_series_map {
    const char *title, *x, *y, *unit; /* unit NULL: none */
    int finding;                      /* index of the finding it belongs to; -1: none */
    int n_x, n_y;
    const char *const *x_labels, *const *y_labels; /* NULL: indices */
    const double *values;                          /* [n_y, n_x] */
} assay_series_map;

assay_status assay_series_add_map(assay_result *result, const assay_series_map *map);

/* Candidate against expected: n pairs; the caller thins them (some thousands are enough). */
assay_status assay_series_scatter(assay_result *result, const char *title, int finding,
                                  const double *expected, const double *got, int64_t n);

assay_status assay_series_bars(assay_result *result, const char *title, const char *x,
                               const char *y, const char *const *labels, const double *values,
                               int n);

#endif
