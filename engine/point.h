/*
 * Points: the named places of a forward pass (rows of point.def, in the order in which a layer
 * makes them).
 */
#ifndef ASSAY_ENGINE_POINT_H
#define ASSAY_ENGINE_POINT_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/status.h"

typedef enum {
#define X(id, name, scope, axes, kind, made_by, read_by) ASSAY_POINT_##id,
#include "engine/point.def"
#undef X
    ASSAY_POINT_COUNT
} assay_point;

/* Room for the longest full name with its NUL: "blk.NNN.attn.index.k_norm.partial". */
#define ASSAY_POINT_NAME_BYTES 64

typedef struct assay_point_info {
    const char *name;
    bool per_layer;
    const char *axes;
    bool is_ids;
    const char *made_by;
    const char *read_by;
} assay_point_info;

const assay_point_info *assay_point_at(assay_point point);

/* "blk.3.attn.q_a", or "embed" (layer is then -1). Returns out. */
char *assay_point_format(char out[ASSAY_POINT_NAME_BYTES], assay_point point, int layer);

/*
 * Reads a full name; *layer is -1 for global points; *partial (may be NULL) tells a ".partial"
 * suffix (the value of one rank before a reduction). Fails: ASSAY_MISSING with the nearest known
 * names.
 */
assay_status assay_point_parse(assay_point *point, int *layer, bool *partial, const char *name);

#endif
