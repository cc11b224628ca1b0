#include "suites/compare_rate.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/wide.h"
#include "references/compare.h"
#include "references/median.h"

#define BLOCK_FLOATS ((int64_t)1 << 20)

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static assay_status map_file(const float **out, int64_t *n_bytes, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st)) {
        if (fd >= 0)
            close(fd);
        return assay_fail(ASSAY_IO, "'%s': %s", path, strerror(errno));
    }
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return assay_fail(ASSAY_IO, "'%s': cannot be mapped: %s", path, strerror(errno));
    *out = map;
    *n_bytes = st.st_size;
    return ASSAY_OK;
}

/* Sum of squared differences, float32 as a plain loop has it. */
ASSAY_WIDEST static float add_up(const float *a, const float *b, int64_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        float d = a[i] - b[i];
        sum += d * d;
    }
    return sum;
}

static assay_status read_plain(double *seconds, double *sum, const char *path_a, const char *path_b)
{
    const float *a, *b;
    int64_t n_a, n_b;
    double began = now_s(), total = 0;
    ASSAY_TRY(map_file(&a, &n_a, path_a));
    assay_status s = map_file(&b, &n_b, path_b);
    if (s != ASSAY_OK) {
        munmap((void *)a, (size_t)n_a);
        return s;
    }
    int64_t n = (n_a < n_b ? n_a : n_b) / (int64_t)sizeof *a;
#pragma omp parallel for schedule(dynamic) reduction(+ : total)
    for (int64_t first = 0; first < n; first += BLOCK_FLOATS)
        total += (double)add_up(a + first, b + first,
                                n - first < BLOCK_FLOATS ? n - first : BLOCK_FLOATS);
    munmap((void *)a, (size_t)n_a);
    munmap((void *)b, (size_t)n_b);
    *seconds = now_s() - began;
    *sum += total;
    return ASSAY_OK;
}

static assay_status read_compared(double *seconds, const char *path_a, const char *path_b)
{
    assay_run_options how = assay_run_options_default();
    assay_run *a = NULL, *b = NULL;
    assay_comparison *comparison = NULL;
    double began = now_s();
    assay_status s = assay_run_open(&a, &path_a, 1, &how);
    if (s == ASSAY_OK)
        s = assay_run_open(&b, &path_b, 1, &how);
    if (s == ASSAY_OK)
        s = assay_compare_runs(&comparison, a, b, NULL);
    assay_comparison_free(comparison);
    assay_run_close(a);
    assay_run_close(b);
    *seconds = now_s() - began;
    return s;
}

static assay_status file_bytes(uint64_t *sum, const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return assay_fail(ASSAY_IO, "'%s': %s", path, strerror(errno));
    *sum += (uint64_t)st.st_size;
    return ASSAY_OK;
}

assay_status assay_compare_rate_measure(assay_compare_rate *out, const char *a, const char *b,
                                        int n_turns)
{
    double plain[ASSAY_COMPARE_RATE_MOST_TURNS], compared[ASSAY_COMPARE_RATE_MOST_TURNS];
    double ratio[ASSAY_COMPARE_RATE_MOST_TURNS], sum = 0;
    volatile double kept; /* so that no compiler leaves the loop away */
    assay_compare_rate rate = {.lowest = 1e300};
    ASSAY_BUG_IF(n_turns < 1 || n_turns > ASSAY_COMPARE_RATE_MOST_TURNS);
    ASSAY_TRY(file_bytes(&rate.n_bytes, a));
    ASSAY_TRY(file_bytes(&rate.n_bytes, b));
    ASSAY_TRY(read_compared(&compared[0], a, b)); /* pages come in */
    for (int i = 0; i < n_turns; i++) {
        ASSAY_TRY(read_plain(&plain[i], &sum, a, b));
        ASSAY_TRY(read_compared(&compared[i], a, b));
        ratio[i] = plain[i] / compared[i];
        rate.lowest = ratio[i] < rate.lowest ? ratio[i] : rate.lowest;
        rate.highest = ratio[i] > rate.highest ? ratio[i] : rate.highest;
    }
    kept = sum;
    (void)kept;
    rate.plain_s = assay_median(plain, n_turns);
    rate.compare_s = assay_median(compared, n_turns);
    rate.ratio = assay_median(ratio, n_turns);
    *out = rate;
    return ASSAY_OK;
}
