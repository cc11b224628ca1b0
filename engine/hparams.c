#include "engine/hparams.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/arch.h"
#include "engine/key.h"

#define MOST_WIDTH (1 << 20)
#define MOST_HEADS 4096

static assay_status read_architecture(assay_hparams *hp, const assay_gguf *file,
                                      const assay_arch **arch)
{
    assay_gguf_string name;
    if (!assay_gguf_find_key(file, "general.architecture"))
        return assay_fail(ASSAY_BAD_FILE, "key 'general.architecture' is missing");
    ASSAY_TRY(assay_gguf_str(&name, file, "general.architecture"));
    if (name.n < sizeof hp->architecture) {
        memcpy(hp->architecture, name.bytes, name.n);
        *arch = assay_arch_find(hp->architecture);
        if (*arch && strlen(hp->architecture) == name.n)
            return ASSAY_OK;
    }
    char known[256] = "";
    for (int i = 0; i < assay_arch_count(); i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 assay_arch_name(i));
    return assay_fail(ASSAY_UNSUPPORTED, "architecture '%.*s' is not known (known: %s)",
                      (int)(name.n < 64 ? name.n : 64), name.bytes, known);
}

/* Rows of the embedding: by key, else by the tensor itself, else by the tokenizer. */
static assay_status read_vocabulary(assay_hparams *hp, const assay_gguf *file)
{
    const assay_gguf_tensor_info *embd = assay_gguf_find_tensor(file, "token_embd.weight");
    const assay_gguf_key *tokens = assay_gguf_find_key(file, "tokenizer.ggml.tokens");
    int64_t n = embd ? embd->ne[1] : tokens ? (int64_t)tokens->count : 0;
    if (n > 1 << 24)
        return assay_fail(ASSAY_BAD_FILE, "vocabulary of %lld tokens, at most %d are accepted",
                          (long long)n, 1 << 24);
    if (!assay_key_is_there(hp, file, "vocab_size") && n < 1)
        return assay_fail(ASSAY_BAD_FILE,
                          "key '%s' is missing, and neither token_embd.weight nor the "
                          "tokenizer tells the size of the vocabulary",
                          assay_key_name(hp, "vocab_size"));
    return assay_key_take(&hp->n_vocab, hp, file, "vocab_size", (int)n, 1, 1 << 24,
                          embd
                              ? "rows of token_embd.weight; llama.cpp counts the tokenizer's tokens"
                              : "number of tokens of the tokenizer, as llama.cpp");
}

static assay_status read_common(assay_hparams *hp, const assay_gguf *file)
{
    int n_block;
    bool there;
    ASSAY_TRY(assay_key_need(&n_block, hp, file, "block_count", 1, ASSAY_MAX_LAYERS));
    ASSAY_TRY(assay_key_take(&hp->n_layer_nextn, hp, file, "nextn_predict_layers", 0, 0,
                             n_block - 1, NULL));
    hp->n_layer = n_block - hp->n_layer_nextn;
    ASSAY_TRY(assay_key_need(&hp->n_context, hp, file, "context_length", 1, 1 << 30));
    ASSAY_TRY(assay_key_need(&hp->n_embd, hp, file, "embedding_length", 1, MOST_WIDTH));
    ASSAY_TRY(read_vocabulary(hp, file));
    ASSAY_TRY(assay_key_uniform(&hp->n_ff, &there, hp, file, "feed_forward_length", n_block, 0,
                                MOST_WIDTH));
    ASSAY_TRY(assay_key_uniform(&hp->n_head, &there, hp, file, "attention.head_count", n_block, 1,
                                MOST_HEADS));
    if (!there)
        return assay_fail(ASSAY_BAD_FILE, "key '%s' is missing and architecture '%s' requires it",
                          assay_key_name(hp, "attention.head_count"), hp->architecture);
    ASSAY_TRY(assay_key_uniform(&hp->n_head_kv, &there, hp, file, "attention.head_count_kv",
                                n_block, 1, MOST_HEADS));
    if (!there) {
        hp->n_head_kv = hp->n_head;
        assay_assume(hp, assay_key_name(hp, "attention.head_count_kv"),
                     "as many as query heads, as llama.cpp", "%d", hp->n_head);
    }
    ASSAY_TRY(
        assay_key_need_real(&hp->eps_norm, hp, file, "attention.layer_norm_rms_epsilon", 0, 1));
    hp->eps_q_a = hp->eps_kv_a = hp->eps_norm;
    return ASSAY_OK;
}

static assay_status read_rope(assay_hparams *hp, const assay_gguf *file)
{
    assay_gguf_string type = {"linear", 6};
    const char *name = assay_key_name(hp, "rope.scaling.type");
    ASSAY_TRY(assay_key_take_real(&hp->rope_base, hp, file, "rope.freq_base", 10000, 1e-3, 1e12,
                                  "10000, as llama.cpp and transformers take"));
    ASSAY_TRY(
        assay_key_take_real(&hp->rope_factor, hp, file, "rope.scaling.factor", 0, 0, 1e6, NULL));
    if (hp->rope_factor == 0)
        hp->rope_factor = 1;
    if (assay_gguf_find_key(file, name))
        ASSAY_TRY(assay_gguf_str(&type, file, name));
    else if (hp->rope_factor != 1)
        assay_assume(hp, name, "linear, as llama.cpp takes; transformers requires it", "linear");
    if (type.n == 4 && !memcmp(type.bytes, "none", 4))
        hp->rope_factor = 1;
    else if (type.n == 4 && !memcmp(type.bytes, "yarn", 4))
        hp->rope_yarn = true;
    else if (type.n == 8 && !memcmp(type.bytes, "longrope", 8))
        return assay_fail(ASSAY_UNSUPPORTED,
                          "key '%s' is 'longrope'; none, linear and yarn can be run", name);
    else if (type.n != 6 || memcmp(type.bytes, "linear", 6))
        return assay_fail(ASSAY_BAD_FILE,
                          "key '%s' is '%.*s', expected none, linear, yarn or longrope", name,
                          (int)(type.n < 64 ? type.n : 64), type.bytes);
    if (!hp->rope_yarn)
        return ASSAY_OK;
    ASSAY_TRY(assay_key_take_real(&hp->rope_attn_factor, hp, file, "rope.scaling.attn_factor", 1,
                                  1e-6, 1e6, NULL));
    int orig;
    ASSAY_TRY(assay_key_take(&orig, hp, file, "rope.scaling.original_context_length", hp->n_context,
                             1, 1 << 30, "context_length, as llama.cpp"));
    hp->yarn_orig_context = orig;
    ASSAY_TRY(assay_key_take_real(
        &hp->yarn_beta_fast, hp, file, "rope.scaling.yarn_beta_fast", 32, 1e-6, 1e6,
        "32, as everyone; llama.cpp takes 32 even where the key is there"));
    return assay_key_take_real(&hp->yarn_beta_slow, hp, file, "rope.scaling.yarn_beta_slow", 1,
                               1e-6, 1e6,
                               "1, as everyone; llama.cpp takes 1 even where the key is there");
}

/* gm of the literature: what the context's extension does to magnitudes. */
static double magnitude(double factor, double m)
{
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

/*
 * Softmax scale and the factor on cos and sin (model authors' formulas for YaRN):
 *   M = yarn_log_multiplier / 0.1 = mscale_all_dim, and mscale is taken to equal it where M is
 * there
 */
static void finish_scales(assay_hparams *hp, int d_key, double scale)
{
    hp->rope_magnitude = 1;
    hp->softmax_scale = scale > 0 ? scale : 1 / sqrt(d_key);
    if (!hp->rope_yarn)
        return;
    double m = hp->yarn_log_multiplier / 0.1f;
    double attn = hp->rope_attn_factor * (m != 0 ? 1 : magnitude(hp->rope_factor, 1));
    double all = attn * magnitude(hp->rope_factor, m);
    hp->rope_magnitude = attn;
    if (hp->is_mla)
        hp->softmax_scale *= all * all;
}

assay_status assay_hparams_read(assay_hparams *out, const assay_gguf *file)
{
    assay_hparams hp = {.weights_scale = 1, .rope_factor = 1, .rope_attn_factor = 1, .n_expert = 0};
    const assay_arch *arch = NULL;
    double scale = 0;
    ASSAY_TRY(read_architecture(&hp, file, &arch));
    ASSAY_TRY(read_common(&hp, file));
    ASSAY_TRY(read_rope(&hp, file));
    ASSAY_TRY(arch->read(&hp, file));
    if (hp.d_rope < 2 || hp.d_rope % 2)
        return assay_fail(ASSAY_BAD_FILE, "key '%s' is %d, expected an even number of at least 2",
                          assay_key_name(&hp, "rope.dimension_count"), hp.d_rope);
    if (!hp.is_mla)
        ASSAY_TRY(assay_key_take_real(&scale, &hp, file, "attention.scale", 0, 0, 1e6, NULL));
    finish_scales(&hp, hp.is_mla ? hp.d_nope + hp.d_rope : hp.d_head, scale);
    *out = hp;
    return ASSAY_OK;
}
