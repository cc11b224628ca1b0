#include "suites/compare_rate.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "engine/base/mapping.h"
#include "engine/base/wide.h"
#include "references/compare.h"
#include "references/median.h"
#include "suites/inflate_rate.h"

#define BLOCK_FLOATS ((int64_t)1 << 20)

typedef struct times {
    double wall_s, cpu_s;
} times;

static double clock_s(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static times now(void)
{
    return (times){clock_s(CLOCK_MONOTONIC), clock_s(CLOCK_PROCESS_CPUTIME_ID)};
}

static times since(times began)
{
    times end = now();
    return (times){end.wall_s - began.wall_s, end.cpu_s - began.cpu_s};
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

static assay_status read_plain(times *took, double *sum, const char *path_a, const char *path_b)
{
    assay_mapping map_a, map_b;
    times began = now();
    double total = 0;
    ASSAY_TRY(assay_mapping_open(&map_a, path_a));
    assay_status s = assay_mapping_open(&map_b, path_b);
    if (s != ASSAY_OK) {
        assay_mapping_close(&map_a);
        return s;
    }
    const float *a = (const float *)(const void *)map_a.bytes;
    const float *b = (const float *)(const void *)map_b.bytes;
    int64_t n = (int64_t)(map_a.n_bytes < map_b.n_bytes ? map_a.n_bytes : map_b.n_bytes) /
                (int64_t)sizeof *a;
#pragma omp parallel for schedule(dynamic) reduction(+ : total)
    for (int64_t first = 0; first < n; first += BLOCK_FLOATS)
        total += (double)add_up(a + first, b + first,
                                n - first < BLOCK_FLOATS ? n - first : BLOCK_FLOATS);
    assay_mapping_close(&map_a);
    assay_mapping_close(&map_b);
    *took = since(began);
    *sum += total;
    return ASSAY_OK;
}

static assay_status read_compared(times *took, const char *path_a, const char *path_b)
{
    assay_run_options how = assay_run_options_default();
    assay_run *a = NULL, *b = NULL;
    assay_comparison *comparison = NULL;
    times began = now();
    assay_status s = assay_run_open(&a, &path_a, 1, &how);
    if (s == ASSAY_OK)
        s = assay_run_open(&b, &path_b, 1, &how);
    if (s == ASSAY_OK)
        s = assay_compare_runs(&comparison, a, b, NULL);
    assay_comparison_free(comparison);
    assay_run_close(a);
    assay_run_close(b);
    *took = since(began);
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

enum { PLAIN, COMPARED, BY_ZLIB, BY_LIBDEFLATE, KINDS };

/* All kinds once, one behind the other. */
static assay_status take_turn(times out[KINDS], double *sum, const assay_inflate *packed,
                              const char *a, const char *b)
{
    ASSAY_TRY(read_plain(&out[PLAIN], sum, a, b));
    ASSAY_TRY(read_compared(&out[COMPARED], a, b));
    times began = now();
    if (assay_inflate_bytes(packed))
        ASSAY_TRY(assay_inflate_by_zlib(packed));
    out[BY_ZLIB] = since(began);
    began = now();
    if (assay_inflate_bytes(packed))
        ASSAY_TRY(assay_inflate_by_libdeflate(packed));
    out[BY_LIBDEFLATE] = since(began);
    return ASSAY_OK;
}

static void take_inflated(assay_inflated *out, times turns[][KINDS], int n, int kind)
{
    double one[3][ASSAY_COMPARE_RATE_MOST_TURNS];
    for (int i = 0; i < n; i++) {
        const times *t = turns[i];
        one[0][i] = t[kind].wall_s;
        one[1][i] = t[kind].wall_s / t[COMPARED].wall_s;
        one[2][i] = t[kind].cpu_s / t[COMPARED].cpu_s;
    }
    out->seconds = assay_median(one[0], n);
    out->ratio = assay_median(one[1], n);
    out->cpu_ratio = assay_median(one[2], n);
}

static void take_medians(assay_compare_rate *rate, times turns[][KINDS], int n)
{
    double one[4][ASSAY_COMPARE_RATE_MOST_TURNS];
    rate->lowest = INFINITY;
    for (int i = 0; i < n; i++) {
        const times *t = turns[i];
        one[0][i] = t[PLAIN].wall_s;
        one[1][i] = t[COMPARED].wall_s;
        one[2][i] = t[PLAIN].wall_s / t[COMPARED].wall_s;
        one[3][i] = t[PLAIN].cpu_s / t[COMPARED].cpu_s;
        rate->lowest = fmin(rate->lowest, one[2][i]);
        rate->highest = fmax(rate->highest, one[2][i]);
    }
    rate->plain_s = assay_median(one[0], n);
    rate->compare_s = assay_median(one[1], n);
    rate->ratio = assay_median(one[2], n);
    rate->cpu_ratio = assay_median(one[3], n);
    take_inflated(&rate->zlib, turns, n, BY_ZLIB);
    take_inflated(&rate->libdeflate, turns, n, BY_LIBDEFLATE);
}

assay_status assay_compare_rate_measure(assay_compare_rate *out, const char *a, const char *b,
                                        int n_turns)
{
    times turns[ASSAY_COMPARE_RATE_MOST_TURNS][KINDS], first;
    volatile double kept; /* so that no compiler leaves the loop away */
    assay_compare_rate rate = {.n_bytes = 0};
    assay_inflate *packed;
    double sum = 0;
    ASSAY_BUG_IF(n_turns < 1 || n_turns > ASSAY_COMPARE_RATE_MOST_TURNS);
    ASSAY_TRY(file_bytes(&rate.n_bytes, a));
    ASSAY_TRY(file_bytes(&rate.n_bytes, b));
    ASSAY_TRY(assay_inflate_open(&packed, a, b));
    rate.n_inflated = assay_inflate_bytes(packed);
    assay_status s = read_compared(&first, a, b); /* pages come in */
    for (int i = 0; i < n_turns && s == ASSAY_OK; i++)
        s = take_turn(turns[i], &sum, packed, a, b);
    assay_inflate_close(packed);
    ASSAY_TRY(s);
    kept = sum;
    (void)kept;
    take_medians(&rate, turns, n_turns);
    *out = rate;
    return ASSAY_OK;
}
