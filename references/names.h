/*
 * Name maps: rows of names.def, found by a name in a dump.
 */
#ifndef ASSAY_REFERENCES_NAMES_H
#define ASSAY_REFERENCES_NAMES_H

#include <stdbool.h>

#include "engine/point.h"
#include "references/layout.h"

typedef enum {
    ASSAY_FAMILY_HF,
    ASSAY_FAMILY_HF_MLA,
    ASSAY_FAMILY_HF_PLAIN,
    ASSAY_FAMILY_GGML,
    ASSAY_FAMILY_VLLM
} assay_family;

typedef struct assay_name_row {
    assay_family family;
    const char *name;
    assay_point point; /* ASSAY_POINT_COUNT: left out on purpose */
    assay_layout layout;
    int hand_over;
    const char *when;   /* NULL for left out */
    const char *reason; /* of leaving out; NULL else */
    char shard;         /* axis that ranks share out; '-': none; 0: not known */
} assay_name_row;

int assay_name_count(void);
const assay_name_row *assay_name_at(int index);

/* Whether `name` is `pattern`, where {} stands for a decimal number; *layer: that number or -1. */
bool assay_name_matches(const char *pattern, const char *name, int *layer);

/* The row name that looks most like `name`. */
const char *assay_name_nearest(assay_family family, const char *name);

/* HF_MLA and HF_PLAIN belong to HF. */
bool assay_family_has(assay_family row, assay_family file);

#endif
