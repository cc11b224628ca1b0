/*
 * Bytes that another thread writes: all of them, in their place, or an error that comes back; how
 * much waits in memory; and no thread where there is little.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"
#include "probes/write_queue.h"

enum { MB = 1 << 20 };

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREADS_ARE_WATCHED /* by calls put in place of the same ones */
#endif
#endif

#ifndef THREADS_ARE_WATCHED
/* In place of the C library's: writers that wait at a gate, write short, or are interrupted. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool is_choppy;
static atomic_int n_writes, n_threads;
static atomic_bool has_no_threads;

typedef ssize_t pwrite_fn(int fd, const void *bytes, size_t n, off_t at);
typedef int create_fn(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *user);

static void next_of(void *out, const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    ck_assert_ptr_nonnull(symbol);
    memcpy(out, &symbol, sizeof symbol);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    pwrite_fn *real;
    next_of(&real, "pwrite64");
    int turn = atomic_fetch_add(&n_writes, 1);
    if (is_choppy && turn % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return real(fd, bytes, is_choppy && n > 1000 ? n / 2 : n, at);
}

int pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *user)
{
    create_fn *real;
    if (has_no_threads)
        return EAGAIN;
    next_of(&real, "pthread_create");
    n_threads++;
    return real(out, attr, fn, user);
}
#endif

static assay_write_queue *queue_on(int *fd, const char *path, int flags)
{
    assay_write_queue *q;
    *fd = open(path, flags, 0666);
    ck_assert_int_ge(*fd, 0);
    EXPECT_OK(assay_write_queue_new(&q, *fd, path));
    return q;
}

static unsigned char byte_at(int64_t at)
{
    return (unsigned char)((uint64_t)at * 0x9E3779B97F4A7C15u >> 56);
}

static void fill(unsigned char *bytes, int64_t at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = byte_at(at + (int64_t)i);
}

static void check_file(int fd, int64_t n)
{
    enum { ROOM = 1 << 16 };
    static unsigned char found[ROOM], wanted[ROOM];
    ck_assert_int_eq(lseek(fd, 0, SEEK_END), n);
    for (int64_t at = 0; at < n; at += ROOM) {
        size_t part = n - at < ROOM ? (size_t)(n - at) : ROOM;
        ck_assert_int_eq(pread(fd, found, part, at), (ssize_t)part);
        fill(wanted, at, part);
        ck_assert_mem_eq(found, wanted, part);
    }
}

/* Small and large, in order and not, over all that the queue may hold; drained now and then. */
static void write_all(const char *path, int64_t n_bytes)
{
    static unsigned char bytes[5 * MB];
    int fd;
    assay_write_queue *q = queue_on(&fd, data_scratch(path), O_RDWR | O_CREAT | O_TRUNC);
    int64_t skipped = -1, n_skipped = 0;
    uint64_t seed = 1;
    for (int64_t at = 0; at < n_bytes;) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int64_t n = (int64_t)(seed >> 40) % (seed >> 33 & 3 ? 3000 : 5 * MB) + 1;
        n = n > n_bytes - at ? n_bytes - at : n;
        if (skipped < 0) { /* it comes behind its neighbour */
            skipped = at;
            n_skipped = n;
        } else {
            fill(bytes, at, (size_t)n);
            EXPECT_OK(assay_write_queue_put(q, bytes, (size_t)n, at));
            fill(bytes, skipped, (size_t)n_skipped);
            EXPECT_OK(assay_write_queue_put(q, bytes, (size_t)n_skipped, skipped));
            skipped = -1;
        }
        at += n;
        if ((seed >> 20) % 64 == 0) {
            EXPECT_OK(assay_write_queue_drain(q));
            if (skipped < 0)
                check_file(fd, at);
        }
    }
    if (skipped >= 0) {
        fill(bytes, skipped, (size_t)n_skipped);
        EXPECT_OK(assay_write_queue_put(q, bytes, (size_t)n_skipped, skipped));
    }
    EXPECT_OK(assay_write_queue_drain(q));
    check_file(fd, n_bytes);
    EXPECT_OK(assay_write_queue_drain(q));
    assay_write_queue_free(q);
    close(fd);
}

START_TEST(write_queue_puts_every_byte_in_its_place)
{
    write_all("all", 2 * ASSAY_WRITE_QUEUE_BYTES + 12345);
}
END_TEST

#ifndef THREADS_ARE_WATCHED
START_TEST(write_queue_goes_on_where_a_write_is_short_or_interrupted)
{
    is_choppy = true;
    write_all("choppy", 20 * MB + 1);
    is_choppy = false;
}
END_TEST

START_TEST(write_queue_writes_itself_where_no_thread_can_be_started)
{
    has_no_threads = true;
    n_threads = 0;
    write_all("alone", 20 * MB + 1);
    ck_assert_int_eq(n_threads, 0);
    has_no_threads = false;
}
END_TEST

START_TEST(write_queue_starts_no_thread_for_little_and_gathers_neighbours)
{
    static unsigned char bytes[1000];
    int fd;
    assay_write_queue *q = queue_on(&fd, data_scratch("little"), O_RDWR | O_CREAT | O_TRUNC);
    n_threads = 0;
    for (int64_t step = 0; step < 20; step++) {
        n_writes = 0;
        for (int64_t at = step * 200000; at < (step + 1) * 200000; at += 1000) {
            fill(bytes, at, sizeof bytes);
            EXPECT_OK(assay_write_queue_put(q, bytes, sizeof bytes, at));
        }
        ck_assert_int_eq(n_writes, 0);
        EXPECT_OK(assay_write_queue_drain(q));
        ck_assert_int_eq(n_writes, 1);
    }
    ck_assert_int_eq(n_threads, 0);
    check_file(fd, 20 * 200000);
    assay_write_queue_free(q);
    close(fd);
}
END_TEST

typedef struct job {
    assay_write_queue *queue;
    atomic_llong n_put;
} job;

static void *put_much(void *user)
{
    static unsigned char bytes[MB];
    job *j = user;
    for (int64_t at = 0; at < 3 * ASSAY_WRITE_QUEUE_BYTES; at += MB) {
        fill(bytes, at, sizeof bytes);
        if (assay_write_queue_put(j->queue, bytes, sizeof bytes, at) != ASSAY_OK)
            return "put failed";
        j->n_put += MB;
    }
    return assay_write_queue_drain(j->queue) == ASSAY_OK ? NULL : "drain failed";
}

START_TEST(write_queue_holds_no_more_than_it_may)
{
    int fd;
    pthread_t thread;
    void *failure;
    job j = {.queue = queue_on(&fd, data_scratch("full"), O_RDWR | O_CREAT | O_TRUNC)};
    pthread_mutex_lock(&gate);
    ck_assert_int_eq(pthread_create(&thread, NULL, put_much, &j), 0);
    for (int i = 0; i < 10000 && j.n_put < ASSAY_WRITE_QUEUE_BYTES; i++)
        usleep(1000);
    usleep(20000);
    long long n_put = j.n_put;
    pthread_mutex_unlock(&gate);
    pthread_join(thread, &failure);
    ck_assert_msg(!failure, "%s", (const char *)failure);
    ck_assert_int_eq(n_put, ASSAY_WRITE_QUEUE_BYTES);
    check_file(fd, 3 * ASSAY_WRITE_QUEUE_BYTES);
    assay_write_queue_free(j.queue);
    close(fd);
}
END_TEST
#endif

/* Puts until it fails, or drains. */
static assay_status put_until(assay_write_queue *q, int64_t n_bytes)
{
    static const unsigned char bytes[MB];
    assay_status s = ASSAY_OK;
    for (int64_t at = 0; at < n_bytes && s == ASSAY_OK; at += MB)
        s = assay_write_queue_put(q, bytes, sizeof bytes, at);
    return s == ASSAY_OK ? assay_write_queue_drain(q) : s;
}

START_TEST(write_queue_gives_back_what_failed)
{
    signal(SIGXFSZ, SIG_IGN);
    for (int round = 0; round < 4; round++) {
        const struct rlimit most = {10 * MB + 100, RLIM_INFINITY},
                            none = {RLIM_INFINITY, RLIM_INFINITY};
        const bool is_limited = round % 2;
        int fd;
        assay_write_queue *q =
            queue_on(&fd, is_limited ? data_scratch("limited") : "/dev/full", O_WRONLY | O_CREAT);
        if (is_limited)
            ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &most), 0);
        EXPECT_FAILS(ASSAY_IO, put_until(q, round < 2 ? 12 * MB : 4 * ASSAY_WRITE_QUEUE_BYTES));
        EXPECT_SAYS(is_limited ? "limited" : "/dev/full");
        EXPECT_SAYS(strerror(is_limited ? EFBIG : ENOSPC));
        EXPECT_FAILS(ASSAY_IO, put_until(q, 0)); /* and again */
        if (is_limited)
            ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
        assay_write_queue_free(q);
        close(fd);
    }
}
END_TEST

START_TEST(write_queue_may_be_left_with_bytes_unwritten)
{
    static const unsigned char bytes[3 * MB + 1];
    for (int i = 0; i < 20; i++) {
        int fd;
        assay_write_queue *q = queue_on(&fd, data_scratch("left"), O_RDWR | O_CREAT | O_TRUNC);
        EXPECT_OK(assay_write_queue_put(q, bytes, i % 4 ? sizeof bytes : 10, 7));
        assay_write_queue_free(q);
        close(fd);
    }
    assay_write_queue_free(NULL);
}
END_TEST

#ifdef THREADS_ARE_WATCHED
EXPECT_MAIN("write_queue", write_queue_puts_every_byte_in_its_place,
            write_queue_gives_back_what_failed, write_queue_may_be_left_with_bytes_unwritten)
#else
EXPECT_MAIN("write_queue", write_queue_puts_every_byte_in_its_place,
            write_queue_goes_on_where_a_write_is_short_or_interrupted,
            write_queue_writes_itself_where_no_thread_can_be_started,
            write_queue_starts_no_thread_for_little_and_gathers_neighbours,
            write_queue_holds_no_more_than_it_may, write_queue_gives_back_what_failed,
            write_queue_may_be_left_with_bytes_unwritten)
#endif
