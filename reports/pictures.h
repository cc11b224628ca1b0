/*
 * Figures of an HTML page from result->extra.series: picture, caption and a table of the numbers.
 * Without gnuplot the table stands in the picture's place.
 */
#ifndef ASSAY_REPORTS_PICTURES_H
#define ASSAY_REPORTS_PICTURES_H

#include <stdio.h>

#include "reports/finding.h"

/* Error along the depth, map of layers by points: of the whole run. */
void assay_pictures_depth(FILE *html, const assay_result *result);
/* Maps and scatters that belong to a finding (-1: to none), and bars with -1. */
void assay_pictures_of(FILE *html, const assay_result *result, int finding);
/* Confusion matrix of a campaign (extra.confusion), where there is one. */
void assay_pictures_confusion(FILE *html, const assay_result *result);
/* True when there is a figure of the whole run. */
bool assay_pictures_any(const assay_result *result);

#endif
