/*
 * Loaded before the C library (LD_PRELOAD): the allocation number ASSAY_FAIL_AT (from 1) fails, and
 * with ASSAY_FAIL_ON set every later one too. Allocations of libgomp, OpenBLAS, HDF5, OpenSSL and
 * the loader are not counted: when one fails, those end the process or crash on their own (HDF5
 * 1.10.8 calls itself without end, OpenSSL 3.0 takes a lock that it did not get). ASSAY_FAIL_COUNT
 * names a file that gets the number of allocations at exit.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

#define SPARED "libgomp", "libomp", "libopenblas", "libhdf5", "libcrypto", "ld-linux"
#include "fail.h"

__attribute__((constructor)) static void start(void)
{
    start_failing("ASSAY_FAIL_AT");
}

void *malloc(size_t n)
{
    return fails(__builtin_return_address(0), ENOMEM) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return fails(__builtin_return_address(0), ENOMEM) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t n)
{
    return fails(__builtin_return_address(0), ENOMEM) ? NULL : __libc_realloc(old, n);
}

int posix_memalign(void **out, size_t alignment, size_t n)
{
    void *at = fails(__builtin_return_address(0), ENOMEM) ? NULL : __libc_memalign(alignment, n);
    if (at)
        *out = at;
    return at ? 0 : ENOMEM;
}

void *aligned_alloc(size_t alignment, size_t n)
{
    return fails(__builtin_return_address(0), ENOMEM) ? NULL : __libc_memalign(alignment, n);
}

/* In the C library, so that whoever calls them would look like the C library. */
char *strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = fails(__builtin_return_address(0), ENOMEM) ? NULL : __libc_malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

char *strndup(const char *text, size_t most)
{
    size_t n = strnlen(text, most);
    char *copy = fails(__builtin_return_address(0), ENOMEM) ? NULL : __libc_malloc(n + 1);
    if (!copy)
        return NULL;
    copy[n] = 0;
    return memcpy(copy, text, n);
}
