/* Members of the series as plain numbers, for the figures. */
#ifndef ASSAY_REPORTS_PICTURE_DATA_H
#define ASSAY_REPORTS_PICTURE_DATA_H

#include "reports/finding.h"

/* A number, or what the strings "NaN", "Infinity", "-Infinity" and null stand for. */
double assay_picture_number(const json_t *json);
const char *assay_picture_text(const json_t *object, const char *member, const char *otherwise);
/* An array below result->extra.series; NULL: absent. */
const json_t *assay_picture_list(const assay_result *result, const char *member);

typedef struct assay_grid { /* a map: n_y rows of n_x values */
    int n_x, n_y;
    double *values;
    char **x_labels, **y_labels; /* NULL: indices */
} assay_grid;

assay_status assay_grid_new(assay_grid *grid, int n_x, int n_y);
void assay_grid_clear(assay_grid *grid);
/* From an entry of series.maps. Fails: ASSAY_BAD_FILE (rows of unequal length). */
assay_status assay_grid_from(assay_grid *grid, const json_t *entry);
/* Layers (columns) by points (rows) of series.depth: log10 of added / floor, largest over prompts
 * and steps; NaN where nothing was judged. Global points are no part of it. */
assay_status assay_grid_of_depth(assay_grid *grid, const assay_result *result);

/* extra.confusion of a campaign: planted classes (rows) by found classes (columns), counts; 0 where
 * there is none. Fails: ASSAY_MISSING without one. */
assay_status assay_grid_of_confusion(assay_grid *grid, const assay_result *result);

/* The index of the largest finite or infinite value; -1: none is a number. */
int assay_grid_largest(const assay_grid *grid);

#endif
