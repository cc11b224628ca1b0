/*
 * Pictures by gnuplot: a script goes in, SVG comes out.
 *
 * gnuplot is started without a shell and without the user's settings; the script is a file without
 * a name that it gets as standard input. Texts of strangers go into it through assay_plot_quote
 * only, which leaves nothing that gnuplot would carry out.
 */
#ifndef ASSAY_REPORTS_PLOT_H
#define ASSAY_REPORTS_PLOT_H

#include <stdbool.h>
#include <stdio.h>

#include "engine/base/status.h"

/* gnuplot can be started here. Asked once. */
bool assay_plot_available(void);

/* Runs a script whose output is one SVG picture of at most a few megabytes. *svg: from "<svg" on,
 * yours to free. Fails: ASSAY_MISSING without gnuplot, ASSAY_IO when it fails or takes over 20 s.
 */
assay_status assay_plot_svg(char **svg, const char *script);

/* A text as a gnuplot string in single quotes: valid UTF-8, no control characters, quotes doubled;
 * cut after `longest` characters. */
void assay_plot_quote(FILE *script, const char *text, int longest);

/* A number of a data block; NaN is a gap, infinities are `beyond`. */
void assay_plot_number(FILE *script, double x, double beyond);

/* Terminal, colours and font that all pictures share; width and height in pixels. Readable on light
 * and dark ground alike. */
void assay_plot_begin(FILE *script, int width, int height);

/* <img> with the picture inside it and `alt` as its text. */
void assay_plot_put_image(FILE *html, const char *svg, const char *alt);

#endif
