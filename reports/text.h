/*
 * Text of strangers (names in dumps, prompts, error lines) made safe for where it is shown.
 *
 * Input is any byte string. Bytes that are not UTF-8 (RFC 3629: no overlong forms, no surrogates,
 * at most U+10FFFF) become U+FFFD, one for each byte.
 */
#ifndef ASSAY_REPORTS_TEXT_H
#define ASSAY_REPORTS_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "reports/finding.h"

/* Next code point; *text is advanced by at least one byte. 0xFFFD for a bad byte; 0 at the end. */
uint32_t assay_text_next(const char **text);

/* Bytes of one code point as UTF-8; returns how many. */
int assay_text_encode(char out[4], uint32_t code);

typedef enum {
    ASSAY_TEXT_TERMINAL, /* control characters (C0, DEL, C1) and direction marks become U+FFFD;
                            line ends and tabs a blank */
    ASSAY_TEXT_XML,      /* markup escaped; characters that XML 1.0 forbids become U+FFFD */
    ASSAY_TEXT_MARKDOWN  /* markup escaped so that it shows as typed; line ends become blanks */
} assay_text_kind;

void assay_text_put(FILE *out, assay_text_kind kind, const char *text);

/* Valid UTF-8, control characters kept (JSON escapes them). Yours to free; NULL: no memory. */
char *assay_text_utf8(const char *text);
/* A JSON string of any bytes; JSON null for NULL. New reference; NULL: no memory. */
json_t *assay_text_json(const char *text);

/* Columns on a terminal, one for each code point. */
int assay_text_width(const char *text);

/*
 * Words of `text` (NULL: nothing) from column `column` on, wrapped at `width`, further lines
 * indented by `indent`; ends the line. A word longer than a line is not cut.
 */
void assay_text_wrap(FILE *out, const char *text, int column, int indent, int width);

/* "0-3, 7" of a sorted list; "" when empty. Returns out. */
char *assay_text_ranges(char *out, size_t room, const assay_numbers *list);

/* A number for people: 3.1e-06, 0.0047, 1.41, 12.5; "NaN", "Inf", "-Inf"; "-" never. */
char *assay_text_number(char out[32], double x);
/* True when the number was set (NaN: the maker of a finding left it open). */
bool assay_text_has(double x);

#endif
