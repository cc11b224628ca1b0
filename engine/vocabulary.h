/*
 * The vocabulary of a GGUF file (keys tokenizer.ggml.*), checked and copied: it outlives the file.
 *
 * Invariant: the string number of a token's text is its id, so a string is a token exactly if its
 * number is below n_tokens. Texts are unique; an empty one belongs to its id but is never found.
 *
 * Defaults where the file is silent (all from llama.cpp): token type normal; bpe: start and end 11,
 * none for families that say so; spm: start 1, end 2, unknown 0, start token and space in front.
 */
#ifndef ASSAY_ENGINE_VOCABULARY_H
#define ASSAY_ENGINE_VOCABULARY_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/gguf.h"
#include "engine/string_table.h"

/* Values of tokenizer.ggml.token_type. */
typedef enum {
    ASSAY_TOKEN_NORMAL = 1,
    ASSAY_TOKEN_UNKNOWN,
    ASSAY_TOKEN_CONTROL,
    ASSAY_TOKEN_USER_DEFINED,
    ASSAY_TOKEN_UNUSED,
    ASSAY_TOKEN_BYTE
} assay_token_type;

typedef struct assay_vocabulary {
    assay_string_table strings;
    int32_t n_tokens;
    uint8_t *types;
    float *scores;          /* NULL: the file has none */
    bool *ends;             /* end of generation */
    int32_t start, unknown; /* -1: none */
    bool add_start, add_space_prefix;
    /* Special tokens, longest text first (then by id), and the same grouped by first byte:
     * places in `special` are by_byte[first_byte[b] ... first_byte[b + 1] - 1]. */
    int32_t *special, *by_byte;
    int32_t n_special;
    int32_t first_byte[257];
} assay_vocabulary;

typedef struct assay_vocabulary_defaults {
    int32_t start, end, unknown;
    bool add_start;
} assay_vocabulary_defaults;

/*
 * Fails: ASSAY_MISSING without tokens; ASSAY_BAD_FILE for arrays that disagree, a text that two ids
 * share, a type or special id out of range, a score that is no number.
 */
assay_status assay_vocabulary_load(assay_vocabulary *out, const assay_gguf *file,
                                   const assay_vocabulary_defaults *defaults);
void assay_vocabulary_clear(assay_vocabulary *vocabulary);

/* A stretch of text: one special token, or id -1: ordinary text. */
typedef struct assay_fragment {
    int32_t id;
    size_t at, n;
} assay_fragment;

/*
 * Cuts the text at special tokens: the longest first, each at its leftmost places. User-defined
 * ones always count, control and unknown ones only if `parse_special`. *out is yours to free.
 */
assay_status assay_vocabulary_partition(assay_fragment **out, int64_t *n,
                                        const assay_vocabulary *vocabulary, const char *text,
                                        size_t n_bytes, bool parse_special);

#endif
