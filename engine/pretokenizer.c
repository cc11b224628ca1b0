#include "engine/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/utf8.h"

#define MAX_PATTERNS 6

struct row {
    const char *names;
    unsigned flags;
    const char *patterns[MAX_PATTERNS]; /* NULL behind the last */
};

static const struct row rows[] = {
#define X(names, flags, ...) {names, flags, {__VA_ARGS__}},
#include "engine/pretokenizer.def"
#undef X
};

struct assay_pretokenizer {
    const struct row *row;
    pcre2_code *codes[MAX_PATTERNS];
    int n_codes;
};

static int has_name(const char *names, const char *name, size_t n)
{
    for (const char *at = names; *at;) {
        size_t length = strcspn(at, " ");
        if (length == n && memcmp(at, name, n) == 0)
            return 1;
        at += length + (at[length] == ' ');
    }
    return 0;
}

static assay_status find_row(const struct row **out, const char *name, size_t n_name)
{
    char known[512] = "", quoted[ASSAY_QUOTE_BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (has_name(rows[i].names, name, n_name)) {
            *out = &rows[i];
            return ASSAY_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? " " : "", rows[i].names);
    }
    return assay_fail(ASSAY_UNSUPPORTED, "pre-tokenizer '%s' is unknown; known: %s",
                      assay_utf8_quote(quoted, name, n_name), known);
}

assay_status assay_pretokenizer_new(assay_pretokenizer **out, const char *name, size_t n_name)
{
    const struct row *row = NULL;
    assay_pretokenizer *pre = NULL;
    ASSAY_TRY(find_row(&row, name, n_name));
    ASSAY_TRY(assay_alloc(&pre, 1, sizeof *pre, "pre-tokenizer"));
    pre->row = row;
    for (int i = 0; i < MAX_PATTERNS && row->patterns[i]; i++) {
        int error;
        PCRE2_SIZE at;
        pcre2_code *code = pcre2_compile((PCRE2_SPTR)row->patterns[i], PCRE2_ZERO_TERMINATED,
                                         PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
        if (!code) {
            char text[128];
            pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
            assay_pretokenizer_free(pre);
            return assay_fail(
                error == PCRE2_ERROR_HEAP_FAILED ? ASSAY_NO_MEMORY : ASSAY_UNSUPPORTED,
                "pre-tokenizer '%s': this PCRE2 library refuses pattern %d at %zu: %s", row->names,
                i, (size_t)at, text);
        }
        pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* only speed: the interpreter does as well */
        pre->codes[pre->n_codes++] = code;
    }
    *out = pre;
    return ASSAY_OK;
}

void assay_pretokenizer_free(assay_pretokenizer *pre)
{
    if (!pre)
        return;
    for (int i = 0; i < pre->n_codes; i++)
        pcre2_code_free(pre->codes[i]);
    free(pre);
}

unsigned assay_pretokenizer_flags(const assay_pretokenizer *pre)
{
    return pre->row->flags;
}

struct split {
    const assay_pretokenizer *pre;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    assay_piece_fn emit;
    void *context;
};

static assay_status gave_up(const struct split *split, int pattern, size_t n, int error)
{
    char text[128];
    pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
    return assay_fail(error == PCRE2_ERROR_NOMEMORY ? ASSAY_NO_MEMORY : ASSAY_UNSUPPORTED,
                      "pre-tokenizer '%s': pattern %d gives up on a piece of %zu bytes: %s",
                      split->pre->row->names, pattern, n, text);
}

static assay_status split_by(const struct split *split, int pattern, const char *text, size_t n)
{
    if (n == 0)
        return ASSAY_OK;
    if (pattern == split->pre->n_codes)
        return split->emit(split->context, text, n);
    for (size_t at = 0; at < n;) {
        /* The caller has checked the text; to check it again per match would be quadratic. */
        int found = pcre2_match(split->pre->codes[pattern], (PCRE2_SPTR)text, n, at,
                                PCRE2_NO_UTF_CHECK, split->match, split->limits);
        if (found < 0 && found != PCRE2_ERROR_NOMATCH)
            return gave_up(split, pattern, n, found);
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(split->match);
        size_t begin = found < 0 ? n : span[0], end = found < 0 ? n : span[1];
        ASSAY_BUG_IF(end <= begin && begin < n);
        /* What lies before the match. At most two calls per match, depth at most MAX_PATTERNS. */
        ASSAY_TRY(split_by(split, pattern + 1, text + at, begin - at));
        ASSAY_TRY(split_by(split, pattern + 1, text + begin, end - begin));
        at = end;
    }
    return ASSAY_OK;
}

static size_t run_length(const char *text, size_t n, int valid)
{
    size_t at = 0;
    while (at < n) {
        int length = assay_utf8_length(text + at, n - at);
        if ((length > 0) != valid)
            break;
        at += length > 0 ? (size_t)length : 1;
    }
    return at;
}

assay_status assay_pretokenizer_split(const assay_pretokenizer *pre, const char *text, size_t n,
                                      assay_piece_fn emit, void *context)
{
    struct split split = {.pre = pre, .emit = emit, .context = context};
    assay_status s = ASSAY_OK;
    split.match = pcre2_match_data_create(1, NULL);
    split.limits = pcre2_match_context_create(NULL);
    if (!split.match || !split.limits) {
        s = assay_fail(ASSAY_NO_MEMORY, "pre-tokenizer: no memory for a match");
        goto out;
    }
    /* A run of spaces is scanned once per alternative and given back byte by byte. */
    size_t limit = 16 * n + 100000;
    pcre2_set_match_limit(split.limits, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    for (size_t at = 0; at < n;) {
        size_t valid = run_length(text + at, n - at, 1);
        ASSAY_GO(split_by(&split, 0, text + at, valid));
        at += valid;
        size_t invalid = run_length(text + at, n - at, 0);
        if (invalid)
            ASSAY_GO(emit(context, text + at, invalid));
        at += invalid;
    }
out:
    pcre2_match_context_free(split.limits);
    pcre2_match_data_free(split.match);
    return s;
}
