/*
 * llama: grouped-query attention and a dense feed-forward; rows of q and k lie in adjacent-pair
 * order. The projections may be merged into attn_qkv, and may have biases.
 */
#include "engine/arch.h"
#include "engine/key.h"

static assay_status read_keys(assay_hparams *hp, const assay_gguf *file)
{
    int value, n_expert;
    if (hp->n_head % hp->n_head_kv)
        return assay_fail(ASSAY_BAD_FILE, "%d query heads do not divide over %d key heads",
                          hp->n_head, hp->n_head_kv);
    if (!assay_key_is_there(hp, file, "attention.key_length") && hp->n_embd % hp->n_head)
        return assay_fail(ASSAY_BAD_FILE,
                          "width %d does not divide over %d heads, and '%s' is missing", hp->n_embd,
                          hp->n_head, assay_key_name(hp, "attention.key_length"));
    ASSAY_TRY(assay_key_take(&hp->d_head, hp, file, "attention.key_length", hp->n_embd / hp->n_head,
                             2, 1 << 16, NULL));
    ASSAY_TRY(
        assay_key_take(&value, hp, file, "attention.value_length", hp->d_head, 1, 1 << 16, NULL));
    ASSAY_TRY(assay_key_take(&hp->d_rope, hp, file, "rope.dimension_count", hp->d_head, 2, 1 << 16,
                             NULL));
    if (value != hp->d_head || hp->d_rope != hp->d_head)
        return assay_fail(ASSAY_BAD_FILE,
                          "key width %d, value width %d and rotary width %d: expected to be equal",
                          hp->d_head, value, hp->d_rope);
    hp->d_value = value;
    ASSAY_TRY(assay_key_take(&n_expert, hp, file, "expert_count", 0, 0, 512, NULL));
    if (n_expert)
        return assay_fail(ASSAY_UNSUPPORTED, "key '%s' is %d; llama with experts cannot be run",
                          assay_key_name(hp, "expert_count"), n_expert);
    hp->n_layer_dense = hp->n_layer;
    if (hp->n_ff < 1)
        return assay_fail(ASSAY_BAD_FILE, "key '%s' is missing or 0",
                          assay_key_name(hp, "feed_forward_length"));
    return ASSAY_OK;
}

static assay_use use(const assay_hparams *hp, assay_role role, int layer)
{
    switch (role) {
    case ASSAY_ROLE_FFN_GATE:
    case ASSAY_ROLE_FFN_UP:
    case ASSAY_ROLE_FFN_DOWN:
        return ASSAY_USE_NEEDED;
    case ASSAY_ROLE_ROPE_FREQS:
    case ASSAY_ROLE_ATTN_Q:
    case ASSAY_ROLE_ATTN_K:
    case ASSAY_ROLE_ATTN_V:
    case ASSAY_ROLE_ATTN_QKV: /* one or the other: engine/model.c */
    case ASSAY_ROLE_ATTN_Q_BIAS:
    case ASSAY_ROLE_ATTN_K_BIAS:
    case ASSAY_ROLE_ATTN_V_BIAS:
    case ASSAY_ROLE_ATTN_QKV_BIAS:
    case ASSAY_ROLE_ATTN_OUTPUT_BIAS:
    case ASSAY_ROLE_FFN_GATE_BIAS:
    case ASSAY_ROLE_FFN_UP_BIAS:
    case ASSAY_ROLE_FFN_DOWN_BIAS:
        return ASSAY_USE_OPTIONAL;
    default:
        return assay_arch_use_common(hp, role, layer);
    }
}

const assay_arch assay_arch_llama = {read_keys, use};
