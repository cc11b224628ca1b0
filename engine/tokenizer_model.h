/*
 * What tokenizer.c asks of the two models, byte-level BPE (tokenizer_bpe.c) and SentencePiece
 * (tokenizer_spm.c): ids of a stretch of ordinary text, and the bytes of an ordinary token.
 */
#ifndef ASSAY_ENGINE_TOKENIZER_MODEL_H
#define ASSAY_ENGINE_TOKENIZER_MODEL_H

#include "engine/merge.h"
#include "engine/pretokenizer.h"
#include "engine/vocabulary.h"

/* Growing output; what it holds is the caller's to free. */
typedef struct assay_id_list {
    int32_t *ids;
    int64_t n, capacity;
} assay_id_list;

typedef struct assay_byte_list {
    char *bytes;
    int64_t n, capacity;
} assay_byte_list;

assay_status assay_id_list_push(assay_id_list *list, int32_t id);
assay_status assay_byte_list_push(assay_byte_list *list, const char *bytes, size_t n);

/*
 * Byte-level BPE. Every byte of a piece becomes one symbol (a letter of the byte alphabet), then
 * the pair with the lowest rank of tokenizer.ggml.merges is merged. A symbol that is no token falls
 * apart into one-byte tokens; where the vocabulary lacks those, llama.cpp drops them, and so do we.
 */
typedef struct assay_bpe assay_bpe;

/* Interns the merges in vocabulary->strings. Takes over `pre` on success. Fails: ASSAY_MISSING
 * without merges, ASSAY_BAD_FILE for a merge without two parts. */
assay_status assay_bpe_new(assay_bpe **out, assay_vocabulary *vocabulary, const assay_gguf *file,
                           assay_pretokenizer *pre);
void assay_bpe_free(assay_bpe *bpe);
assay_status assay_bpe_encode(assay_id_list *out, const assay_bpe *bpe, assay_merge_space *space,
                              const char *text, size_t n);
assay_status assay_bpe_decode(assay_byte_list *out, const assay_vocabulary *vocabulary, int32_t id);

/*
 * SentencePiece-BPE. Spaces become U+2581, with one more in front if `prefix`; characters are
 * merged while the joined text is a token, the highest score first; what stays no token becomes
 * byte tokens <0xXX>, or the unknown token where those are missing.
 */
assay_status assay_spm_check(const assay_vocabulary *vocabulary);
assay_status assay_spm_encode(assay_id_list *out, const assay_vocabulary *vocabulary,
                              assay_merge_space *space, const char *text, size_t n, bool prefix);
/* strip: leave out one space at the start; *strip is then false. */
assay_status assay_spm_decode(assay_byte_list *out, const assay_vocabulary *vocabulary, int32_t id,
                              bool *strip);

#endif
