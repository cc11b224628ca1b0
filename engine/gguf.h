/*
 * GGUF reader (versions 2 and 3, little-endian), one file or a split set, memory-mapped, nothing
 * read whole.
 *
 * Every rule of "what the reference loader refuses" is a row of the validation, and a refusal names
 * the file, the rule, the place (byte offset, key or tensor), what was found and what was expected.
 * Nothing is trusted before it is checked: counts and lengths are compared with the bytes that
 * remain in the file before anything is allocated.
 *
 * Layout (docs/gguf.md of ggml): magic, version, n_tensors, n_kv, key/value pairs, tensor infos,
 * padding to the alignment, data section. Dimensions are listed innermost first (ne[0] is
 * contiguous).
 *
 * This reader is the one part that engine and oracle share; it hands out bytes and never decodes
 * weights.
 */
#ifndef ASSAY_ENGINE_GGUF_H
#define ASSAY_ENGINE_GGUF_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct assay_gguf assay_gguf;

typedef enum {
    ASSAY_GGUF_U8,
    ASSAY_GGUF_I8,
    ASSAY_GGUF_U16,
    ASSAY_GGUF_I16,
    ASSAY_GGUF_U32,
    ASSAY_GGUF_I32,
    ASSAY_GGUF_F32,
    ASSAY_GGUF_BOOL,
    ASSAY_GGUF_STRING,
    ASSAY_GGUF_ARRAY,
    ASSAY_GGUF_U64,
    ASSAY_GGUF_I64,
    ASSAY_GGUF_F64,
    ASSAY_GGUF_TYPE_COUNT
} assay_gguf_type;

/* A string inside the mapped file: not NUL-terminated. */
typedef struct assay_gguf_string {
    const char *bytes;
    uint64_t n;
} assay_gguf_string;

typedef struct assay_gguf_key {
    const char *name; /* NUL-terminated copy; borrowed */
    assay_gguf_type type;
    assay_gguf_type element; /* of an array; else = type */
    uint64_t count;          /* of an array; else 1 */
    uint64_t offset;         /* of the value in the file */
    const void
        *value; /* first byte of the value (of the first element) in the mapped file, unaligned */
} assay_gguf_key;

typedef struct assay_gguf_tensor_info {
    const char *name; /* NUL-terminated copy; borrowed */
    int type;         /* GGUF type number; see engine/quant.h */
    int n_dims;
    int64_t ne[4]; /* innermost first; missing ones are 1 */
    uint64_t n_bytes;
    int file;         /* index in the split set */
    uint64_t offset;  /* absolute, in that file */
    const void *data; /* in the mapped file */
} assay_gguf_tensor_info;

/*
 * Opens the file, or the whole split set when its first file is given. Fails: ASSAY_BAD_FILE,
 * ASSAY_IO. Big-endian files are refused by name (ASSAY_BAD_FILE, "big-endian").
 */
assay_status assay_gguf_open(assay_gguf **out, const char *path);
void assay_gguf_close(assay_gguf *file);

const char *assay_gguf_path(const assay_gguf *file);
/* What messages call the first file from now on: it stands for something else (copied). */
assay_status assay_gguf_call(assay_gguf *file, const char *path);
uint32_t assay_gguf_version(const assay_gguf *file);
int assay_gguf_n_files(const assay_gguf *file);
const char *assay_gguf_file_path(const assay_gguf *file, int index);
uint64_t assay_gguf_file_bytes(const assay_gguf *file, int index);
/* End of the header (start of the data section) of one file. */
uint64_t assay_gguf_data_start(const assay_gguf *file, int index);

int64_t assay_gguf_n_keys(const assay_gguf *file);
const assay_gguf_key *assay_gguf_key_at(const assay_gguf *file, int64_t index);
const assay_gguf_key *assay_gguf_find_key(const assay_gguf *file,
                                          const char *name); /* NULL: absent */

int64_t assay_gguf_n_tensors(const assay_gguf *file);
/* File order (of the first file, then the second, ...). */
const assay_gguf_tensor_info *assay_gguf_tensor_at(const assay_gguf *file, int64_t index);
const assay_gguf_tensor_info *assay_gguf_find_tensor(const assay_gguf *file,
                                                     const char *name); /* NULL: absent */

/*
 * Typed values. The match of types is exact (u32 for counts, f32 for factors, bool for flags):
 * another type is ASSAY_BAD_FILE with both types named. Absent: ASSAY_MISSING, *out untouched (no
 * silent default).
 */
assay_status assay_gguf_u32(uint32_t *out, const assay_gguf *file, const char *key);
assay_status assay_gguf_f32(float *out, const assay_gguf *file, const char *key);
assay_status assay_gguf_bool(bool *out, const assay_gguf *file, const char *key);
assay_status assay_gguf_str(assay_gguf_string *out, const assay_gguf *file, const char *key);
/* "Scalar or array" keys: fills out[0 ... n-1]; a scalar is broadcast, an array must have exactly n
 * elements. */
assay_status assay_gguf_u32_or_array(uint32_t *out, const assay_gguf *file, const char *key,
                                     uint64_t n);
/* Element i of a string array. */
assay_status assay_gguf_str_at(assay_gguf_string *out, const assay_gguf_key *key, uint64_t i);
/*
 * All elements of a string array in one pass (strings have no index, so element access costs a
 * walk): out[count], borrowed bytes.
 */
assay_status assay_gguf_str_array(assay_gguf_string *out, const assay_gguf_key *key);

/* Tells the kernel that these pages are not needed again (MADV_DONTNEED on whole pages inside the
 * tensor). */
void assay_gguf_release(const assay_gguf *file, const assay_gguf_tensor_info *tensor);

/* SHA-256 over all files of the set in order, lower-case hex with NUL. Reads everything once. */
assay_status assay_gguf_sha256(char out[65], const assay_gguf *file);

#endif
