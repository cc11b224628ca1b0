/*
 * Renderers: a result as text, JSON, JUnit XML, SARIF, HTML ... One row in render.def and one file
 * in render/ each: X(id, name, file name in a --report folder, function)
 */
#ifndef ASSAY_REPORTS_RENDER_H
#define ASSAY_REPORTS_RENDER_H

#include <stdio.h>

#include "reports/finding.h"

typedef struct assay_render_options {
    bool color;
    int width; /* columns; 0: 100 */
    bool quiet, verbose;
} assay_render_options;

typedef assay_status assay_render_fn(FILE *out, const assay_result *result,
                                     const assay_render_options *options);

typedef struct assay_renderer {
    const char *name, *file_name;
    assay_render_fn *render;
} assay_renderer;

int assay_renderer_count(void);
const assay_renderer *assay_renderer_at(int index);
const assay_renderer *assay_renderer_find(const char *name);

/* The folder and those above it, unless they are there. */
assay_status assay_render_make_folder(const char *folder);
/* One form's file into a folder; NULL: every form's. Written to temporary names, synced, and
 * renamed when all of them are whole: a full disk leaves what was there before. */
assay_status assay_render_into(const char *folder, const assay_renderer *renderer,
                               const assay_result *result, const assay_render_options *options);
/* Every form. */
assay_status assay_render_folder(const char *folder, const assay_result *result,
                                 const assay_render_options *options);

#endif
