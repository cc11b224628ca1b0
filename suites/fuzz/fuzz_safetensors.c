/* A checkpoint of a stranger: header, tensors, their first and last numbers. */
#include "references/safetensors.h"
#include "suites/fuzz/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const char *path = fuzz_file("model.safetensors", bytes, n);
    assay_safetensors *set;
    if (!path || assay_safetensors_open(&set, path) != ASSAY_OK)
        return 0;
    for (int64_t i = 0; i < assay_safetensors_n_tensors(set); i++) {
        const assay_safetensor *t = assay_safetensors_at(set, i);
        float x[16];
        int64_t some = t->count < 16 ? t->count : 16;
        assay_safetensors_decode(x, t, 0, some);
        assay_safetensors_decode(x, t, t->count - some, some);
        if (assay_safetensors_find(set, t->name) != t)
            __builtin_trap();
    }
    assay_safetensors_close(set);
    return 0;
}
