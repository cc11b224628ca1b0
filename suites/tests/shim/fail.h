/*
 * What the preloaded libraries share: which call fails, whose calls count, and how many there were.
 * The including file defines SPARED, the names of libraries whose calls are not counted.
 *
 *   start_failing(variable)  reads the number of the call that fails from the environment
 *   fails(caller, error)     counts a call; 1: it has to fail, errno is set
 *
 * ASSAY_FAIL_ON: every later call fails too. ASSAY_FAIL_COUNT: a file that gets the number of
 * calls.
 */
#ifndef ASSAY_SUITES_TESTS_SHIM_FAIL_H
#define ASSAY_SUITES_TESTS_SHIM_FAIL_H

#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_long n_calls;
static long fail_at;
static int fail_on, is_ready;

static struct {
    uintptr_t first, end;
} spared[64];
static int n_spared;

static int note_object(struct dl_phdr_info *info, size_t size, void *user)
{
    static const char *const names[] = {SPARED};
    (void)size, (void)user;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int h = 0; strstr(info->dlpi_name, names[i]) && h < info->dlpi_phnum; h++) {
            if (info->dlpi_phdr[h].p_type != PT_LOAD || n_spared == 64)
                continue;
            spared[n_spared].first = info->dlpi_addr + info->dlpi_phdr[h].p_vaddr;
            spared[n_spared].end = spared[n_spared].first + info->dlpi_phdr[h].p_memsz;
            n_spared++;
        }
    return 0;
}

static void start_failing(const char *variable)
{
    const char *at = getenv(variable);
    fail_at = at ? atol(at) : 0;
    fail_on = getenv("ASSAY_FAIL_ON") != NULL;
    dl_iterate_phdr(note_object, NULL);
    is_ready = 1;
}

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

static int fails(const void *caller, int error)
{
    if (!is_ready)
        return 0;
    for (int i = 0; i < n_spared; i++)
        if ((uintptr_t)caller >= spared[i].first && (uintptr_t)caller < spared[i].end)
            return 0;
    long n = ++n_calls;
    if (fail_at == 0 || n < fail_at || (n > fail_at && !fail_on))
        return 0;
    errno = error;
    return 1;
}

#endif
