/*
 * Text of a stranger through a vocabulary: byte 0 chooses the pre-tokenizer and whether special
 * tokens are looked for. The shipped model's vocabulary has all bytes, so they must come back.
 */
#include "engine/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static const char *const pres[] = {NULL, "gpt-2", "llama-bpe", "glm4"};
static assay_tokenizer *tokenizers[4];

static void open_vocabulary(void)
{
    char path[4096];
    const char *dir = getenv("ASSAY_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/suites/data/glm5-tiny-Q4_K_M.gguf", dir ? dir : ".");
    assay_gguf *file;
    if (assay_gguf_open(&file, path) != ASSAY_OK) {
        fprintf(stderr, "%s: run in the repository's root\n", assay_error_text());
        exit(1);
    }
    for (int i = 0; i < 4; i++)
        if (assay_tokenizer_new(&tokenizers[i], file, pres[i]) != ASSAY_OK) {
            fprintf(stderr, "%s\n", assay_error_text());
            exit(1);
        }
    assay_gguf_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (!tokenizers[0])
        open_vocabulary();
    if (n == 0)
        return 0;
    if (assay_tokenizer_round_trip(tokenizers[bytes[0] % 4], bytes + 1, n - 1, bytes[0] & 4))
        __builtin_trap();
    int32_t ids[64];
    int64_t n_ids = 0;
    for (size_t i = 1; i + 4 <= n && n_ids < 64; i += 4)
        ids[n_ids++] = (int32_t)((uint32_t)bytes[i] | (uint32_t)bytes[i + 1] << 8 |
                                 (uint32_t)bytes[i + 2] << 16 | (uint32_t)bytes[i + 3] << 24);
    char *text;
    size_t n_text;
    if (assay_tokenizer_decode(&text, &n_text, tokenizers[0], ids, n_ids) == ASSAY_OK)
        free(text);
    return 0;
}
