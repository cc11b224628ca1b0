#include "forge_vocab.h"

#include <stdio.h>

#include "data.h"
#include "expect.h"

static void put(FILE *f, const void *bytes, size_t n)
{
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
}

static void put_u32(FILE *f, uint32_t x)
{
    put(f, &x, sizeof x);
}

static void put_u64(FILE *f, uint64_t x)
{
    put(f, &x, sizeof x);
}

static void put_string(FILE *f, const char *text)
{
    put_u64(f, strlen(text));
    put(f, text, strlen(text));
}

static void put_key(FILE *f, const char *name, assay_gguf_type type)
{
    char key[96];
    snprintf(key, sizeof key, "tokenizer.ggml.%s", name);
    put_string(f, key);
    put_u32(f, (uint32_t)type);
}

static int put_text_key(FILE *f, const char *name, const char *value)
{
    if (!value)
        return 0;
    if (f) {
        put_key(f, name, ASSAY_GGUF_STRING);
        put_string(f, value);
    }
    return 1;
}

static int put_strings(FILE *f, const char *name, const char *const *texts, int n)
{
    if (!texts)
        return 0;
    if (f) {
        put_key(f, name, ASSAY_GGUF_ARRAY);
        put_u32(f, ASSAY_GGUF_STRING);
        put_u64(f, (uint64_t)n);
        for (int i = 0; i < n; i++)
            put_string(f, texts[i]);
    }
    return 1;
}

static int put_words(FILE *f, const char *name, assay_gguf_type type, const void *words, int n)
{
    if (!words)
        return 0;
    if (f) {
        put_key(f, name, ASSAY_GGUF_ARRAY);
        put_u32(f, (uint32_t)type);
        put_u64(f, (uint64_t)n);
        put(f, words, (size_t)n * 4);
    }
    return 1;
}

/* Returns the number of keys; f = NULL: counts only. */
static int put_keys(FILE *f, const forge_vocab *v)
{
    int n = put_text_key(f, "model", v->model) + put_text_key(f, "pre", v->pre) +
            put_strings(f, "tokens", v->tokens, v->n_tokens) +
            put_words(f, "token_type", ASSAY_GGUF_I32, v->types, v->n_types) +
            put_words(f, "scores", ASSAY_GGUF_F32, v->scores, v->n_scores) +
            put_strings(f, "merges", v->merges, v->n_merges);
    for (int i = 0; i < 4 && v->numbers[i].key; i++, n++) {
        if (!f)
            continue;
        put_key(f, v->numbers[i].key, ASSAY_GGUF_U32);
        put_u32(f, v->numbers[i].value);
    }
    for (int i = 0; i < 2 && v->flags[i].key; i++, n++) {
        if (!f)
            continue;
        put_key(f, v->flags[i].key, ASSAY_GGUF_BOOL);
        put(f, v->flags[i].value ? "\1" : "\0", 1);
    }
    return n;
}

assay_status forge_vocab_tokenizer(assay_tokenizer **out, const forge_vocab *vocab, const char *pre)
{
    const char *path = data_scratch("vocab.gguf");
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    put(f, "GGUF", 4);
    put_u32(f, 3);
    put_u64(f, 0);
    put_u64(f, (uint64_t)put_keys(NULL, vocab) + 1);
    put_string(f, "general.architecture");
    put_u32(f, ASSAY_GGUF_STRING);
    put_string(f, "llama");
    put_keys(f, vocab);
    for (long at = ftell(f); at % 32; at++)
        put(f, "", 1);
    ck_assert_int_eq(fclose(f), 0);
    assay_gguf *file;
    EXPECT_OK(assay_gguf_open(&file, path));
    assay_status s = assay_tokenizer_new(out, file, pre);
    assay_gguf_close(file); /* a tokenizer outlives its file */
    return s;
}

void forge_expect_ids(const assay_tokenizer *tokenizer, const char *text, size_t n_bytes,
                      bool add_start, bool parse_special, const int32_t *want, int64_t n_want)
{
    assay_ids ids;
    EXPECT_OK(assay_tokenizer_encode(&ids, tokenizer, text, n_bytes, add_start, parse_special));
    int64_t same = 0;
    while (same < ids.n && same < n_want && ids.ids[same] == want[same])
        same++;
    ck_assert_msg(ids.n == n_want && same == n_want,
                  "'%.*s': %lld ids, expected %lld; first difference at %lld: %d, expected %d",
                  (int)n_bytes, text, (long long)ids.n, (long long)n_want, (long long)same,
                  same < ids.n ? ids.ids[same] : -1, same < n_want ? want[same] : -1);
    assay_ids_clear(&ids);
}

void forge_expect_text(const assay_tokenizer *tokenizer, const int32_t *ids, int64_t n,
                       const char *want, size_t n_want)
{
    char *text;
    size_t n_text;
    EXPECT_OK(assay_tokenizer_decode(&text, &n_text, tokenizer, ids, n));
    ck_assert_msg(n_text == n_want && memcmp(text, want, n_want) == 0,
                  "decoded '%.*s', expected '%.*s'", (int)n_text, text, (int)n_want, want);
    ck_assert_int_eq(text[n_text], '\0');
    free(text);
}
