/*
 * What reading a header needs: checked steps through the mapped file, refusals, and growing arrays.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf_cursor.h"

#define STRING_BYTES_MAX (1ull << 30)

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
    for (char *p = text; *p;
         p++) /* names come from the file: no control characters to a terminal */
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
    return assay_fail(ASSAY_BAD_FILE, "'%s': rule '%s' broken at byte %llu: %s", file->path,
                      rule_names[rule], (unsigned long long)at, text);
}

uint64_t gguf_remaining(const gguf_cursor *c)
{
    return c->file->n_bytes - c->at;
}

void gguf_owner(gguf_cursor *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->owner, sizeof c->owner, format, args);
    va_end(args);
}

assay_status gguf_take(const uint8_t **out, gguf_cursor *c, uint64_t n, const char *field)
{
    if (n > gguf_remaining(c))
        return gguf_refuse(c->file, GGUF_RULE_CUT, c->at,
                           "%s of %s: %llu bytes remain in the file, expected %llu", field,
                           c->owner, (unsigned long long)gguf_remaining(c), (unsigned long long)n);
    *out = c->file->bytes + c->at;
    c->at += n;
    return ASSAY_OK;
}

assay_status gguf_take_u32(uint32_t *out, gguf_cursor *c, const char *field)
{
    const uint8_t *p = NULL;
    ASSAY_TRY(gguf_take(&p, c, 4, field));
    *out = gguf_load_u32(p);
    return ASSAY_OK;
}

assay_status gguf_take_u64(uint64_t *out, gguf_cursor *c, const char *field)
{
    const uint8_t *p = NULL;
    ASSAY_TRY(gguf_take(&p, c, 8, field));
    *out = gguf_load_u64(p);
    return ASSAY_OK;
}

assay_status gguf_take_string(assay_gguf_string *out, gguf_cursor *c, const char *field)
{
    uint64_t at = c->at, n = 0;
    ASSAY_TRY(gguf_take_u64(&n, c, field));
    if (n > STRING_BYTES_MAX || n > gguf_remaining(c))
        return gguf_refuse(
            c->file, GGUF_RULE_STRING_LENGTH, at,
            "%s of %s has length %llu, expected at most %llu (%llu bytes remain in the file)",
            field, c->owner, (unsigned long long)n, STRING_BYTES_MAX,
            (unsigned long long)gguf_remaining(c));
    const uint8_t *bytes = NULL;
    ASSAY_TRY(gguf_take(&bytes, c, n, field));
    *out = (assay_gguf_string){(const char *)bytes, n};
    return ASSAY_OK;
}

assay_status gguf_copy_name(const char **out, assay_gguf_string name)
{
    char *copy = NULL;
    ASSAY_TRY(assay_alloc(&copy, (size_t)name.n + 1, 1, "name"));
    memcpy(copy, name.bytes, (size_t)name.n);
    *out = copy;
    return ASSAY_OK;
}

assay_status gguf_grow(void *array, int64_t n, size_t size)
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
