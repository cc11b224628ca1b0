#include "engine/tokenizer_model.h"

#include <stdlib.h>
#include <string.h>

#include "engine/utf8.h"

#define MERGES_KEY "tokenizer.ggml.merges"

/* A merge: left * 2^32 + right (string numbers) -> rank and joined string; free if joined < 0. */
struct pair {
    uint64_t key;
    int32_t rank, joined;
};

struct assay_bpe {
    const assay_vocabulary *vocabulary;
    assay_pretokenizer *pre;
    struct pair *pairs; /* open addressing */
    uint32_t n_pairs;   /* a power of two */
    int32_t byte_symbol[256];
};

/*
 * The byte alphabet of GPT-2: printable bytes stand for themselves, the 68 others, in ascending
 * order, for U+0100, U+0101, ...
 */
static bool is_printable(int byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

static uint32_t letter_of_byte(int byte)
{
    if (is_printable(byte))
        return (uint32_t)byte;
    uint32_t letter = 0x100;
    for (int b = 0; b < byte; b++)
        letter += !is_printable(b);
    return letter;
}

/* -1: the code point is no letter of the alphabet. */
static int byte_of_letter(uint32_t letter)
{
    if (letter < 0x100)
        return is_printable((int)letter) ? (int)letter : -1;
    if (letter < 0x121)
        return (int)letter - 0x100;
    if (letter < 0x143)
        return (int)letter - 0x121 + 0x7F;
    return letter == 0x143 ? 0xAD : -1;
}

static uint32_t pair_place(const assay_bpe *bpe, uint64_t key)
{
    uint32_t mask = bpe->n_pairs - 1;
    uint32_t at = (uint32_t)((key ^ key >> 29) * 0x9E3779B97F4A7C15u >> 32) & mask;
    while (bpe->pairs[at].joined >= 0 && bpe->pairs[at].key != key)
        at = (at + 1) & mask;
    return at;
}

static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static assay_status intern_alphabet(assay_bpe *bpe, assay_vocabulary *v)
{
    for (int byte = 0; byte < 256; byte++) {
        char letter[4];
        int n = assay_utf8_put(letter, letter_of_byte(byte));
        ASSAY_TRY(assay_string_table_add(&bpe->byte_symbol[byte], &v->strings, letter, (size_t)n));
    }
    return ASSAY_OK;
}

static assay_status add_merge(assay_bpe *bpe, assay_vocabulary *v, const assay_gguf_string *text,
                              int32_t rank, assay_byte_list *joined)
{
    char quoted[ASSAY_QUOTE_BYTES];
    /* The left part may be a space itself, so the separator is never the first byte. */
    const char *space = text->n > 2 ? memchr(text->bytes + 1, ' ', (size_t)text->n - 1) : NULL;
    if (!space || space + 1 == text->bytes + text->n)
        return assay_fail(ASSAY_BAD_FILE,
                          "key '" MERGES_KEY "': element %d is '%s', not two "
                          "parts with a space between them",
                          rank, assay_utf8_quote(quoted, text->bytes, (size_t)text->n));
    size_t n_left = (size_t)(space - text->bytes), n_right = (size_t)text->n - n_left - 1;
    int32_t left, right, both;
    joined->n = 0;
    ASSAY_TRY(assay_byte_list_push(joined, text->bytes, n_left));
    ASSAY_TRY(assay_byte_list_push(joined, space + 1, n_right));
    ASSAY_TRY(assay_string_table_add(&left, &v->strings, text->bytes, n_left));
    ASSAY_TRY(assay_string_table_add(&right, &v->strings, space + 1, n_right));
    ASSAY_TRY(assay_string_table_add(&both, &v->strings, joined->bytes, n_left + n_right));
    struct pair *pair = &bpe->pairs[pair_place(bpe, pair_key(left, right))];
    if (pair->joined < 0) /* of two equal merges the first counts */
        *pair = (struct pair){pair_key(left, right), rank, both};
    return ASSAY_OK;
}

static assay_status find_merges(const assay_gguf_key **out, const assay_gguf *file,
                                const assay_pretokenizer *pre)
{
    const assay_gguf_key *key = assay_gguf_find_key(file, MERGES_KEY);
    if (!key && !(assay_pretokenizer_flags(pre) & ASSAY_PRE_MERGES_OPTIONAL))
        return assay_fail(ASSAY_MISSING,
                          "key '" MERGES_KEY "' is missing: byte-level BPE needs it");
    if (key && (key->type != ASSAY_GGUF_ARRAY || key->element != ASSAY_GGUF_STRING))
        return assay_fail(ASSAY_BAD_FILE, "key '" MERGES_KEY "' is not an array of strings");
    if (key && key->count > INT32_MAX / 8)
        return assay_fail(ASSAY_BAD_FILE,
                          "key '" MERGES_KEY "' has %llu elements, at most %d are "
                          "allowed",
                          (unsigned long long)key->count, INT32_MAX / 8);
    *out = key;
    return ASSAY_OK;
}

static assay_status load_merges(assay_bpe *bpe, assay_vocabulary *v, const assay_gguf *file)
{
    const assay_gguf_key *key = NULL;
    assay_gguf_string *texts = NULL;
    assay_byte_list joined = {0};
    assay_status s;
    ASSAY_TRY(find_merges(&key, file, bpe->pre));
    uint64_t n = key ? key->count : 0;
    bpe->n_pairs = 16;
    while (bpe->n_pairs / 2 < n)
        bpe->n_pairs *= 2;
    ASSAY_TRY(assay_alloc(&bpe->pairs, bpe->n_pairs, sizeof *bpe->pairs, "merges"));
    for (uint32_t i = 0; i < bpe->n_pairs; i++)
        bpe->pairs[i].joined = -1;
    if (!key)
        return ASSAY_OK;
    ASSAY_GO(assay_alloc(&texts, n, sizeof *texts, "merges"));
    ASSAY_GO(assay_gguf_str_array(texts, key));
    for (uint64_t i = 0; i < n; i++)
        ASSAY_GO(add_merge(bpe, v, &texts[i], (int32_t)i, &joined));
out:
    free(joined.bytes);
    free(texts);
    return s;
}

assay_status assay_bpe_new(assay_bpe **out, assay_vocabulary *vocabulary, const assay_gguf *file,
                           assay_pretokenizer *pre)
{
    assay_bpe *bpe = NULL;
    assay_status s;
    ASSAY_TRY(assay_alloc(&bpe, 1, sizeof *bpe, "byte-level BPE"));
    bpe->vocabulary = vocabulary;
    bpe->pre = pre;
    ASSAY_GO(intern_alphabet(bpe, vocabulary));
    ASSAY_GO(load_merges(bpe, vocabulary, file));
    *out = bpe;
    return ASSAY_OK;
out:
    bpe->pre = NULL; /* stays the caller's */
    assay_bpe_free(bpe);
    return s;
}

void assay_bpe_free(assay_bpe *bpe)
{
    if (!bpe)
        return;
    assay_pretokenizer_free(bpe->pre);
    free(bpe->pairs);
    free(bpe);
}

static bool merge_by_rank(double *order, int32_t *id, const void *context, const assay_symbol *left,
                          const assay_symbol *right)
{
    const assay_bpe *bpe = context;
    const struct pair *pair = &bpe->pairs[pair_place(bpe, pair_key(left->id, right->id))];
    if (pair->joined < 0)
        return false;
    *order = pair->rank;
    *id = pair->joined;
    return true;
}

static assay_status push_symbol(assay_id_list *out, const assay_vocabulary *v, int32_t symbol)
{
    if (symbol < v->n_tokens)
        return assay_id_list_push(out, symbol);
    const assay_string_entry *e = &v->strings.entries[symbol];
    for (uint32_t i = 0; i < e->n; i++) {
        int32_t id = assay_string_table_find(&v->strings, e->bytes + i, 1);
        if (id >= 0 && id < v->n_tokens)
            ASSAY_TRY(assay_id_list_push(out, id));
    }
    return ASSAY_OK;
}

/* The token that is the whole piece, or -1. */
static assay_status whole_piece(int32_t *id, const assay_vocabulary *v, const char *piece, size_t n)
{
    *id = -1;
    if (n > v->strings.longest)
        return ASSAY_OK;
    char *letters = NULL;
    size_t used = 0;
    ASSAY_TRY(assay_alloc(&letters, n, 4, "piece"));
    for (size_t i = 0; i < n; i++)
        used += (size_t)assay_utf8_put(letters + used, letter_of_byte((unsigned char)piece[i]));
    int32_t number = assay_string_table_find(&v->strings, letters, used);
    if (number < v->n_tokens)
        *id = number;
    free(letters);
    return ASSAY_OK;
}

struct encoding {
    assay_id_list *out;
    const assay_bpe *bpe;
    assay_merge_space *space;
};

static assay_status encode_piece(void *context, const char *piece, size_t n)
{
    const struct encoding *e = context;
    const assay_vocabulary *v = e->bpe->vocabulary;
    if (assay_pretokenizer_flags(e->bpe->pre) & ASSAY_PRE_IGNORE_MERGES) {
        int32_t id;
        ASSAY_TRY(whole_piece(&id, v, piece, n));
        if (id >= 0)
            return assay_id_list_push(e->out, id);
    }
    e->space->n_symbols = 0;
    for (size_t i = 0; i < n; i++)
        ASSAY_TRY(assay_merge_push(e->space, e->bpe->byte_symbol[(unsigned char)piece[i]],
                                   (uint32_t)i, 1));
    ASSAY_TRY(assay_merge_run(e->space, merge_by_rank, e->bpe));
    for (int32_t i = 0; i >= 0; i = e->space->symbols[i].next)
        ASSAY_TRY(push_symbol(e->out, v, e->space->symbols[i].id));
    return ASSAY_OK;
}

assay_status assay_bpe_encode(assay_id_list *out, const assay_bpe *bpe, assay_merge_space *space,
                              const char *text, size_t n)
{
    struct encoding encoding = {out, bpe, space};
    return assay_pretokenizer_split(bpe->pre, text, n, encode_piece, &encoding);
}

assay_status assay_bpe_decode(assay_byte_list *out, const assay_vocabulary *vocabulary, int32_t id)
{
    const assay_string_entry *e = &vocabulary->strings.entries[id];
    for (uint32_t i = 0; i < e->n;) {
        int length = assay_utf8_length(e->bytes + i, e->n - i);
        int byte = length ? byte_of_letter(assay_utf8_get(e->bytes + i, length)) : -1;
        char mapped = (char)byte;
        int n = length ? length : 1;
        /* Text outside the alphabet (converters leave some added tokens so) is taken as it is. */
        ASSAY_TRY(byte >= 0 ? assay_byte_list_push(out, &mapped, 1)
                            : assay_byte_list_push(out, e->bytes + i, (size_t)n));
        i += (uint32_t)n;
    }
    return ASSAY_OK;
}
