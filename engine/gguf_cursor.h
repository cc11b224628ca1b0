/*
 * Checked steps through the header of one mapped file. Private to engine/gguf*.c.
 */
#ifndef ASSAY_ENGINE_GGUF_CURSOR_H
#define ASSAY_ENGINE_GGUF_CURSOR_H

#include "engine/gguf_file.h"

/* The place that is read next, and whose record it is ("key 'general.name'") for the messages. */
typedef struct gguf_cursor {
    const gguf_file *file;
    uint64_t at;
    char owner[128];
} gguf_cursor;

void gguf_owner(gguf_cursor *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint64_t gguf_remaining(const gguf_cursor *c);

/* Each steps over one field, or refuses (rules cut and string-length) and names field and owner. */
assay_status gguf_take(const uint8_t **out, gguf_cursor *c, uint64_t n, const char *field);
assay_status gguf_take_u32(uint32_t *out, gguf_cursor *c, const char *field);
assay_status gguf_take_u64(uint64_t *out, gguf_cursor *c, const char *field);
assay_status gguf_take_string(assay_gguf_string *out, gguf_cursor *c, const char *field);

/* A heap copy with NUL at its end. */
assay_status gguf_copy_name(const char **out, assay_gguf_string name);

/*
 * Makes room for record n of *array (zeroed). Doubles, so memory follows what was read and not what
 * the file claims.
 */
assay_status gguf_grow(void *array, int64_t n, size_t size);

/* Reads n tensor records of file number `index`; then turns their offsets into addresses. */
assay_status gguf_read_tensors(gguf_file *file, gguf_cursor *c, int64_t n, int index);
assay_status gguf_place_data(gguf_file *file, const gguf_cursor *c);

#endif
