/*
 * Contents of a forged tensor (private to suites/forge_*.c).
 */
#ifndef ASSAY_SUITES_FORGE_WEIGHTS_H
#define ASSAY_SUITES_FORGE_WEIGHTS_H

#include "engine/gguf_write.h"
#include "engine/role.h"
#include "suites/forge_model.h"

typedef enum {
#define X(id, name, about) FORGE_WRONG_##id,
#include "suites/forge_wrong.def"
#undef X
    FORGE_RIGHT
} forge_wrong;

/* FORGE_RIGHT when no kind has this name. */
forge_wrong forge_wrong_find(const char *name);
const char *forge_wrong_name(int index);

typedef struct forge_tensor {
    char name[64];
    const char *of; /* the name that the values follow from (its own, but for copied tensors) */
    assay_role role;
    int layer, type, n_dims;
    int64_t ne[4]; /* innermost first */
    double deviation, mean;
    forge_wrong wrong;
} forge_tensor;

/* Deviation and mean of the values, by role (see forge_model.h). */
void forge_set_scale(forge_tensor *tensor, const assay_hparams *hp);

/* Encodes and writes all rows; threads share them. */
assay_status forge_write_tensor(assay_gguf_writer *writer, int64_t index,
                                const forge_tensor *tensor, uint64_t seed);

#endif
