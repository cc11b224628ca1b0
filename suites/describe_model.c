#include "suites/describe_model.h"

#include <jansson.h>

static assay_status set(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value))
        return assay_fail(ASSAY_NO_MEMORY, "no memory for member '%s' of the result", key);
    return ASSAY_OK;
}

static assay_status set_text(json_t *object, const char *key, const assay_gguf *file,
                             const char *gguf_key)
{
    assay_gguf_string text;
    if (assay_gguf_str(&text, file, gguf_key) != ASSAY_OK)
        return ASSAY_OK;
    json_t *value = json_stringn(text.bytes, (size_t)text.n); /* NULL: not UTF-8 */
    return value ? set(object, key, value) : ASSAY_OK;
}

assay_status assay_describe_model(assay_result *result, const assay_gguf *file, const char *sha256)
{
    int64_t bytes = 0;
    for (int i = 0; i < assay_gguf_n_files(file); i++)
        bytes += (int64_t)assay_gguf_file_bytes(file, i);
    ASSAY_TRY(set(result->model, "path", json_string(assay_gguf_path(file))));
    ASSAY_TRY(set_text(result->model, "architecture", file, "general.architecture"));
    ASSAY_TRY(set_text(result->model, "name", file, "general.name"));
    ASSAY_TRY(set(result->model, "files", json_integer(assay_gguf_n_files(file))));
    ASSAY_TRY(set(result->model, "bytes", json_integer(bytes)));
    ASSAY_TRY(set(result->model, "tensors", json_integer(assay_gguf_n_tensors(file))));
    return sha256 ? set(result->model, "sha256", json_string(sha256)) : ASSAY_OK;
}
