/*
 * Hyperparameters as the oracle reads them, apart from engine/hparams. Keys and defaults: GGUF
 * metadata as llama.cpp writes and reads it; where its reader ignores a key that the converter
 * writes (YaRN betas), the key is honoured.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "references/oracle/oracle_private.h"

#define MAX_LAYERS 512

typedef struct reader {
    const assay_gguf *file;
    const char *architecture;
    char key[128];
} reader;

static const char *key_of(reader *r, const char *name)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->architecture, name);
    return r->key;
}

/* The key's value, or `missing` where the file lacks it; a key of a wrong type is an error. */
static assay_status number(double *out, reader *r, const char *name, double missing)
{
    const assay_gguf_key *key = assay_gguf_find_key(r->file, key_of(r, name));
    *out = missing;
    if (!key)
        return ASSAY_OK;
    if (key->type == ASSAY_GGUF_F32) {
        float f;
        ASSAY_TRY(assay_gguf_f32(&f, r->file, r->key));
        *out = f;
    } else if (key->type == ASSAY_GGUF_BOOL) {
        bool b;
        ASSAY_TRY(assay_gguf_bool(&b, r->file, r->key));
        *out = b;
    } else {
        uint32_t u;
        ASSAY_TRY(assay_gguf_u32(&u, r->file, r->key));
        *out = u;
    }
    return ASSAY_OK;
}

static assay_status count(int *out, reader *r, const char *name, int missing)
{
    double x;
    ASSAY_TRY(number(&x, r, name, missing));
    if (!(x >= 0 && x <= 1e9))
        return assay_fail(ASSAY_BAD_FILE, "%s: key '%s' is %g, expected a count",
                          assay_gguf_path(r->file), r->key, x);
    *out = (int)x;
    return ASSAY_OK;
}

static assay_status needed(int *out, reader *r, const char *name)
{
    ASSAY_TRY(count(out, r, name, 0));
    if (*out == 0)
        return assay_fail(ASSAY_BAD_FILE, "%s: key '%s.%s' is missing or 0",
                          assay_gguf_path(r->file), r->architecture, name);
    return ASSAY_OK;
}

/* A scalar, or an array whose elements are all equal (layers that differ are not modelled). */
static assay_status per_layer(int *out, reader *r, const char *name, int n_blocks, int missing)
{
    uint32_t values[MAX_LAYERS];
    *out = missing;
    if (!assay_gguf_find_key(r->file, key_of(r, name)))
        return ASSAY_OK;
    ASSAY_TRY(assay_gguf_u32_or_array(values, r->file, r->key, (uint64_t)n_blocks));
    for (int i = 1; i < n_blocks; i++)
        if (values[i] != values[0])
            return assay_fail(ASSAY_UNSUPPORTED, "%s: key '%s' differs between layers 0 and %d",
                              assay_gguf_path(r->file), r->key, i);
    *out = (int)values[0];
    return ASSAY_OK;
}

const assay_gguf_tensor_info *assay_oracle_find(const assay_oracle *oracle, int layer,
                                                const char *name)
{
    char full[160];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    return assay_gguf_find_tensor(oracle->file, full);
}

static assay_status read_architecture(assay_oracle *o)
{
    assay_gguf_string name;
    ASSAY_TRY(assay_gguf_str(&name, o->file, "general.architecture"));
    static const char *const known[] = {"glm-dsa", "deepseek2", "deepseek32", "llama"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (name.n == strlen(known[i]) && !memcmp(name.bytes, known[i], name.n)) {
            snprintf(o->shape.architecture, sizeof o->shape.architecture, "%s", known[i]);
            return ASSAY_OK;
        }
    return assay_fail(ASSAY_UNSUPPORTED,
                      "%s: architecture '%.*s' (known: glm-dsa, deepseek2, deepseek32, llama)",
                      assay_gguf_path(o->file), (int)(name.n < 64 ? name.n : 64), name.bytes);
}

static assay_status read_sizes(assay_oracle *o, reader *r)
{
    assay_oracle_shape *s = &o->shape;
    int n_blocks;
    ASSAY_TRY(needed(&n_blocks, r, "block_count"));
    ASSAY_TRY(count(&s->n_layer_nextn, r, "nextn_predict_layers", 0));
    if (n_blocks > MAX_LAYERS || s->n_layer_nextn >= n_blocks)
        return assay_fail(ASSAY_BAD_FILE, "%s: %d blocks of which %d predict further tokens",
                          assay_gguf_path(o->file), n_blocks, s->n_layer_nextn);
    s->n_layer = n_blocks - s->n_layer_nextn;
    ASSAY_TRY(needed(&s->n_embd, r, "embedding_length"));
    ASSAY_TRY(per_layer(&s->n_head, r, "attention.head_count", n_blocks, 0));
    ASSAY_TRY(per_layer(&s->n_head_kv, r, "attention.head_count_kv", n_blocks, s->n_head));
    ASSAY_TRY(per_layer(&s->n_ff, r, "feed_forward_length", n_blocks, 0));
    if (s->n_head == 0 || s->n_head_kv == 0 || s->n_head % s->n_head_kv)
        return assay_fail(ASSAY_BAD_FILE, "%s: %d heads and %d key/value heads",
                          assay_gguf_path(o->file), s->n_head, s->n_head_kv);
    const assay_gguf_tensor_info *embd = assay_gguf_find_tensor(o->file, "token_embd.weight");
    if (!embd)
        return assay_fail(ASSAY_MISSING, "%s: tensor 'token_embd.weight' is missing",
                          assay_gguf_path(o->file));
    s->n_vocab = (int)embd->ne[1];
    return ASSAY_OK;
}

static assay_status read_mla(assay_oracle *o, reader *r)
{
    assay_oracle_shape *s = &o->shape;
    int key = 0, value = 0;
    s->is_mla = true;
    ASSAY_TRY(needed(&s->n_rank_kv, r, "attention.kv_lora_rank"));
    ASSAY_TRY(needed(&s->d_rope, r, "rope.dimension_count"));
    ASSAY_TRY(count(&key, r, "attention.key_length_mla", 0));
    ASSAY_TRY(count(&value, r, "attention.value_length_mla", 0));
    if (key == 0 || value == 0) { /* files from before the split of kv_b */
        ASSAY_TRY(needed(&key, r, "attention.key_length"));
        ASSAY_TRY(needed(&value, r, "attention.value_length"));
    }
    if (key <= s->d_rope || s->d_rope > 1024 || s->d_rope % 2)
        return assay_fail(ASSAY_BAD_FILE, "%s: key width %d with a rotary part of %d",
                          assay_gguf_path(o->file), key, s->d_rope);
    s->d_nope = key - s->d_rope;
    s->d_value = value;
    /* by the tensors, not by the layer count as llama.cpp does */
    const assay_gguf_tensor_info *q_a = assay_oracle_find(o, 0, "attn_q_a.weight");
    o->has_q_lora = q_a != NULL;
    s->n_rank_q = q_a ? (int)q_a->ne[1] : 0;
    return ASSAY_OK;
}

static assay_status read_llama(assay_oracle *o, reader *r)
{
    assay_oracle_shape *s = &o->shape;
    int key, experts;
    ASSAY_TRY(count(&experts, r, "expert_count", 0));
    if (experts)
        return assay_fail(ASSAY_UNSUPPORTED, "%s: llama with %d experts", assay_gguf_path(o->file),
                          experts);
    ASSAY_TRY(count(&key, r, "attention.key_length", s->n_embd / s->n_head));
    ASSAY_TRY(count(&s->d_value, r, "attention.value_length", s->n_embd / s->n_head));
    ASSAY_TRY(count(&s->d_rope, r, "rope.dimension_count", key));
    if (s->d_rope != key || key == 0 || key > 1024 || key % 2)
        return assay_fail(ASSAY_BAD_FILE, "%s: head width %d with a rotary part of %d",
                          assay_gguf_path(o->file), key, s->d_rope);
    s->d_nope = 0;
    s->n_layer_dense = s->n_layer;
    return ASSAY_OK;
}

static assay_status read_experts(assay_oracle *o, reader *r)
{
    assay_oracle_shape *s = &o->shape;
    int shared;
    ASSAY_TRY(count(&s->n_layer_dense, r, "leading_dense_block_count", 0));
    ASSAY_TRY(count(&s->n_expert, r, "expert_count", 0));
    ASSAY_TRY(count(&s->n_expert_used, r, "expert_used_count", 0));
    ASSAY_TRY(count(&s->n_ff_expert, r, "expert_feed_forward_length", 0));
    ASSAY_TRY(count(&shared, r, "expert_shared_count", 0));
    ASSAY_TRY(count(&s->n_group, r, "expert_group_count", 0));
    s->n_ff_shared = shared * s->n_ff_expert;
    if (s->n_expert == 0)
        s->n_layer_dense = s->n_layer + s->n_layer_nextn;
    if (s->n_expert_used > s->n_expert || s->n_expert > 4096 || s->n_group > 512 ||
        (s->n_group > 1 && s->n_expert % s->n_group))
        return assay_fail(ASSAY_BAD_FILE, "%s: %d of %d experts in %d groups",
                          assay_gguf_path(o->file), s->n_expert_used, s->n_expert, s->n_group);
    return ASSAY_OK;
}

/* Layers with an indexer of their own: the key, else the pattern of GLM-5.2's long-context files.
 */
static assay_status read_indexer(assay_oracle *o, reader *r, int *top_k)
{
    assay_oracle_shape *s = &o->shape;
    int context;
    ASSAY_TRY(count(&s->index_n_head, r, "attention.indexer.head_count", 0));
    if (s->index_n_head == 0)
        return ASSAY_OK;
    s->has_indexer = true;
    ASSAY_TRY(needed(&s->index_d_head, r, "attention.indexer.key_length"));
    ASSAY_TRY(needed(top_k, r, "attention.indexer.top_k"));
    ASSAY_TRY(count(&context, r, "context_length", 0));
    if (s->index_d_head < s->d_rope)
        return assay_fail(ASSAY_BAD_FILE, "%s: indexer heads of %d with a rotary part of %d",
                          assay_gguf_path(o->file), s->index_d_head, s->d_rope);
    const assay_gguf_key *key = assay_gguf_find_key(o->file, key_of(r, "attention.indexer.types"));
    if (key && (key->type != ASSAY_GGUF_ARRAY || key->element != ASSAY_GGUF_BOOL ||
                key->count != (uint64_t)s->n_layer))
        return assay_fail(ASSAY_BAD_FILE, "%s: key '%s': expected %d booleans",
                          assay_gguf_path(o->file), r->key, s->n_layer);
    for (int i = 0; i < s->n_layer; i++)
        s->index_full[i] = key                 ? ((const uint8_t *)key->value)[i] != 0
                           : context < 1048576 ? true
                                               : i < 3 || (i - 2) % 4 == 0;
    if (!s->index_full[0])
        return assay_fail(ASSAY_BAD_FILE, "%s: layer 0 shares a selection that no layer makes",
                          assay_gguf_path(o->file));
    return ASSAY_OK;
}

static assay_status read_rope(assay_oracle *o, reader *r, double *scale)
{
    const assay_oracle_shape *s = &o->shape;
    assay_rope_knobs *k = &o->right.rope;
    double context, attn_factor, log_multiplier = 0;
    *k = (assay_rope_knobs){.position_scale = 1, .magnitude = 1, .width = s->d_rope};
    k->frequency_width = s->d_rope;
    k->frequency_format = ASSAY_DTYPE_F64;
    ASSAY_TRY(number(&context, r, "context_length", 0));
    ASSAY_TRY(number(&k->base, r, "rope.freq_base", 10000));
    ASSAY_TRY(number(&k->factor, r, "rope.scaling.factor", 0));
    if (k->factor == 0)
        ASSAY_TRY(number(&k->factor, r, "rope.scale_linear", 0));
    ASSAY_TRY(number(&k->orig_context, r, "rope.scaling.original_context_length", context));
    ASSAY_TRY(number(&k->beta_fast, r, "rope.scaling.yarn_beta_fast", 32));
    ASSAY_TRY(number(&k->beta_slow, r, "rope.scaling.yarn_beta_slow", 1));
    ASSAY_TRY(number(&attn_factor, r, "rope.scaling.attn_factor", 1));
    bool deepseek = !strncmp(s->architecture, "deepseek", 8);
    if (strcmp(s->architecture, "glm-dsa"))
        ASSAY_TRY(number(&log_multiplier, r, "rope.scaling.yarn_log_multiplier", 0));
    assay_gguf_string type = {"linear", 6};
    if (assay_gguf_find_key(o->file, key_of(r, "rope.scaling.type")))
        ASSAY_TRY(assay_gguf_str(&type, o->file, r->key));
    k->yarn = type.n == 4 && !memcmp(type.bytes, "yarn", 4);
    if (k->factor == 0 || (type.n == 4 && !memcmp(type.bytes, "none", 4)))
        k->factor = 1;
    if (!k->yarn && !(type.n == 4 && !memcmp(type.bytes, "none", 4)) &&
        !(type.n == 6 && !memcmp(type.bytes, "linear", 6)))
        return assay_fail(ASSAY_UNSUPPORTED, "%s: rope.scaling.type '%.*s'",
                          assay_gguf_path(o->file), (int)(type.n < 32 ? type.n : 32), type.bytes);
    double width = s->d_nope + s->d_rope, all_dim = log_multiplier / 0.1;
    *scale = 1 / sqrt(width);
    if (k->yarn && k->factor > 1) {
        /* the file has one multiplier; DeepSeek's models use it for both gains */
        double mscale = deepseek && all_dim != 0 ? all_dim : 1;
        k->magnitude = attn_factor * assay_oracle_yarn_gain(k->factor, mscale) /
                       (all_dim != 0 ? assay_oracle_yarn_gain(k->factor, all_dim) : 1);
        if (s->is_mla)
            *scale = assay_oracle_softmax_scale(width, attn_factor, k->factor, mscale, all_dim);
    }
    k->use_freqs = assay_gguf_find_tensor(o->file, "rope_freqs.weight") != NULL;
    return ASSAY_OK;
}

static assay_status read_router(assay_oracle *o, reader *r)
{
    assay_knobs *k = &o->right;
    int gating, normalised;
    ASSAY_TRY(count(&gating, r, "expert_gating_func", 0));
    ASSAY_TRY(count(&normalised, r, "expert_weights_norm", 0));
    ASSAY_TRY(number(&k->weights_scale, r, "expert_weights_scale", 1));
    ASSAY_TRY(count(&k->n_group_used, r, "expert_group_used_count", 0));
    if (gating == 0)
        gating = strcmp(o->shape.architecture, "glm-dsa") ? 1 : 2;
    if (gating > 3)
        return assay_fail(ASSAY_UNSUPPORTED, "%s: expert_gating_func %d", assay_gguf_path(o->file),
                          gating);
    k->gate = gating == 1   ? ASSAY_GATE_SOFTMAX
              : gating == 2 ? ASSAY_GATE_SIGMOID
                            : ASSAY_GATE_SOFTMAX_SELECTED;
    k->weights_norm = normalised != 0;
    if (k->weights_scale == 0)
        k->weights_scale = 1;
    /* models with a selection bias score a group by its two best, those without by the best */
    bool bias = assay_oracle_find(o, o->shape.n_layer_dense, "exp_probs_b.bias") != NULL;
    k->groups = o->shape.n_group <= 1 ? ASSAY_GROUPS_NONE
                : bias                ? ASSAY_GROUPS_TOP2_SUM
                                      : ASSAY_GROUPS_MAX;
    k->n_expert_used = o->shape.n_expert_used;
    return ASSAY_OK;
}

static assay_status read_knobs(assay_oracle *o, reader *r, int top_k)
{
    assay_knobs *k = &o->right;
    double eps, scale;
    ASSAY_TRY(number(&eps, r, "attention.layer_norm_rms_epsilon", -1));
    if (eps < 0)
        return assay_fail(ASSAY_BAD_FILE, "%s: key '%s' is missing", assay_gguf_path(o->file),
                          r->key);
    for (int i = 0; i < ASSAY_N_NORMS; i++)
        k->eps[i] = eps;
    k->eps[ASSAY_NORM_OF_INDEX_K] = 1e-6; /* in no file; what the model's authors use */
    ASSAY_TRY(read_rope(o, r, &scale));
    if (!o->shape.is_mla)
        ASSAY_TRY(number(&scale, r, "attention.scale", scale));
    if (scale == 0) /* written as 0 by files that mean the usual one */
        scale = 1 / sqrt((double)(o->shape.d_nope + o->shape.d_rope));
    k->softmax_scale = scale;
    k->index_rope = k->rope;
    if (!strcmp(o->shape.architecture, "deepseek32"))
        k->index_rope.pairing = ASSAY_PAIR_HALF_SPLIT;
    k->index_relu = true;
    k->index_top_k = top_k;
    if (o->shape.has_indexer)
        k->index_scale = 1 / sqrt((double)o->shape.index_n_head * o->shape.index_d_head);
    k->key_scale = k->value_scale = 1;
    k->follow_selection = k->follow_routing = true;
    k->routed_times = k->shared_times = k->attn_times = k->ffn_times = 1;
    k->stream_times = k->routed_power = 1;
    k->embed_scale = k->logits_scale = 1;
    k->head_tied = assay_gguf_find_tensor(o->file, "output.weight") == NULL;
    k->round_out = k->round_weight = k->round_probs = k->round_cache = ASSAY_DTYPE_F64;
    return ASSAY_OK;
}

assay_status assay_oracle_read_shape(assay_oracle *o)
{
    int top_k = 0;
    ASSAY_TRY(read_architecture(o));
    reader r = {.file = o->file, .architecture = o->shape.architecture};
    ASSAY_TRY(read_sizes(o, &r));
    if (!strcmp(o->shape.architecture, "llama")) {
        ASSAY_TRY(read_llama(o, &r));
    } else {
        ASSAY_TRY(read_mla(o, &r));
        ASSAY_TRY(read_experts(o, &r));
        ASSAY_TRY(read_indexer(o, &r, &top_k));
    }
    ASSAY_TRY(read_knobs(o, &r, top_k));
    return o->shape.n_expert ? read_router(o, &r) : ASSAY_OK;
}

bool assay_oracle_is_dense(const assay_oracle *oracle, int layer)
{
    return layer < oracle->shape.n_layer_dense;
}
