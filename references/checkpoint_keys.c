/*
 * config.json of a checkpoint as the metadata of a GGUF file.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/hparams.h"
#include "references/checkpoint.h"

typedef enum { KIND_U32, KIND_F32, KIND_FLAG } kind;
typedef enum { NEED_ALL, NEED_MLA, NEED_EXPERTS, NEED_INDEXER, NEED_NEVER } need;

static const struct {
    const char *name, *key;
    kind kind;
    need need;
} rows[] = {
#define X(name, key, kind, need) {name, key, KIND_##kind, NEED_##need},
#include "references/checkpoint_keys.def"
#undef X
};

/* model_type -> architecture */
static const struct {
    const char *type, *architecture;
    bool is_mla, is_softmax; /* gating where scoring_func does not say */
} models[] = {{"llama", "llama", false, true},
              {"deepseek_v2", "deepseek2", true, true},
              {"deepseek_v3", "deepseek2", true, false},
              {"kimi_k2", "deepseek2", true, false},
              {"deepseek_v32", "deepseek32", true, false},
              {"glm_moe_dsa", "glm-dsa", true, false}};

typedef struct config {
    const char *path;
    json_t *root; /* the language model's part of the file */
    const char *architecture;
    bool is_mla, is_softmax;
    assay_gguf_writer *writer;
} config;

static const char *key_of(const config *c, const char *key)
{
    static _Thread_local char text[128];
    snprintf(text, sizeof text, "%s.%s", c->architecture, key);
    return text;
}

static json_t *find(const config *c, const char *name)
{
    json_t *value = json_object_get(c->root, name);
    return json_is_null(value) ? NULL : value;
}

static assay_status wrong(const config *c, const char *name, const char *expected)
{
    char *text = json_dumps(find(c, name), JSON_ENCODE_ANY | JSON_COMPACT);
    assay_status s = assay_fail(ASSAY_BAD_FILE, "'%s': '%s' is %.60s, expected %s", c->path, name,
                                text ? text : "missing", expected);
    free(text);
    return s;
}

static assay_status count(int *out, const config *c, const char *name, int missing)
{
    json_t *value = find(c, name);
    *out = missing;
    if (!value)
        return ASSAY_OK;
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < 0 || n > 1 << 30)
        return wrong(c, name, "a count");
    *out = (int)n;
    return ASSAY_OK;
}

static assay_status real(double *out, const config *c, const json_t *from, const char *name,
                         double missing)
{
    json_t *value = json_object_get(from, name);
    *out = missing;
    if (!value || json_is_null(value))
        return ASSAY_OK;
    if (!json_is_number(value) || !isfinite(json_number_value(value)))
        return assay_fail(ASSAY_BAD_FILE, "'%s': '%s' is no number", c->path, name);
    *out = json_number_value(value);
    return ASSAY_OK;
}

static bool is_needed(const config *c, need n)
{
    switch (n) {
    case NEED_ALL:
        return true;
    case NEED_MLA:
        return c->is_mla;
    case NEED_EXPERTS:
        return find(c, "n_routed_experts") != NULL;
    case NEED_INDEXER:
        return find(c, "index_n_heads") != NULL;
    case NEED_NEVER:
        return false;
    }
    return false;
}

static assay_status put_rows(const config *c)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *value = find(c, rows[i].name);
        bool applies = is_needed(c, rows[i].need);
        int n;
        double x;
        if (!value && applies)
            return assay_fail(ASSAY_BAD_FILE, "'%s': '%s' is missing", c->path, rows[i].name);
        if (!value || (!applies && rows[i].need != NEED_NEVER))
            continue;
        switch (rows[i].kind) {
        case KIND_U32:
            ASSAY_TRY(count(&n, c, rows[i].name, 0));
            ASSAY_TRY(assay_gguf_put_u32(c->writer, key_of(c, rows[i].key), (uint32_t)n));
            break;
        case KIND_F32:
            ASSAY_TRY(real(&x, c, c->root, rows[i].name, 0));
            ASSAY_TRY(assay_gguf_put_f32(c->writer, key_of(c, rows[i].key), (float)x));
            break;
        case KIND_FLAG:
            if (!json_is_boolean(value))
                return wrong(c, rows[i].name, "true or false");
            ASSAY_TRY(assay_gguf_put_bool(c->writer, key_of(c, rows[i].key), json_is_true(value)));
            break;
        }
    }
    return ASSAY_OK;
}

/* Latent models: one key/value head; widths of keys with and without the latent. */
static assay_status put_widths(const config *c)
{
    int nope, rope, rank, heads, width, dims;
    if (!c->is_mla) {
        ASSAY_TRY(count(&heads, c, "num_attention_heads", 0));
        ASSAY_TRY(count(&dims, c, "hidden_size", 0));
        ASSAY_TRY(count(&width, c, "head_dim", heads ? dims / heads : 0));
        ASSAY_TRY(count(&heads, c, "num_key_value_heads", heads));
        ASSAY_TRY(
            assay_gguf_put_u32(c->writer, key_of(c, "attention.head_count_kv"), (uint32_t)heads));
        ASSAY_TRY(
            assay_gguf_put_u32(c->writer, key_of(c, "attention.key_length"), (uint32_t)width));
        ASSAY_TRY(
            assay_gguf_put_u32(c->writer, key_of(c, "attention.value_length"), (uint32_t)width));
        return assay_gguf_put_u32(c->writer, key_of(c, "rope.dimension_count"), (uint32_t)width);
    }
    ASSAY_TRY(count(&nope, c, "qk_nope_head_dim", 0));
    ASSAY_TRY(count(&rope, c, "qk_rope_head_dim", 0));
    ASSAY_TRY(count(&rank, c, "kv_lora_rank", 0));
    if (nope == 0)
        return wrong(c, "qk_nope_head_dim", "a width");
    ASSAY_TRY(assay_gguf_put_u32(c->writer, key_of(c, "attention.head_count_kv"), 1));
    ASSAY_TRY(
        assay_gguf_put_u32(c->writer, key_of(c, "attention.key_length"), (uint32_t)(rank + rope)));
    ASSAY_TRY(assay_gguf_put_u32(c->writer, key_of(c, "attention.value_length"), (uint32_t)rank));
    return assay_gguf_put_u32(c->writer, key_of(c, "attention.key_length_mla"),
                              (uint32_t)(nope + rope));
}

static assay_status put_router(const config *c)
{
    if (!find(c, "n_routed_experts"))
        return ASSAY_OK;
    const char *scoring = json_string_value(find(c, "scoring_func"));
    const char *method = json_string_value(find(c, "topk_method"));
    bool softmax = scoring ? !strcmp(scoring, "softmax") : c->is_softmax;
    if (scoring && !softmax && strcmp(scoring, "sigmoid"))
        return wrong(c, "scoring_func", "softmax or sigmoid");
    ASSAY_TRY(assay_gguf_put_u32(c->writer, key_of(c, "expert_gating_func"), softmax ? 1 : 2));
    int groups, used;
    ASSAY_TRY(count(&groups, c, "n_group", 1));
    ASSAY_TRY(count(&used, c, "topk_group", 1));
    if (method && !strcmp(method, "greedy"))
        groups = used = 1;
    ASSAY_TRY(assay_gguf_put_u32(c->writer, key_of(c, "expert_group_count"), (uint32_t)groups));
    return assay_gguf_put_u32(c->writer, key_of(c, "expert_group_used_count"), (uint32_t)used);
}

/* Layers that run an indexer of their own: a list, else every layer (or the GGUF reader's rule). */
static assay_status put_indexer(const config *c)
{
    json_t *types = find(c, "indexer_types");
    uint8_t full[ASSAY_MAX_LAYERS];
    size_t n = json_array_size(types);
    if (!types || !find(c, "index_n_heads"))
        return ASSAY_OK;
    if (!json_is_array(types) || n > ASSAY_MAX_LAYERS)
        return wrong(c, "indexer_types", "a list of full and shared");
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(types, i));
        if (!text || (strcmp(text, "full") && strcmp(text, "shared")))
            return wrong(c, "indexer_types", "a list of full and shared");
        full[i] = text[0] == 'f';
    }
    return assay_gguf_put_array(c->writer, key_of(c, "attention.indexer.types"), ASSAY_GGUF_BOOL, n,
                                full);
}

static assay_status put_yarn(const config *c, const json_t *scaling)
{
    double factor, original, fast, slow, mscale, all;
    ASSAY_TRY(real(&factor, c, scaling, "factor", 1));
    ASSAY_TRY(real(&original, c, scaling, "original_max_position_embeddings", 4096));
    ASSAY_TRY(real(&fast, c, scaling, "beta_fast", 32));
    ASSAY_TRY(real(&slow, c, scaling, "beta_slow", 1));
    ASSAY_TRY(real(&all, c, scaling, "mscale_all_dim", 0));
    ASSAY_TRY(real(&mscale, c, scaling, "mscale", all));
    if (c->is_mla && mscale != all)
        return assay_fail(ASSAY_UNSUPPORTED,
                          "'%s': mscale %g and mscale_all_dim %g differ; one value is expected",
                          c->path, mscale, all);
    ASSAY_TRY(assay_gguf_put_str(c->writer, key_of(c, "rope.scaling.type"), "yarn"));
    ASSAY_TRY(assay_gguf_put_f32(c->writer, key_of(c, "rope.scaling.factor"), (float)factor));
    ASSAY_TRY(assay_gguf_put_u32(c->writer, key_of(c, "rope.scaling.original_context_length"),
                                 (uint32_t)original));
    ASSAY_TRY(assay_gguf_put_f32(c->writer, key_of(c, "rope.scaling.yarn_beta_fast"), (float)fast));
    ASSAY_TRY(assay_gguf_put_f32(c->writer, key_of(c, "rope.scaling.yarn_beta_slow"), (float)slow));
    return c->is_mla ? assay_gguf_put_f32(c->writer, key_of(c, "rope.scaling.yarn_log_multiplier"),
                                          (float)(0.1 * all))
                     : ASSAY_OK;
}

/* rope_theta and rope_scaling, or both in rope_parameters. */
static assay_status put_rope(const config *c)
{
    const json_t *scaling = find(c, "rope_parameters");
    double base, factor;
    if (!scaling)
        scaling = find(c, "rope_scaling");
    ASSAY_TRY(real(&base, c, c->root, "rope_theta", 10000));
    ASSAY_TRY(real(&base, c, scaling, "rope_theta", base));
    ASSAY_TRY(assay_gguf_put_f32(c->writer, key_of(c, "rope.freq_base"), (float)base));
    const char *type = json_string_value(json_object_get(scaling, "rope_type"));
    if (!type)
        type = json_string_value(json_object_get(scaling, "type"));
    if (!scaling || !type || !strcmp(type, "default"))
        return ASSAY_OK;
    if (!strcmp(type, "yarn"))
        return put_yarn(c, scaling);
    if (strcmp(type, "linear"))
        return assay_fail(ASSAY_UNSUPPORTED,
                          "'%s': rotary scaling '%s' (known: default, linear, yarn)", c->path,
                          type);
    ASSAY_TRY(real(&factor, c, scaling, "factor", 1));
    ASSAY_TRY(assay_gguf_put_str(c->writer, key_of(c, "rope.scaling.type"), "linear"));
    return assay_gguf_put_f32(c->writer, key_of(c, "rope.scaling.factor"), (float)factor);
}

static assay_status choose_model(config *c)
{
    const char *type = json_string_value(find(c, "model_type"));
    char known[160] = "";
    if (!type)
        return wrong(c, "model_type", "a name");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (!strcmp(models[i].type, type)) {
            c->architecture = models[i].architecture;
            c->is_mla = models[i].is_mla;
            c->is_softmax = models[i].is_softmax;
            return ASSAY_OK;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 models[i].type);
    }
    return assay_fail(ASSAY_UNSUPPORTED, "'%s': model_type '%.60s' is not known (known: %s)",
                      c->path, type, known);
}

static assay_status put_all(const config *c)
{
    ASSAY_TRY(assay_gguf_put_str(c->writer, "general.architecture", c->architecture));
    ASSAY_TRY(put_rows(c));
    ASSAY_TRY(put_widths(c));
    ASSAY_TRY(put_router(c));
    ASSAY_TRY(put_indexer(c));
    return put_rope(c);
}

assay_status assay_checkpoint_put_keys(assay_gguf_writer *writer, const char *path)
{
    json_error_t error;
    json_t *file = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!file && error.line < 1)
        return assay_fail(ASSAY_IO, "'%s': %s", path, error.text);
    if (!file)
        return assay_fail(ASSAY_BAD_FILE, "'%s', line %d, column %d: %s", path, error.line,
                          error.column, error.text);
    config c = {.path = path, .root = file, .writer = writer};
    json_t *inner = json_object_get(file, "text_config"); /* of models that also see */
    if (json_is_object(inner))
        c.root = inner;
    assay_status s = choose_model(&c);
    if (s == ASSAY_OK)
        s = put_all(&c);
    json_decref(file);
    return s;
}
