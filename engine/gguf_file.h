/*
 * Inside of the GGUF reader: one mapped file, its records, and the one function that refuses.
 * Private to engine/gguf*.c.
 *
 * Invariant: after gguf_file_open succeeded, every key value, every string and every tensor's data
 * lies inside [bytes, bytes + n_bytes), so later code walks without checking again.
 *
 * Anonymous memory: one record and one copy of the name per key and tensor that was really read
 * (arrays grow as records are read), never a count from the file alone.
 */
#ifndef ASSAY_ENGINE_GGUF_FILE_H
#define ASSAY_ENGINE_GGUF_FILE_H

#include "engine/base/mapping.h"
#include "engine/gguf.h"

typedef enum {
#define X(id, name, holds) GGUF_RULE_##id,
#include "engine/gguf_rule.def"
#undef X
    GGUF_RULE_COUNT
} gguf_rule;

typedef struct gguf_file {
    char *path;
    assay_mapping mapping;
    const uint8_t *bytes; /* = mapping.bytes */
    uint64_t n_bytes;
    uint32_t version;
    uint64_t alignment, data_start;
    int64_t n_keys, n_tensors;
    assay_gguf_key *keys;
    assay_gguf_tensor_info *tensors;
    const assay_gguf_key **keys_by_name; /* sorted; n_keys */
} gguf_file;

struct assay_gguf {
    int n_files;
    gguf_file *files;
    int64_t n_tensors;
    const assay_gguf_tensor_info **tensors;         /* file order */
    const assay_gguf_tensor_info **tensors_by_name; /* sorted */
};

/* Maps and checks one file (everything but the rules of a split set). On failure the file is
 * empty. */
assay_status gguf_file_open(gguf_file *out, const char *path, int index);
void gguf_file_close(gguf_file *file);

/* Opens files 1 ... count-1 of the set that files[0] leads; a file without split.count is a set of
 * one. */
assay_status gguf_split_open(assay_gguf *set);

const assay_gguf_key *gguf_file_find_key(const gguf_file *file, const char *name);

/* Bytes of one value; 0 for string and array. */
size_t gguf_type_bytes(assay_gguf_type type);
const char *gguf_type_name(assay_gguf_type type);

/* "<path>: rule '<name>' broken at byte <at>: <text>", ASSAY_BAD_FILE. */
assay_status gguf_refuse(const gguf_file *file, gguf_rule rule, uint64_t at, const char *format,
                         ...) __attribute__((format(printf, 4, 5)));

/* Unaligned little-endian loads (the reader refuses big-endian files and runs on little-endian
 * hosts). */
uint16_t gguf_load_u16(const void *p);
uint32_t gguf_load_u32(const void *p);
uint64_t gguf_load_u64(const void *p);

#endif
