/* Stand-in for ggml-backend.h: see README.md. */
#ifndef ASSAY_SUITES_TESTS_LLAMA_GGML_BACKEND_H
#define ASSAY_SUITES_TESTS_LLAMA_GGML_BACKEND_H

#include <ggml.h>
#include <stdbool.h>

typedef struct ggml_backend_buffer *ggml_backend_buffer_t;
typedef bool (*ggml_backend_sched_eval_callback)(struct ggml_tensor *t, bool ask, void *user_data);

bool ggml_backend_buffer_is_host(ggml_backend_buffer_t buffer);
void ggml_backend_tensor_get(const struct ggml_tensor *tensor, void *data, size_t offset,
                             size_t size);

#endif
