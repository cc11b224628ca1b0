/*
 * Forged GGUF files: right, or wrong in exactly one named way.
 *
 * A healthy file is built field by field and every field leaves a mark (its name and offset). A
 * kind of damage is one row: which field, what is put there, which rule of the reader has to refuse
 * it, and what the refusal has to name.
 *
 *     marks of the head     "magic" "version" "n_tensors" "n_keys"
 *     marks of a key        "<key>:name.n" ":name" ":name.last" ":type" ":value" ":element"
 * ":count" ":string.n" marks of a tensor     "<tensor>:name.n" ":name" ":name.last" ":n_dims"
 * ":ne0" ... ":type" ":offset" ":data" marks of the file     "header.end" "data.start" "end"
 */
#ifndef ASSAY_SUITES_TESTS_FORGE_GGUF_H
#define ASSAY_SUITES_TESTS_FORGE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct forge_mark {
    char name[48];
    size_t at;
} forge_mark;

typedef struct forge_file {
    uint8_t *bytes;
    size_t n, room;
    forge_mark marks[512];
    int n_marks;
} forge_file;

/* A zeroed struct asks for the plain healthy file: version 3, default alignment, all tensors. */
typedef struct forge_options {
    uint32_t version;          /* 0: 3 */
    uint32_t alignment;        /* 0: the key is absent */
    int first, count;          /* tensors [first, first + count); count 0: all, -1: none */
    bool reversed;             /* records and data in the opposite order */
    bool no_keys;              /* no key/value pairs at all */
    bool no_tail;              /* the last tensor's padding is missing */
    int split_no, split_count; /* written when split_count > 0 */
    int split_tensors;         /* written when > 0 */
} forge_options;

/* Number of tensors of the healthy file, and their names in file order. */
int forge_gguf_n_tensors(void);
const char *forge_gguf_tensor_name(int index);

void forge_gguf_build(forge_file *out, const forge_options *options);
void forge_gguf_free(forge_file *file);
/* Offset of a mark; aborts when there is none. */
size_t forge_gguf_mark(const forge_file *file, const char *name);
void forge_gguf_write(const forge_file *file, const char *path);

typedef enum {
    FORGE_PUT8, /* value, at the mark, in so many bits */
    FORGE_PUT16,
    FORGE_PUT32,
    FORGE_PUT64,
    FORGE_CUT,    /* the file ends `value` bytes after the mark, and claims no record behind */
    FORGE_RENAME, /* of a set: the file gets another name */
    FORGE_REMOVE  /* of a set: the file is not there */
} forge_act;

typedef struct forge_damage {
    const char *name;
    int file; /* -1: a single file; 0 ... 2: this one of a set of three is damaged */
    const char *mark;
    forge_act act;
    uint64_t value;
    const char *rule;  /* in the message: rule '<rule>' */
    const char *place; /* in the message */
} forge_damage;

int forge_gguf_n_damages(void);
const forge_damage *forge_gguf_damage(int index);

/*
 * Writes the damaged file or set into the folder and fills path[] (of room bytes) with what has to
 * be opened.
 */
void forge_gguf_damaged(char *path, size_t room, const forge_damage *damage, const char *folder);
/* The healthy set of three in the folder; empty_first: its first file has no tensors. */
void forge_gguf_set(char *path, size_t room, bool empty_first, const char *folder);

#endif
