/*
 * What glm-dsa, deepseek2 and deepseek32 have in common: latent attention and experts.
 */
#include <stdio.h>
#include <string.h>

#include "engine/arch.h"
#include "engine/key.h"

#define MOST_WIDTH (1 << 20)

static assay_status read_widths(assay_hparams *hp, const assay_gguf *file)
{
    int key, value;
    bool is_new = assay_key_is_there(hp, file, "attention.key_length_mla");
    if (is_new != assay_key_is_there(hp, file, "attention.value_length_mla"))
        return assay_fail(ASSAY_BAD_FILE, "of the keys '%s' and '%s' only one is there",
                          assay_key_name(hp, "attention.key_length_mla"),
                          assay_key_name(hp, "attention.value_length_mla"));
    ASSAY_TRY(assay_key_need(
        &key, hp, file, is_new ? "attention.key_length_mla" : "attention.key_length", 1, 1 << 16));
    ASSAY_TRY(assay_key_need(&value, hp, file,
                             is_new ? "attention.value_length_mla" : "attention.value_length", 1,
                             1 << 16));
    ASSAY_TRY(assay_key_need(&hp->d_rope, hp, file, "rope.dimension_count", 2, 1 << 16));
    if (hp->d_rope >= key)
        return assay_fail(ASSAY_BAD_FILE, "key '%s' is %d, expected less than the key width %d",
                          assay_key_name(hp, "rope.dimension_count"), hp->d_rope, key);
    hp->d_nope = key - hp->d_rope;
    hp->d_value = value;
    hp->d_head = key;
    ASSAY_TRY(assay_key_need(&hp->n_rank_kv, hp, file, "attention.kv_lora_rank", 1, 1 << 16));
    if (assay_gguf_find_tensor(file, "blk.0.attn_q.weight")) {
        hp->n_rank_q = 0; /* decided by the tensors, not by the layer count */
        return ASSAY_OK;
    }
    return assay_key_need(&hp->n_rank_q, hp, file, "attention.q_lora_rank", 1, 1 << 16);
}

static assay_status read_gating(assay_hparams *hp, const assay_gguf *file, assay_gating otherwise)
{
    int gating;
    const char *why =
        otherwise == ASSAY_GATING_SIGMOID
            ? "2 (sigmoid): llama.cpp takes it for glm-dsa, transformers and vLLM too"
            : "1 (softmax): llama.cpp takes it for deepseek2 (except 47 or 48 layers with "
              "154880 tokens), transformers by class";
    ASSAY_TRY(assay_key_take(&gating, hp, file, "expert_gating_func", otherwise, 0, 1 << 20, why));
    if (gating == 0) {
        gating = otherwise;
        assay_assume(hp, assay_key_name(hp, "expert_gating_func"), why, "%d", gating);
    }
    if (gating != ASSAY_GATING_SOFTMAX && gating != ASSAY_GATING_SIGMOID)
        return assay_fail(ASSAY_UNSUPPORTED,
                          "key '%s' is %d; 1 (softmax) and 2 (sigmoid) can be run",
                          assay_key_name(hp, "expert_gating_func"), gating);
    hp->gating = (assay_gating)gating;
    return ASSAY_OK;
}

static assay_status read_groups(assay_hparams *hp, const assay_gguf *file)
{
    int most = hp->n_expert - 1;
    ASSAY_TRY(assay_key_take(&hp->n_group, hp, file, "expert_group_count", 0, 0,
                             most < 1 ? 1 : most, NULL));
    ASSAY_TRY(assay_key_take(&hp->n_group_used, hp, file, "expert_group_used_count", 0, 0,
                             hp->n_expert, NULL));
    if (hp->n_group <= 1) {
        hp->n_group = hp->n_group_used = 1;
        return ASSAY_OK;
    }
    if (hp->n_expert % hp->n_group || hp->n_group_used < 1 || hp->n_group_used >= hp->n_group)
        return assay_fail(ASSAY_BAD_FILE,
                          "%d experts in %d groups of which %d are used: expected groups of equal "
                          "size and 1 to %d of them used",
                          hp->n_expert, hp->n_group, hp->n_group_used, hp->n_group - 1);
    if (hp->n_group_used * (hp->n_expert / hp->n_group) < hp->n_expert_used)
        return assay_fail(ASSAY_BAD_FILE, "%d groups of %d experts cannot give %d experts",
                          hp->n_group_used, hp->n_expert / hp->n_group, hp->n_expert_used);
    char bias[64];
    assay_role_format(bias, ASSAY_ROLE_ROUTER_BIAS, hp->n_layer_dense);
    hp->group_rule = assay_gguf_find_tensor(file, bias) ? ASSAY_GROUP_TOP2_SUM : ASSAY_GROUP_MAX;
    assay_assume(
        hp, assay_key_name(hp, "expert_group_rule (no such key)"),
        hp->group_rule == ASSAY_GROUP_MAX
            ? "no selection bias: best expert of a group, as the model's authors and vLLM; "
              "llama.cpp always sums the two best"
            : "a selection bias: sum of the two best of a group, as everyone",
        "%s", hp->group_rule == ASSAY_GROUP_MAX ? "max" : "sum of two");
    return ASSAY_OK;
}

static assay_status read_experts(assay_hparams *hp, const assay_gguf *file)
{
    bool dsa = strcmp(hp->architecture, "deepseek2") != 0;
    double scale;
    ASSAY_TRY(assay_key_take(&hp->n_layer_dense, hp, file, "leading_dense_block_count", 0, 0,
                             ASSAY_MAX_LAYERS, "0: every layer has experts, as llama.cpp"));
    if (hp->n_layer_dense > hp->n_layer)
        hp->n_layer_dense = hp->n_layer;
    if (dsa)
        ASSAY_TRY(assay_key_need(&hp->n_expert, hp, file, "expert_count", 0, 512));
    else
        ASSAY_TRY(assay_key_take(&hp->n_expert, hp, file, "expert_count", 0, 0, 512, NULL));
    ASSAY_TRY(assay_key_take(&hp->n_expert_used, hp, file, "expert_used_count", 0, 0, hp->n_expert,
                             NULL));
    if (hp->n_expert == 0 && hp->n_layer_dense < hp->n_layer)
        return assay_fail(ASSAY_BAD_FILE, "layer %d is behind the %d dense ones, and '%s' is 0",
                          hp->n_layer_dense, hp->n_layer_dense, assay_key_name(hp, "expert_count"));
    if (hp->n_layer_dense > 0 && hp->n_ff < 1)
        return assay_fail(ASSAY_BAD_FILE, "%d dense layers, and '%s' is missing or 0",
                          hp->n_layer_dense, assay_key_name(hp, "feed_forward_length"));
    if (hp->n_expert == 0) {
        if (assay_key_is_there(hp, file, "expert_group_count"))
            ASSAY_TRY(assay_key_need(&hp->n_group, hp, file, "expert_group_count", 0, 0));
        return ASSAY_OK;
    }
    if (hp->n_expert_used < 1)
        return assay_fail(ASSAY_BAD_FILE, "%d experts, and '%s' is missing or 0", hp->n_expert,
                          assay_key_name(hp, "expert_used_count"));
    ASSAY_TRY(
        assay_key_need(&hp->n_ff_expert, hp, file, "expert_feed_forward_length", 1, MOST_WIDTH));
    ASSAY_TRY(assay_key_need(&hp->n_expert_shared, hp, file, "expert_shared_count", 0, 64));
    ASSAY_TRY(read_gating(hp, file, dsa ? ASSAY_GATING_SIGMOID : ASSAY_GATING_SOFTMAX));
    ASSAY_TRY(
        assay_key_take_flag(&hp->weights_norm, hp, file, "expert_weights_norm", false,
                            "false, as llama.cpp; transformers renormalises in deepseek_v3 and "
                            "glm_moe_dsa by norm_topk_prob, never in deepseek_v2"));
    ASSAY_TRY(
        assay_key_take_real(&scale, hp, file, "expert_weights_scale", 0, 0, 1e6,
                            "no scaling, as llama.cpp; transformers has routed_scaling_factor "
                            "1.0 (V2-Lite) to 16 (V2), 2.5 in V3 and GLM-5"));
    hp->weights_scale = scale == 0 ? 1 : scale;
    return read_groups(hp, file);
}

assay_status assay_arch_read_mla(assay_hparams *hp, const assay_gguf *file)
{
    hp->is_mla = true;
    ASSAY_TRY(read_widths(hp, file));
    return read_experts(hp, file);
}

/* Layers that run an indexer where the file does not say: all, or the pattern of GLM-5.2. */
static void assume_full_layers(assay_hparams *hp)
{
    bool pattern = hp->n_context >= 1048576;
    for (int i = 0; i < hp->n_layer; i++)
        hp->index_full[i] = !pattern || i < 3 || (i - 2) % 4 == 0;
    assay_assume(hp, assay_key_name(hp, "attention.indexer.types"),
                 pattern ? "context of 1048576 and more: layers 0, 1, 2, then every fourth, as "
                           "llama.cpp takes for GLM-5.2"
                         : "every layer runs its own indexer, as llama.cpp takes for GLM-5",
                 "%s", pattern ? "full at 0, 1, 2, 6, 10, ..." : "all full");
}

assay_status assay_arch_read_indexer(assay_hparams *hp, const assay_gguf *file)
{
    hp->has_indexer = true;
    ASSAY_TRY(assay_key_need(&hp->index_n_head, hp, file, "attention.indexer.head_count", 1, 4096));
    ASSAY_TRY(
        assay_key_need(&hp->index_d_head, hp, file, "attention.indexer.key_length", 2, 1 << 16));
    ASSAY_TRY(assay_key_need(&hp->index_top_k, hp, file, "attention.indexer.top_k", 1, 1 << 24));
    if (hp->index_d_head < hp->d_rope)
        return assay_fail(ASSAY_BAD_FILE, "key '%s' is %d, expected at least the rotary width %d",
                          assay_key_name(hp, "attention.indexer.key_length"), hp->index_d_head,
                          hp->d_rope);
    if (hp->n_rank_q == 0)
        return assay_fail(ASSAY_BAD_FILE,
                          "an indexer needs the latent query, and the file has attn_q");
    hp->eps_index = 1e-6;
    assay_assume(hp, assay_key_name(hp, "attention.layer_norm_epsilon (indexer)"),
                 "1e-6, as transformers and vLLM; llama.cpp leaves it at 0 for glm-dsa", "1e-6");
    const char *types = assay_key_name(hp, "attention.indexer.types"); /* until the next name */
    if (!assay_gguf_find_key(file, types)) {
        assume_full_layers(hp);
        return ASSAY_OK;
    }
    uint32_t full[ASSAY_MAX_LAYERS];
    ASSAY_TRY(assay_gguf_u32_or_array(full, file, types, (uint64_t)hp->n_layer));
    for (int i = 0; i < hp->n_layer; i++)
        hp->index_full[i] = full[i] != 0;
    if (!hp->index_full[0])
        return assay_fail(ASSAY_BAD_FILE,
                          "key '%s': layer 0 reuses a selection, and there is none before it",
                          types);
    return ASSAY_OK;
}

static assay_use use_attention(const assay_hparams *hp, assay_role role)
{
    switch (role) {
    case ASSAY_ROLE_ATTN_Q:
        return hp->n_rank_q ? ASSAY_USE_NONE : ASSAY_USE_NEEDED;
    case ASSAY_ROLE_ATTN_Q_A:
    case ASSAY_ROLE_ATTN_Q_A_NORM:
    case ASSAY_ROLE_ATTN_Q_B:
        return hp->n_rank_q ? ASSAY_USE_NEEDED : ASSAY_USE_NONE;
    case ASSAY_ROLE_ATTN_KV_A:
    case ASSAY_ROLE_ATTN_KV_A_NORM:
        return ASSAY_USE_NEEDED;
    case ASSAY_ROLE_ATTN_KV_B:
    case ASSAY_ROLE_ATTN_K_B:
    case ASSAY_ROLE_ATTN_V_B:
        return ASSAY_USE_OPTIONAL; /* one or the other: engine/model.c */
    default:
        return ASSAY_USE_NONE;
    }
}

static assay_use use_indexer(const assay_hparams *hp, assay_role role, int layer)
{
    switch (role) {
    case ASSAY_ROLE_INDEX_Q_B:
    case ASSAY_ROLE_INDEX_K:
    case ASSAY_ROLE_INDEX_K_NORM:
    case ASSAY_ROLE_INDEX_K_NORM_BIAS:
    case ASSAY_ROLE_INDEX_PROJ:
        if (!hp->has_indexer)
            return ASSAY_USE_NONE;
        return hp->index_full[layer] ? ASSAY_USE_NEEDED : ASSAY_USE_ASIDE;
    default:
        return ASSAY_USE_NONE;
    }
}

static assay_use use_feed_forward(const assay_hparams *hp, assay_role role, int layer)
{
    bool dense = layer < hp->n_layer_dense;
    switch (role) {
    case ASSAY_ROLE_FFN_GATE:
    case ASSAY_ROLE_FFN_UP:
    case ASSAY_ROLE_FFN_DOWN:
        return dense ? ASSAY_USE_NEEDED : ASSAY_USE_NONE;
    case ASSAY_ROLE_ROUTER:
    case ASSAY_ROLE_DOWN_EXPS:
        return dense ? ASSAY_USE_NONE : ASSAY_USE_NEEDED;
    case ASSAY_ROLE_ROUTER_BIAS:
    case ASSAY_ROLE_GATE_EXPS:
    case ASSAY_ROLE_UP_EXPS:
    case ASSAY_ROLE_GATE_UP_EXPS:
        return dense ? ASSAY_USE_NONE : ASSAY_USE_OPTIONAL;
    case ASSAY_ROLE_GATE_SHEXP:
    case ASSAY_ROLE_UP_SHEXP:
    case ASSAY_ROLE_DOWN_SHEXP:
        return dense || !hp->n_expert_shared ? ASSAY_USE_NONE : ASSAY_USE_NEEDED;
    default:
        return ASSAY_USE_NONE;
    }
}

assay_use assay_arch_use_mla(const assay_hparams *hp, assay_role role, int layer)
{
    assay_use use = assay_arch_use_common(hp, role, layer);
    if (use != ASSAY_USE_NONE)
        return use;
    if (layer >= hp->n_layer) { /* a block that predicts further tokens: known, set aside */
        bool global = !assay_role_at(role)->per_layer;
        return global || role == ASSAY_ROLE_ATTN_QKV ? ASSAY_USE_NONE : ASSAY_USE_ASIDE;
    }
    use = use_attention(hp, role);
    if (use == ASSAY_USE_NONE)
        use = use_indexer(hp, role, layer);
    if (use == ASSAY_USE_NONE)
        use = use_feed_forward(hp, role, layer);
    return use;
}
