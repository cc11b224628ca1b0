/*
 * deepseek32: DeepSeek V3.2, deepseek2 with the selection of keys of glm-dsa, whose indexer rotates
 * half-split pairs.
 */
#include "engine/arch.h"
#include "engine/key.h"

static assay_status read_keys(assay_hparams *hp, const assay_gguf *file)
{
    ASSAY_TRY(assay_arch_deepseek2.read(hp, file));
    ASSAY_TRY(assay_arch_read_indexer(hp, file));
    hp->index_rope_half_split = true;
    return ASSAY_OK;
}

const assay_arch assay_arch_deepseek32 = {read_keys, assay_arch_use_mla};
