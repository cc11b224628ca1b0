/*
 * What a tensor of a file is to the architecture (private to suites/audit*.c).
 */
#ifndef ASSAY_SUITES_AUDIT_ROLE_H
#define ASSAY_SUITES_AUDIT_ROLE_H

#include "engine/gguf.h"
#include "engine/role.h"

/* Role and layer (-1: global) of a tensor's name; false: no role is called so. */
bool audit_resolve(assay_role *role, int *layer, const char *name);

/* All four dimensions are those of the role in this model; missing ones count as 1. */
bool audit_has_shape(const assay_gguf_tensor_info *tensor, const assay_hparams *hp,
                     assay_role role);

#endif
