/*
 * Roles: what a weight is for, whatever the file calls it (rows of role.def).
 */
#ifndef ASSAY_ENGINE_ROLE_H
#define ASSAY_ENGINE_ROLE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/hparams.h"

typedef enum {
#define X(id, name, scope, shape, kind) ASSAY_ROLE_##id,
#include "engine/role.def"
#undef X
    ASSAY_ROLE_COUNT
} assay_role;

typedef enum {
    ASSAY_SHARD_COPY,
    ASSAY_SHARD_COLUMN,
    ASSAY_SHARD_HEADS,
    ASSAY_SHARD_KV_HEADS,
    ASSAY_SHARD_QKV,
    ASSAY_SHARD_ROW,
    ASSAY_SHARD_ROW_HEADS,
    ASSAY_SHARD_EXPERT_COLUMN,
    ASSAY_SHARD_EXPERT_ROW,
    ASSAY_SHARD_VOCAB
} assay_shard_kind;

typedef struct assay_role_info {
    const char *name;
    bool per_layer;
    const char *shape;
    assay_shard_kind kind;
} assay_role_info;

const assay_role_info *assay_role_at(assay_role role);

/* Name of the tensor in the file; returns out. */
char *assay_role_format(char out[64], assay_role role, int layer);

/* Size of one letter of point.def's axes (and of P, Y) in this model; T and S have none. */
int64_t assay_hparams_axis(const assay_hparams *hp, char letter);

/* Row-major dims of a role in this model; returns how many there are. */
int assay_role_dims(int64_t dims[4], const assay_hparams *hp, assay_role role);

#endif
