#include "suites/audit_rate.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "suites/audit.h"

#define WINDOW_BYTES ((int64_t)8 << 20)

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t add_up(const uint8_t *p, int64_t n)
{
    uint64_t sum = 0, word;
    for (int64_t i = 0; i + 8 <= n; i += 8) {
        memcpy(&word, p + i, 8);
        sum += word;
    }
    return sum;
}

static uint64_t add_up_tensor(const assay_gguf_tensor_info *t, int n_threads)
{
    int64_t n = (int64_t)t->n_bytes, n_windows = (n + WINDOW_BYTES - 1) / WINDOW_BYTES;
    uint64_t sum = 0;
#pragma omp parallel for schedule(dynamic) num_threads(n_threads) reduction(+ : sum) if (n_windows > 4)
    for (int64_t w = 0; w < n_windows; w++) {
        int64_t first = w * WINDOW_BYTES;
        sum += add_up((const uint8_t *)t->data + first,
                      n - first < WINDOW_BYTES ? n - first : WINDOW_BYTES);
    }
    return sum;
}

/* One plain reading; the sum is handed out so that no compiler leaves the loop away. */
static assay_status read_plain(double *seconds, uint64_t *n_bytes, uint64_t *sum, const char *path,
                               int n_threads)
{
    assay_gguf *file;
    ASSAY_TRY(assay_gguf_open(&file, path));
    double began = now_s();
    *n_bytes = 0;
    for (int64_t i = 0; i < assay_gguf_n_tensors(file); i++) {
        *sum += add_up_tensor(assay_gguf_tensor_at(file, i), n_threads);
        *n_bytes += assay_gguf_tensor_at(file, i)->n_bytes;
    }
    *seconds = now_s() - began;
    assay_gguf_close(file);
    return ASSAY_OK;
}

static assay_status read_audited(double *seconds, const char *path, int n_threads)
{
    assay_gguf *file;
    assay_audit audit = {0};
    ASSAY_TRY(assay_gguf_open(&file, path));
    assay_status s = assay_audit_contents(&audit, file, n_threads, NULL, NULL);
    *seconds = audit.seconds;
    if (s == ASSAY_OK && audit.bytes_hole > 0)
        s = assay_fail(ASSAY_UNSUPPORTED,
                       "'%s' has holes, and they are not read: a rate means "
                       "nothing",
                       path);
    assay_audit_clear(&audit);
    assay_gguf_close(file);
    return s;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

assay_status assay_audit_rate_measure(assay_audit_rate *out, const char *path, int n_threads,
                                      int n_turns)
{
    double plain[ASSAY_AUDIT_RATE_MOST_TURNS], audited[ASSAY_AUDIT_RATE_MOST_TURNS];
    double ratio[ASSAY_AUDIT_RATE_MOST_TURNS];
    assay_audit_rate rate = {0};
    volatile uint64_t kept;
    uint64_t sum = 0;
    ASSAY_BUG_IF(n_turns < 1 || n_turns > ASSAY_AUDIT_RATE_MOST_TURNS);
    if (n_threads == 0)
        n_threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    ASSAY_TRY(read_audited(&audited[0], path, n_threads)); /* pages come in; holes are refused */
    for (int i = 0; i < n_turns; i++) {
        ASSAY_TRY(read_plain(&plain[i], &rate.n_bytes, &sum, path, n_threads));
        ASSAY_TRY(read_audited(&audited[i], path, n_threads));
        ratio[i] = plain[i] / audited[i];
    }
    kept = sum;
    (void)kept;
    rate.plain_s = median(plain, n_turns);
    rate.scan_s = median(audited, n_turns);
    rate.ratio = median(ratio, n_turns); /* sorted now */
    rate.lowest = ratio[0];
    rate.highest = ratio[n_turns - 1];
    *out = rate;
    return ASSAY_OK;
}
