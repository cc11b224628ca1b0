#include "references/projection.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { N = ASSAY_SKETCH_N };

#define RIDGE 1e-9 /* of columns of length 1; the sketch itself is rounded to 3e-8 */

int64_t assay_projection_size(const assay_projection *p, int64_t g)
{
    int64_t rows = p->rows - g * ASSAY_SKETCH_ROWS;
    return (rows < ASSAY_SKETCH_ROWS ? rows : ASSAY_SKETCH_ROWS) * p->inner;
}

void assay_project(double *out, const assay_projection *p, const double *x)
{
    const int64_t dims[] = {p->rows, p->inner};
    /* a view is read only */
    assay_buffer view =
        assay_buffer_view((void *)(uintptr_t)(const void *)x, ASSAY_DTYPE_F64, 2, dims);
    assay_sketch_exact(out, &view);
}

double assay_projection_rest(double *rest, const assay_projection *p, const double *x)
{
    double *own = assay_alloc_or_lack((size_t)(p->n_groups * N), sizeof *own, "a sketch"), sum = 0;
    if (!own)
        return INFINITY;
    assay_project(own, p, x);
    for (int64_t g = 0; g < p->n_groups; g++) {
        double r = 0;
        for (int64_t j = g * N; j < (g + 1) * N; j++)
            r += (p->y[j] - own[j]) * (p->y[j] - own[j]);
        if (rest)
            rest[g] = r;
        sum += r;
    }
    free(own);
    return sum;
}

bool assay_solve_definite(double *a, double *b, int n, double ridge)
{
    for (int i = 0; i < n; i++) { /* Cholesky: the lower triangle becomes L */
        for (int j = 0; j <= i; j++) {
            double s = a[(size_t)i * n + j] + (i == j ? ridge : 0);
            for (int k = 0; k < j; k++)
                s -= a[(size_t)i * n + k] * a[(size_t)j * n + k];
            if (i == j && !(s > 0))
                return false;
            a[(size_t)i * n + j] = i == j ? sqrt(s) : s / a[(size_t)j * n + j];
        }
        double s = b[i];
        for (int k = 0; k < i; k++)
            s -= a[(size_t)i * n + k] * b[k];
        b[i] = s / a[(size_t)i * n + i];
    }
    for (int i = n - 1; i >= 0; i--) {
        double s = b[i];
        for (int k = i + 1; k < n; k++)
            s -= a[(size_t)k * n + i] * b[k];
        b[i] = s / a[(size_t)i * n + i];
    }
    return true;
}

/*
 * Normal equations of one group: the same whatever its values, and those of n elements are the
 * first n of those of 256. Made once: signs, and the Cholesky factor of signs' signs.
 */
static struct {
    pthread_once_t once;
    double *signs, *factor; /* [N, N] */
} normal = {.once = PTHREAD_ONCE_INIT};

static void make_normal(void)
{
    double *signs = assay_alloc_or_lack((size_t)N * N, 2 * sizeof *signs, "signs");
    double *a = signs ? signs + (size_t)N * N : NULL, none[N] = {0};
    if (!signs)
        return;
    for (int i = 0; i < N; i++)
        assay_sketch_signs(signs + (size_t)i * N, i);
    for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++) {
            double dot = 0;
            for (int k = 0; k < N; k++)
                dot += signs[i * N + k] * signs[j * N + k];
            a[i * N + j] = dot;
        }
    if (assay_solve_definite(a, none, N, RIDGE)) {
        normal.signs = signs;
        normal.factor = a;
    } else {
        free(signs);
    }
}

/* The difference d of one group of n <= 256 elements from its sketch. */
static assay_status solve_group(double *d, const double *rest, int n)
{
    pthread_once(&normal.once, make_normal);
    if (!normal.signs)
        return assay_fail(ASSAY_NO_MEMORY, "no memory for the signs of a sketch");
    const double *l = normal.factor;
    for (int i = 0; i < n; i++) {
        const double *s = normal.signs + (size_t)i * N;
        double sum = 0;
        for (int k = 0; k < N; k++)
            sum += s[k] * rest[k];
        for (int k = 0; k < i; k++)
            sum -= l[i * N + k] * d[k];
        d[i] = sum / l[i * N + i];
    }
    for (int i = n - 1; i >= 0; i--) {
        double sum = d[i];
        for (int k = i + 1; k < n; k++)
            sum -= l[k * N + i] * d[k];
        d[i] = sum / l[i * N + i];
    }
    return ASSAY_OK;
}

assay_status assay_projection_approach(double *out, bool *exact, const assay_projection *p,
                                       const double *x)
{
    double *rest, *d = NULL;
    assay_status s;
    *exact = true;
    ASSAY_TRY(assay_alloc(&rest, (size_t)(p->n_groups * N), sizeof *rest, "sketches"));
    ASSAY_GO(assay_alloc(&d, (size_t)(assay_projection_size(p, 0) + 1), sizeof *d, "a group"));
    assay_project(rest, p, x);
    for (int64_t j = 0; j < p->n_groups * N; j++)
        rest[j] = p->y[j] - rest[j];
    for (int64_t g = 0; g < p->n_groups; g++) {
        int64_t n = assay_projection_size(p, g), first = g * ASSAY_SKETCH_ROWS * p->inner;
        if (n <= N)
            ASSAY_GO(solve_group(d, rest + g * N, (int)n));
        else
            assay_sketch_back(d, rest + g * N, n);
        *exact = *exact && n <= N;
        for (int64_t i = 0; i < n; i++)
            out[first + i] = x[first + i] + d[i];
    }
out:
    free(rest);
    free(d);
    return s;
}

assay_status assay_projection_fit(double *factors, const assay_projection *p, const double *base,
                                  const double *const *parts, int n, bool shared)
{
    int64_t m = p->n_groups * N;
    double *rest, *own, *a;
    ASSAY_BUG_IF(n < 1 || n > N);
    ASSAY_TRY(assay_alloc(&rest, (size_t)m * (size_t)(n + 1) + (size_t)n * (size_t)n, sizeof *rest,
                          "sketches of parts"));
    own = rest + m;
    a = own + (size_t)m * (size_t)n;
    assay_project(rest, p, base);
    for (int64_t j = 0; j < m; j++)
        rest[j] = p->y[j] - rest[j];
    for (int i = 0; i < n; i++)
        assay_project(own + i * m, p, parts[i]);
    int64_t n_fits = shared ? 1 : p->n_groups, width = shared ? m : N;
    for (int64_t g = 0; g < n_fits; g++) {
        double *b = factors + g * n, largest = 0;
        for (int i = 0; i < n; i++) {
            const double *u = own + i * m + g * width;
            b[i] = 0;
            for (int64_t k = 0; k < width; k++)
                b[i] += u[k] * rest[g * width + k];
            for (int j = 0; j <= i; j++) {
                const double *v = own + j * m + g * width;
                double dot = 0;
                for (int64_t k = 0; k < width; k++)
                    dot += u[k] * v[k];
                a[(size_t)i * (size_t)n + (size_t)j] = dot;
            }
            largest = fmax(largest, a[(size_t)i * (size_t)n + (size_t)i]);
        }
        if (!assay_solve_definite(a, b, n, 1e-9 * largest + 1e-300))
            memset(b, 0, (size_t)n * sizeof *b);
    }
    free(rest);
    return ASSAY_OK;
}
