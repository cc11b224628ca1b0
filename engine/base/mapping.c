#include "engine/base/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What the signal handler can look up: written before a mapping is used, read without locks. Files
 * beyond the table are mapped as well, only their names are not known then. */
enum { N_NAMED = 512, PATH_BYTES = 256 };

static struct {
    atomic_uintptr_t first; /* 0: free, 1: being filled */
    uintptr_t end;
    char path[PATH_BYTES];
} named[N_NAMED];

static int guard_exit_status;

/* The end of a long path says more than its start. */
static void note(const assay_mapping *mapping, const char *path)
{
    size_t n = strlen(path);
    for (int i = 0; i < N_NAMED; i++) {
        uintptr_t is_free = 0;
        if (!atomic_compare_exchange_strong(&named[i].first, &is_free, 1))
            continue;
        named[i].end = (uintptr_t)mapping->bytes + mapping->n_bytes;
        memcpy(named[i].path, n < PATH_BYTES ? path : path + n - (PATH_BYTES - 1),
               n < PATH_BYTES ? n + 1 : PATH_BYTES);
        atomic_store(&named[i].first, (uintptr_t)mapping->bytes);
        return;
    }
}

assay_status assay_mapping_open(assay_mapping *out, const char *path)
{
    struct stat st;
    *out = (assay_mapping){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return assay_fail(ASSAY_IO, "cannot open '%s': %s", path, strerror(errno));
    assay_status s = ASSAY_OK;
    if (fstat(fd, &st) != 0)
        s = assay_fail(ASSAY_IO, "cannot stat '%s': %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        s = assay_fail(ASSAY_BAD_FILE, "'%s' is not a regular file", path);
    else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            s = assay_fail(ASSAY_IO, "cannot map '%s': %s", path, strerror(errno));
        else
            *out = (assay_mapping){p, (uint64_t)st.st_size};
    }
    close(fd);
    if (out->bytes)
        note(out, path);
    return s;
}

/* The kernel looks at every page that was read (7 ms for half a GB), for a whole mapping on one
 * thread. */
static void let_go(const assay_mapping *mapping)
{
    enum { PIECE = 32 << 20 };
    const int64_t n = (int64_t)(mapping->n_bytes / PIECE);
#pragma omp parallel for schedule(dynamic, 1) if (n > 1)
    for (int64_t i = 0; i < n; i++)
        madvise((void *)(mapping->bytes + i * PIECE), PIECE, MADV_DONTNEED);
}

void assay_mapping_close(assay_mapping *mapping)
{
    if (!mapping->bytes)
        return;
    for (int i = 0; i < N_NAMED; i++)
        if (atomic_load(&named[i].first) == (uintptr_t)mapping->bytes)
            atomic_store(&named[i].first, 0);
    let_go(mapping);
    munmap((void *)mapping->bytes, (size_t)mapping->n_bytes);
    *mapping = (assay_mapping){0};
}

/* A line that grows without the C library, which a signal handler may not call. */
typedef struct line {
    char text[PATH_BYTES + 160];
    size_t n;
} line;

static void add(line *l, const char *text)
{
    for (; *text && l->n < sizeof l->text; text++)
        l->text[l->n++] = *text;
}

static void add_number(line *l, uint64_t x)
{
    char digits[24] = {0}, *at = digits + sizeof digits - 1;
    do
        *--at = (char)('0' + x % 10);
    while ((x /= 10) > 0);
    add(l, at);
}

static void cannot_read(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number, (void)context;
    uintptr_t at = (uintptr_t)info->si_addr, first = 0;
    line l = {.n = 0};
    int i = 0;
    for (; i < N_NAMED; i++) {
        first = atomic_load(&named[i].first);
        if (first > 1 && at >= first && at < named[i].end)
            break;
    }
    add(&l, "assay: '");
    add(&l, i < N_NAMED ? named[i].path : "a mapped file");
    add(&l, "' cannot be read at byte ");
    add_number(&l, i < N_NAMED ? at - first : 0);
    add(&l, ": the file was cut, or its disk failed, while it was being read\n");
    ssize_t written = write(STDERR_FILENO, l.text, l.n);
    (void)written;
    _exit(guard_exit_status);
}

void assay_mapping_guard(int exit_status)
{
    struct sigaction action = {0};
    guard_exit_status = exit_status;
    action.sa_sigaction = cannot_read;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
