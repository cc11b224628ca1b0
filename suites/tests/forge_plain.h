/*
 * Forged models: a GGUF file with float32 weights, key by key and tensor by tensor.
 *
 *     forge_plain m = {0};
 *     forge_plain_str(&m, "general.architecture", "llama");
 *     forge_plain_u32(&m, "llama.block_count", 1);
 *     forge_plain_tensor(&m, "output_norm.weight", 1, (int64_t[]){8}, values);
 *     forge_plain_write(&m, path);      frees it
 */
#ifndef ASSAY_SUITES_TESTS_FORGE_PLAIN_H
#define ASSAY_SUITES_TESTS_FORGE_PLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct forge_bytes {
    uint8_t *at;
    size_t n, room;
} forge_bytes;

typedef struct forge_plain {
    forge_bytes keys, infos, data;
    int64_t n_keys, n_tensors;
} forge_plain;

void forge_plain_u32(forge_plain *m, const char *key, uint32_t value);
void forge_plain_f32(forge_plain *m, const char *key, float value);
void forge_plain_bool(forge_plain *m, const char *key, bool value);
void forge_plain_str(forge_plain *m, const char *key, const char *value);
void forge_plain_bools(forge_plain *m, const char *key, const bool *values, int n);
/* dims row-major (outermost first); values NULL: zeros. */
void forge_plain_tensor(forge_plain *m, const char *name, int n_dims, const int64_t *dims,
                        const float *values);
/* Values (((7 r + 13 c + 5 seed) mod 23) - 11) / divisor over [rows, cols], rows = all outer dims.
 */
void forge_plain_pattern(forge_plain *m, const char *name, int n_dims, const int64_t *dims,
                         int seed, float divisor);
void forge_plain_write(forge_plain *m, const char *path);
void forge_plain_clear(forge_plain *m);

#endif
