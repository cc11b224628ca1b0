/*
 * A GGUF file that holds a vocabulary and nothing else, right or wrong as the recipe says.
 */
#ifndef ASSAY_SUITES_TESTS_FORGE_VOCAB_H
#define ASSAY_SUITES_TESTS_FORGE_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/tokenizer.h"

/* What is NULL or of length 0 is left out of the file. */
typedef struct forge_vocab {
    const char *model, *pre;
    const char *const *tokens;
    int n_tokens;
    const int32_t *types;
    int n_types;
    const float *scores;
    int n_scores;
    const char *const *merges;
    int n_merges;
    struct {
        const char *key; /* without "tokenizer.ggml." */
        uint32_t value;
    } numbers[4];
    struct {
        const char *key;
        bool value;
    } flags[2];
} forge_vocab;

/* Writes the file to this process's scratch folder and makes a tokenizer of it (see
 * assay_tokenizer_new). */
assay_status forge_vocab_tokenizer(assay_tokenizer **out, const forge_vocab *vocab,
                                   const char *pre);

/* The ids of the text are those. */
void forge_expect_ids(const assay_tokenizer *tokenizer, const char *text, size_t n_bytes,
                      bool add_start, bool parse_special, const int32_t *want, int64_t n_want);

/* The ids mean this text. */
void forge_expect_text(const assay_tokenizer *tokenizer, const int32_t *ids, int64_t n,
                       const char *want, size_t n_want);

#endif
