/*
 * The rows of a checkpoint in the order of a GGUF tensor.
 */
#ifndef ASSAY_REFERENCES_CHECKPOINT_SOURCE_H
#define ASSAY_REFERENCES_CHECKPOINT_SOURCE_H

#include "engine/role.h"
#include "references/safetensors.h"

typedef enum { SOURCE_SAME, SOURCE_ROPE, SOURCE_K_B, SOURCE_V_B, SOURCE_EXPERT } source_how;

/* A tensor of the checkpoint, with the scales of its 128 x 128 blocks if it is float8. */
typedef struct source_matrix {
    const assay_safetensor *tensor, *scale;
    int64_t first_row; /* of a part in a merged tensor */
} source_matrix;

typedef struct source_plan {
    const assay_hparams *hp;
    assay_role role;
    source_how how;
    int64_t rows, width;
    int n_matrices; /* experts; else 1 */
    source_matrix *matrices;
    float *kv_b;    /* K_B: the decoded matrix */
    char name[160]; /* of the first matrix */
} source_plan;

/* Fails: ASSAY_MISSING (the checkpoint has no such tensor; the name is in plan->name),
 * ASSAY_BAD_SHAPE (another shape), ASSAY_UNSUPPORTED (no mapping for this role). */
assay_status source_plan_make(source_plan *out, const assay_safetensors *set,
                              const assay_hparams *hp, assay_role role, int layer);
void source_plan_clear(source_plan *plan);

/* Row `row` of the GGUF tensor, as the checkpoint has it: out [width]. */
assay_status source_row(float *out, const source_plan *plan, int64_t row);

#endif
