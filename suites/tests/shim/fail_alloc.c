/*
 * Loaded before the C library (LD_PRELOAD): the allocation number ASSAY_FAIL_AT (from 1) fails, and
 * with ASSAY_FAIL_ON set every later one too. Allocations of libgomp, OpenBLAS, HDF5, OpenSSL and
 * the loader are not counted: when one fails, those end the process or crash on their own (HDF5
 * 1.10.8 calls itself without end, OpenSSL 3.0 takes a lock that it did not get). ASSAY_FAIL_COUNT
 * names a file that gets the number of allocations at exit.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

static atomic_long n_calls;
static long fail_at;
static int fail_on, is_ready;

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("ASSAY_FAIL_COUNT");
    is_ready = 0;
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    fprintf(file, "%ld\n", (long)n_calls);
    fclose(file);
}

/* Code of the libraries that are not counted. */
static struct {
    uintptr_t first, end;
} spared[16];
static int n_spared;

static int note_object(struct dl_phdr_info *info, size_t size, void *user)
{
    static const char *const names[] = {"libgomp", "libomp",    "libopenblas",
                                        "libhdf5", "libcrypto", "ld-linux"};
    (void)size, (void)user;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int h = 0; strstr(info->dlpi_name, names[i]) && h < info->dlpi_phnum; h++) {
            if (info->dlpi_phdr[h].p_type != PT_LOAD || n_spared == 16)
                continue;
            spared[n_spared].first = info->dlpi_addr + info->dlpi_phdr[h].p_vaddr;
            spared[n_spared].end = spared[n_spared].first + info->dlpi_phdr[h].p_memsz;
            n_spared++;
        }
    return 0;
}

static int counts(const void *caller)
{
    for (int i = 0; i < n_spared; i++)
        if ((uintptr_t)caller >= spared[i].first && (uintptr_t)caller < spared[i].end)
            return 0;
    return 1;
}

__attribute__((constructor)) static void start(void)
{
    const char *at = getenv("ASSAY_FAIL_AT");
    fail_at = at ? atol(at) : 0;
    fail_on = getenv("ASSAY_FAIL_ON") != NULL;
    dl_iterate_phdr(note_object, NULL);
    is_ready = 1;
}

/* Whether this call has to fail. */
static int fails(const void *caller)
{
    if (!is_ready || !counts(caller))
        return 0;
    long n = ++n_calls;
    if (fail_at == 0 || n < fail_at || (n > fail_at && !fail_on))
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t n)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, n);
}

int posix_memalign(void **out, size_t alignment, size_t n)
{
    void *at = fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, n);
    if (at)
        *out = at;
    return at ? 0 : ENOMEM;
}

void *aligned_alloc(size_t alignment, size_t n)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, n);
}

/* In the C library, so that whoever calls them would look like the C library. */
char *strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

char *strndup(const char *text, size_t most)
{
    size_t n = strnlen(text, most);
    char *copy = fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n + 1);
    if (!copy)
        return NULL;
    copy[n] = 0;
    return memcpy(copy, text, n);
}
