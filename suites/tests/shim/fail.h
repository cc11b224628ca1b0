/*
 * What the preloaded libraries share: which call fails, whose calls count, and how many there were.
 * The including file defines SPARED, the names of libraries whose calls are not counted.
 *
 *   start_failing(variable)  reads the number of the call that fails from the environment
 *   holds(&spared, caller)   whether a call comes from one of those libraries
 *
 * ASSAY_FAIL_COUNT: a file that gets the number of calls, and what the including file's report()
 * adds.
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
static int is_ready;

typedef struct places { /* where the code of some objects lies */
    struct {
        uintptr_t first, end;
    } at[64];
    int n;
} places;

static places spared;

static void add_object(places *p, const struct dl_phdr_info *info)
{
    for (int h = 0; h < info->dlpi_phnum && p->n < 64; h++)
        if (info->dlpi_phdr[h].p_type == PT_LOAD) {
            p->at[p->n].first = info->dlpi_addr + info->dlpi_phdr[h].p_vaddr;
            p->at[p->n].end = p->at[p->n].first + info->dlpi_phdr[h].p_memsz;
            p->n++;
        }
}

static int holds(const places *p, const void *code)
{
    for (int i = 0; i < p->n; i++)
        if ((uintptr_t)code >= p->at[i].first && (uintptr_t)code < p->at[i].end)
            return 1;
    return 0;
}

static int note_spared(struct dl_phdr_info *info, size_t size, void *user)
{
    static const char *const names[] = {SPARED};
    (void)size, (void)user;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(info->dlpi_name, names[i]))
            add_object(&spared, info);
    return 0;
}

static void start_failing(const char *variable)
{
    const char *at = getenv(variable);
    fail_at = at ? atol(at) : 0;
    dl_iterate_phdr(note_spared, NULL);
    is_ready = 1;
}

static void report(FILE *file);

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("ASSAY_FAIL_COUNT");
    is_ready = 0;
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    fprintf(file, "%ld\n", (long)n_calls);
    report(file);
    fclose(file);
}

#endif
