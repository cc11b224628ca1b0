/*
 * What is particular to an architecture: which metadata it reads and which tensors its layers have.
 *
 * One row in arch.def and one file in arch/ per architecture. `read` fills what the common keys
 * (engine/hparams.c) do not; `use` says for every role of role.def whether layer `layer` (-1:
 * global roles) has it.
 */
#ifndef ASSAY_ENGINE_ARCH_H
#define ASSAY_ENGINE_ARCH_H

#include "engine/hparams.h"
#include "engine/role.h"

typedef enum {
    ASSAY_USE_NONE,     /* the architecture has no such tensor here */
    ASSAY_USE_NEEDED,   /* must be in the file */
    ASSAY_USE_OPTIONAL, /* may be in the file, and is then used */
    ASSAY_USE_ASIDE     /* may be in the file, is known, and is not used */
} assay_use;

typedef struct assay_arch {
    assay_status (*read)(assay_hparams *hp, const assay_gguf *file);
    assay_use (*use)(const assay_hparams *hp, assay_role role, int layer);
} assay_arch;

#define X(id, name, about) extern const assay_arch assay_arch_##id;
#include "engine/arch.def"
#undef X

/* NULL: unknown. */
const assay_arch *assay_arch_find(const char *name);
int assay_arch_count(void);
const char *assay_arch_name(int index);
const char *assay_arch_about(int index);

/* Roles that all architectures share (embedding, norms of the stream, output head). */
assay_use assay_arch_use_common(const assay_hparams *hp, assay_role role, int layer);
/* Roles of latent attention and of experts: glm-dsa, deepseek2, deepseek32. */
assay_use assay_arch_use_mla(const assay_hparams *hp, assay_role role, int layer);
/* Keys of the same family. */
assay_status assay_arch_read_mla(assay_hparams *hp, const assay_gguf *file);
assay_status assay_arch_read_indexer(assay_hparams *hp, const assay_gguf *file);

#endif
