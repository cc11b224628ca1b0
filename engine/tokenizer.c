#include "engine/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer_model.h"
#include "engine/utf8.h"

#define MAX_TEXT_BYTES (1u << 28) /* symbols and spans of a text are 32-bit */

struct assay_tokenizer {
    assay_vocabulary vocabulary;
    assay_bpe *bpe; /* NULL: SentencePiece */
};

assay_status assay_id_list_push(assay_id_list *list, int32_t id)
{
    ASSAY_TRY(assay_grow(&list->ids, &list->capacity, list->n + 1, sizeof *list->ids, "token ids"));
    list->ids[list->n++] = id;
    return ASSAY_OK;
}

assay_status assay_byte_list_push(assay_byte_list *list, const char *bytes, size_t n)
{
    ASSAY_TRY(assay_grow(&list->bytes, &list->capacity, list->n + (int64_t)n, 1, "text"));
    if (n)
        memcpy(list->bytes + list->n, bytes, n);
    list->n += (int64_t)n;
    return ASSAY_OK;
}

static assay_status load_bpe(assay_tokenizer *t, const assay_gguf *file, const char *pre_name)
{
    assay_pretokenizer *pre = NULL;
    assay_gguf_string name = {"default", 7};
    if (pre_name)
        name = (assay_gguf_string){pre_name, strlen(pre_name)};
    else if (assay_gguf_find_key(file, "tokenizer.ggml.pre") &&
             assay_gguf_str(&name, file, "tokenizer.ggml.pre") != ASSAY_OK)
        return assay_fail(ASSAY_BAD_FILE, "key 'tokenizer.ggml.pre' is not of type string");
    ASSAY_TRY(assay_pretokenizer_new(&pre, name.bytes, (size_t)name.n));
    unsigned flags = assay_pretokenizer_flags(pre);
    assay_vocabulary_defaults defaults = {.start = flags & ASSAY_PRE_NO_START ? -1 : 11,
                                          .end = flags & ASSAY_PRE_NO_START ? -1 : 11,
                                          .unknown = -1,
                                          .add_start = (flags & ASSAY_PRE_ADD_START) != 0};
    assay_status s = assay_vocabulary_load(&t->vocabulary, file, &defaults);
    if (s == ASSAY_OK)
        s = assay_bpe_new(&t->bpe, &t->vocabulary, file, pre);
    if (s != ASSAY_OK)
        assay_pretokenizer_free(pre);
    return s;
}

static assay_status load_spm(assay_tokenizer *t, const assay_gguf *file, const char *pre_name)
{
    assay_vocabulary_defaults defaults = {.start = 1, .end = 2, .unknown = 0, .add_start = true};
    if (pre_name)
        return assay_fail(ASSAY_UNSUPPORTED,
                          "a SentencePiece vocabulary has no pre-tokenizer, '%s' was asked for",
                          pre_name);
    ASSAY_TRY(assay_vocabulary_load(&t->vocabulary, file, &defaults));
    return assay_spm_check(&t->vocabulary);
}

static bool equals(const assay_gguf_string *text, const char *name)
{
    return text->n == strlen(name) && memcmp(text->bytes, name, (size_t)text->n) == 0;
}

assay_status assay_tokenizer_new(assay_tokenizer **out, const assay_gguf *file, const char *pre)
{
    assay_gguf_string model;
    char quoted[ASSAY_QUOTE_BYTES];
    assay_tokenizer *t = NULL;
    assay_status s;
    ASSAY_TRY(assay_gguf_str(&model, file, "tokenizer.ggml.model"));
    ASSAY_TRY(assay_alloc(&t, 1, sizeof *t, "tokenizer"));
    if (equals(&model, "gpt2"))
        s = load_bpe(t, file, pre);
    else if (equals(&model, "llama"))
        s = load_spm(t, file, pre);
    else
        s = assay_fail(ASSAY_UNSUPPORTED,
                       "key 'tokenizer.ggml.model' is '%s'; known: gpt2 (byte-level BPE), llama "
                       "(SentencePiece)",
                       assay_utf8_quote(quoted, model.bytes, (size_t)model.n));
    if (s != ASSAY_OK) {
        assay_tokenizer_free(t);
        return assay_within(s, "%s", assay_gguf_path(file));
    }
    *out = t;
    return ASSAY_OK;
}

void assay_tokenizer_free(assay_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    assay_bpe_free(tokenizer->bpe);
    assay_vocabulary_clear(&tokenizer->vocabulary);
    free(tokenizer);
}

static assay_status encode_fragments(assay_id_list *list, const assay_tokenizer *t,
                                     const char *text, const assay_fragment *fragments, int64_t n)
{
    assay_merge_space space = {0};
    assay_status s = ASSAY_OK;
    for (int64_t i = 0; i < n; i++) {
        const assay_fragment *f = &fragments[i];
        if (f->id >= 0)
            ASSAY_GO(assay_id_list_push(list, f->id));
        else if (t->bpe)
            ASSAY_GO(assay_bpe_encode(list, t->bpe, &space, text + f->at, f->n));
        else /* two ordinary fragments are never neighbours: each begins a text anew */
            ASSAY_GO(assay_spm_encode(list, &t->vocabulary, &space, text + f->at, f->n,
                                      t->vocabulary.add_space_prefix));
    }
out:
    assay_merge_clear(&space);
    return s;
}

assay_status assay_tokenizer_encode(assay_ids *out, const assay_tokenizer *tokenizer,
                                    const char *text, size_t n_bytes, bool add_start,
                                    bool parse_special)
{
    assay_id_list list = {0};
    assay_fragment *fragments = NULL;
    int64_t n = 0;
    assay_status s;
    if (n_bytes > MAX_TEXT_BYTES)
        return assay_fail(ASSAY_UNSUPPORTED, "a text of %zu bytes, at most %u are tokenized",
                          n_bytes, MAX_TEXT_BYTES);
    ASSAY_GO(assay_vocabulary_partition(&fragments, &n, &tokenizer->vocabulary, text, n_bytes,
                                        parse_special));
    if (add_start && tokenizer->vocabulary.add_start)
        ASSAY_GO(assay_id_list_push(&list, tokenizer->vocabulary.start));
    ASSAY_GO(encode_fragments(&list, tokenizer, text, fragments, n));
    *out = (assay_ids){list.ids, list.n};
    list.ids = NULL;
out:
    free(fragments);
    free(list.ids);
    return s;
}

/* *strip: an encoder put a space in front of the ordinary text that comes next. */
static assay_status decode_one(assay_byte_list *list, const assay_tokenizer *t, int32_t id,
                               bool *strip)
{
    const assay_vocabulary *v = &t->vocabulary;
    int type = v->types[id];
    if (type == ASSAY_TOKEN_CONTROL || type == ASSAY_TOKEN_USER_DEFINED ||
        type == ASSAY_TOKEN_UNKNOWN) {
        const assay_string_entry *e = &v->strings.entries[id];
        *strip = type != ASSAY_TOKEN_UNKNOWN && v->add_space_prefix;
        return assay_byte_list_push(list, e->bytes, e->n);
    }
    return t->bpe ? assay_bpe_decode(list, v, id) : assay_spm_decode(list, v, id, strip);
}

assay_status assay_tokenizer_decode(char **text, size_t *n_bytes, const assay_tokenizer *tokenizer,
                                    const int32_t *ids, int64_t n)
{
    const assay_vocabulary *v = &tokenizer->vocabulary;
    assay_byte_list list = {0};
    bool strip = v->add_space_prefix;
    assay_status s = ASSAY_OK;
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= v->n_tokens) {
            s = assay_fail(ASSAY_MISSING, "token id %d at %lld has no text: ids are 0 to %d",
                           ids[i], (long long)i, v->n_tokens - 1);
            goto out;
        }
        ASSAY_GO(decode_one(&list, tokenizer, ids[i], &strip));
    }
    ASSAY_GO(assay_byte_list_push(&list, "", 1));
    *text = list.bytes;
    *n_bytes = (size_t)list.n - 1;
    list.bytes = NULL;
out:
    free(list.bytes);
    return s;
}

assay_status assay_tokenizer_round_trip(const assay_tokenizer *tokenizer, const uint8_t *bytes,
                                        size_t n, bool parse_special)
{
    assay_ids ids = {0};
    char *text = NULL;
    size_t n_text = 0;
    assay_status s;
    ASSAY_GO(assay_tokenizer_encode(&ids, tokenizer, (const char *)bytes, n, false, parse_special));
    ASSAY_GO(assay_tokenizer_decode(&text, &n_text, tokenizer, ids.ids, ids.n));
    size_t same = 0;
    while (same < n && same < n_text && (uint8_t)text[same] == bytes[same])
        same++;
    if (same < n || same < n_text)
        s = assay_fail(ASSAY_CANNOT_JUDGE,
                       "%zu bytes come back from the tokenizer as %zu, different from byte %zu", n,
                       n_text, same);
out:
    free(text);
    assay_ids_clear(&ids);
    return s;
}

bool assay_tokenizer_is_end(const assay_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && id < tokenizer->vocabulary.n_tokens && tokenizer->vocabulary.ends[id];
}

void assay_ids_clear(assay_ids *ids)
{
    free(ids->ids);
    *ids = (assay_ids){0};
}
