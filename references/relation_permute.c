/*
 * Relations that are permutations: of blocks by assignment, inside blocks, of unequal parts,
 * riffles.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "references/relation_sketch.h"

static void start(assay_relation *rel, assay_relation_kind kind, double complexity)
{
    memset(rel, 0, sizeof *rel);
    rel->kind = kind;
    rel->complexity = complexity;
    rel->index = -1;
    rel->value = NAN;
}

/*
 * Least-cost assignment of n rows to n columns (the Hungarian method with potentials, O(n^3)):
 * to[i] = column of row i. cost: [n, n].
 */
static int assign(int *to, const double *cost, int n)
{
    size_t m = (size_t)n + 1;
    double *u = assay_alloc_or_lack(m * 3, sizeof *u, "an assignment");
    int *p = assay_alloc_or_lack(m * 3, sizeof *p, "an assignment");
    if (!u || !p) {
        free(u);
        free(p);
        return 0;
    }
    double *v = u + m, *least = v + m;
    int *way = p + m, *used = way + m;
    for (int i = 1; i <= n; i++) {
        int j0 = 0;
        p[0] = i;
        for (int j = 0; j <= n; j++) {
            least[j] = INFINITY;
            used[j] = 0;
        }
        do {
            used[j0] = 1;
            int i0 = p[j0], j1 = 0;
            double delta = INFINITY;
            for (int j = 1; j <= n; j++) {
                if (used[j])
                    continue;
                double cur = cost[(size_t)(i0 - 1) * n + j - 1] - u[i0] - v[j];
                if (cur < least[j]) {
                    least[j] = cur;
                    way[j] = j0;
                }
                if (least[j] < delta) {
                    delta = least[j];
                    j1 = j;
                }
            }
            for (int j = 0; j <= n; j++)
                if (used[j]) {
                    u[p[j]] += delta;
                    v[j] -= delta;
                } else {
                    least[j] -= delta;
                }
            j0 = j1;
        } while (p[j0]);
        do {
            int j1 = way[j0];
            p[j0] = p[j1];
            j0 = j1;
        } while (j0);
    }
    for (int j = 1; j <= n; j++)
        to[p[j] - 1] = j - 1;
    free(u);
    free(p);
    return 1;
}

/* Squared distance of element (i of got, j of expected), each of `width` columns repeated over
 * `groups` groups of `stride` columns. */
static double distance(const assay_relation_pair *p, int64_t i, int64_t j, int64_t width,
                       int64_t groups, int64_t stride)
{
    double sum = 0;
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t g = 0; g < groups; g++) {
            const double *a = p->got + r * p->cols + g * stride + i * width;
            const double *b = p->expected + r * p->cols + g * stride + j * width;
            for (int64_t c = 0; c < width; c++) {
                double d = a[c] - b[c];
                sum += isfinite(d) ? d * d : 0;
            }
        }
    return sum;
}

static void apply(double *out, const assay_relation_pair *p, const int *map, int n, int64_t width,
                  int64_t groups, int64_t stride)
{
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t g = 0; g < groups; g++)
            for (int i = 0; i < n; i++)
                memcpy(out + r * p->cols + g * stride + i * width,
                       p->expected + r * p->cols + g * stride + map[i] * width,
                       (size_t)width * sizeof *out);
}

/* log2(n!) / 10: what the choice of a permutation costs, bounded so that long ones stay possible.
 */
static double choice(int n)
{
    double bits = lgamma(n + 1.0) / log(2);
    return fmin(bits / 10, 2);
}

static void match_blocks(assay_relation *rel, double *out, const assay_relation_pair *pair, int n,
                         int64_t width, int64_t groups, int64_t stride)
{
    rel->n_blocks = n;
    double *cost = assay_alloc_or_lack((size_t)n * n, sizeof *cost, "distances of blocks");
    int nearest[ASSAY_RELATION_BLOCKS], taken[ASSAY_RELATION_BLOCKS] = {0}, bijective = 1;
    double free_sum = 0, bound_sum = 0, slack = 0;
    for (int i = 0; i < n; i++)
        rel->map[i] = i;
    if (!cost)
        goto done;
    for (int i = 0; i < n; i++) {
        nearest[i] = 0;
        for (int j = 0; j < n; j++) {
            cost[(size_t)i * n + j] = distance(pair, i, j, width, groups, stride);
            if (cost[(size_t)i * n + j] < cost[(size_t)i * n + nearest[i]])
                nearest[i] = j;
        }
        free_sum += cost[(size_t)i * n + nearest[i]];
        slack += cost[(size_t)i * n + i];
        if (taken[nearest[i]]++)
            bijective = 0;
    }
    if (bijective) {
        memcpy(rel->map, nearest, (size_t)n * sizeof *nearest);
    } else if (assign(rel->map, cost, n)) {
        for (int i = 0; i < n; i++)
            bound_sum += cost[(size_t)i * n + rel->map[i]];
        if (bound_sum > 1.02 * free_sum && bound_sum - free_sum > 1e-6 * slack) {
            memcpy(rel->map, nearest, (size_t)n * sizeof *nearest);
            rel->kind = ASSAY_REL_REPEATED;
            rel->complexity += 0.5;
        }
    }
done:
    free(cost);
    apply(out, pair, rel->map, n, width, groups, stride);
    assay_relation_score(rel, out, pair);
}

static void fit_blocks(assay_relation *rel, double *out, const assay_relation_pair *pair,
                       const void *how)
{
    int n_blocks = *(const int *)how;
    start(rel, ASSAY_REL_PERMUTED, choice(n_blocks));
    match_blocks(rel, out, pair, n_blocks, pair->cols / n_blocks, 1, pair->cols);
}

void assay_relation_blocks(assay_relation *rel, double *out, const assay_relation_pair *pair,
                           int n_blocks)
{
    ASSAY_BUG_IF(n_blocks < 1 || n_blocks > ASSAY_RELATION_BLOCKS || pair->cols % n_blocks);
    assay_relation_fit_again(rel, out, pair, fit_blocks, &n_blocks);
}

static void fit_inside(assay_relation *rel, double *out, const assay_relation_pair *pair,
                       const void *how)
{
    int n_blocks = *(const int *)how;
    int64_t width = pair->cols / n_blocks;
    start(rel, ASSAY_REL_INSIDE, choice((int)width));
    match_blocks(rel, out, pair, (int)width, 1, n_blocks, width);
    if (rel->kind == ASSAY_REL_REPEATED)
        rel->complexity += 1;
    rel->kind = ASSAY_REL_INSIDE;
}

void assay_relation_inside(assay_relation *rel, double *out, const assay_relation_pair *pair,
                           int n_blocks)
{
    ASSAY_BUG_IF(n_blocks < 1 || pair->cols % n_blocks ||
                 pair->cols / n_blocks > ASSAY_RELATION_BLOCKS);
    assay_relation_fit_again(rel, out, pair, fit_inside, &n_blocks);
}

static int next_permutation(int *a, int n)
{
    int i = n - 2;
    while (i >= 0 && a[i] > a[i + 1])
        i--;
    if (i < 0)
        return 0;
    int j = n - 1;
    while (a[j] < a[i])
        j--;
    int t = a[i];
    a[i] = a[j];
    a[j] = t;
    for (int l = i + 1, r = n - 1; l < r; l++, r--) {
        t = a[l];
        a[l] = a[r];
        a[r] = t;
    }
    return 1;
}

static void lay_parts(double *out, const assay_relation_pair *p, const int64_t *widths,
                      const int *order, int n)
{
    int64_t first[ASSAY_RELATION_PARTS] = {0};
    for (int i = 1; i < n; i++)
        first[i] = first[i - 1] + widths[i - 1];
    for (int64_t r = 0; r < p->rows; r++) {
        int64_t at = r * p->cols;
        for (int i = 0; i < n; i++) {
            int k = order[i];
            memcpy(out + at, p->expected + r * p->cols + first[k], (size_t)widths[k] * sizeof *out);
            at += widths[k];
        }
    }
}

void assay_relation_parts(assay_relation *rel, double *out, const assay_relation_pair *pair,
                          const int64_t *widths, int n_parts)
{
    ASSAY_BUG_IF(n_parts < 2 || n_parts > ASSAY_RELATION_PARTS);
    int order[ASSAY_RELATION_PARTS], best[ASSAY_RELATION_PARTS];
    for (int i = 0; i < n_parts; i++)
        best[i] = order[i] = i;
    double most = -INFINITY;
    while (next_permutation(order, n_parts)) {
        lay_parts(out, pair, widths, order, n_parts);
        assay_relation_score(rel, out, pair);
        if (rel->explained > most) {
            most = rel->explained;
            memcpy(best, order, sizeof best);
        }
    }
    start(rel, ASSAY_REL_PARTS, choice(n_parts));
    rel->n_blocks = n_parts;
    memcpy(rel->map, best, (size_t)n_parts * sizeof *best);
    lay_parts(out, pair, widths, best, n_parts);
    assay_relation_score(rel, out, pair);
}

static void cut_columns(double *out, const double *whole, int64_t all, int64_t first, int64_t rows,
                        int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(out + r * cols, whole + r * all + first, (size_t)cols * sizeof *out);
}

void assay_relation_parts_within(assay_relation *rel, double *out, const assay_relation_pair *own,
                                 const double *whole, int64_t first, const int64_t *widths,
                                 int n_parts)
{
    ASSAY_BUG_IF(n_parts < 2 || n_parts > ASSAY_RELATION_PARTS);
    int order[ASSAY_RELATION_PARTS];
    assay_relation_pair joint = {.expected = whole, .rows = own->rows};
    double *cut = assay_alloc_or_lack((size_t)(own->rows * own->cols), sizeof *cut, "columns");
    for (int i = 0; i < n_parts; i++) {
        order[i] = i;
        joint.cols += widths[i];
    }
    start(rel, ASSAY_REL_PARTS, choice(n_parts));
    rel->n_blocks = n_parts;
    rel->explained = -INFINITY;
    memcpy(rel->map, order, (size_t)n_parts * sizeof *order);
    while (cut && next_permutation(order, n_parts)) {
        assay_relation next = *rel;
        lay_parts(out, &joint, widths, order, n_parts);
        cut_columns(cut, out, joint.cols, first, own->rows, own->cols);
        assay_relation_score(&next, cut, own);
        if (next.explained > rel->explained) {
            *rel = next;
            memcpy(rel->map, order, (size_t)n_parts * sizeof *order);
        }
    }
    lay_parts(out, &joint, widths, rel->map, n_parts);
    free(cut);
}

void assay_relation_lay_riffle(double *out, const assay_relation_pair *p, int n_blocks, bool apart)
{
    int64_t width = p->cols / n_blocks, half = width / 2;
    for (int64_t r = 0; r < p->rows; r++)
        for (int b = 0; b < n_blocks; b++) {
            const double *e = p->expected + r * p->cols + b * width;
            double *o = out + r * p->cols + b * width;
            for (int64_t i = 0; i < half; i++) {
                o[apart ? i : 2 * i] = e[apart ? 2 * i : i];
                o[apart ? half + i : 2 * i + 1] = e[apart ? 2 * i + 1 : half + i];
            }
        }
}

void assay_relation_riffle(assay_relation *rel, double *out, const assay_relation_pair *pair,
                           int n_blocks)
{
    ASSAY_BUG_IF(n_blocks < 1 || pair->cols % (2 * n_blocks));
    assay_relation one;
    start(&one, ASSAY_REL_RIFFLE, 0.1);
    one.value = 1;
    assay_relation_lay_riffle(out, pair, n_blocks, false);
    assay_relation_score(&one, out, pair);
    start(rel, ASSAY_REL_RIFFLE, 0.1);
    rel->value = -1;
    assay_relation_lay_riffle(out, pair, n_blocks, true);
    assay_relation_score(rel, out, pair);
    if (one.explained > rel->explained) {
        *rel = one;
        assay_relation_lay_riffle(out, pair, n_blocks, false);
    }
}

#define MAX_COMPONENTS 64

/* Solves the normal equations a x = b, [n, n] row-major, by Gaussian elimination with pivoting; a
 * component without energy keeps 1. */
static void solve(double *x, double *a, double *b, int n)
{
    int used[MAX_COMPONENTS];
    double largest = 1e-300;
    for (int i = 0; i < n; i++) {
        used[i] = -1;
        x[i] = 1;
        largest = fmax(largest, a[i * n + i]);
    }
    for (int c = 0; c < n; c++) {
        int best = -1;
        for (int r = c; r < n; r++)
            if (best < 0 || fabs(a[r * n + c]) > fabs(a[best * n + c]))
                best = r;
        if (!(fabs(a[best * n + c]) > 1e-12 * largest))
            continue;
        for (int k = 0; k < n && best != c; k++) {
            double t = a[c * n + k];
            a[c * n + k] = a[best * n + k];
            a[best * n + k] = t;
        }
        double t = b[c];
        b[c] = b[best];
        b[best] = t;
        for (int r = c + 1; r < n; r++) {
            double f = a[r * n + c] / a[c * n + c];
            for (int k = c; k < n; k++)
                a[r * n + k] -= f * a[c * n + k];
            b[r] -= f * b[c];
        }
        used[c] = c;
    }
    for (int c = n - 1; c >= 0; c--) {
        if (used[c] < 0)
            continue;
        double sum = b[c];
        for (int k = c + 1; k < n; k++)
            sum -= a[c * n + k] * x[k];
        x[c] = sum / a[c * n + c];
    }
}

static void sum_components(double *out, const assay_relation_pair *p,
                           const double *const *components, const double *count, int n)
{
    memset(out, 0, (size_t)(p->rows * p->cols) * sizeof *out);
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < p->rows * p->cols; k++)
            out[k] += count[i] * components[i][k];
}

void assay_relation_components(assay_relation *rel, double *out, const assay_relation_pair *pair,
                               const double *const *components, int n)
{
    ASSAY_BUG_IF(n < 1 || n > MAX_COMPONENTS);
    start(rel, ASSAY_REL_COMPONENTS, 0.5);
    rel->n_blocks = n;
    double *a = assay_alloc_or_lack((size_t)n * n + n, sizeof *a, "components");
    double *b = a ? a + (size_t)n * n : NULL;
    for (int i = 0; i < n; i++)
        rel->count[i] = 1;
    if (a) {
        for (int64_t k = 0; k < pair->rows * pair->cols; k++) {
            double g = pair->got[k];
            if (!isfinite(g) || !isfinite(pair->expected[k]))
                continue;
            for (int i = 0; i < n; i++) {
                b[i] += components[i][k] * g;
                for (int j = 0; j <= i; j++)
                    a[i * n + j] += components[i][k] * components[j][k];
            }
        }
        for (int i = 0; i < n; i++)
            for (int j = i + 1; j < n; j++)
                a[i * n + j] = a[j * n + i];
        solve(rel->count, a, b, n);
    }
    if (a && pair->sketch) {
        memset(out, 0, (size_t)(pair->rows * pair->cols) * sizeof *out);
        if (assay_projection_fit(b, pair->sketch, out, components, n, true) == ASSAY_OK)
            for (int i = 0; i < n; i++)
                rel->count[i] = b[i] != 0 ? b[i] : 1;
    }
    free(a);
    int odd = 0;
    for (int i = 0; i < n; i++) {
        if (fabs(rel->count[i] - round(rel->count[i])) < 0.02)
            rel->count[i] = round(rel->count[i]) + 0.0;
        else
            rel->complexity += 1;
        if (rel->count[i] != 1 && odd++ == 0) {
            rel->index = i;
            rel->value = rel->count[i];
        }
    }
    sum_components(out, pair, components, rel->count, n);
    assay_relation_score(rel, out, pair);
}
