/* A model file of a stranger: the reader, hyperparameters, the model's tensors, the tokenizer. */
#include "engine/engine.h"
#include "engine/tokenizer.h"
#include "suites/fuzz/scratch.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static unsigned sum;

static void walk_keys(const assay_gguf *file)
{
    for (int64_t i = 0; i < assay_gguf_n_keys(file); i++) {
        const assay_gguf_key *key = assay_gguf_key_at(file, i);
        if (key->type != ASSAY_GGUF_ARRAY || key->element != ASSAY_GGUF_STRING)
            continue;
        assay_gguf_string *all = calloc(key->count + 1, sizeof *all);
        if (all && assay_gguf_str_array(all, key) == ASSAY_OK)
            for (uint64_t k = 0; k < key->count; k++)
                for (uint64_t b = 0; b < all[k].n; b++)
                    sum += (uint8_t)all[k].bytes[b];
        free(all);
    }
}

static void walk_tensors(const assay_gguf *file)
{
    for (int64_t i = 0; i < assay_gguf_n_tensors(file); i++) {
        const assay_gguf_tensor_info *t = assay_gguf_tensor_at(file, i);
        for (uint64_t b = 0; b < t->n_bytes; b++)
            sum += ((const uint8_t *)t->data)[b];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const char *path = fuzz_file("model.gguf", bytes, n);
    assay_gguf *file;
    if (!path || assay_gguf_open(&file, path) != ASSAY_OK)
        return 0;
    walk_keys(file);
    walk_tensors(file);
    assay_hparams hp;
    if (assay_hparams_read(&hp, file) == ASSAY_OK)
        sum += (unsigned)hp.n_layer;
    assay_tokenizer *tokenizer;
    if (assay_tokenizer_new(&tokenizer, file, NULL) == ASSAY_OK) {
        assay_tokenizer_round_trip(tokenizer, (const uint8_t *)"a b\xC3\xA9 12<c>", 11, true);
        assay_tokenizer_free(tokenizer);
    }
    assay_gguf_close(file);
    assay_model *model;
    assay_model_options options = assay_model_options_default();
    if (assay_model_open(&model, path, &options) == ASSAY_OK)
        assay_model_close(model);
    return 0;
}
