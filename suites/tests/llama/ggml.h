/* Stand-in for ggml.h: see README.md. */
#ifndef ASSAY_SUITES_TESTS_LLAMA_GGML_H
#define ASSAY_SUITES_TESTS_LLAMA_GGML_H

#include <stddef.h>
#include <stdint.h>

#define GGML_MAX_DIMS 4
#define GGML_MAX_NAME 64

enum ggml_type {
    GGML_TYPE_F32 = 0,
    GGML_TYPE_F16 = 1,
    GGML_TYPE_Q4_K = 12,
    GGML_TYPE_I32 = 26,
    GGML_TYPE_BF16 = 30
};

struct ggml_backend_buffer;

struct ggml_tensor {
    enum ggml_type type;
    struct ggml_backend_buffer *buffer;
    int64_t ne[GGML_MAX_DIMS];
    size_t nb[GGML_MAX_DIMS];
    void *data;
    char name[GGML_MAX_NAME];
};

size_t ggml_nbytes(const struct ggml_tensor *tensor);
size_t ggml_type_size(enum ggml_type type);

#endif
