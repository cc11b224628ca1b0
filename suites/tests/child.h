/*
 * The tool as a child process under hard conditions: killed, without room for files, without
 * memory, without permission to write.
 */
#ifndef ASSAY_SUITES_TESTS_CHILD_H
#define ASSAY_SUITES_TESTS_CHILD_H

#include <stdbool.h>

typedef struct child_options {
    double kill_after_ms;  /* 0: let it end */
    long file_bytes;       /* RLIMIT_FSIZE; 0: none */
    long fail_at;          /* the first allocation of this chain of callers (a number from 1, in the
                              order in which they come up) fails; 0: none, -1: they are counted */
    const char *fail_from; /* fail_at counts the chains alone whose last caller is in the library
                              of this name; NULL: all */
    long fail_io_at;       /* the input or output call of this number fails; 0: none, -1: counted */
    bool kills_at_io;      /* the process is killed at that call instead */
    bool as_nobody;        /* where the tests run as root: as a user who owns nothing */
    bool watch_memory;     /* anon_kb is sampled while it runs */
} child_options;

typedef struct child_end {
    bool was_killed;  /* as we asked */
    int signal, exit; /* signal 0: it ended by itself */
    double ms;
    long anon_kb;        /* most RssAnon that was seen: memory without the pages of mapped files */
    long n_counted;      /* under a shim: chains of allocations, or calls */
    long n_live;         /* under the shim of allocations: blocks that were never freed */
    char live_from[128]; /* where the first of them was allocated */
    char errors[4096];   /* end of its standard error */
    char output[8192];   /* start of its standard output */
} child_end;

/* False: the tool or the shim is not built. words: what follows `assay`, NULL at the end. */
bool child_run(child_end *end, const char *const *words, const child_options *options);

/* The call after n of a sample: the first calls and the last, which publish, every one of them, and
 * every step-th between. */
long child_next_call(long n, long n_calls, long step);

/* Times at the ends of lines, which differ from run to run, are taken out. */
void child_without_times(char *text);

/* Number of files in the folder. */
int child_count_files(const char *folder);

#endif
