/*
 * The few facts about UTF-8 that the tokenizer needs. A sequence is valid as The Unicode Standard,
 * table 3-7, says: no overlong forms, no surrogates, nothing above U+10FFFF.
 */
#ifndef ASSAY_ENGINE_UTF8_H
#define ASSAY_ENGINE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the valid sequence at the start of the text: 1 to 4; 0: there is none. */
int assay_utf8_length(const char *text, size_t n);

/* Code point of the valid sequence of `length` bytes. */
uint32_t assay_utf8_get(const char *text, int length);

/* Writes the code point (at most U+10FFFF) and returns the bytes written, 1 to 4. */
int assay_utf8_put(char out[4], uint32_t code_point);

/* Room for assay_utf8_quote. */
#define ASSAY_QUOTE_BYTES 352

/*
 * The first 80 bytes as they may stand in a line of text: what is not UTF-8, and control
 * characters, as \xHH; "..." behind a cut. Returns out.
 */
const char *assay_utf8_quote(char out[ASSAY_QUOTE_BYTES], const char *bytes, size_t n);

#endif
