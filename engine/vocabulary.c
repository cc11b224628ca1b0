#include "engine/vocabulary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/utf8.h"

#define PREFIX "tokenizer.ggml."

/* Texts that end generation whatever the keys say. Source: the list in llama.cpp's llama-vocab.cpp;
 * files often name only one of several ends. */
static const char *const end_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
};

void assay_vocabulary_clear(assay_vocabulary *vocabulary)
{
    assay_string_table_clear(&vocabulary->strings);
    free(vocabulary->types);
    free(vocabulary->scores);
    free(vocabulary->ends);
    free(vocabulary->special);
    free(vocabulary->by_byte);
    memset(vocabulary, 0, sizeof *vocabulary);
}

/* *key stays NULL when the file has no such array. */
static assay_status find_array(const assay_gguf_key **key, const assay_gguf *file, const char *name,
                               assay_gguf_type element, const char *wanted)
{
    const assay_gguf_key *found = assay_gguf_find_key(file, name);
    if (!found)
        return ASSAY_OK;
    if (found->type != ASSAY_GGUF_ARRAY || found->element != element)
        return assay_fail(ASSAY_BAD_FILE, "key '%s' is not an array of %s", name, wanted);
    *key = found;
    return ASSAY_OK;
}

static assay_status load_tokens(assay_vocabulary *v, const assay_gguf *file)
{
    const assay_gguf_key *key = NULL;
    ASSAY_TRY(find_array(&key, file, PREFIX "tokens", ASSAY_GGUF_STRING, "strings"));
    if (!key)
        return assay_fail(ASSAY_MISSING, "key '" PREFIX "tokens' is missing: no vocabulary");
    if (key->count == 0 || key->count > INT32_MAX / 8)
        return assay_fail(ASSAY_BAD_FILE, "key '%s' has %llu elements, 1 to %d are allowed",
                          key->name, (unsigned long long)key->count, INT32_MAX / 8);
    assay_gguf_string *texts = NULL;
    char quoted[ASSAY_QUOTE_BYTES];
    ASSAY_TRY(assay_alloc(&texts, key->count, sizeof *texts, "token texts"));
    assay_status s = assay_gguf_str_array(texts, key);
    for (int32_t id = 0; s == ASSAY_OK && id < (int32_t)key->count; id++) {
        int32_t number = id;
        s = assay_string_table_add(&number, &v->strings, texts[id].bytes, texts[id].n);
        if (s == ASSAY_OK && number != id)
            s = assay_fail(ASSAY_BAD_FILE, "key '%s': tokens %d and %d are both '%s'", key->name,
                           number, id,
                           assay_utf8_quote(quoted, texts[id].bytes, (size_t)texts[id].n));
    }
    v->n_tokens = (int32_t)key->count;
    free(texts);
    return s;
}

static assay_status same_length(const assay_vocabulary *v, const assay_gguf_key *key)
{
    if (key->count == (uint64_t)v->n_tokens)
        return ASSAY_OK;
    return assay_fail(ASSAY_BAD_FILE, "key '%s' has %llu elements, but there are %d tokens",
                      key->name, (unsigned long long)key->count, v->n_tokens);
}

static assay_status load_types(assay_vocabulary *v, const assay_gguf *file)
{
    ASSAY_TRY(assay_alloc(&v->types, (size_t)v->n_tokens, 1, "token types"));
    memset(v->types, ASSAY_TOKEN_NORMAL, (size_t)v->n_tokens);
    const assay_gguf_key *key = NULL;
    ASSAY_TRY(find_array(&key, file, PREFIX "token_type", ASSAY_GGUF_I32, "i32"));
    if (!key)
        return ASSAY_OK;
    ASSAY_TRY(same_length(v, key));
    for (int32_t id = 0; id < v->n_tokens; id++) {
        int32_t type;
        memcpy(&type, (const char *)key->value + (size_t)id * sizeof type, sizeof type);
        if (type < ASSAY_TOKEN_NORMAL || type > ASSAY_TOKEN_BYTE)
            return assay_fail(ASSAY_BAD_FILE, "key '%s': token %d has type %d, 1 to 6 are known",
                              key->name, id, type);
        v->types[id] = (uint8_t)type;
    }
    return ASSAY_OK;
}

static assay_status load_scores(assay_vocabulary *v, const assay_gguf *file)
{
    const assay_gguf_key *key = NULL;
    ASSAY_TRY(find_array(&key, file, PREFIX "scores", ASSAY_GGUF_F32, "f32"));
    if (!key)
        return ASSAY_OK;
    ASSAY_TRY(same_length(v, key));
    ASSAY_TRY(assay_alloc(&v->scores, (size_t)v->n_tokens, sizeof *v->scores, "token scores"));
    memcpy(v->scores, key->value, (size_t)v->n_tokens * sizeof *v->scores);
    for (int32_t id = 0; id < v->n_tokens; id++)
        if (isnan(v->scores[id]))
            return assay_fail(ASSAY_BAD_FILE, "key '%s': the score of token %d is not a number",
                              key->name, id);
    return ASSAY_OK;
}

/* NULL without failure: absent. */
static assay_status find_scalar(const assay_gguf_key **key, const assay_gguf *file,
                                const char *name, assay_gguf_type type, const char *wanted)
{
    *key = assay_gguf_find_key(file, name);
    if (*key && (*key)->type != type)
        return assay_fail(ASSAY_BAD_FILE, "key '%s' is not of type %s", name, wanted);
    return ASSAY_OK;
}

/* *id keeps its default, made "none" where the vocabulary is too small for it, if the key is
 * absent. */
static assay_status special_id(int32_t *id, const assay_vocabulary *v, const assay_gguf *file,
                               const char *name)
{
    if (*id >= v->n_tokens)
        *id = -1;
    const assay_gguf_key *key;
    uint32_t value;
    ASSAY_TRY(find_scalar(&key, file, name, ASSAY_GGUF_U32, "u32"));
    if (!key)
        return ASSAY_OK;
    memcpy(&value, key->value, sizeof value);
    if (value >= (uint32_t)v->n_tokens)
        return assay_fail(ASSAY_BAD_FILE, "key '%s' is %u, but there are %d tokens", name, value,
                          v->n_tokens);
    *id = (int32_t)value;
    return ASSAY_OK;
}

static assay_status optional_bool(bool *value, const assay_gguf *file, const char *name)
{
    const assay_gguf_key *key;
    ASSAY_TRY(find_scalar(&key, file, name, ASSAY_GGUF_BOOL, "bool"));
    return key ? assay_gguf_bool(value, file, name) : ASSAY_OK;
}

static assay_status load_special_ids(assay_vocabulary *v, const assay_gguf *file,
                                     const assay_vocabulary_defaults *defaults)
{
    int32_t ends[3] = {defaults->end, -1, -1};
    static const char *const end_keys[3] = {PREFIX "eos_token_id", PREFIX "eot_token_id",
                                            PREFIX "eom_token_id"};
    ASSAY_TRY(assay_alloc(&v->ends, (size_t)v->n_tokens, sizeof *v->ends, "end tokens"));
    for (int i = 0; i < 3; i++) {
        ASSAY_TRY(special_id(&ends[i], v, file, end_keys[i]));
        if (ends[i] >= 0)
            v->ends[ends[i]] = true;
    }
    for (size_t i = 0; i < sizeof end_texts / sizeof *end_texts; i++) {
        int32_t id = assay_string_table_find(&v->strings, end_texts[i], strlen(end_texts[i]));
        if (id < 0)
            continue;
        v->ends[id] = true;
        /* Some converters leave them normal; llama.cpp then treats them as control, too. */
        v->types[id] = ASSAY_TOKEN_CONTROL;
    }
    v->start = defaults->start;
    v->unknown = defaults->unknown;
    v->add_start = defaults->add_start;
    v->add_space_prefix = true;
    ASSAY_TRY(special_id(&v->start, v, file, PREFIX "bos_token_id"));
    ASSAY_TRY(special_id(&v->unknown, v, file, PREFIX "unknown_token_id"));
    ASSAY_TRY(optional_bool(&v->add_start, file, PREFIX "add_bos_token"));
    ASSAY_TRY(optional_bool(&v->add_space_prefix, file, PREFIX "add_space_prefix"));
    if (v->add_start && v->start < 0)
        return assay_fail(ASSAY_BAD_FILE,
                          "a start token is asked for ('" PREFIX "add_bos_token'), but '" PREFIX
                          "bos_token_id' is missing");
    return ASSAY_OK;
}

struct ordered {
    uint32_t n;
    int32_t id;
};

static int longest_first(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;
    if (x->n != y->n)
        return x->n < y->n ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

static bool is_special(const assay_vocabulary *v, int32_t id)
{
    int type = v->types[id];
    return v->strings.entries[id].n > 0 &&
           (type == ASSAY_TOKEN_CONTROL || type == ASSAY_TOKEN_USER_DEFINED ||
            type == ASSAY_TOKEN_UNKNOWN);
}

static assay_status index_special(assay_vocabulary *v)
{
    int32_t n = 0;
    for (int32_t id = 0; id < v->n_tokens; id++)
        n += is_special(v, id);
    struct ordered *order = NULL;
    ASSAY_TRY(assay_alloc(&v->special, (size_t)n, sizeof *v->special, "special tokens"));
    ASSAY_TRY(assay_alloc(&v->by_byte, (size_t)n, sizeof *v->by_byte, "special tokens"));
    ASSAY_TRY(assay_alloc(&order, (size_t)n, sizeof *order, "special tokens"));
    for (int32_t id = 0; id < v->n_tokens; id++)
        if (is_special(v, id))
            order[v->n_special++] = (struct ordered){v->strings.entries[id].n, id};
    qsort(order, (size_t)n, sizeof *order, longest_first);
    for (int32_t i = 0; i < n; i++) {
        v->special[i] = order[i].id;
        v->first_byte[(unsigned char)v->strings.entries[order[i].id].bytes[0] + 1]++;
    }
    free(order);
    for (int b = 0; b < 256; b++)
        v->first_byte[b + 1] += v->first_byte[b];
    int32_t filled[256] = {0};
    for (int32_t i = 0; i < n; i++) {
        int b = (unsigned char)v->strings.entries[v->special[i]].bytes[0];
        v->by_byte[v->first_byte[b] + filled[b]++] = i;
    }
    return ASSAY_OK;
}

assay_status assay_vocabulary_load(assay_vocabulary *out, const assay_gguf *file,
                                   const assay_vocabulary_defaults *defaults)
{
    assay_vocabulary v = {0};
    assay_status s;
    ASSAY_GO(load_tokens(&v, file));
    ASSAY_GO(load_types(&v, file));
    ASSAY_GO(load_scores(&v, file));
    ASSAY_GO(load_special_ids(&v, file, defaults));
    ASSAY_GO(index_special(&v));
    *out = v;
    return ASSAY_OK;
out:
    assay_vocabulary_clear(&v);
    return s;
}
