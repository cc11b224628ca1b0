/*
 * One GGUF file: mapping, header, keys, tensor records, and the place of the data section.
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
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/gguf_file.h"
#include "engine/quant.h"

#define STRING_BYTES_MAX (1ull << 30)
#define ARRAY_COUNT_MAX (1ull << 30)
#define TENSOR_NAME_MAX 63
#define ALIGNMENT_DEFAULT 32
/* The smallest records: a one-byte name with a one-byte value; an empty name without dimensions. */
#define KEY_BYTES_MIN 14
#define TENSOR_BYTES_MIN 24

static const char *const rule_names[GGUF_RULE_COUNT] = {
#define X(id, name, holds) name,
#include "engine/gguf_rule.def"
#undef X
};

static const struct {
    const char *name;
    size_t bytes;
} types[ASSAY_GGUF_TYPE_COUNT] = {
    {"u8", 1},   {"i8", 1},     {"u16", 2},   {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
    {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8},
};

size_t gguf_type_bytes(assay_gguf_type type)
{
    return types[type].bytes;
}

const char *gguf_type_name(assay_gguf_type type)
{
    return types[type].name;
}

uint16_t gguf_load_u16(const void *p)
{
    uint16_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

uint32_t gguf_load_u32(const void *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

uint64_t gguf_load_u64(const void *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

assay_status gguf_refuse(const gguf_file *file, gguf_rule rule, uint64_t at, const char *format,
                         ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return assay_fail(ASSAY_BAD_FILE, "'%s': rule '%s' broken at byte %llu: %s", file->path,
                      rule_names[rule], (unsigned long long)at, text);
}

/* The place that is read next. */
typedef struct cursor {
    const gguf_file *file;
    uint64_t at;
} cursor;

static uint64_t remaining(const cursor *c)
{
    return c->file->n_bytes - c->at;
}

/* n bytes, or a refusal that names the field and its owner. */
static assay_status take(const uint8_t **out, cursor *c, uint64_t n, const char *field,
                         const char *owner)
{
    if (n > remaining(c))
        return gguf_refuse(c->file, GGUF_RULE_CUT, c->at,
                           "%s of %s: %llu bytes remain in the file, expected %llu", field, owner,
                           (unsigned long long)remaining(c), (unsigned long long)n);
    *out = c->file->bytes + c->at;
    c->at += n;
    return ASSAY_OK;
}

static assay_status take_u32(uint32_t *out, cursor *c, const char *field, const char *owner)
{
    const uint8_t *p = NULL;
    ASSAY_TRY(take(&p, c, 4, field, owner));
    *out = gguf_load_u32(p);
    return ASSAY_OK;
}

static assay_status take_u64(uint64_t *out, cursor *c, const char *field, const char *owner)
{
    const uint8_t *p = NULL;
    ASSAY_TRY(take(&p, c, 8, field, owner));
    *out = gguf_load_u64(p);
    return ASSAY_OK;
}

static assay_status take_string(assay_gguf_string *out, cursor *c, const char *field,
                                const char *owner)
{
    uint64_t at = c->at;
    assay_gguf_string text = {0};
    ASSAY_TRY(take_u64(&text.n, c, field, owner));
    if (text.n > STRING_BYTES_MAX || text.n > remaining(c))
        return gguf_refuse(
            c->file, GGUF_RULE_STRING_LENGTH, at,
            "%s of %s has length %llu, expected at most %llu (%llu bytes remain in the file)",
            field, owner, (unsigned long long)text.n, STRING_BYTES_MAX,
            (unsigned long long)remaining(c));
    const uint8_t *bytes = NULL;
    ASSAY_TRY(take(&bytes, c, text.n, field, owner));
    text.bytes = (const char *)bytes;
    *out = text;
    return ASSAY_OK;
}

/* A heap copy with NUL; the name was checked to hold none inside. */
static assay_status copy_name(char **out, assay_gguf_string name)
{
    ASSAY_TRY(assay_alloc(out, (size_t)name.n + 1, 1, "name"));
    if (name.n > 0)
        memcpy(*out, name.bytes, (size_t)name.n);
    return ASSAY_OK;
}

/* Makes room for record n (zeroed): doubles, so memory follows what was read and not what the file
 * claims. */
static assay_status grow(void *array, int64_t n, size_t size)
{
    if (n != 0 && (n & (n - 1)) != 0)
        return ASSAY_OK;
    size_t room = n == 0 ? 1 : 2 * (size_t)n;
    void *old;
    memcpy(&old, array, sizeof old);
    void *wider = reallocarray(old, room, size);
    if (!wider)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for %zu records of %zu bytes", room, size);
    memset((char *)wider + (size_t)n * size, 0, (room - (size_t)n) * size);
    memcpy(array, &wider, sizeof wider);
    return ASSAY_OK;
}

static assay_status read_head(gguf_file *file, cursor *c, int64_t *n_tensors, int64_t *n_keys)
{
    if (file->n_bytes < 4 || memcmp(file->bytes, "GGUF", 4) != 0)
        return gguf_refuse(file, GGUF_RULE_MAGIC, 0,
                           "a file of %llu bytes does not start with GGUF",
                           (unsigned long long)file->n_bytes);
    c->at = 4;
    ASSAY_TRY(take_u32(&file->version, c, "version", "the header"));
    if (file->version != 0 && (file->version & 0xffff) == 0)
        return gguf_refuse(file, GGUF_RULE_ENDIAN, 4,
                           "version is 0x%08x, expected 2 or 3: a big-endian file; convert it to "
                           "little-endian",
                           file->version);
    if (file->version != 2 && file->version != 3)
        return gguf_refuse(file, GGUF_RULE_VERSION, 4, "version is %u, expected 2 or 3",
                           file->version);
    uint64_t count = 0;
    ASSAY_TRY(take_u64(&count, c, "tensor count", "the header"));
    if (count > INT64_MAX || count > file->n_bytes / TENSOR_BYTES_MIN)
        return gguf_refuse(file, GGUF_RULE_TENSOR_COUNT, 8,
                           "tensor count is %lld, expected 0 ... %llu in a file of %llu bytes",
                           (long long)count, (unsigned long long)(file->n_bytes / TENSOR_BYTES_MIN),
                           (unsigned long long)file->n_bytes);
    *n_tensors = (int64_t)count;
    ASSAY_TRY(take_u64(&count, c, "key count", "the header"));
    if (count > INT64_MAX || count > file->n_bytes / KEY_BYTES_MIN)
        return gguf_refuse(file, GGUF_RULE_KEY_COUNT, 16,
                           "key count is %lld, expected 0 ... %llu in a file of %llu bytes",
                           (long long)count, (unsigned long long)(file->n_bytes / KEY_BYTES_MIN),
                           (unsigned long long)file->n_bytes);
    *n_keys = (int64_t)count;
    return ASSAY_OK;
}

static assay_status read_array(assay_gguf_key *key, cursor *c)
{
    uint32_t element = 0;
    uint64_t at = c->at;
    ASSAY_TRY(take_u32(&element, c, "element type", key->name));
    if (element >= ASSAY_GGUF_TYPE_COUNT || element == ASSAY_GGUF_ARRAY)
        return gguf_refuse(c->file, GGUF_RULE_ARRAY_TYPE, at,
                           "key '%s' is an array of type %d%s, expected 0 ... 12 without 9",
                           key->name, (int32_t)element,
                           element == ASSAY_GGUF_ARRAY ? " (array of arrays)" : "");
    key->element = (assay_gguf_type)element;
    at = c->at;
    ASSAY_TRY(take_u64(&key->count, c, "element count", key->name));
    uint64_t each = gguf_type_bytes(key->element);
    if (key->element == ASSAY_GGUF_STRING)
        each = 8; /* a string's length alone */
    if (key->count > ARRAY_COUNT_MAX || key->count > remaining(c) / each)
        return gguf_refuse(
            c->file, GGUF_RULE_ARRAY_COUNT, at,
            "key '%s' is an array of %llu %s, expected at most %llu (%llu bytes remain)", key->name,
            (unsigned long long)key->count, gguf_type_name(key->element), ARRAY_COUNT_MAX,
            (unsigned long long)remaining(c));
    key->value = c->file->bytes + c->at;
    if (key->element != ASSAY_GGUF_STRING) {
        c->at += key->count * each;
        return ASSAY_OK;
    }
    for (uint64_t i = 0; i < key->count; i++) {
        assay_gguf_string text = {0};
        ASSAY_TRY(take_string(&text, c, "an element", key->name));
    }
    return ASSAY_OK;
}

static assay_status read_value(assay_gguf_key *key, cursor *c)
{
    uint32_t type = 0;
    uint64_t at = c->at;
    ASSAY_TRY(take_u32(&type, c, "type", key->name));
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
        return take_string(&text, c, "value", key->name);
    }
    const uint8_t *p = NULL;
    return take(&p, c, gguf_type_bytes(key->type), "value", key->name);
}

static assay_status read_keys(gguf_file *file, cursor *c, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        char owner[64];
        snprintf(owner, sizeof owner, "key %lld of %lld", (long long)i, (long long)n);
        uint64_t at = c->at;
        assay_gguf_string name = {0};
        ASSAY_TRY(take_string(&name, c, "name", owner));
        if (name.n == 0 || memchr(name.bytes, '\0', (size_t)name.n))
            return gguf_refuse(file, GGUF_RULE_KEY_NAME, at, "%s has %s, expected a name", owner,
                               name.n == 0 ? "an empty name" : "a NUL in its name");
        ASSAY_TRY(grow(&file->keys, i, sizeof *file->keys));
        assay_gguf_key *key = &file->keys[i];
        char *copy = NULL;
        ASSAY_TRY(copy_name(&copy, name));
        key->name = copy;
        file->n_keys = i + 1; /* from here gguf_file_close frees it */
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

static assay_status read_dims(assay_gguf_tensor_info *t, cursor *c)
{
    uint32_t n_dims = 0;
    uint64_t at = c->at;
    ASSAY_TRY(take_u32(&n_dims, c, "dimension count", t->name));
    if (n_dims > 4)
        return gguf_refuse(c->file, GGUF_RULE_DIM_COUNT, at,
                           "tensor '%s' has %u dimensions, expected at most 4", t->name, n_dims);
    t->n_dims = (int)n_dims;
    int64_t elements = 1;
    for (int d = 0; d < 4; d++) {
        uint64_t n = 1;
        at = c->at;
        if (d < t->n_dims)
            ASSAY_TRY(take_u64(&n, c, "a dimension", t->name));
        t->ne[d] = (int64_t)n;
        if (t->ne[d] < 0)
            return gguf_refuse(c->file, GGUF_RULE_DIM_NEGATIVE, at,
                               "tensor '%s' has dimension %d = %lld, expected at least 1", t->name,
                               d, (long long)t->ne[d]);
        if (t->ne[d] == 0)
            return gguf_refuse(c->file, GGUF_RULE_DIM_ZERO, at,
                               "tensor '%s' has dimension %d = 0, expected at least 1", t->name, d);
        if (d > 0 && INT64_MAX / t->ne[d] <= elements)
            return gguf_refuse(c->file, GGUF_RULE_ELEMENT_COUNT, at,
                               "tensor '%s' has %lld x %lld elements up to dimension %d, expected "
                               "less than 2^63",
                               t->name, (long long)elements, (long long)t->ne[d], d);
        elements *= t->ne[d];
    }
    return ASSAY_OK;
}

static assay_status read_type(assay_gguf_tensor_info *t, cursor *c)
{
    uint32_t type = 0;
    uint64_t at = c->at;
    ASSAY_TRY(take_u32(&type, c, "type", t->name));
    t->type = (int)(int32_t)type;
    const assay_quant *quant = assay_quant_find(t->type);
    if (!quant)
        return gguf_refuse(c->file, GGUF_RULE_TENSOR_TYPE, at,
                           "tensor '%s' has type %d, expected 0 ... 42 without the removed 4, 5, "
                           "31 ... 33 and 36 ... 38",
                           t->name, t->type);
    if (t->ne[0] % quant->block_elements != 0)
        return gguf_refuse(c->file, GGUF_RULE_BLOCK_CUT, at,
                           "tensor '%s' has rows of %lld elements, expected a multiple of %d (%s)",
                           t->name, (long long)t->ne[0], quant->block_elements, quant->name);
    uint64_t blocks = (uint64_t)(t->ne[0] / quant->block_elements) * (uint64_t)t->ne[1] *
                      (uint64_t)t->ne[2] * (uint64_t)t->ne[3];
    if (__builtin_mul_overflow(blocks, (uint64_t)quant->block_bytes, &t->n_bytes))
        return gguf_refuse(c->file, GGUF_RULE_TENSOR_BYTES, at,
                           "tensor '%s' has %llu blocks of %d bytes, expected less than 2^64 bytes",
                           t->name, (unsigned long long)blocks, quant->block_bytes);
    return ASSAY_OK;
}

/* Reads the record of one tensor; *sum is the running sum of padded sizes, which its offset has to
 * be. */
static assay_status read_tensor(assay_gguf_tensor_info *t, cursor *c, uint64_t *sum)
{
    ASSAY_TRY(read_dims(t, c));
    ASSAY_TRY(read_type(t, c));
    uint64_t at = c->at;
    ASSAY_TRY(take_u64(&t->offset, c, "offset", t->name));
    if (t->offset != *sum)
        return gguf_refuse(c->file, GGUF_RULE_TENSOR_OFFSET, at,
                           "tensor '%s' has offset %llu, expected %llu", t->name,
                           (unsigned long long)t->offset, (unsigned long long)*sum);
    uint64_t align = c->file->alignment, end, padded;
    bool over = __builtin_add_overflow(*sum, t->n_bytes, &end) ||
                __builtin_add_overflow(end, align - 1, &padded);
    if (over)
        return gguf_refuse(c->file, GGUF_RULE_DATA_BYTES, at,
                           "tensor '%s' of %llu bytes at offset %llu, expected an end below 2^64",
                           t->name, (unsigned long long)t->n_bytes, (unsigned long long)*sum);
    *sum = padded & ~(align - 1);
    return ASSAY_OK;
}

static assay_status read_tensors(gguf_file *file, cursor *c, int64_t n, int index)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        char owner[64];
        snprintf(owner, sizeof owner, "tensor %lld of %lld", (long long)i, (long long)n);
        uint64_t at = c->at;
        assay_gguf_string name = {0};
        ASSAY_TRY(take_string(&name, c, "name", owner));
        if (name.n > TENSOR_NAME_MAX || memchr(name.bytes, '\0', (size_t)name.n))
            return gguf_refuse(file, GGUF_RULE_TENSOR_NAME, at,
                               "%s has a name of %llu bytes%s, expected at most %d and no NUL",
                               owner, (unsigned long long)name.n,
                               name.n > TENSOR_NAME_MAX ? "" : " with a NUL", TENSOR_NAME_MAX);
        ASSAY_TRY(grow(&file->tensors, i, sizeof *file->tensors));
        assay_gguf_tensor_info *t = &file->tensors[i];
        char *copy = NULL;
        ASSAY_TRY(copy_name(&copy, name));
        t->name = copy;
        t->file = index;
        file->n_tensors = i + 1;
        ASSAY_TRY(read_tensor(t, c, &sum));
    }
    return ASSAY_OK;
}

/* Turns offsets in the data section into addresses, which have to lie inside the file. */
static assay_status place_data(gguf_file *file, const cursor *c)
{
    file->data_start = c->at;
    if (file->n_tensors == 0)
        return ASSAY_OK;
    uint64_t align = file->alignment;
    file->data_start = (c->at + align - 1) & ~(align - 1); /* both far below 2^63 */
    if (file->data_start > file->n_bytes)
        return gguf_refuse(
            file, GGUF_RULE_DATA_START, c->at,
            "the data section starts at %llu, expected at most %llu, the file's size",
            (unsigned long long)file->data_start, (unsigned long long)file->n_bytes);
    uint64_t room = file->n_bytes - file->data_start;
    for (int64_t i = 0; i < file->n_tensors; i++) {
        assay_gguf_tensor_info *t = &file->tensors[i];
        if (t->offset > room || t->n_bytes > room - t->offset)
            return gguf_refuse(
                file, GGUF_RULE_DATA_END, file->data_start,
                "tensor '%s' has %llu bytes at offset %llu of the data section, expected an end "
                "of at most %llu",
                t->name, (unsigned long long)t->n_bytes, (unsigned long long)t->offset,
                (unsigned long long)room);
        t->offset += file->data_start;
        t->data = file->bytes + t->offset;
    }
    return ASSAY_OK;
}

static assay_status map(gguf_file *file)
{
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    if (fd < 0)
        return assay_fail(ASSAY_IO, "cannot open '%s': %s", file->path, strerror(errno));
    struct stat st;
    assay_status s = ASSAY_OK;
    if (fstat(fd, &st) != 0)
        s = assay_fail(ASSAY_IO, "cannot stat '%s': %s", file->path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        s = gguf_refuse(file, GGUF_RULE_REGULAR, 0, "not a regular file, expected a GGUF file");
    else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            s = assay_fail(ASSAY_IO, "cannot map '%s': %s", file->path, strerror(errno));
        else {
            file->bytes = p;
            file->n_bytes = (uint64_t)st.st_size;
        }
    }
    close(fd);
    return s;
}

assay_status gguf_file_open(gguf_file *out, const char *path, int index)
{
    gguf_file file = {0};
    assay_status s;
    file.path = strdup(path);
    if (!file.path)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the path '%s'", path);
    ASSAY_GO(map(&file));
    cursor c = {&file, 0};
    int64_t n_tensors = 0, n_keys = 0;
    ASSAY_GO(read_head(&file, &c, &n_tensors, &n_keys));
    ASSAY_GO(read_keys(&file, &c, n_keys));
    ASSAY_GO(index_keys(&file));
    ASSAY_GO(read_alignment(&file));
    ASSAY_GO(read_tensors(&file, &c, n_tensors, index));
    ASSAY_GO(place_data(&file, &c));
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
    if (file->bytes)
        munmap((void *)file->bytes, (size_t)file->n_bytes);
    free(file->path);
    *file = (gguf_file){0};
}
