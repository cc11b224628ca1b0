/*
 * One safetensors file: mapping, header, and every tensor's place.
 */
#include "references/safetensors_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES_MAX 100000000u /* limit of the reference reader */
#define HEADER_BYTES_MIN 2          /* {} */
#define PREFIX_BYTES 8

static const char *const rule_names[SAFETENSORS_RULE_COUNT] = {
#define X(id, name, holds) name,
#include "references/safetensors_rule.def"
#undef X
};

assay_status safetensors_refuse(const char *path, safetensors_rule rule, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
    return assay_fail(ASSAY_BAD_FILE, "'%s': rule '%s' broken: %s", path, rule_names[rule], text);
}

static assay_status map(safetensors_file *file)
{
    assay_status s = assay_mapping_open(&file->mapping, file->path);
    file->bytes = file->mapping.bytes;
    file->n_bytes = file->mapping.n_bytes;
    return s == ASSAY_BAD_FILE
               ? safetensors_refuse(file->path, SAFETENSORS_RULE_REGULAR, "not a regular file")
               : s;
}

static assay_status read_header(safetensors_file *file, uint64_t *data_start)
{
    uint64_t n = 0;
    json_error_t error;
    if (file->n_bytes >= PREFIX_BYTES)
        memcpy(&n, file->bytes, sizeof n); /* little-endian host */
    if (file->n_bytes < PREFIX_BYTES || n < HEADER_BYTES_MIN || n > HEADER_BYTES_MAX ||
        n > file->n_bytes - PREFIX_BYTES)
        return safetensors_refuse(file->path, SAFETENSORS_RULE_HEADER_SIZE,
                                  "header of %llu bytes in a file of %llu, expected %d ... %u that "
                                  "end inside the file",
                                  (unsigned long long)n, (unsigned long long)file->n_bytes,
                                  HEADER_BYTES_MIN, HEADER_BYTES_MAX);
    file->header = json_loadb((const char *)file->bytes + PREFIX_BYTES, (size_t)n,
                              JSON_REJECT_DUPLICATES, &error);
    if (!file->header)
        return safetensors_refuse(file->path, SAFETENSORS_RULE_JSON, "header line %d column %d: %s",
                                  error.line, error.column, error.text);
    if (!json_is_object(file->header))
        return safetensors_refuse(file->path, SAFETENSORS_RULE_JSON,
                                  "the header is no JSON object");
    *data_start = PREFIX_BYTES + n;
    return ASSAY_OK;
}

static assay_status read_dtype(assay_safetensor *t, const safetensors_file *file,
                               const json_t *entry)
{
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    if (!text)
        return safetensors_refuse(file->path, SAFETENSORS_RULE_ENTRY,
                                  "tensor '%s' has no dtype, expected a text", t->name);
    for (int d = 0; d < ASSAY_SAFETENSORS_DTYPE_COUNT; d++)
        if (strcmp(text, assay_safetensors_dtype_name((assay_safetensors_dtype)d)) == 0) {
            t->dtype = (assay_safetensors_dtype)d;
            return ASSAY_OK;
        }
    return safetensors_refuse(file->path, SAFETENSORS_RULE_DTYPE,
                              "tensor '%s' has dtype '%s', expected F32, BF16, F16, F8_E4M3, ...",
                              t->name, text);
}

static assay_status read_shape(assay_safetensor *t, const safetensors_file *file,
                               const json_t *entry)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return safetensors_refuse(file->path, SAFETENSORS_RULE_ENTRY,
                                  "tensor '%s' has no shape, expected a list", t->name);
    size_t n = json_array_size(shape);
    if (n > ASSAY_SAFETENSORS_MAX_DIMS)
        return safetensors_refuse(file->path, SAFETENSORS_RULE_SHAPE,
                                  "tensor '%s' has %zu dimensions, expected at most %d", t->name, n,
                                  ASSAY_SAFETENSORS_MAX_DIMS);
    t->count = 1;
    for (size_t d = 0; d < n; d++) {
        const json_t *item = json_array_get(shape, d);
        t->dims[d] = json_is_integer(item) ? json_integer_value(item) : -1;
        if (t->dims[d] < 0 || __builtin_mul_overflow(t->count, t->dims[d], &t->count))
            return safetensors_refuse(file->path, SAFETENSORS_RULE_SHAPE,
                                      "tensor '%s' has dimension %zu = %lld, expected a number of "
                                      "at least 0 with a product below 2^63",
                                      t->name, d, (long long)t->dims[d]);
    }
    t->n_dims = (int)n;
    return ASSAY_OK;
}

static assay_status read_offsets(assay_safetensor *t, const safetensors_file *file,
                                 const json_t *entry, uint64_t data_start)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *second = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second))
        return safetensors_refuse(file->path, SAFETENSORS_RULE_ENTRY,
                                  "tensor '%s' has no data_offsets, expected two numbers", t->name);
    json_int_t begin = json_integer_value(first), end = json_integer_value(second);
    uint64_t room = file->n_bytes - data_start, bytes;
    if (begin < 0 || end < begin || (uint64_t)end > room)
        return safetensors_refuse(file->path, SAFETENSORS_RULE_OFFSETS,
                                  "tensor '%s' has offsets %lld ... %lld, expected inside 0 ... "
                                  "%llu",
                                  t->name, (long long)begin, (long long)end,
                                  (unsigned long long)room);
    if (__builtin_mul_overflow((uint64_t)t->count, (uint64_t)safetensors_dtype_bytes(t->dtype),
                               &bytes) ||
        bytes != (uint64_t)(end - begin))
        return safetensors_refuse(file->path, SAFETENSORS_RULE_SIZE,
                                  "tensor '%s' spans %lld bytes, expected %lld elements of %s",
                                  t->name, (long long)(end - begin), (long long)t->count,
                                  assay_safetensors_dtype_name(t->dtype));
    t->n_bytes = bytes;
    t->data = file->bytes + data_start + begin;
    return ASSAY_OK;
}

static assay_status read_entry(assay_safetensor *t, const safetensors_file *file,
                               const json_t *entry, uint64_t data_start)
{
    if (!json_is_object(entry))
        return safetensors_refuse(file->path, SAFETENSORS_RULE_ENTRY,
                                  "tensor '%s' is no object, expected dtype, shape, data_offsets",
                                  t->name);
    ASSAY_TRY(read_dtype(t, file, entry));
    ASSAY_TRY(read_shape(t, file, entry));
    return read_offsets(t, file, entry, data_start);
}

static assay_status read_entries(safetensors_file *file, uint64_t data_start)
{
    const char *name;
    json_t *entry;
    ASSAY_TRY(assay_alloc(&file->tensors, json_object_size(file->header), sizeof *file->tensors,
                          "tensors"));
    json_object_foreach(file->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        assay_safetensor *t = &file->tensors[file->n_tensors++];
        t->name = name;
        ASSAY_TRY(read_entry(t, file, entry, data_start));
    }
    return ASSAY_OK;
}

static int by_place(const void *a, const void *b)
{
    const assay_safetensor *x = a, *y = b;
    if (x->data != y->data)
        return (const uint8_t *)x->data < (const uint8_t *)y->data ? -1 : 1;
    return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes); /* empty ones first */
}

static assay_status check_places(const safetensors_file *file, uint64_t data_start)
{
    const uint8_t *at = file->bytes + data_start, *end = file->bytes + file->n_bytes;
    const char *before = "the header";
    qsort(file->tensors, (size_t)file->n_tensors, sizeof *file->tensors, by_place);
    for (int64_t i = 0; i < file->n_tensors; i++) {
        const assay_safetensor *t = &file->tensors[i];
        const uint8_t *data = t->data;
        if (data < at)
            return safetensors_refuse(file->path, SAFETENSORS_RULE_OVERLAP,
                                      "tensors '%s' and '%s' overlap by %lld bytes", before,
                                      t->name, (long long)(at - data));
        if (data > at)
            return safetensors_refuse(file->path, SAFETENSORS_RULE_GAP,
                                      "%lld bytes between '%s' and '%s', expected none",
                                      (long long)(data - at), before, t->name);
        at = data + t->n_bytes;
        before = t->name;
    }
    if (at != end)
        return safetensors_refuse(file->path, SAFETENSORS_RULE_GAP,
                                  "%lld bytes behind '%s', expected the file's end",
                                  (long long)(end - at), before);
    return ASSAY_OK;
}

assay_status safetensors_file_open(safetensors_file *out, const char *path)
{
    safetensors_file file = {0};
    uint64_t data_start = 0;
    assay_status s;
    file.path = strdup(path);
    if (!file.path)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the path '%s'", path);
    ASSAY_GO(map(&file));
    ASSAY_GO(read_header(&file, &data_start));
    ASSAY_GO(read_entries(&file, data_start));
    ASSAY_GO(check_places(&file, data_start));
    *out = file;
    return ASSAY_OK;
out:
    safetensors_file_close(&file);
    return s;
}

void safetensors_file_close(safetensors_file *file)
{
    json_decref(file->header);
    free(file->tensors);
    assay_mapping_close(&file->mapping);
    free(file->path);
    *file = (safetensors_file){0};
}
