/*
 * glm-dsa: GLM-5. As deepseek2 with the new keys required, sigmoid gating when unset, and a
 * selection of keys by an indexer on every (GLM-5) or some (GLM-5.2) layers.
 */
#include "engine/arch.h"
#include "engine/key.h"

static assay_status read_keys(assay_hparams *hp, const assay_gguf *file)
{
    if (!assay_key_is_there(hp, file, "attention.key_length_mla"))
        return assay_fail(ASSAY_BAD_FILE, "key '%s' is missing and architecture '%s' requires it",
                          assay_key_name(hp, "attention.key_length_mla"), hp->architecture);
    ASSAY_TRY(assay_arch_read_mla(hp, file));
    return assay_arch_read_indexer(hp, file);
}

const assay_arch assay_arch_glm_dsa = {read_keys, assay_arch_use_mla};
