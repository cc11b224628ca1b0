/*
 * Checkpoints as the model authors publish them, made from a forged GGUF file by the definition of
 * every tensor (written out here a second time, apart from the product's mapping).
 */
#ifndef ASSAY_SUITES_TESTS_FORGE_SAFETENSORS_H
#define ASSAY_SUITES_TESTS_FORGE_SAFETENSORS_H

#include <stdbool.h>

#include "engine/gguf.h"
#include "engine/hparams.h"

typedef enum { FORGE_F32, FORGE_BF16, FORGE_F16, FORGE_F8 } forge_format;

typedef struct forge_matrix {
    char name[128];
    int n_dims;
    int64_t dims[3];
    float *values;
    forge_format format; /* that it is written in: values are rounded to it */
} forge_matrix;

typedef struct forge_checkpoint {
    forge_matrix *list;
    int n, room;
} forge_checkpoint;

/* merged: experts in one tensor of three dimensions. */
void forge_checkpoint_of(forge_checkpoint *out, const assay_gguf *file, const assay_hparams *hp,
                         bool merged);
void forge_checkpoint_free(forge_checkpoint *c);
/* Aborts when there is none. */
forge_matrix *forge_checkpoint_find(const forge_checkpoint *c, const char *name);
void forge_checkpoint_drop(forge_checkpoint *c, const char *name);
/* Matrices in their formats, projections as F8_E4M3 (scales of 128 x 128 blocks) where fp8; in
 * n_files shards. */
void forge_checkpoint_write(const forge_checkpoint *c, const char *folder, int n_files, bool fp8);

#endif
