/*
 * Pre-tokenizers: how ordinary text is cut into pieces that byte-level BPE never merges across.
 *
 * A pre-tokenizer is a list of regular expressions, applied one after the other; each cuts every
 * piece further: a match becomes a piece, and so does what lies between matches. A run of bytes
 * that is not UTF-8 is a piece of its own and meets no pattern.
 *
 * The patterns are those that llama.cpp runs (rows of pretokenizer.def); they are matched by PCRE2
 * with Unicode properties, so general categories are as new as the PCRE2 library.
 */
#ifndef ASSAY_ENGINE_PRETOKENIZER_H
#define ASSAY_ENGINE_PRETOKENIZER_H

#include "engine/base/status.h"

typedef struct assay_pretokenizer assay_pretokenizer;

enum {
    ASSAY_PRE_ADD_START = 1,       /* start token in front unless the file says no */
    ASSAY_PRE_NO_START = 2,        /* no start token unless the file names one */
    ASSAY_PRE_IGNORE_MERGES = 4,   /* a piece that is a token is taken whole */
    ASSAY_PRE_MERGES_OPTIONAL = 8, /* the file may come without merges */
};

/* Name as in tokenizer.ggml.pre. Unknown: ASSAY_UNSUPPORTED, the line lists the known ones. */
assay_status assay_pretokenizer_new(assay_pretokenizer **out, const char *name, size_t n_name);
void assay_pretokenizer_free(assay_pretokenizer *pre);
unsigned assay_pretokenizer_flags(const assay_pretokenizer *pre);

typedef assay_status (*assay_piece_fn)(void *context, const char *piece, size_t n);

/* Calls emit for every piece in order; their lengths add up to n. Stops at the first failure. */
assay_status assay_pretokenizer_split(const assay_pretokenizer *pre, const char *text, size_t n,
                                      assay_piece_fn emit, void *context);

#endif
