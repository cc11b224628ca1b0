/*
 * Reader of safetensors checkpoints: one file, or the shards that model.safetensors.index.json
 * names. Memory-mapped; only the headers are read.
 *
 *     0   u64 n, little-endian | n bytes of JSON | data
 *
 *     JSON  {"name": {"dtype": "BF16", "shape": [rows, cols], "data_offsets": [begin, end]}, ...,
 *            "__metadata__": {"key": "text"}}         offsets count from the data's start
 *
 * Refused, each by a rule of safetensors_rule.def with file, tensor, found and expected: a header
 * that does not fit, JSON that is none (with line and column) or has a name twice, unknown number
 * formats, shapes and offsets that disagree, data that overlaps, has gaps or ends elsewhere than
 * the file, an index that names a file outside its folder or a tensor that is not in its file.
 *
 * Source: the format's specification (README of huggingface/safetensors).
 */
#ifndef ASSAY_REFERENCES_SAFETENSORS_H
#define ASSAY_REFERENCES_SAFETENSORS_H

#include <stdint.h>

#include "engine/base/status.h"

#define ASSAY_SAFETENSORS_MAX_DIMS 8

typedef struct assay_safetensors assay_safetensors;

/* id, name in the file, bytes */
#define ASSAY_SAFETENSORS_DTYPES(X)                                                                \
    X(BOOL, "BOOL", 1)                                                                             \
    X(U8, "U8", 1)                                                                                 \
    X(I8, "I8", 1)                                                                                 \
    X(F8_E5M2, "F8_E5M2", 1)                                                                       \
    X(F8_E4M3, "F8_E4M3", 1)                                                                       \
    X(I16, "I16", 2)                                                                               \
    X(U16, "U16", 2)                                                                               \
    X(F16, "F16", 2)                                                                               \
    X(BF16, "BF16", 2)                                                                             \
    X(I32, "I32", 4)                                                                               \
    X(U32, "U32", 4)                                                                               \
    X(F32, "F32", 4)                                                                               \
    X(F64, "F64", 8)                                                                               \
    X(I64, "I64", 8)                                                                               \
    X(U64, "U64", 8)

typedef enum {
#define X(id, name, bytes) ASSAY_SAFETENSORS_##id,
    ASSAY_SAFETENSORS_DTYPES(X)
#undef X
        ASSAY_SAFETENSORS_DTYPE_COUNT
} assay_safetensors_dtype;

typedef struct assay_safetensor {
    const char *name; /* borrowed */
    assay_safetensors_dtype dtype;
    int n_dims;
    int64_t dims[ASSAY_SAFETENSORS_MAX_DIMS]; /* outermost first */
    int64_t count;
    int file;
    uint64_t n_bytes;
    const void *data; /* in the mapped file, unaligned */
} assay_safetensor;

/*
 * path: a .safetensors file, an index file (.json), or a folder with model.safetensors.index.json
 * or model.safetensors. Fails: ASSAY_BAD_FILE, ASSAY_IO, ASSAY_MISSING (a folder with neither).
 */
assay_status assay_safetensors_open(assay_safetensors **out, const char *path);
void assay_safetensors_close(assay_safetensors *set);

int assay_safetensors_n_files(const assay_safetensors *set);
const char *assay_safetensors_file_path(const assay_safetensors *set, int index);
int64_t assay_safetensors_n_tensors(const assay_safetensors *set);
const assay_safetensor *assay_safetensors_at(const assay_safetensors *set,
                                             int64_t index); /* by name */
const assay_safetensor *assay_safetensors_find(const assay_safetensors *set,
                                               const char *name); /* NULL: absent */
const char *assay_safetensors_dtype_name(assay_safetensors_dtype dtype);

/* Elements [first, first + n) as float32. Fails: ASSAY_UNSUPPORTED (integers and bool). */
assay_status assay_safetensors_decode(float *out, const assay_safetensor *tensor, int64_t first,
                                      int64_t n);

#endif
