/*
 * Set of byte strings, numbered 0, 1, 2, ... in the order in which they were added.
 *
 * Invariant: number i is entries[i]; entries own their bytes through blocks[]; slots[] is an
 * open-addressing table of numbers (-1: free) whose size is a power of two and at least twice the
 * count of hashed entries. An empty string has a number but no slot: it is never found.
 */
#ifndef ASSAY_ENGINE_STRING_TABLE_H
#define ASSAY_ENGINE_STRING_TABLE_H

#include "engine/base/status.h"

#include <stdint.h>

typedef struct assay_string_entry {
    const char *bytes;
    uint32_t n;
    uint32_t hash;
} assay_string_entry;

typedef struct assay_string_table {
    assay_string_entry *entries;
    int32_t n, capacity;
    int32_t *slots;
    uint32_t n_slots;
    char **blocks;
    int32_t n_blocks;
    uint32_t left; /* free bytes at the end of the last block */
    uint32_t longest;
} assay_string_table;

/* Zero-initialise before use. */
void assay_string_table_clear(assay_string_table *table);

/* Number of the string, or -1. */
int32_t assay_string_table_find(const assay_string_table *table, const char *bytes, size_t n);

/* *number: of the string, added if it was not there (an empty one is always added). Copies the
 * bytes. */
assay_status assay_string_table_add(int32_t *number, assay_string_table *table, const char *bytes,
                                    size_t n);

/* Grows an array of elements to hold `need`, at least doubling. *array and *capacity stay on
 * failure. */
assay_status assay_grow(void *array, int64_t *capacity, int64_t need, size_t size,
                        const char *what);

#endif
