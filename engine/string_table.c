#include "engine/string_table.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES (1u << 20)
#define MAX_STRING_BYTES (1u << 24)

assay_status assay_grow(void *array, int64_t *capacity, int64_t need, size_t size, const char *what)
{
    if (need <= *capacity)
        return ASSAY_OK;
    int64_t wanted = *capacity < 32 ? 64 : 2 * *capacity;
    if (wanted < need)
        wanted = need;
    void *old;
    memcpy(&old, array, sizeof old);
    void *grown =
        (uint64_t)wanted > SIZE_MAX / 2 / size ? NULL : realloc(old, (size_t)wanted * size);
    if (!grown)
        return assay_fail(ASSAY_NO_MEMORY, "%s: no memory for %lld elements of %zu bytes", what,
                          (long long)wanted, size);
    memcpy(array, &grown, sizeof grown);
    *capacity = wanted;
    return ASSAY_OK;
}

/* FNV-1a with a final mix, so that the low bits depend on all of the string. */
static uint32_t hash_of(const char *bytes, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)bytes[i]) * 0x100000001B3u;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    return (uint32_t)(h >> 32);
}

void assay_string_table_clear(assay_string_table *table)
{
    for (int32_t i = 0; i < table->n_blocks; i++)
        free(table->blocks[i]);
    free(table->blocks);
    free(table->entries);
    free(table->slots);
    memset(table, 0, sizeof *table);
}

/* The slot that holds the string, or the free one where it belongs. */
static uint32_t slot_of(const assay_string_table *table, const char *bytes, size_t n, uint32_t hash)
{
    uint32_t mask = table->n_slots - 1;
    for (uint32_t at = hash & mask;; at = (at + 1) & mask) {
        int32_t number = table->slots[at];
        if (number < 0)
            return at;
        const assay_string_entry *e = &table->entries[number];
        if (e->hash == hash && e->n == n && memcmp(e->bytes, bytes, n) == 0)
            return at;
    }
}

int32_t assay_string_table_find(const assay_string_table *table, const char *bytes, size_t n)
{
    if (n == 0 || n > table->longest)
        return -1;
    return table->slots[slot_of(table, bytes, n, hash_of(bytes, n))];
}

static assay_status grow_slots(assay_string_table *table)
{
    if (table->n_slots / 2 > (uint32_t)table->n)
        return ASSAY_OK;
    uint32_t n_slots = table->n_slots ? 2 * table->n_slots : 1024;
    int32_t *slots = NULL;
    ASSAY_TRY(assay_alloc(&slots, n_slots, sizeof *slots, "string table"));
    memset(slots, 0xFF, n_slots * sizeof *slots);
    free(table->slots);
    table->slots = slots;
    table->n_slots = n_slots;
    for (int32_t i = 0; i < table->n; i++) {
        const assay_string_entry *e = &table->entries[i];
        if (e->n)
            slots[slot_of(table, e->bytes, e->n, e->hash)] = i;
    }
    return ASSAY_OK;
}

static assay_status keep_bytes(const char **kept, assay_string_table *table, const char *bytes,
                               size_t n)
{
    if (n > table->left) {
        uint32_t size = n > BLOCK_BYTES ? (uint32_t)n : BLOCK_BYTES;
        char **blocks = realloc(table->blocks, ((size_t)table->n_blocks + 1) * sizeof *blocks);
        if (!blocks)
            return assay_fail(ASSAY_NO_MEMORY, "string table: no memory for %d blocks",
                              table->n_blocks + 1);
        table->blocks = blocks;
        ASSAY_TRY(assay_alloc(&blocks[table->n_blocks], size, 1, "strings"));
        table->n_blocks++;
        table->left = size;
    }
    /* Blocks are filled from their end, so that `left` alone says where the free part is. */
    table->left -= (uint32_t)n;
    char *place = n ? table->blocks[table->n_blocks - 1] + table->left : NULL;
    if (n)
        memcpy(place, bytes, n);
    *kept = place;
    return ASSAY_OK;
}

assay_status assay_string_table_add(int32_t *number, assay_string_table *table, const char *bytes,
                                    size_t n)
{
    if (n > MAX_STRING_BYTES)
        return assay_fail(ASSAY_BAD_FILE, "a token or merge has %zu bytes, at most %u are allowed",
                          n, MAX_STRING_BYTES);
    if (table->n == INT32_MAX / 4)
        return assay_fail(ASSAY_BAD_FILE, "more than %d different strings", table->n);
    ASSAY_TRY(grow_slots(table));
    uint32_t hash = hash_of(bytes, n);
    uint32_t slot = 0;
    if (n) {
        slot = slot_of(table, bytes, n, hash);
        if (table->slots[slot] >= 0) {
            *number = table->slots[slot];
            return ASSAY_OK;
        }
    }
    int64_t capacity = table->capacity;
    ASSAY_TRY(assay_grow(&table->entries, &capacity, (int64_t)table->n + 1, sizeof *table->entries,
                         "string table"));
    table->capacity = (int32_t)capacity;
    assay_string_entry *e = &table->entries[table->n];
    ASSAY_TRY(keep_bytes(&e->bytes, table, bytes, n));
    e->n = (uint32_t)n;
    e->hash = hash;
    if (n)
        table->slots[slot] = table->n;
    if (n > table->longest)
        table->longest = (uint32_t)n;
    *number = table->n++;
    return ASSAY_OK;
}
