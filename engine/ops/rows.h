/*
 * The shape that ops work on: n rows of `width` float32 values; row i starts at at + i * stride.
 * Shapes were checked when the model was opened, so a disagreement here is a caller's mistake
 * (ASSAY_BUG_IF).
 */
#ifndef ASSAY_ENGINE_OPS_ROWS_H
#define ASSAY_ENGINE_OPS_ROWS_H

#include <stdint.h>

#include "engine/base/status.h"

typedef struct assay_rows {
    float *at;
    int64_t n, width, stride;
} assay_rows;

static inline assay_rows assay_rows_of(float *at, int64_t n, int64_t width)
{
    return (assay_rows){at, n, width, width};
}

/* Columns first ... first + width - 1 of every row. */
static inline assay_rows assay_rows_columns(assay_rows r, int64_t first, int64_t width)
{
    ASSAY_BUG_IF(first < 0 || width < 0 || first + width > r.width);
    return (assay_rows){r.at + first, r.n, width, r.stride};
}

#endif
