#include "tools/progress.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS 150000000L
#define BAR_COLUMNS 24

static struct {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    pthread_t thread;
    bool running, stop, drawn;
    char label[32], what[64];
    int done, total;
    struct timespec began;
} progress = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static double elapsed_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)(now.tv_sec - progress.began.tv_sec) +
           1e-9 * (double)(now.tv_nsec - progress.began.tv_nsec);
}

static void draw(void)
{
    double s = elapsed_s();
    if (s < 1)
        return;
    char bar[BAR_COLUMNS + 3] = "";
    if (progress.total > 0) {
        int full = progress.done * BAR_COLUMNS / progress.total, n = 0;
        bar[n++] = '[';
        for (int i = 0; i < BAR_COLUMNS; i++)
            bar[n++] = i < full ? '#' : '.';
        bar[n++] = ']';
        bar[n] = '\0';
    }
    fprintf(stderr, "\r\033[K%s %s %s %.0f s", progress.label, bar, progress.what, s);
    fflush(stderr);
    progress.drawn = true;
}

static void *work(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&progress.lock);
    while (!progress.stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += PERIOD_NS;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&progress.ended, &progress.lock, &until);
        if (!progress.stop)
            draw();
    }
    pthread_mutex_unlock(&progress.lock);
    return NULL;
}

void assay_progress_begin(const char *label)
{
    if (!isatty(STDERR_FILENO))
        return;
    pthread_mutex_lock(&progress.lock);
    snprintf(progress.label, sizeof progress.label, "%s", label);
    if (!progress.running) {
        clock_gettime(CLOCK_REALTIME, &progress.began);
        progress.stop = progress.drawn = false;
        progress.running = !pthread_create(&progress.thread, NULL, work, NULL);
    }
    pthread_mutex_unlock(&progress.lock);
}

void assay_progress_step(const char *what, int done, int total)
{
    pthread_mutex_lock(&progress.lock);
    snprintf(progress.what, sizeof progress.what, "%s", what);
    progress.done = done;
    progress.total = total;
    pthread_mutex_unlock(&progress.lock);
}

void assay_progress_end(void)
{
    if (!progress.running)
        return;
    pthread_mutex_lock(&progress.lock);
    progress.stop = true;
    pthread_cond_signal(&progress.ended);
    pthread_mutex_unlock(&progress.lock);
    pthread_join(progress.thread, NULL);
    progress.running = false;
    if (progress.drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
}
