/*
 * A sketch as it is judged, and what is told of a value by its counts and checksum.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/number.h"
#include "references/forced_private.h"

#ifdef __FAST_MATH__
#error "isnan() must mean what it says"
#endif

void assay_forced_sketch_of(assay_projection *out, const assay_seen *seen)
{
    int64_t n = assay_seen_count(seen);
    out->y = assay_run_sketch(&out->n_groups, seen);
    out->rows = seen->n_dims ? seen->dims[0] : 1;
    out->inner = out->rows > 0 ? n / out->rows : 0;
}

typedef struct counts { /* of what is not finite */
    int64_t nan, pos_inf, neg_inf;
} counts;

static counts count_of(const double *x, int64_t n)
{
    counts c = {0, 0, 0};
    for (int64_t i = 0; i < n; i++) {
        c.nan += isnan(x[i]) != 0;
        c.pos_inf += isinf(x[i]) && x[i] > 0;
        c.neg_inf += isinf(x[i]) && x[i] < 0;
    }
    return c;
}

static counts counts_seen(const assay_seen *seen)
{
    return (counts){seen->n_nan, seen->n_pos_inf, seen->n_neg_inf};
}

static int64_t added(int64_t got, int64_t want)
{
    return got > want ? got - want : 0;
}

static bool judge_masks(assay_judged *j, const double *expected, int64_t n)
{
    counts got = counts_seen(j->seen), want = count_of(expected, n);
    j->n_nonfinite = got.nan + added(got.pos_inf, want.pos_inf) + added(got.neg_inf, want.neg_inf);
    j->n_nonfinite_added = added(got.nan, want.nan) + added(got.pos_inf, want.pos_inf) +
                           added(got.neg_inf, want.neg_inf);
    return got.nan == want.nan && got.pos_inf == want.pos_inf && got.neg_inf == want.neg_inf;
}

typedef struct sums { /* of a group, or of all */
    double error, size, cross, got, floor;
} sums;

static double ratio(double part, double whole)
{
    return whole > 0 ? sqrt(part / whole) : part > 0 ? INFINITY : 0;
}

static double reach(int64_t n)
{
    return n > 0 ? 1 + 6 / sqrt((double)n) : 1;
}

static sums sum_group(const assay_projection *p, int64_t g, const double *own,
                      const double *expected, const double *rounded)
{
    sums s = {0};
    int64_t first = g * ASSAY_SKETCH_ROWS * p->inner;
    for (int64_t k = g * ASSAY_SKETCH_N; k < (g + 1) * ASSAY_SKETCH_N; k++) {
        s.error += (p->y[k] - own[k]) * (p->y[k] - own[k]);
        s.cross += p->y[k] * own[k];
        s.got += (double)p->y[k] * p->y[k];
    }
    for (int64_t i = first; i < first + assay_projection_size(p, g); i++) {
        if (!isfinite(expected[i]))
            continue;
        s.size += expected[i] * expected[i];
        if (isfinite(rounded[i]))
            s.floor += (rounded[i] - expected[i]) * (rounded[i] - expected[i]);
    }
    return s;
}

static void judge_sums(assay_judged *j, const sums *groups, int64_t n_groups, int64_t n,
                       assay_dtype format)
{
    sums all = {0};
    double unit = ldexp(1, -assay_dtype_mantissa(format));
    double analytic = fmax(0.45 * unit, ldexp(1, -24)), worst = 0;
    for (int64_t g = 0; g < n_groups; g++) {
        all.error += groups[g].error;
        all.size += groups[g].size;
        all.cross += groups[g].cross;
        all.got += groups[g].got;
        all.floor += groups[g].floor;
    }
    int64_t numbers = n_groups * ASSAY_SKETCH_N;
    double floor = ratio(all.floor, all.size), both = sqrt(all.size) * sqrt(all.got);
    j->rel = ratio(all.error, all.size);
    j->gain = all.size > 0 ? all.cross / all.size : 1;
    j->one_minus_cos = both > 0 ? 1 - all.cross / both : all.size > 0 || all.got > 0 ? 1 : 0;
    j->floor_rel = isfinite(floor) && floor > analytic ? floor : analytic;
    j->floor_row_max = j->floor_row_median = j->floor_rel;
    j->row_rel_max = j->row_rel_median = j->rel;
    j->gain_row_median = j->gain_group_worst = j->gain;
    j->worst_group = -1;
    if (j->rel > fmax(3, reach(n < numbers ? n : numbers)) * j->floor_rel && !j->is_home) {
        j->is_home = true;
        snprintf(j->why, sizeof j->why, "sketch: relative error %.3g, floor %.3g", j->rel,
                 j->floor_rel);
    }
    double factor = assay_dtype_mantissa(format) >= 24 ? 16 : 4;
    for (int64_t g = 0; g < n_groups; g++) {
        double rel = ratio(groups[g].error, groups[g].size);
        double least = fmax(ratio(groups[g].floor, groups[g].size), j->floor_rel);
        j->row_rel_max = fmax(j->row_rel_max, rel);
        if (rel > factor * least && rel / least > worst) {
            worst = rel / least;
            j->worst_row = g * ASSAY_SKETCH_ROWS;
            if (!j->is_home)
                snprintf(j->why, sizeof j->why,
                         "sketch of rows from %lld on: relative error %.3g, floor %.3g",
                         (long long)j->worst_row, rel, least);
        }
    }
    j->is_home = j->is_home || worst > 0;
}

assay_status assay_forced_judge_sketch(assay_judged *judged, const assay_forced *f,
                                       const double *expected, const double *rounded)
{
    assay_judged *j = judged;
    assay_projection p;
    double *own;
    sums *groups;
    int64_t n = j->n_rows * j->n_cols;
    assay_forced_sketch_of(&p, j->seen);
    ASSAY_TRY(assay_alloc(&own, (size_t)(p.n_groups * ASSAY_SKETCH_N), sizeof *own, "a sketch"));
    assay_status s = assay_alloc(&groups, (size_t)p.n_groups, sizeof *groups, "a sketch");
    if (s == ASSAY_OK) {
        assay_project(own, &p, expected);
        for (int64_t g = 0; g < p.n_groups; g++)
            groups[g] = sum_group(&p, g, own, expected, rounded);
        j->format = f->format;
        j->is_home = !judge_masks(j, expected, n);
        j->why[0] = '\0';
        if (j->is_home)
            snprintf(j->why, sizeof j->why,
                     "%lld elements are not finite where finite ones are expected",
                     (long long)j->n_nonfinite_added);
        judge_sums(j, groups, p.n_groups, n, j->format);
        free(groups);
    }
    free(own);
    return s;
}

/* NaN as memory is filled with before use, where the statistics say that it is that. */
static double nan_of(const assay_seen *seen)
{
    uint32_t bits = assay_poison_f32(seen->written_owner > 0 ? (uint32_t)seen->written_owner : 0);
    float poison;
    memcpy(&poison, &bits, sizeof poison);
    return seen->n_poison > 0 && seen->n_poison == seen->n_nan ? (double)poison : NAN;
}

/* Whether x fits the sketch of a home up to its floor, masks included. */
static bool fits(const assay_forced *f, const assay_judged *j, const double *x, int64_t n)
{
    assay_judged copy = *j;
    const double *rounded = f->rounded;
    double *moved = NULL;
    bool good = false;
    if (assay_alloc(&moved, (size_t)n, sizeof *moved, "values") != ASSAY_OK)
        return false;
    for (int64_t i = 0; i < n; i++)
        moved[i] = x[i] == f->expected[i] ? rounded[i] : x[i];
    good = assay_forced_judge_sketch(&copy, f, x, moved) == ASSAY_OK && !copy.is_home;
    free(moved);
    return good;
}

typedef struct parts { /* a way to cut a value: part of element i */
    int64_t n, width;  /* width of a row's cell */
    enum { ROWS, COLUMNS, CELLS } way;
} parts;

static int64_t part_of(const parts *w, int64_t i, int64_t cols)
{
    return w->way == ROWS ? i / cols : w->way == COLUMNS ? i % cols / w->width : i / w->width;
}

/*
 * Elements that are not finite count as 0 in a sketch: which parts of the value are missing there
 * is a least squares fit of what they would have added, group by group, so only as many parts as
 * numbers are told apart. out: NaN in the parts that are missing.
 */
static assay_status mask_parts(double *out, const assay_forced *f, const assay_judged *j,
                               const parts *w, int64_t n)
{
    assay_projection p;
    int64_t all = w->n, per_group = w->way == COLUMNS ? all : 0;
    assay_forced_sketch_of(&p, j->seen);
    for (int64_t g = 0; g < p.n_groups && w->way != COLUMNS; g++) {
        int64_t m = assay_projection_size(&p, g) / (w->way == ROWS ? j->n_cols : w->width);
        per_group = m > per_group ? m : per_group;
    }
    memcpy(out, f->expected, (size_t)n * sizeof *out);
    if (per_group < 1 || per_group > ASSAY_SKETCH_N / 2)
        return ASSAY_OK;
    double *lists, *factors = NULL;
    const double **pointers = NULL;
    assay_status s;
    ASSAY_TRY(assay_alloc(&lists, (size_t)(per_group * n), sizeof *lists, "parts"));
    ASSAY_GO(assay_alloc(&pointers, (size_t)per_group, sizeof *pointers, "parts"));
    ASSAY_GO(assay_alloc(&factors, (size_t)(per_group * p.n_groups), sizeof *factors, "parts"));
    for (int64_t k = 0; k < per_group; k++)
        pointers[k] = lists + k * n;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = part_of(w, i, j->n_cols);
        if (w->way != COLUMNS)
            k -= part_of(w, i / (ASSAY_SKETCH_ROWS * p.inner) * ASSAY_SKETCH_ROWS * p.inner,
                         j->n_cols);
        lists[k * n + i] = isfinite(f->expected[i]) ? -f->expected[i] : 0;
    }
    ASSAY_GO(assay_projection_fit(factors, &p, f->expected, pointers, (int)per_group,
                                  w->way == COLUMNS));
    for (int64_t i = 0; i < n; i++) {
        int64_t g = i / (ASSAY_SKETCH_ROWS * p.inner), k = part_of(w, i, j->n_cols);
        if (w->way != COLUMNS)
            k -= part_of(w, g * ASSAY_SKETCH_ROWS * p.inner, j->n_cols);
        double factor = factors[(w->way == COLUMNS ? 0 : g * per_group) + k];
        if (factor > 0.5 && factor < 1.5)
            out[i] = nan_of(j->seen);
    }
out:
    free(lists);
    free(pointers);
    free(factors);
    return s;
}

/* A few single elements that are missing: one after the other, the one whose signs the rest of the
 * sketch shows most. */
static assay_status mask_elements(double *out, const assay_forced *f, const assay_judged *j,
                                  int64_t n)
{
    enum { MOST = 24 };
    assay_projection p;
    double *back;
    int64_t n_lost = j->n_nonfinite_added;
    bool exact;
    assay_forced_sketch_of(&p, j->seen);
    memcpy(out, f->expected, (size_t)n * sizeof *out);
    if (n_lost > MOST)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&back, (size_t)n, sizeof *back, "values"));
    assay_status s = ASSAY_OK;
    for (int64_t k = 0; k < n_lost && s == ASSAY_OK; k++) {
        s = assay_projection_approach(back, &exact, &p, out);
        int64_t best = -1;
        double most = 0;
        for (int64_t i = 0; i < n; i++) {
            double d = isfinite(out[i]) ? out[i] - back[i] : 0; /* about its whole value */
            double gain = d * out[i] > 0 ? 2 * d * out[i] - out[i] * out[i] : 0;
            if (gain > most) {
                most = gain;
                best = i;
            }
        }
        if (best < 0)
            break;
        out[best] = nan_of(j->seen);
    }
    free(back);
    return s;
}

/* What is not finite, where counts and sketch tell it. */
static assay_status find_mask(bool *found, assay_forced *f, const assay_judged *j, int64_t n)
{
    int64_t head = j->n_groups > 0 ? j->n_cols / j->n_groups : j->n_cols;
    const parts ways[] = {{j->n_rows, j->n_cols, ROWS},
                          {j->n_groups, head, COLUMNS},
                          {j->n_rows * j->n_groups, head, CELLS}};
    *found = false;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && !*found; i++) {
        ASSAY_TRY(mask_parts(f->got, f, j, &ways[i], n));
        *found = fits(f, j, f->got, n);
    }
    if (!*found) {
        ASSAY_TRY(mask_elements(f->got, f, j, n));
        *found = fits(f, j, f->got, n);
    }
    return ASSAY_OK;
}

static bool same_shape(const assay_seen *a, const assay_seen *b)
{
    return a->n_dims == b->n_dims && !memcmp(a->dims, b->dims, sizeof *a->dims * (size_t)a->n_dims);
}

/* A value of the run that has the very bits of this one, found already; NULL: none. */
static const assay_seen *twin_of(const assay_forced *f, const assay_judged *j)
{
    for (int i = f->n_judged - 1; i >= 0 && j->seen->checksum; i--) {
        const assay_seen *seen = f->judged[i].seen;
        if (seen != j->seen && seen->checksum == j->seen->checksum && seen->has_values &&
            seen->known != ASSAY_KNOWN_ESTIMATE && same_shape(seen, j->seen))
            return seen;
    }
    return NULL;
}

assay_status assay_forced_fact(bool *found, assay_forced *f, const assay_judged *j, int64_t n)
{
    const assay_seen *twin = twin_of(f, j);
    int64_t n_lost = j->seen->n_nan + j->seen->n_pos_inf + j->seen->n_neg_inf;
    *found = j->seen->n_nan == n || j->seen->n_zero == n;
    for (int64_t i = 0; i < n && *found; i++)
        f->got[i] = j->seen->n_nan == n ? nan_of(j->seen) : 0;
    if (!*found && n_lost > 0 && j->n_nonfinite_added > 0)
        ASSAY_TRY(find_mask(found, f, j, n));
    if (!*found && twin) {
        ASSAY_TRY(assay_run_read(f->got, f->run, twin));
        *found = fits(f, j, f->got, n);
    }
    return ASSAY_OK;
}
