#include "suites/forge_keys.h"

#include <stdio.h>
#include <stdlib.h>

#define TOKENIZER "tokenizer.ggml."
#define YARN_BETA_SLOW 1.0f
#define YARN_ORIG_CONTEXT 4096

/* "<architecture>.<key>" in one of a few static buffers of the thread. */
static const char *name(const assay_hparams *hp, const char *key)
{
    static _Thread_local char text[128];
    snprintf(text, sizeof text, "%s.%s", hp->architecture, key);
    return text;
}

static assay_status u32(assay_gguf_writer *w, const assay_hparams *hp, const char *key, int value)
{
    return assay_gguf_put_u32(w, name(hp, key), (uint32_t)value);
}

static assay_status f32(assay_gguf_writer *w, const assay_hparams *hp, const char *key,
                        double value)
{
    return assay_gguf_put_f32(w, name(hp, key), (float)value);
}

static assay_status put_common(assay_gguf_writer *w, const assay_forge_shape *shape,
                               const assay_hparams *hp)
{
    char title[64];
    snprintf(title, sizeof title, "forged %s", shape->name);
    ASSAY_TRY(assay_gguf_put_str(w, "general.architecture", hp->architecture));
    ASSAY_TRY(assay_gguf_put_str(w, "general.type", "model"));
    ASSAY_TRY(assay_gguf_put_str(w, "general.name", title));
    ASSAY_TRY(assay_gguf_put_u32(w, "general.quantization_version", 2));
    ASSAY_TRY(u32(w, hp, "block_count", hp->n_layer + hp->n_layer_nextn));
    ASSAY_TRY(u32(w, hp, "context_length", hp->n_context));
    ASSAY_TRY(u32(w, hp, "embedding_length", hp->n_embd));
    ASSAY_TRY(u32(w, hp, "feed_forward_length", hp->n_ff));
    ASSAY_TRY(u32(w, hp, "attention.head_count", hp->n_head));
    ASSAY_TRY(u32(w, hp, "attention.head_count_kv", hp->n_head_kv));
    ASSAY_TRY(f32(w, hp, "attention.layer_norm_rms_epsilon", hp->eps_norm));
    ASSAY_TRY(u32(w, hp, "rope.dimension_count", hp->d_rope));
    ASSAY_TRY(f32(w, hp, "rope.freq_base", hp->rope_base));
    return u32(w, hp, "vocab_size", hp->n_vocab);
}

static assay_status put_yarn(assay_gguf_writer *w, const assay_forge_shape *shape,
                             const assay_hparams *hp)
{
    if (shape->yarn_factor == 0)
        return ASSAY_OK;
    ASSAY_TRY(assay_gguf_put_str(w, name(hp, "rope.scaling.type"), "yarn"));
    ASSAY_TRY(f32(w, hp, "rope.scaling.factor", shape->yarn_factor));
    ASSAY_TRY(u32(w, hp, "rope.scaling.original_context_length", YARN_ORIG_CONTEXT));
    ASSAY_TRY(f32(w, hp, "rope.scaling.yarn_beta_fast", shape->yarn_beta_fast));
    ASSAY_TRY(f32(w, hp, "rope.scaling.yarn_beta_slow", YARN_BETA_SLOW));
    return f32(w, hp, "rope.scaling.yarn_log_multiplier", 0.1 * shape->yarn_mscale_all);
}

static assay_status put_attention(assay_gguf_writer *w, const assay_hparams *hp, bool kv_b)
{
    int key = hp->d_nope + hp->d_rope;
    ASSAY_TRY(u32(w, hp, "attention.key_length", kv_b ? key : hp->n_rank_kv + hp->d_rope));
    ASSAY_TRY(u32(w, hp, "attention.value_length", kv_b ? hp->d_value : hp->n_rank_kv));
    if (!kv_b) {
        ASSAY_TRY(u32(w, hp, "attention.key_length_mla", key));
        ASSAY_TRY(u32(w, hp, "attention.value_length_mla", hp->d_value));
    }
    if (hp->n_rank_q)
        ASSAY_TRY(u32(w, hp, "attention.q_lora_rank", hp->n_rank_q));
    return u32(w, hp, "attention.kv_lora_rank", hp->n_rank_kv);
}

static assay_status put_experts(assay_gguf_writer *w, const assay_hparams *hp)
{
    ASSAY_TRY(u32(w, hp, "leading_dense_block_count", hp->n_layer_dense));
    ASSAY_TRY(u32(w, hp, "expert_count", hp->n_expert));
    ASSAY_TRY(u32(w, hp, "expert_used_count", hp->n_expert_used));
    ASSAY_TRY(u32(w, hp, "expert_group_count", hp->n_group));
    ASSAY_TRY(u32(w, hp, "expert_group_used_count", hp->n_group_used));
    ASSAY_TRY(u32(w, hp, "expert_feed_forward_length", hp->n_ff_expert));
    ASSAY_TRY(u32(w, hp, "expert_shared_count", hp->n_expert_shared));
    ASSAY_TRY(f32(w, hp, "expert_weights_scale", hp->weights_scale));
    ASSAY_TRY(assay_gguf_put_bool(w, name(hp, "expert_weights_norm"), hp->weights_norm));
    return u32(w, hp, "expert_gating_func", (int)hp->gating);
}

static assay_status put_indexer(assay_gguf_writer *w, const assay_hparams *hp)
{
    uint8_t full[ASSAY_MAX_LAYERS];
    if (!hp->has_indexer)
        return ASSAY_OK;
    ASSAY_TRY(u32(w, hp, "attention.indexer.head_count", hp->index_n_head));
    ASSAY_TRY(u32(w, hp, "attention.indexer.key_length", hp->index_d_head));
    ASSAY_TRY(u32(w, hp, "attention.indexer.top_k", hp->index_top_k));
    for (int i = 0; i < hp->n_layer; i++)
        full[i] = hp->index_full[i];
    return assay_gguf_put_array(w, name(hp, "attention.indexer.types"), ASSAY_GGUF_BOOL,
                                (uint64_t)hp->n_layer, full);
}

/* The printable stand-in of a byte in GPT-2's vocabulary, as UTF-8; returns its length. */
static int byte_text(char out[4], int byte)
{
    int code = byte;
    bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    if (!printable) /* the 68 others follow from 256 on, in order */
        code = byte <= 32 ? 256 + byte : byte <= 160 ? 256 + 33 + byte - 127 : 256 + 67;
    if (code < 128) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xC0 | code >> 6);
    out[1] = (char)(0x80 | (code & 63));
    return 2;
}

/* Token 0 ends a text, 1 ... 256 are the bytes, "t h" 257 is the one merge, the rest is unused. */
static int token_text(char out[32], int id)
{
    if (id == 0)
        return snprintf(out, 32, "<|endoftext|>");
    if (id <= 256)
        return byte_text(out, id - 1);
    if (id == 257)
        return snprintf(out, 32, "th");
    return snprintf(out, 32, "<|unused_%d|>", id);
}

/*
 * A byte-level BPE with one merge: every text has ids, and any id below 258 has text. Types are 1
 * normal, 3 control, 5 unused.
 */
static assay_status put_tokenizer(assay_gguf_writer *w, int n_vocab)
{
    char text[32];
    int32_t *types = NULL;
    ASSAY_TRY(assay_gguf_put_str(w, TOKENIZER "model", "gpt2"));
    ASSAY_TRY(assay_gguf_put_str(w, TOKENIZER "pre", "gpt-2"));
    ASSAY_TRY(assay_gguf_put_str_array(w, TOKENIZER "tokens", (uint64_t)n_vocab));
    for (int id = 0; id < n_vocab; id++) {
        int n = token_text(text, id);
        ASSAY_TRY(assay_gguf_put_element(w, text, (uint64_t)n));
    }
    ASSAY_TRY(assay_alloc(&types, (size_t)n_vocab, sizeof *types, "token types"));
    for (int id = 0; id < n_vocab; id++)
        types[id] = id == 0 ? 3 : id <= 257 ? 1 : 5;
    assay_status s =
        assay_gguf_put_array(w, TOKENIZER "token_type", ASSAY_GGUF_I32, (uint64_t)n_vocab, types);
    free(types);
    ASSAY_TRY(s);
    ASSAY_TRY(assay_gguf_put_str_array(w, TOKENIZER "merges", 1));
    ASSAY_TRY(assay_gguf_put_element(w, "t h", 3));
    ASSAY_TRY(assay_gguf_put_u32(w, TOKENIZER "bos_token_id", 0));
    return assay_gguf_put_u32(w, TOKENIZER "eos_token_id", 0);
}

assay_status forge_put_keys(assay_gguf_writer *w, const assay_forge_shape *shape,
                            const assay_hparams *hp, bool kv_b)
{
    ASSAY_TRY(put_common(w, shape, hp));
    ASSAY_TRY(put_yarn(w, shape, hp));
    if (hp->is_mla) {
        ASSAY_TRY(put_attention(w, hp, kv_b));
        ASSAY_TRY(put_experts(w, hp));
        ASSAY_TRY(put_indexer(w, hp));
        if (hp->n_layer_nextn)
            ASSAY_TRY(u32(w, hp, "nextn_predict_layers", hp->n_layer_nextn));
    }
    return put_tokenizer(w, hp->n_vocab);
}
