/*
 * Tokenizer of a GGUF file: byte-level BPE (tokenizer.ggml.model "gpt2") with the pre-tokenizers of
 * pretokenizer.def, and SentencePiece-BPE ("llama"). Text is UTF-8; invalid bytes pass through as
 * bytes.
 *
 * Source: src/llama-vocab.cpp and src/unicode.cpp of llama.cpp, restated in the specification's
 * section 10.
 */
#ifndef ASSAY_ENGINE_TOKENIZER_H
#define ASSAY_ENGINE_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/gguf.h"

typedef struct assay_tokenizer assay_tokenizer;

typedef struct assay_ids {
    int32_t *ids; /* free with assay_ids_clear */
    int64_t n;
} assay_ids;

/* Copies what it needs: the file may be closed. Encoding and decoding may run in many threads.
 * pre: NULL = as the file says ("default" if it says nothing), else the name of a pre-tokenizer
 * (unknown: ASSAY_UNSUPPORTED, lists the known ones). */
assay_status assay_tokenizer_new(assay_tokenizer **out, const assay_gguf *file, const char *pre);
void assay_tokenizer_free(assay_tokenizer *tokenizer);

/* add_start: put the start token in front where the file asks for it. parse_special: find control
 * tokens in the text. */
assay_status assay_tokenizer_encode(assay_ids *out, const assay_tokenizer *tokenizer,
                                    const char *text, size_t n_bytes, bool add_start,
                                    bool parse_special);
/* The text of special tokens is part of the result. *text: NUL-terminated, yours to free; n_bytes
 * without the NUL (text may hold NUL bytes). An id out of range fails. */
assay_status assay_tokenizer_decode(char **text, size_t *n_bytes, const assay_tokenizer *tokenizer,
                                    const int32_t *ids, int64_t n);
/*
 * Encodes any bytes and decodes the ids again. ASSAY_CANNOT_JUDGE if other bytes come back: the
 * vocabulary lacks bytes, or it is SentencePiece and the text holds U+2581. The entry for fuzzing.
 */
assay_status assay_tokenizer_round_trip(const assay_tokenizer *tokenizer, const uint8_t *bytes,
                                        size_t n, bool parse_special);
/* End of generation: the file's end, end-of-turn and end-of-message ids and well-known texts. */
bool assay_tokenizer_is_end(const assay_tokenizer *tokenizer, int32_t id);
void assay_ids_clear(assay_ids *ids);

#endif
