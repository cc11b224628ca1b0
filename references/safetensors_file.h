/*
 * Inside of the safetensors reader: one mapped file, the index, and the one function that refuses.
 * Private to references/safetensors*.c.
 */
#ifndef ASSAY_REFERENCES_SAFETENSORS_FILE_H
#define ASSAY_REFERENCES_SAFETENSORS_FILE_H

#include <jansson.h>
#include <stdbool.h>

#include "engine/base/mapping.h"
#include "references/safetensors.h"

typedef enum {
#define X(id, name, holds) SAFETENSORS_RULE_##id,
#include "references/safetensors_rule.def"
#undef X
    SAFETENSORS_RULE_COUNT
} safetensors_rule;

typedef struct safetensors_file {
    char *path;
    assay_mapping mapping;
    const uint8_t *bytes; /* = mapping.bytes */
    uint64_t n_bytes;
    json_t *header; /* owns the names */
    assay_safetensor *tensors;
    int64_t n_tensors;
} safetensors_file;

struct assay_safetensors {
    int n_files;
    safetensors_file *files;
    assay_safetensor *tensors; /* of all files, by name */
    int64_t n_tensors;
    json_t *index; /* NULL: none */
    char *index_path;
};

size_t safetensors_dtype_bytes(assay_safetensors_dtype dtype);

assay_status safetensors_file_open(safetensors_file *out, const char *path);
void safetensors_file_close(safetensors_file *file);

assay_status safetensors_open_files(assay_safetensors *set, const char *const *paths, int n);
assay_status safetensors_open_index(assay_safetensors *set, const char *path);
/* Every tensor of the index is in the file that it names. */
assay_status safetensors_check_index(const assay_safetensors *set);

/* "'<path>': rule '<name>' broken: <text>", ASSAY_BAD_FILE. */
assay_status safetensors_refuse(const char *path, safetensors_rule rule, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
