#include "engine/tokenizer_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/utf8.h"

#define SPACE "\xE2\x96\x81" /* U+2581 stands for a space */

static bool is_byte_text(const assay_string_entry *e)
{
    return e->n == 6 && memcmp(e->bytes, "<0x", 3) == 0 && e->bytes[5] == '>' &&
           strspn(e->bytes + 3, "0123456789ABCDEF") == 2;
}

assay_status assay_spm_check(const assay_vocabulary *v)
{
    char quoted[ASSAY_QUOTE_BYTES];
    if (!v->scores)
        return assay_fail(ASSAY_MISSING, "key 'tokenizer.ggml.scores' is missing: SentencePiece "
                                         "merges by score");
    for (int32_t id = 0; id < v->n_tokens; id++) {
        const assay_string_entry *e = &v->strings.entries[id];
        if (v->types[id] == ASSAY_TOKEN_BYTE && !is_byte_text(e))
            return assay_fail(ASSAY_BAD_FILE,
                              "token %d is of type byte but reads '%s', expected <0x00> to <0xFF>",
                              id, assay_utf8_quote(quoted, e->bytes, e->n));
    }
    return ASSAY_OK;
}

struct scored_text {
    const assay_vocabulary *vocabulary;
    const char *bytes;
};

static int32_t find_token(const assay_vocabulary *v, const char *bytes, size_t n)
{
    int32_t number = assay_string_table_find(&v->strings, bytes, n);
    return number < v->n_tokens ? number : -1;
}

static bool merge_by_score(double *order, int32_t *id, const void *context,
                           const assay_symbol *left, const assay_symbol *right)
{
    const struct scored_text *text = context;
    *id = find_token(text->vocabulary, text->bytes + left->at, (size_t)left->n + right->n);
    if (*id < 0)
        return false;
    *order = -(double)text->vocabulary->scores[*id];
    return true;
}

static assay_status push_bytes(assay_id_list *out, const assay_vocabulary *v, const char *bytes,
                               size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char name[8];
        int length = snprintf(name, sizeof name, "<0x%02X>", (unsigned)(unsigned char)bytes[i]);
        int32_t id = find_token(v, name, (size_t)length);
        if (id < 0 && v->unknown < 0)
            return assay_fail(ASSAY_UNSUPPORTED,
                              "the vocabulary has neither %s nor an unknown token", name);
        ASSAY_TRY(assay_id_list_push(out, id >= 0 ? id : v->unknown));
    }
    return ASSAY_OK;
}

static assay_status escape_spaces(assay_byte_list *out, const char *text, size_t n, bool prefix)
{
    if (prefix)
        ASSAY_TRY(assay_byte_list_push(out, SPACE, sizeof SPACE - 1));
    for (size_t at = 0; at < n;) {
        const char *space = memchr(text + at, ' ', n - at);
        size_t end = space ? (size_t)(space - text) : n;
        ASSAY_TRY(assay_byte_list_push(out, text + at, end - at));
        if (space)
            ASSAY_TRY(assay_byte_list_push(out, SPACE, sizeof SPACE - 1));
        at = end + (space != NULL);
    }
    return ASSAY_OK;
}

assay_status assay_spm_encode(assay_id_list *out, const assay_vocabulary *v,
                              assay_merge_space *space, const char *text, size_t n, bool prefix)
{
    assay_byte_list escaped = {0};
    assay_status s;
    ASSAY_GO(escape_spaces(&escaped, text, n, prefix));
    space->n_symbols = 0;
    for (size_t at = 0; at < (size_t)escaped.n;) {
        int length = assay_utf8_length(escaped.bytes + at, (size_t)escaped.n - at);
        uint32_t n_symbol = length ? (uint32_t)length : 1;
        int32_t id = find_token(v, escaped.bytes + at, n_symbol);
        ASSAY_GO(assay_merge_push(space, id, (uint32_t)at, n_symbol));
        at += n_symbol;
    }
    struct scored_text scored = {v, escaped.bytes};
    ASSAY_GO(assay_merge_run(space, merge_by_score, &scored));
    for (int32_t i = space->n_symbols ? 0 : -1; i >= 0; i = space->symbols[i].next) {
        const assay_symbol *symbol = &space->symbols[i];
        ASSAY_GO(symbol->id >= 0 ? assay_id_list_push(out, symbol->id)
                                 : push_bytes(out, v, escaped.bytes + symbol->at, symbol->n));
    }
out:
    free(escaped.bytes);
    return s;
}

assay_status assay_spm_decode(assay_byte_list *out, const assay_vocabulary *v, int32_t id,
                              bool *strip)
{
    const assay_string_entry *e = &v->strings.entries[id];
    bool at_start = *strip;
    *strip = false;
    if (v->types[id] == ASSAY_TOKEN_BYTE) {
        char digits[3] = {e->bytes[3], e->bytes[4], '\0'};
        char byte = (char)strtol(digits, NULL, 16);
        return assay_byte_list_push(out, &byte, 1);
    }
    for (uint32_t i = 0; i < e->n;) {
        bool is_space = e->n - i >= 3 && memcmp(e->bytes + i, SPACE, 3) == 0;
        if (!is_space)
            ASSAY_TRY(assay_byte_list_push(out, e->bytes + i, 1));
        else if (i > 0 || !at_start)
            ASSAY_TRY(assay_byte_list_push(out, " ", 1));
        i += is_space ? 3 : 1;
    }
    return ASSAY_OK;
}
