/*
 * Loaded before the C library (LD_PRELOAD): the input or output call number ASSAY_FAIL_IO_AT (from
 * 1) fails with EIO, once; with ASSAY_FAIL_IO_KILLS the process is killed there instead, as by kill
 * -9. Counted are open, read, write, map, sync, rename and cut of a file, and the flushes and
 * closes of streams, as called by the tool and by HDF5; calls of the loader, libgomp, OpenBLAS, MPI
 * and OpenSSL are not, since what those do about it is not ours. ASSAY_FAIL_COUNT names a file that
 * gets the number of calls.
 */
#define _GNU_SOURCE
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#define SPARED                                                                                     \
    "libgomp", "libomp", "libopenblas", "libcrypto", "libmpi", "libopen-rte", "libopen-pal",       \
        "libhwloc", "libudev", "ld-linux", "libevent"
#include "fail.h"

__attribute__((constructor)) static void start(void)
{
    start_failing("ASSAY_FAIL_IO_AT");
}

static void report(FILE *file)
{
    (void)file;
}

static int fails(const void *caller, int error)
{
    if (!is_ready || holds(&spared, caller) || ++n_calls != fail_at)
        return 0;
    if (getenv("ASSAY_FAIL_IO_KILLS"))
        kill(getpid(), SIGKILL);
    errno = error;
    return 1;
}

#define CALLER __builtin_return_address(0)
/* The C library's own function of this name; looked up once, by value of its type. */
#define NEXT(function)                                                                             \
    static __typeof__(&function) next;                                                             \
    if (!next) {                                                                                   \
        void *found = dlsym(RTLD_NEXT, #function);                                                 \
        memcpy(&next, &found, sizeof next);                                                        \
    }

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        NEXT(name)                                                                                 \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;                    \
        va_end(args);                                                                              \
        return fails(CALLER, EIO) ? -1 : next(path, flags, mode);                                  \
    }
OPEN(open)
OPEN(open64)

#define STREAM_OPEN(name)                                                                          \
    FILE *name(const char *path, const char *mode)                                                 \
    {                                                                                              \
        NEXT(name)                                                                                 \
        return fails(CALLER, EIO) ? NULL : next(path, mode);                                       \
    }
STREAM_OPEN(fopen)
STREAM_OPEN(fopen64)

#define PLACED(name, buffer_type, offset_type)                                                     \
    ssize_t name(int fd, buffer_type buffer, size_t n, offset_type offset)                         \
    {                                                                                              \
        NEXT(name)                                                                                 \
        return fails(CALLER, EIO) ? -1 : next(fd, buffer, n, offset);                              \
    }
PLACED(pread, void *, off_t)
PLACED(pread64, void *, off64_t)
PLACED(pwrite, const void *, off_t)
PLACED(pwrite64, const void *, off64_t)

ssize_t read(int fd, void *buffer, size_t n)
{
    NEXT(read)
    return fails(CALLER, EIO) ? -1 : next(fd, buffer, n);
}

/* Messages on standard error are how a failure is seen; they are let through. */
ssize_t write(int fd, const void *buffer, size_t n)
{
    NEXT(write)
    return fd != STDERR_FILENO && fails(CALLER, EIO) ? -1 : next(fd, buffer, n);
}

#define MAP(name, offset_type)                                                                     \
    void *name(void *at, size_t n, int prot, int flags, int fd, offset_type offset)                \
    {                                                                                              \
        NEXT(name)                                                                                 \
        return fd >= 0 && fails(CALLER, EIO) ? MAP_FAILED : next(at, n, prot, flags, fd, offset);  \
    }
MAP(mmap, off_t)
MAP(mmap64, off64_t)

#define CUT(name, offset_type)                                                                     \
    int name(int fd, offset_type n)                                                                \
    {                                                                                              \
        NEXT(name)                                                                                 \
        return fails(CALLER, EIO) ? -1 : next(fd, n);                                              \
    }
CUT(ftruncate, off_t)
CUT(ftruncate64, off64_t)

int fsync(int fd)
{
    NEXT(fsync)
    return fails(CALLER, EIO) ? -1 : next(fd);
}

int sync_file_range(int fd, off64_t from, off64_t n, unsigned flags)
{
    NEXT(sync_file_range)
    return fails(CALLER, EIO) ? -1 : next(fd, from, n, flags);
}

int rename(const char *from, const char *to)
{
    NEXT(rename)
    return fails(CALLER, EIO) ? -1 : next(from, to);
}

int fflush(FILE *file)
{
    NEXT(fflush)
    return file != stderr && fails(CALLER, EIO) ? EOF : next(file);
}

/* Closed all the same, as the C library does. */
int fclose(FILE *file)
{
    NEXT(fclose)
    int is_failed = fails(CALLER, EIO);
    int status = next(file);
    if (is_failed)
        errno = EIO;
    return is_failed ? EOF : status;
}
