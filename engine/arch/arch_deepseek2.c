/*
 * deepseek2: DeepSeek V2, V2-Lite, V3, R1, Kimi-K2. Gating, renormalisation, groups and YaRN by
 * metadata; the query with or without a latent step by the tensors.
 */
#include "engine/arch.h"
#include "engine/key.h"

static assay_status read_keys(assay_hparams *hp, const assay_gguf *file)
{
    double temperature;
    ASSAY_TRY(assay_arch_read_mla(hp, file));
    ASSAY_TRY(assay_key_take_real(&temperature, hp, file, "attention.temperature_scale", 0, 0, 1e6,
                                  NULL));
    if (temperature != 0)
        return assay_fail(ASSAY_UNSUPPORTED,
                          "key '%s' is %g; a query temperature that grows with the position cannot "
                          "be run",
                          assay_key_name(hp, "attention.temperature_scale"), temperature);
    if (!hp->rope_yarn)
        return ASSAY_OK;
    return assay_key_take_real(
        &hp->yarn_log_multiplier, hp, file, "rope.scaling.yarn_log_multiplier", 0, 0, 1e3,
        "0: factor on cos and sin 0.1 ln(s) + 1, its square on the softmax scale, as llama.cpp; "
        "transformers leaves the scale alone");
}

const assay_arch assay_arch_deepseek2 = {read_keys, assay_arch_use_mla};
