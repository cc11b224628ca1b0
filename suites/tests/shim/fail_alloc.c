/*
 * Loaded before the C library (LD_PRELOAD): allocations are told apart by their chain of callers,
 * and the first one of chain number ASSAY_FAIL_AT (from 1, as they come up) fails. Whatever number
 * an allocation has in a long run, another of its chain was tried. Allocations of libgomp,
 * OpenBLAS, HDF5, OpenSSL and the loader are not counted: when one fails, those end the process or
 * crash on their own (HDF5 1.10.8 calls itself without end, OpenSSL 3.0 takes a lock that it did
 * not get).
 *
 * ASSAY_FAIL_FROM: a part of the name of the library whose allocations alone are counted.
 * ASSAY_FAIL_COUNT names a file that gets, at exit, the number of chains, the number of blocks that
 * the program, jansson or yaml allocated and nobody freed, and where the first of them came from.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
void __libc_free(void *block);

#define SPARED "libgomp", "libomp", "libopenblas", "libhdf5", "libcrypto", "ld-linux"
#include "fail.h"

#define CALLER __builtin_return_address(0)
#define N_CHAINS ((size_t)1 << 16)
#define N_BLOCKS ((size_t)1 << 21)
#define DEPTH 24

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static places owners; /* whose blocks must be freed */
static places chosen; /* whose allocations may fail; none: all may */
static uint64_t chains[N_CHAINS];
static struct {
    void *block; /* NULL: free and the end of a search; GONE: free */
    const void *caller;
} blocks[N_BLOCKS];
#define GONE ((void *)blocks)
static long n_live;

static int note_owner(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size, (void)user;
    if (!*info->dlpi_name || strstr(info->dlpi_name, "libjansson") ||
        strstr(info->dlpi_name, "libyaml"))
        add_object(&owners, info);
    const char *library = getenv("ASSAY_FAIL_FROM");
    if (library && strstr(info->dlpi_name, library))
        add_object(&chosen, info);
    return 0;
}

__attribute__((constructor)) static void start(void)
{
    dl_iterate_phdr(note_owner, NULL);
    start_failing("ASSAY_FAIL_AT");
}

static void report(FILE *file)
{
    fprintf(file, "%ld\n", n_live);
    for (size_t i = 0; n_live && i < N_BLOCKS; i++)
        if (blocks[i].block && blocks[i].block != GONE) {
            uintptr_t from = (uintptr_t)blocks[i].caller;
            fprintf(file, "first from %#lx\n",
                    (unsigned long)(from >= owners.at[0].first && from < owners.at[owners.n - 1].end
                                        ? from - owners.at[0].first
                                        : from));
            break;
        }
}

typedef struct chain {
    uint64_t hash;
    int depth;
} chain;

/* Where a program is loaded changes from run to run, but not the last 12 bits of an address. */
static _Unwind_Reason_Code add_frame(struct _Unwind_Context *frame, void *user)
{
    chain *c = user;
    c->hash = (c->hash ^ (_Unwind_GetIP(frame) & 0xfff)) * UINT64_C(0x100000001b3);
    return ++c->depth < DEPTH ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static int fails(const void *caller)
{
    static __thread int is_inside;
    if (!is_ready || is_inside || holds(&spared, caller) || (chosen.n && !holds(&chosen, caller)))
        return 0;
    chain c = {UINT64_C(0xcbf29ce484222325), 0};
    is_inside = 1;
    _Unwind_Backtrace(add_frame, &c);
    pthread_mutex_lock(&lock);
    size_t i = c.hash % N_CHAINS;
    while (chains[i] && chains[i] != c.hash)
        i = (i + 1) % N_CHAINS;
    int is_new = !chains[i] && n_calls < (long)(N_CHAINS / 2);
    if (is_new)
        chains[i] = c.hash;
    int is_it = is_new && ++n_calls == fail_at;
    pthread_mutex_unlock(&lock);
    is_inside = 0;
    if (is_it)
        errno = ENOMEM;
    return is_it;
}

static size_t slot_of(const void *block)
{
    return ((uintptr_t)block >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 43 & (N_BLOCKS - 1);
}

static void *noted(void *block, const void *caller)
{
    if (!block || !is_ready || !holds(&owners, caller))
        return block;
    pthread_mutex_lock(&lock);
    size_t i = slot_of(block);
    while (blocks[i].block && blocks[i].block != GONE)
        i = (i + 1) % N_BLOCKS;
    blocks[i].block = block;
    blocks[i].caller = caller;
    n_live++;
    pthread_mutex_unlock(&lock);
    return block;
}

static void forget(const void *block)
{
    if (!block || !n_live)
        return;
    pthread_mutex_lock(&lock);
    size_t i = slot_of(block);
    while (blocks[i].block && blocks[i].block != block)
        i = (i + 1) % N_BLOCKS;
    if (blocks[i].block) {
        blocks[i].block = GONE;
        n_live--;
    }
    pthread_mutex_unlock(&lock);
}

void *malloc(size_t n)
{
    return fails(CALLER) ? NULL : noted(__libc_malloc(n), CALLER);
}

void *calloc(size_t n, size_t size)
{
    return fails(CALLER) ? NULL : noted(__libc_calloc(n, size), CALLER);
}

static void *resize(void *old, size_t n, const void *caller)
{
    if (fails(caller))
        return NULL;
    forget(old);
    void *block = __libc_realloc(old, n);
    return noted(block || n == 0 ? block : old, caller) ? block : NULL;
}

void *realloc(void *old, size_t n)
{
    return resize(old, n, CALLER);
}

void *reallocarray(void *old, size_t n, size_t size)
{
    if (size && n > SIZE_MAX / size) {
        errno = ENOMEM;
        return NULL;
    }
    return resize(old, n * size, CALLER);
}

void free(void *block)
{
    forget(block);
    __libc_free(block);
}

int posix_memalign(void **out, size_t alignment, size_t n)
{
    void *at = fails(CALLER) ? NULL : noted(__libc_memalign(alignment, n), CALLER);
    if (at)
        *out = at;
    return at ? 0 : ENOMEM;
}

void *aligned_alloc(size_t alignment, size_t n)
{
    return fails(CALLER) ? NULL : noted(__libc_memalign(alignment, n), CALLER);
}

/* In the C library, so that whoever calls them would look like the C library. */
char *strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = fails(CALLER) ? NULL : noted(__libc_malloc(n), CALLER);
    return copy ? memcpy(copy, text, n) : NULL;
}

char *strndup(const char *text, size_t most)
{
    size_t n = strnlen(text, most);
    char *copy = fails(CALLER) ? NULL : noted(__libc_malloc(n + 1), CALLER);
    if (!copy)
        return NULL;
    copy[n] = 0;
    return memcpy(copy, text, n);
}
