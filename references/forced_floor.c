#include "references/forced_floor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "isnan() must mean what it says"
#endif

assay_dtype assay_floor_format(const double *values, int64_t n)
{
    bool bf16 = true, f16 = true, f32 = true;
    for (int64_t i = 0; i < n && f32; i++) {
        if (!isfinite(values[i]))
            continue;
        float f = (float)values[i];
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        f32 = (double)f == values[i];
        bf16 = bf16 && (bits & 0xffff) == 0;
        f16 = f16 && assay_f16_to_f32(assay_f32_to_f16(f)) == f;
    }
    return !f32   ? ASSAY_DTYPE_F64
           : bf16 ? ASSAY_DTYPE_BF16
           : f16  ? ASSAY_DTYPE_F16
                  : ASSAY_DTYPE_F32;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *list, int64_t n)
{
    if (n == 0)
        return 0;
    qsort(list, (size_t)n, sizeof *list, by_value);
    return n % 2 ? list[n / 2] : (list[n / 2 - 1] + list[n / 2]) / 2;
}

/* Median of list and the standard error of that median from the absolute deviations; list is
 * reordered. */
static double median_and_error(double *error, double *list, int64_t n)
{
    double m = median_of(list, n);
    for (int64_t i = 0; i < n; i++)
        list[i] = fabs(list[i] - m);
    *error = n > 1 ? 1.2533 * 1.4826 * median_of(list, n) / sqrt((double)n) : INFINITY;
    return m;
}

typedef struct cell_sums { /* of one row, or of one head of one row */
    double error, size, cross, got, floor, cross_rounded;
    int64_t n;
} cell_sums;

static cell_sums sum_cell(const assay_floor_input *in, int64_t from, int64_t width)
{
    cell_sums s = {0};
    for (int64_t i = from; i < from + width; i++) {
        double g = in->got[i], e = in->expected[i];
        if (!isfinite(g) || !isfinite(e))
            continue;
        s.error += (g - e) * (g - e);
        s.size += e * e;
        s.cross += g * e;
        s.got += g * g;
        if (in->rounded && isfinite(in->rounded[i])) {
            s.floor += (in->rounded[i] - e) * (in->rounded[i] - e);
            s.cross_rounded += in->rounded[i] * e;
        }
        s.n++;
    }
    return s;
}

static double ratio(double part, double whole)
{
    return whole > 0 ? sqrt(part / whole) : part > 0 ? INFINITY : 0;
}

typedef struct work {
    cell_sums *cells;
    double *list;
    int64_t n_cells;
    double unit;     /* 2^-mantissa of the format */
    double analytic; /* floor in any case: one rounding to the format */
} work;

static void count_masks(assay_judged *j, const assay_floor_input *in)
{
    j->n_nonfinite = j->n_nonfinite_added = 0;
    j->first_bad = -1;
    for (int64_t i = 0; i < in->rows * in->cols; i++)
        if (!isfinite(in->got[i]) && in->got[i] != in->expected[i]) { /* masked scores are -inf */
            j->n_nonfinite++;
            if (isfinite(in->expected[i]) && !in->ignore_added_nonfinite) {
                if (j->n_nonfinite_added++ == 0)
                    j->first_bad = i;
            }
        }
}

static void set_units(work *w, const assay_floor_input *in)
{
    w->unit = ldexp(1, -assay_dtype_mantissa(in->format));
    w->analytic = in->rounded ? fmax(0.45 * w->unit, ldexp(1, -24)) : ldexp(1, -22);
}

/* How many root mean squares the error of n elements may reach: 1 + 6 / sqrt(n). */
static double reach(int64_t n)
{
    return n > 0 ? 1 + 6 / sqrt((double)n) : 1;
}

/* Whole numbers and the WHOLE test. */
static void judge_whole(assay_judged *j, const work *w)
{
    cell_sums s = {0};
    for (int64_t c = 0; c < w->n_cells; c++) {
        s.error += w->cells[c].error;
        s.size += w->cells[c].size;
        s.cross += w->cells[c].cross;
        s.got += w->cells[c].got;
        s.floor += w->cells[c].floor;
        s.n += w->cells[c].n;
    }
    j->rel = ratio(s.error, s.size);
    j->gain = s.size > 0 ? s.cross / s.size : 1;
    double both = sqrt(s.size) * sqrt(s.got);
    j->one_minus_cos = both > 0 ? 1 - s.cross / both : s.size > 0 || s.got > 0 ? 1 : 0;
    double floor = ratio(s.floor, s.size);
    j->floor_rel = isfinite(floor) && floor > w->analytic ? floor : w->analytic;
    if (j->rel > fmax(3, reach(s.n)) * j->floor_rel) {
        j->is_home = true;
        snprintf(j->why, sizeof j->why, "whole: relative error %.3g, floor %.3g", j->rel,
                 j->floor_rel);
    }
}

static void judge_rows(assay_judged *j, const assay_floor_input *in, const work *w)
{
    for (int64_t c = 0; c < w->n_cells; c++)
        w->list[c] = ratio(w->cells[c].floor, w->cells[c].size);
    double median = median_of(w->list, w->n_cells);
    j->floor_row_median = fmax(median, w->analytic);
    j->floor_row_max = fmax(w->n_cells ? w->list[w->n_cells - 1] : 0, w->analytic);
    double worst = 0;
    double factor = assay_dtype_mantissa(in->format) >= 24 ? 16 : 4;
    double least = in->long_tail ? j->floor_row_max : median;
    j->row_rel_max = 0;
    j->worst_row = 0;
    for (int64_t c = 0; c < w->n_cells; c++) {
        double rel = ratio(w->cells[c].error, w->cells[c].size);
        double floor = ratio(w->cells[c].floor, w->cells[c].size);
        double bound = fmax(factor, reach(w->cells[c].n)) * fmax(fmax(floor, least), w->analytic);
        if (in->rounded)
            bound = fmax(bound, 2 * w->unit);
        double over = bound > 0 ? rel / bound : rel > 0 ? INFINITY : 0;
        if (rel > j->row_rel_max)
            j->row_rel_max = rel;
        if (over > worst) {
            worst = over;
            j->worst_row = c / j->n_groups;
            if (over > 1 && !j->is_home)
                snprintf(j->why, sizeof j->why, "row %lld: relative error %.3g, bound %.3g",
                         (long long)(c / j->n_groups), rel, bound);
        }
        w->list[c] = rel;
    }
    if (worst > 1)
        j->is_home = true;
    j->row_rel_median = median_of(w->list, w->n_cells);
}

static int64_t collect_gains(double *list, const work *w, int64_t first, int64_t step, bool rounded)
{
    int64_t n = 0;
    for (int64_t c = first; c < w->n_cells; c += step)
        if (w->cells[c].size > 0 && w->cells[c].n >= 2)
            list[n++] =
                (rounded ? w->cells[c].cross_rounded : w->cells[c].cross) / w->cells[c].size;
    return n;
}

/*
 * The median gain of every step-th cell, and how many times its bound it is off 1. The bound is
 * never below what the oracle's own rounding does to the gains of these very cells: where one
 * element holds most of a row, rounding is a gain.
 */
static double off_by(double *median, double *error, const assay_judged *j, const work *w,
                     int64_t first, int64_t step)
{
    double least = fmax(fmax(w->unit / 4, j->floor_rel / 4), ldexp(1, -22)), own_error;
    int64_t n = collect_gains(w->list, w, first, step, true);
    double own = n ? fabs(median_and_error(&own_error, w->list, n) - 1) : 0;
    n = collect_gains(w->list, w, first, step, false);
    *median = n ? median_and_error(error, w->list, n) : 1;
    if (n < 6)
        return 0;
    *error = fmax(*error, own_error);
    return fabs(*median - 1) / fmax(fmax(6 * *error, least), 3 * own);
}

/* Small systematic deviations: far below the size of the rounding noise, but all on one side. */
static void judge_gains(assay_judged *j, const assay_floor_input *in, const work *w)
{
    double error, over = off_by(&j->gain_row_median, &error, j, w, 0, 1);
    j->gain_group_worst = j->gain_row_median;
    j->worst_group = -1;
    if (over > 1 && in->rounded) {
        if (!j->is_home)
            snprintf(j->why, sizeof j->why, "median row gain %.7g, %.0f standard errors from 1",
                     j->gain_row_median, fabs(j->gain_row_median - 1) / error);
        j->is_home = true;
    }
    for (int g = 0; g < j->n_groups && j->n_groups > 1; g++) {
        double m;
        over = off_by(&m, &error, j, w, g, j->n_groups);
        if (fabs(m - 1) > fabs(j->gain_group_worst - 1) || j->worst_group < 0) {
            j->gain_group_worst = m;
            j->worst_group = g;
        }
        if (over > 1 && in->rounded) {
            if (!j->is_home)
                snprintf(j->why, sizeof j->why,
                         "head %d: median row gain %.7g, %.0f standard errors from 1", g, m,
                         fabs(m - 1) / error);
            j->is_home = true;
        }
    }
}

/* The first element that stands out of its own row's noise. */
static void find_first_bad(assay_judged *j, const assay_floor_input *in, const work *w)
{
    if (!j->is_home || j->first_bad >= 0)
        return;
    int64_t width = in->cols / j->n_groups;
    double most = -1;
    int64_t largest = -1;
    for (int64_t c = 0; c < w->n_cells; c++) {
        double rms = w->cells[c].n ? sqrt(w->cells[c].size / (double)w->cells[c].n) : 0;
        for (int64_t i = c * width; i < (c + 1) * width; i++) {
            double d = fabs(in->got[i] - in->expected[i]);
            if (!isfinite(d))
                continue;
            if (d > 6 * fmax(j->floor_row_median * rms, w->unit * fabs(in->expected[i]))) {
                j->first_bad = i;
                return;
            }
            if (d > most) {
                most = d;
                largest = i;
            }
        }
    }
    j->first_bad = largest;
}

assay_status assay_floor_judge(assay_judged *judged, const assay_floor_input *in)
{
    assay_judged *j = judged;
    work w = {0};
    j->n_rows = in->rows;
    j->n_cols = in->cols;
    j->n_groups = in->n_groups > 0 && in->cols % in->n_groups == 0 ? in->n_groups : 1;
    j->is_home = false;
    j->why[0] = '\0';
    j->format = in->format;
    w.n_cells = in->rows * j->n_groups;
    assay_status s = ASSAY_OK;
    ASSAY_GO(assay_alloc(&w.cells, (size_t)w.n_cells, sizeof *w.cells, "sums of rows"));
    ASSAY_GO(assay_alloc(&w.list, (size_t)w.n_cells, sizeof *w.list, "list of rows"));
    set_units(&w, in);
    int64_t width = in->cols / j->n_groups;
    for (int64_t c = 0; c < w.n_cells; c++)
        w.cells[c] = sum_cell(in, c * width, width);
    count_masks(j, in);
    if (j->n_nonfinite_added > 0) {
        j->is_home = true;
        snprintf(j->why, sizeof j->why,
                 "%lld elements are not finite where finite ones are expected",
                 (long long)j->n_nonfinite_added);
    }
    judge_whole(j, &w);
    judge_rows(j, in, &w);
    judge_gains(j, in, &w);
    find_first_bad(j, in, &w);
out:
    free(w.cells);
    free(w.list);
    return s;
}
