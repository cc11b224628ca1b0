/*
 * GGUF writer (version 3, little-endian), one file or a split set.
 *
 * First all keys and tensors are named, then the files are made in their full size (the data is a
 * hole that reads as zeros), then data is put into place in any order and by any thread. A file
 * whose data is never put is a skeleton: the real shape, no disk.
 *
 *     assay_gguf_writer *w;
 *     assay_gguf_writer_new(&w);
 *     assay_gguf_put_str(w, "general.architecture", "llama");
 *     assay_gguf_put_tensor(w, "output_norm.weight", 0, 1, ne);
 *     assay_gguf_writer_start(w, "model.gguf", 1);
 *     assay_gguf_writer_data(w, 0, 0, bytes, n);
 *     assay_gguf_writer_close(w);
 *
 * In a set of n files "model.gguf" becomes "model-00001-of-0000n.gguf": the first file holds the
 * keys, every file its share of the tensors, in order and of about equal size.
 */
#ifndef ASSAY_ENGINE_GGUF_WRITE_H
#define ASSAY_ENGINE_GGUF_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/gguf.h"

typedef struct assay_gguf_writer assay_gguf_writer;

assay_status assay_gguf_writer_new(assay_gguf_writer **out);
/* Closes the files; what was started stays on disk. NULL is fine. */
void assay_gguf_writer_free(assay_gguf_writer *writer);

/* Keys. Each once; the writer does not check that. */
assay_status assay_gguf_put_u16(assay_gguf_writer *writer, const char *key, uint16_t value);
assay_status assay_gguf_put_u32(assay_gguf_writer *writer, const char *key, uint32_t value);
assay_status assay_gguf_put_i32(assay_gguf_writer *writer, const char *key, int32_t value);
assay_status assay_gguf_put_f32(assay_gguf_writer *writer, const char *key, float value);
assay_status assay_gguf_put_bool(assay_gguf_writer *writer, const char *key, bool value);
assay_status assay_gguf_put_str(assay_gguf_writer *writer, const char *key, const char *value);
/* n elements of a type of fixed size, back to back. */
assay_status assay_gguf_put_array(assay_gguf_writer *writer, const char *key,
                                  assay_gguf_type element, uint64_t n, const void *values);
/* A string array: announce n, then give exactly n strings before the next key. */
assay_status assay_gguf_put_str_array(assay_gguf_writer *writer, const char *key, uint64_t n);
assay_status assay_gguf_put_element(assay_gguf_writer *writer, const char *bytes, uint64_t n);

/* A key of another file as it stands there; not for arrays of strings. */
assay_status assay_gguf_put_key(assay_gguf_writer *writer, const assay_gguf_key *key);

/*
 * The next tensor of the file; its index is the number of tensors named before. Fails:
 * ASSAY_UNSUPPORTED (type), ASSAY_BAD_SHAPE (row that cuts a block, dimension below 1).
 */
assay_status assay_gguf_put_tensor(assay_gguf_writer *writer, const char *name, int type,
                                   int n_dims, const int64_t *ne);

/* Makes the files in full size. Fails: ASSAY_IO, ASSAY_USAGE (n_files < 1, more files than
 * tensors). */
assay_status assay_gguf_writer_start(assay_gguf_writer *writer, const char *path, int n_files);
/* What has to be opened; valid after start, borrowed. */
const char *assay_gguf_writer_path(const assay_gguf_writer *writer);
/* Size of all files together; of one tensor's data. */
uint64_t assay_gguf_writer_bytes(const assay_gguf_writer *writer);
uint64_t assay_gguf_writer_tensor_bytes(const assay_gguf_writer *writer, int64_t tensor);

/* n bytes of a tensor's data from `at` on. Threads may call it at once (assay_fail records for the
 * calling thread). */
assay_status assay_gguf_writer_data(assay_gguf_writer *writer, int64_t tensor, uint64_t at,
                                    const void *bytes, uint64_t n);

/* Flushes and closes; then frees. Fails: ASSAY_IO. */
assay_status assay_gguf_writer_close(assay_gguf_writer *writer);

#endif
