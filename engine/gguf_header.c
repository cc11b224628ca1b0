/*
 * One GGUF file: mapping, header and keys (gguf_records.c has the tensors).
 *
 *     0   char[4] magic | u32 version | i64 n_tensors | i64 n_kv      24 bytes
 *    24   n_kv      x { string name | i32 type | value }
 *         n_tensors x { string name | u32 n_dims | i64 ne[n_dims] | i32 type | u64 offset }
 *         padding to the alignment (only when there are tensors) | data section
 *
 *     string = u64 length, bytes        array = i32 element type, u64 count, elements
 *
 * Source: docs/gguf.md of ggml; the refusals follow its loader (rows of gguf_rule.def), and refuse
 * zero dimensions and names with NUL in addition.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf_cursor.h"

#define ARRAY_COUNT_MAX (1ull << 30)
#define ALIGNMENT_DEFAULT 32
/* The smallest records: a one-byte name with a one-byte value; an empty name without dimensions. */
#define KEY_BYTES_MIN 14
#define TENSOR_BYTES_MIN 24

/* So many records of at least `each` bytes have to fit in the file. */
static assay_status check_count(const gguf_file *file, gguf_rule rule, uint64_t at, uint64_t count,
                                uint64_t each)
{
    uint64_t most = file->n_bytes / each;
    if (count <= most)
        return ASSAY_OK;
    return gguf_refuse(file, rule, at, "the count is %lld, expected 0 ... %llu in %llu bytes",
                       (long long)count, (unsigned long long)most,
                       (unsigned long long)file->n_bytes);
}

static assay_status read_head(gguf_file *file, gguf_cursor *c, int64_t *n_tensors, int64_t *n_keys)
{
    if (file->n_bytes >= 8 && memcmp(file->bytes, "\x89HDF\r\n\x1a\n", 8) == 0)
        return gguf_refuse(file, GGUF_RULE_MAGIC, 0,
                           "an HDF5 file, a capture perhaps, expected a GGUF model; captures are "
                           "judged by `assay diagnose CAPTURE --model MODEL.gguf`");
    if (file->n_bytes < 4 || memcmp(file->bytes, "GGUF", 4) != 0)
        return gguf_refuse(file, GGUF_RULE_MAGIC, 0,
                           "a file of %llu bytes does not start with GGUF",
                           (unsigned long long)file->n_bytes);
    c->at = 4;
    ASSAY_TRY(gguf_take_u32(&file->version, c, "version"));
    if (file->version != 0 && (file->version & 0xffff) == 0)
        return gguf_refuse(file, GGUF_RULE_ENDIAN, 4,
                           "version is 0x%08x, expected 2 or 3: a big-endian file; convert it to "
                           "little-endian",
                           file->version);
    if (file->version != 2 && file->version != 3)
        return gguf_refuse(file, GGUF_RULE_VERSION, 4, "version is %u, expected 2 or 3",
                           file->version);
    uint64_t tensors = 0, keys = 0;
    ASSAY_TRY(gguf_take_u64(&tensors, c, "tensor count"));
    ASSAY_TRY(gguf_take_u64(&keys, c, "key count"));
    ASSAY_TRY(check_count(file, GGUF_RULE_TENSOR_COUNT, 8, tensors, TENSOR_BYTES_MIN));
    ASSAY_TRY(check_count(file, GGUF_RULE_KEY_COUNT, 16, keys, KEY_BYTES_MIN));
    *n_tensors = (int64_t)tensors;
    *n_keys = (int64_t)keys;
    return ASSAY_OK;
}

static assay_status read_array(assay_gguf_key *key, gguf_cursor *c)
{
    uint32_t element = 0;
    uint64_t at = c->at;
    ASSAY_TRY(gguf_take_u32(&element, c, "element type"));
    if (element >= ASSAY_GGUF_TYPE_COUNT || element == ASSAY_GGUF_ARRAY)
        return gguf_refuse(c->file, GGUF_RULE_ARRAY_TYPE, at,
                           "key '%s' is an array of type %d%s, expected 0 ... 12 without 9",
                           key->name, (int32_t)element,
                           element == ASSAY_GGUF_ARRAY ? " (array of arrays)" : "");
    key->element = (assay_gguf_type)element;
    at = c->at;
    ASSAY_TRY(gguf_take_u64(&key->count, c, "element count"));
    uint64_t each = gguf_type_bytes(key->element);
    if (key->element == ASSAY_GGUF_STRING)
        each = 8; /* a string's length alone */
    if (key->count > ARRAY_COUNT_MAX || key->count > gguf_remaining(c) / each)
        return gguf_refuse(
            c->file, GGUF_RULE_ARRAY_COUNT, at,
            "key '%s' is an array of %llu %s, expected at most %llu (%llu bytes remain)", key->name,
            (unsigned long long)key->count, gguf_type_name(key->element), ARRAY_COUNT_MAX,
            (unsigned long long)gguf_remaining(c));
    key->value = c->file->bytes + c->at;
    if (key->element != ASSAY_GGUF_STRING) {
        c->at += key->count * each;
        return ASSAY_OK;
    }
    for (uint64_t i = 0; i < key->count; i++) {
        assay_gguf_string text = {0};
        ASSAY_TRY(gguf_take_string(&text, c, "an element"));
    }
    return ASSAY_OK;
}

static assay_status read_value(assay_gguf_key *key, gguf_cursor *c)
{
    uint32_t type = 0;
    uint64_t at = c->at;
    ASSAY_TRY(gguf_take_u32(&type, c, "type"));
    if (type >= ASSAY_GGUF_TYPE_COUNT)
        return gguf_refuse(c->file, GGUF_RULE_VALUE_TYPE, at,
                           "key '%s' has type %d, expected 0 ... 12", key->name, (int32_t)type);
    key->type = key->element = (assay_gguf_type)type;
    key->count = 1;
    key->offset = c->at;
    key->value = c->file->bytes + c->at;
    if (key->type == ASSAY_GGUF_ARRAY)
        return read_array(key, c);
    if (key->type == ASSAY_GGUF_STRING) {
        assay_gguf_string text = {0};
        return gguf_take_string(&text, c, "value");
    }
    const uint8_t *p = NULL;
    return gguf_take(&p, c, gguf_type_bytes(key->type), "value");
}

static assay_status read_keys(gguf_file *file, gguf_cursor *c, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        gguf_owner(c, "key %lld of %lld", (long long)i, (long long)n);
        uint64_t at = c->at;
        assay_gguf_string name = {0};
        ASSAY_TRY(gguf_take_string(&name, c, "name"));
        if (name.n == 0 || memchr(name.bytes, '\0', (size_t)name.n))
            return gguf_refuse(file, GGUF_RULE_KEY_NAME, at, "%s has %s, expected a name", c->owner,
                               name.n == 0 ? "an empty name" : "a NUL in its name");
        ASSAY_TRY(gguf_grow(&file->keys, i, sizeof *file->keys));
        assay_gguf_key *key = &file->keys[i];
        ASSAY_TRY(gguf_copy_name(&key->name, name));
        file->n_keys = i + 1; /* from here gguf_file_close frees it */
        gguf_owner(c, "key '%s'", key->name);
        ASSAY_TRY(read_value(key, c));
    }
    return ASSAY_OK;
}

static int by_key_name(const void *a, const void *b)
{
    const assay_gguf_key *x = *(const assay_gguf_key *const *)a;
    const assay_gguf_key *y = *(const assay_gguf_key *const *)b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x > y) - (x < y);
}

static assay_status index_keys(gguf_file *file)
{
    ASSAY_TRY(assay_alloc(&file->keys_by_name, (size_t)file->n_keys, sizeof *file->keys_by_name,
                          "key names"));
    for (int64_t i = 0; i < file->n_keys; i++)
        file->keys_by_name[i] = &file->keys[i];
    qsort(file->keys_by_name, (size_t)file->n_keys, sizeof *file->keys_by_name, by_key_name);
    for (int64_t i = 1; i < file->n_keys; i++) {
        const assay_gguf_key *again = file->keys_by_name[i];
        if (strcmp(file->keys_by_name[i - 1]->name, again->name) == 0)
            return gguf_refuse(file, GGUF_RULE_KEY_DUPLICATE, again->offset,
                               "key '%s' is there a second time, expected once", again->name);
    }
    return ASSAY_OK;
}

const assay_gguf_key *gguf_file_find_key(const gguf_file *file, const char *name)
{
    int64_t low = 0, high = file->n_keys;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        int order = strcmp(file->keys_by_name[mid]->name, name);
        if (order == 0)
            return file->keys_by_name[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

static assay_status read_alignment(gguf_file *file)
{
    file->alignment = ALIGNMENT_DEFAULT;
    const assay_gguf_key *key = gguf_file_find_key(file, "general.alignment");
    if (!key)
        return ASSAY_OK;
    if (key->type != ASSAY_GGUF_U32)
        return gguf_refuse(file, GGUF_RULE_ALIGNMENT, key->offset,
                           "key 'general.alignment' is %s, expected u32",
                           gguf_type_name(key->type));
    uint32_t alignment = gguf_load_u32(key->value);
    if (alignment == 0 || (alignment & (alignment - 1)) != 0)
        return gguf_refuse(file, GGUF_RULE_ALIGNMENT, key->offset,
                           "key 'general.alignment' is %u, expected a power of two", alignment);
    file->alignment = alignment;
    return ASSAY_OK;
}

static assay_status map(gguf_file *file)
{
    assay_status s = assay_mapping_open(&file->mapping, file->path);
    file->bytes = file->mapping.bytes;
    file->n_bytes = file->mapping.n_bytes;
    return s == ASSAY_BAD_FILE
               ? gguf_refuse(file, GGUF_RULE_REGULAR, 0, "not a regular file, expected a GGUF file")
               : s;
}

assay_status gguf_file_open(gguf_file *out, const char *path, int index)
{
    gguf_file file = {0};
    assay_status s;
    file.path = strdup(path);
    if (!file.path)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the path '%s'", path);
    ASSAY_GO(map(&file));
    gguf_cursor c = {&file, 0, "the header"};
    int64_t n_tensors = 0, n_keys = 0;
    ASSAY_GO(read_head(&file, &c, &n_tensors, &n_keys));
    ASSAY_GO(read_keys(&file, &c, n_keys));
    ASSAY_GO(index_keys(&file));
    ASSAY_GO(read_alignment(&file));
    ASSAY_GO(gguf_read_tensors(&file, &c, n_tensors, index));
    ASSAY_GO(gguf_place_data(&file, &c));
    *out = file;
    return ASSAY_OK;
out:
    gguf_file_close(&file);
    return s;
}

void gguf_file_close(gguf_file *file)
{
    for (int64_t i = 0; i < file->n_keys; i++)
        free((void *)file->keys[i].name);
    for (int64_t i = 0; i < file->n_tensors; i++)
        free((void *)file->tensors[i].name);
    free(file->keys);
    free(file->keys_by_name);
    free(file->tensors);
    assay_mapping_close(&file->mapping);
    free(file->path);
    *file = (gguf_file){0};
}
