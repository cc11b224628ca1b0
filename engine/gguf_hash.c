/*
 * SHA-256 of a whole set, so that a reference can say which bytes it was made from.
 */
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/mman.h>

#include "engine/gguf_file.h"

#define WINDOW_BYTES (64ull << 20) /* pages are given back after each window */

static bool hash_file(EVP_MD_CTX *hash, const gguf_file *file)
{
    for (uint64_t at = 0; at < file->n_bytes; at += WINDOW_BYTES) {
        uint64_t n = file->n_bytes - at < WINDOW_BYTES ? file->n_bytes - at : WINDOW_BYTES;
        if (EVP_DigestUpdate(hash, file->bytes + at, (size_t)n) != 1)
            return false;
        madvise((void *)(file->bytes + at), (size_t)n, MADV_DONTNEED);
    }
    return true;
}

assay_status assay_gguf_sha256(char out[65], const assay_gguf *set)
{
    unsigned char digest[32];
    unsigned int n = 0;
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    bool good = hash && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1;
    for (int f = 0; good && f < set->n_files; f++)
        good = hash_file(hash, &set->files[f]);
    good = good && EVP_DigestFinal_ex(hash, digest, &n) == 1 && n == sizeof digest;
    EVP_MD_CTX_free(hash);
    if (!good)
        return assay_fail(ASSAY_IO, "'%s': SHA-256 of libcrypto failed", assay_gguf_path(set));
    for (unsigned i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return ASSAY_OK;
}
