/*
 * Forged models: a GGUF file with float32 weights, key by key and tensor by tensor.
 *
 *     forge_model m = {0};
 *     forge_model_str(&m, "general.architecture", "llama");
 *     forge_model_u32(&m, "llama.block_count", 1);
 *     forge_model_tensor(&m, "output_norm.weight", 1, (int64_t[]){8}, values);
 *     forge_model_write(&m, path);      frees it
 */
#ifndef ASSAY_SUITES_TESTS_FORGE_MODEL_H
#define ASSAY_SUITES_TESTS_FORGE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct forge_bytes {
    uint8_t *at;
    size_t n, room;
} forge_bytes;

typedef struct forge_model {
    forge_bytes keys, infos, data;
    int64_t n_keys, n_tensors;
} forge_model;

void forge_model_u32(forge_model *m, const char *key, uint32_t value);
void forge_model_f32(forge_model *m, const char *key, float value);
void forge_model_bool(forge_model *m, const char *key, bool value);
void forge_model_str(forge_model *m, const char *key, const char *value);
void forge_model_bools(forge_model *m, const char *key, const bool *values, int n);
/* dims row-major (outermost first); values NULL: zeros. */
void forge_model_tensor(forge_model *m, const char *name, int n_dims, const int64_t *dims,
                        const float *values);
/* Values (((7 r + 13 c + 5 seed) mod 23) - 11) / divisor over [rows, cols], rows = all outer dims.
 */
void forge_model_pattern(forge_model *m, const char *name, int n_dims, const int64_t *dims,
                         int seed, float divisor);
void forge_model_write(forge_model *m, const char *path);
void forge_model_clear(forge_model *m);

#endif
