#include "probes/write_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1 << 20, MOST_RUNS = 256, SYNC_EVERY = 16 << 20 };

/* Bytes that lie one behind the other, of runs that need not in the file. */
typedef struct chunk {
    struct chunk *next;
    size_t n;
    int n_runs;
    struct {
        int64_t at;
        size_t n;
    } runs[MOST_RUNS];
    char bytes[CHUNK];
} chunk;

struct assay_write_queue {
    int fd;
    char *path;
    chunk *open;   /* the caller's, being filled; NULL: none */
    int n_chunks;  /* there are */
    bool is_alone; /* no thread could be started */
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake, written;
    chunk *first, *last; /* to be written */
    chunk *unused;       /* the one used last comes first: it is still in a cache */
    bool is_writing, ends;
    int error;                          /* errno of what failed first; 0: nothing */
    int64_t n_unsynced, synced_to, end; /* bytes that nobody brings to the disk yet; from where in
                                           the file; behind all that was written */
};

assay_status assay_write_queue_new(assay_write_queue **out, int fd, const char *path)
{
    assay_write_queue *q;
    ASSAY_TRY(assay_alloc(&q, 1, sizeof *q, "write queue"));
    q->path = strdup(path);
    if (!q->path) {
        free(q);
        return assay_fail(ASSAY_NO_MEMORY, "write queue: no memory");
    }
    q->fd = fd;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->wake, NULL);
    pthread_cond_init(&q->written, NULL);
    *out = q;
    return ASSAY_OK;
}

/* errno; 0: all of it is written. */
static int write_run(int fd, const char *bytes, size_t n, int64_t at)
{
    while (n > 0) {
        ssize_t done = pwrite(fd, bytes, n, at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? errno : EIO;
        bytes += done;
        n -= (size_t)done;
        at += done;
    }
    return 0;
}

/* A sync at the end then finds little left to do. Other reasons are of a system or a file system
 * that cannot begin early. */
static int begin_sync(int fd, int64_t from)
{
    if (sync_file_range(fd, from, 0, SYNC_FILE_RANGE_WRITE) == 0)
        return 0;
    return errno == EIO || errno == ENOSPC || errno == EDQUOT ? errno : 0;
}

/* By the thread or the caller; not under the lock. */
static void write_chunk(assay_write_queue *q, const chunk *c)
{
    const char *bytes = c->bytes;
    int64_t end = 0, from = -1;
    int error = 0;
    for (int i = 0; i < c->n_runs && !error; i++) {
        error = write_run(q->fd, bytes, c->runs[i].n, c->runs[i].at);
        bytes += c->runs[i].n;
        if (c->runs[i].at + (int64_t)c->runs[i].n > end)
            end = c->runs[i].at + (int64_t)c->runs[i].n;
    }
    pthread_mutex_lock(&q->lock);
    q->end = end > q->end ? end : q->end;
    q->n_unsynced += (int64_t)c->n;
    if (q->n_unsynced >= SYNC_EVERY) {
        from = q->synced_to;
        q->synced_to = q->end;
        q->n_unsynced = 0;
    }
    pthread_mutex_unlock(&q->lock);
    if (from >= 0 && !error)
        error = begin_sync(q->fd, from);
    pthread_mutex_lock(&q->lock);
    q->error = q->error ? q->error : error;
    pthread_mutex_unlock(&q->lock);
}

static void *serve(void *queue)
{
    assay_write_queue *q = queue;
    pthread_mutex_lock(&q->lock);
    while (!q->ends) {
        chunk *c = q->first;
        if (!c) {
            pthread_cond_wait(&q->wake, &q->lock);
            continue;
        }
        q->first = c->next;
        q->is_writing = true;
        bool writes = !q->error;
        pthread_mutex_unlock(&q->lock);
        if (writes)
            write_chunk(q, c);
        pthread_mutex_lock(&q->lock);
        q->is_writing = false;
        c->next = q->unused;
        q->unused = c;
        pthread_cond_signal(&q->written);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* Signals are the caller's affair. */
static bool start(assay_write_queue *q)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    q->has_thread = pthread_create(&q->thread, NULL, serve, q) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    q->is_alone = !q->has_thread;
    return q->has_thread;
}

static void pass_on(assay_write_queue *q)
{
    chunk *c = q->open;
    c->next = NULL;
    if (q->is_alone || (!q->has_thread && !start(q))) {
        write_chunk(q, c);
        c->n = 0;
        c->n_runs = 0;
        return;
    }
    q->open = NULL;
    pthread_mutex_lock(&q->lock);
    if (q->first)
        q->last->next = c;
    else
        q->first = c;
    q->last = c;
    pthread_cond_signal(&q->wake);
    pthread_mutex_unlock(&q->lock);
}

static assay_status failed(const assay_write_queue *q, int error)
{
    return error ? assay_fail(ASSAY_IO, "'%s': values cannot be written: %s", q->path,
                              strerror(error))
                 : ASSAY_OK;
}

/* One that is unused, or new; under a full queue it is waited for. */
static assay_status open_chunk(assay_write_queue *q)
{
    const bool may_add = q->n_chunks < ASSAY_WRITE_QUEUE_BYTES / CHUNK;
    pthread_mutex_lock(&q->lock);
    while (!q->unused && !may_add && !q->error)
        pthread_cond_wait(&q->written, &q->lock);
    int error = q->error;
    chunk *c = q->unused;
    if (c)
        q->unused = c->next;
    pthread_mutex_unlock(&q->lock);
    if (!c && !error) {
        ASSAY_TRY(assay_alloc(&c, 1, sizeof *c, "values to be written"));
        q->n_chunks++;
    }
    if (c) {
        c->n = 0;
        c->n_runs = 0;
    }
    q->open = c;
    return failed(q, error);
}

assay_status assay_write_queue_put(assay_write_queue *q, const void *bytes, size_t n, int64_t at)
{
    const char *from = bytes;
    while (n > 0) {
        if (!q->open)
            ASSAY_TRY(open_chunk(q));
        chunk *c = q->open;
        size_t room = CHUNK - c->n, part = n < room ? n : room;
        const int last = c->n_runs - 1;
        if (last >= 0 && c->runs[last].at + (int64_t)c->runs[last].n == at) {
            c->runs[last].n += part;
        } else if (c->n_runs < MOST_RUNS) {
            c->runs[c->n_runs].at = at;
            c->runs[c->n_runs++].n = part;
        } else {
            pass_on(q);
            continue;
        }
        memcpy(c->bytes + c->n, from, part);
        c->n += part;
        from += part;
        n -= part;
        at += (int64_t)part;
        if (c->n == CHUNK)
            pass_on(q);
    }
    return ASSAY_OK;
}

/* The chunk that is not full yet is the caller's to write, while the thread does its own. */
assay_status assay_write_queue_drain(assay_write_queue *q)
{
    if (q->open) {
        write_chunk(q, q->open);
        q->open->n = 0;
        q->open->n_runs = 0;
    }
    pthread_mutex_lock(&q->lock);
    while (q->first || q->is_writing)
        pthread_cond_wait(&q->written, &q->lock);
    int error = q->error;
    pthread_mutex_unlock(&q->lock);
    return failed(q, error);
}

static void free_list(chunk *c)
{
    while (c) {
        chunk *next = c->next;
        free(c);
        c = next;
    }
}

void assay_write_queue_free(assay_write_queue *q)
{
    if (!q)
        return;
    if (q->has_thread) {
        pthread_mutex_lock(&q->lock);
        q->ends = true;
        pthread_cond_signal(&q->wake);
        pthread_mutex_unlock(&q->lock);
        pthread_join(q->thread, NULL);
    }
    free(q->open);
    free_list(q->first);
    free_list(q->unused);
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->wake);
    pthread_cond_destroy(&q->written);
    free(q->path);
    free(q);
}
