/* An index of shards of a stranger: it must not reach out of its folder. */
#include "references/safetensors.h"
#include "suites/fuzz/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const char *path = fuzz_file("model.safetensors.index.json", bytes, n);
    assay_safetensors *set;
    if (path && assay_safetensors_open(&set, path) == ASSAY_OK)
        assay_safetensors_close(set);
    return 0;
}
