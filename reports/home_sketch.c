#include "reports/home_sketch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Groups of 32 rows count alike. */
void assay_home_rest_of_sketch(double *rest, double *explained, const assay_home *h,
                               const double *out)
{
    const assay_projection *p = &h->sketch;
    double *by_group = assay_alloc_or_lack((size_t)p->n_groups, sizeof *by_group, "groups"),
           sum = 0;
    double all = assay_projection_rest(by_group, p, out);
    for (int64_t g = 0; by_group && g < p->n_groups; g++) {
        double size = 0;
        for (int64_t k = g * ASSAY_SKETCH_N; k < (g + 1) * ASSAY_SKETCH_N; k++)
            size += (double)p->y[k] * p->y[k];
        sum += by_group[g] / fmax(size, 1e-300);
    }
    *rest =
        h->sketch_size > 0 ? sqrt(fmin(sum / (double)p->n_groups, all / h->sketch_size)) : all > 0;
    *explained = h->sketch_error > 0 ? 1 - all / h->sketch_error : 0;
    free(by_group);
}

/* <rest, slope> and <slope, slope> of sketches, groups equally. */
assay_status assay_home_newton_sums(double *cross, double *square, const assay_home *home,
                                    const double *low, const double *high, double h)
{
    const assay_projection *p = &home->sketch;
    int64_t n = p->n_groups * ASSAY_SKETCH_N;
    double *a;
    *cross = *square = 0;
    ASSAY_TRY(assay_alloc(&a, (size_t)n, 2 * sizeof *a, "sketches"));
    assay_project(a, p, low);
    assay_project(a + n, p, high);
    for (int64_t g = 0; g < p->n_groups; g++) {
        double c = 0, s = 0, size = 0;
        for (int64_t k = g * ASSAY_SKETCH_N; k < (g + 1) * ASSAY_SKETCH_N; k++) {
            double slope = (a[n + k] - a[k]) / (2 * h), y = p->y[k];
            c += (y - (a[n + k] + a[k]) / 2) * slope;
            s += slope * slope;
            size += y * y;
        }
        *cross += size > 0 ? c / size : 0;
        *square += size > 0 ? s / size : 0;
    }
    free(a);
    return ASSAY_OK;
}

/* Part p of a way: the elements first + r * row + c, r < n_rows, c < width. */
void assay_home_part_at(int64_t *first, int64_t *n_rows, int64_t *width, const assay_judged *j,
                        assay_partly way, int64_t p)
{
    int64_t head = j->n_cols / j->n_groups;
    *n_rows = way == ASSAY_BY_HEADS ? j->n_rows : 1;
    *width = way == ASSAY_BY_ROWS ? j->n_cols : head;
    *first = way == ASSAY_BY_CELLS ? p * head : way == ASSAY_BY_HEADS ? p * head : p * j->n_cols;
}

/* The same of a sketch: parts whose difference between variant and expected the sketch shows once.
 */
int64_t assay_home_take_fitting(double *out, const assay_home *h, const double *variant,
                                assay_partly way)
{
    const assay_judged *j = h->judged;
    int64_t taken = 0, rows = way == ASSAY_BY_HEADS ? j->n_rows : 1;
    int64_t cols = way == ASSAY_BY_ROWS ? j->n_cols : j->n_cols / j->n_groups;
    int64_t n_parts = j->n_rows / rows * (j->n_cols / cols);
    double *factors = assay_alloc_or_lack((size_t)(n_parts + h->n), sizeof *factors, "factors"),
           *moved;
    assay_relation_pair pair = h->pair;
    assay_projection difference = h->sketch;
    float *y =
        assay_alloc_or_lack((size_t)(difference.n_groups * ASSAY_SKETCH_N), sizeof *y, "a sketch");
    double *own = assay_alloc_or_lack((size_t)(difference.n_groups * ASSAY_SKETCH_N), sizeof *own,
                                      "a sketch");
    memcpy(out, h->expected, (size_t)h->n * sizeof *out);
    if (factors && y && own) {
        moved = factors + n_parts;
        for (int64_t i = 0; i < h->n; i++)
            moved[i] =
                isfinite(variant[i]) && isfinite(h->expected[i]) ? variant[i] - h->expected[i] : 0;
        assay_project(own, &difference, h->expected);
        for (int64_t k = 0; k < difference.n_groups * ASSAY_SKETCH_N; k++)
            y[k] = (float)(h->sketch.y[k] - own[k]);
        difference.y = y;
        pair.sketch = &difference;
        pair.expected = moved;
        bool good = assay_relation_fit_parts(factors, &pair, rows, cols);
        for (int64_t p = 0; good && p < n_parts; p++) {
            int64_t first, n_rows, width;
            if (!(factors[p] > 0.5 && factors[p] < 1.5))
                continue;
            assay_home_part_at(&first, &n_rows, &width, j, way, p);
            taken++;
            for (int64_t i = 0; i < n_rows * width; i++) {
                int64_t at = first + i / width * j->n_cols + i % width;
                out[at] = variant[at];
            }
        }
    }
    free(factors);
    free(y);
    free(own);
    return taken == n_parts ? 0 : taken;
}

assay_status assay_home_fit_parts(double *factors, const assay_home *home, const double *base,
                                  const double *const *parts, int n)
{
    double *a;
    if (home->pair.sketch)
        return assay_projection_fit(factors, &home->sketch, base, parts, n, true);
    ASSAY_TRY(assay_alloc(&a, (size_t)n, (size_t)n * sizeof *a, "least squares"));
    memset(factors, 0, (size_t)n * sizeof *factors);
    double largest = 0;
    for (int64_t k = 0; k < home->n; k++) {
        double rest = home->got[k] - base[k];
        if (!isfinite(rest))
            continue;
        for (int i = 0; i < n; i++) {
            factors[i] += parts[i][k] * rest;
            for (int c = 0; c <= i; c++)
                a[i * n + c] += parts[i][k] * parts[c][k];
        }
    }
    for (int i = 0; i < n; i++)
        largest = fmax(largest, a[i * n + i]);
    if (!assay_solve_definite(a, factors, n, 1e-12 * largest + 1e-300))
        memset(factors, 0, (size_t)n * sizeof *factors);
    free(a);
    return ASSAY_OK;
}
