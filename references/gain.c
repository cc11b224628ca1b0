#include "references/gain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "references/median.h"

enum { KEPT = ASSAY_GAIN_KEPT, LEAST = 16 };

typedef struct pool {
    assay_point point;
    int layer;
    assay_gain_kind kind;
    int64_t n, room;
    double *gains;
} pool;

struct assay_gain {
    int n, room;
    pool *pools; /* in the order of arrival; few hundred at most */
};

static const struct {
    const char *name;
    double z, units;
} kinds[ASSAY_GAIN_KINDS] = {{"row", 8, 3}, {"head", 16, 4}, {"channel", 16, 4}};

const char *assay_gain_kind_name(assay_gain_kind kind)
{
    ASSAY_BUG_IF((unsigned)kind >= ASSAY_GAIN_KINDS);
    return kinds[kind].name;
}

assay_status assay_gain_new(assay_gain **out)
{
    return assay_alloc(out, 1, sizeof **out, "gains");
}

void assay_gain_free(assay_gain *gain)
{
    if (!gain)
        return;
    for (int i = 0; i < gain->n; i++)
        free(gain->pools[i].gains);
    free(gain->pools);
    free(gain);
}

static assay_status find_pool(pool **out, assay_gain *gain, assay_point point, int layer,
                              assay_gain_kind kind)
{
    for (int i = gain->n - 1; i >= 0; i--) {
        pool *p = &gain->pools[i];
        if (p->point == point && p->layer == layer && p->kind == kind) {
            *out = p;
            return ASSAY_OK;
        }
    }
    if (gain->n == gain->room) {
        int room = gain->room ? 2 * gain->room : 64;
        pool *more = realloc(gain->pools, (size_t)room * sizeof *more);
        if (!more)
            return assay_fail(ASSAY_NO_MEMORY, "gains: no memory");
        gain->pools = more;
        gain->room = room;
    }
    *out = &gain->pools[gain->n++];
    **out = (pool){.point = point, .layer = layer, .kind = kind};
    return ASSAY_OK;
}

/* Adds the finite ones of n gains, thinned to at most KEPT. */
static assay_status keep(assay_gain *gain, assay_point point, int layer, assay_gain_kind kind,
                         const double *gains, int64_t n)
{
    pool *p = NULL;
    if (!n)
        return ASSAY_OK;
    int64_t stride = (n + KEPT - 1) / KEPT, kept = (n + stride - 1) / stride;
    ASSAY_TRY(find_pool(&p, gain, point, layer, kind));
    if (p->n + kept > p->room) {
        int64_t room = 2 * p->room + kept;
        double *more = realloc(p->gains, (size_t)room * sizeof *more);
        if (!more)
            return assay_fail(ASSAY_NO_MEMORY, "gains: no memory");
        p->gains = more;
        p->room = room;
    }
    for (int64_t i = 0; i < n; i += stride)
        if (isfinite(gains[i]))
            p->gains[p->n++] = gains[i];
    return ASSAY_OK;
}

static assay_status append(pool *to, const pool *from)
{
    if (to->n + from->n > to->room) {
        int64_t room = to->n + from->n + to->room;
        double *more = realloc(to->gains, (size_t)room * sizeof *more);
        if (!more)
            return assay_fail(ASSAY_NO_MEMORY, "gains: no memory");
        to->gains = more;
        to->room = room;
    }
    memcpy(to->gains + to->n, from->gains, (size_t)from->n * sizeof *to->gains);
    to->n += from->n;
    return ASSAY_OK;
}

assay_status assay_gain_merge(assay_gain *gain, assay_gain *from)
{
    for (int i = 0; i < from->n; i++) {
        pool *p = &from->pools[i], *to = NULL;
        ASSAY_TRY(find_pool(&to, gain, p->point, p->layer, p->kind));
        if (!to->gains) {
            *to = *p;
            *p = (pool){.gains = NULL};
            continue;
        }
        if (p->n)
            ASSAY_TRY(append(to, p));
        free(p->gains);
        *p = (pool){.gains = NULL};
    }
    from->n = 0;
    return ASSAY_OK;
}

/* 1 / |exp|^2 of each row, 0 for a row that takes no part; and the row's gain (NaN then). */
static void weigh_rows(double *weight, double *row_gain, const double *got, const double *expected,
                       int64_t n_rows, int64_t width)
{
    for (int64_t r = 0; r < n_rows; r++) {
        const double *g = got + r * width, *e = expected + r * width;
        double ee = 0, de = 0;
        for (int64_t i = 0; i < width; i++) {
            ee += e[i] * e[i];
            de += (g[i] - e[i]) * e[i];
        }
        bool good = isfinite(ee) && ee > 0 && isfinite(de);
        weight[r] = good ? 1 / ee : 0;
        row_gain[r] = good ? 1 + de / ee : NAN;
    }
}

/* Weighted <got - exp, exp> and <exp, exp> of each channel. */
static void sum_channels(double *de, double *ee, const double *weight, const double *got,
                         const double *expected, int64_t n_rows, int64_t width)
{
    for (int64_t r = 0; r < n_rows; r++) {
        const double *g = got + r * width, *e = expected + r * width;
        if (weight[r] == 0)
            continue;
        for (int64_t i = 0; i < width; i++) {
            de[i] += weight[r] * (g[i] - e[i]) * e[i];
            ee[i] += weight[r] * e[i] * e[i];
        }
    }
}

static void find_ratios(double *out, const assay_gain_sums *sums)
{
    for (int64_t i = 0; i < sums->n; i++)
        out[i] = sums->ee[i] > 0 ? 1 + sums->de[i] / sums->ee[i] : NAN;
}

assay_status assay_gain_add_sums(assay_gain *gain, assay_point point, int layer,
                                 const double *row_gains, int64_t n_rows,
                                 const assay_gain_sums *heads, const assay_gain_sums *channels)
{
    double *gains;
    if (!n_rows)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&gains, (size_t)(heads->n + channels->n), sizeof *gains, "gains"));
    find_ratios(gains, heads);
    find_ratios(gains + heads->n, channels);
    assay_status s = keep(gain, point, layer, ASSAY_GAIN_ROW, row_gains, n_rows);
    if (s == ASSAY_OK && heads->n > 1)
        s = keep(gain, point, layer, ASSAY_GAIN_HEAD, gains, heads->n);
    if (s == ASSAY_OK)
        s = keep(gain, point, layer, ASSAY_GAIN_CHANNEL, gains + heads->n, channels->n);
    free(gains);
    return s;
}

assay_status assay_gain_add(assay_gain *gain, assay_point point, int layer, const double *got,
                            const double *expected, int64_t n_rows, int64_t n_heads, int64_t n_cols)
{
    ASSAY_BUG_IF(n_rows < 0 || n_heads < 0 || n_cols < 0);
    int64_t width = n_heads * n_cols;
    double *work;
    if (!n_rows || !width)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&work, (size_t)(2 * (n_rows + width + n_heads)), sizeof *work, "gains"));
    double *weight = work, *rows = weight + n_rows, *de = rows + n_rows, *ee = de + width,
           *head_de = ee + width, *head_ee = head_de + n_heads;
    weigh_rows(weight, rows, got, expected, n_rows, width);
    sum_channels(de, ee, weight, got, expected, n_rows, width);
    for (int64_t i = 0; i < width; i++) {
        head_de[i / n_cols] += de[i];
        head_ee[i / n_cols] += ee[i];
    }
    const assay_gain_sums heads = {n_heads, head_de, head_ee}, channels = {width, de, ee};
    assay_status s = assay_gain_add_sums(gain, point, layer, rows, n_rows, &heads, &channels);
    free(work);
    return s;
}

static bool is_wanted(const pool *p, assay_point point, int layer, assay_gain_kind kind)
{
    return p->point == point && p->kind == kind &&
           (layer == ASSAY_GAIN_ALL_LAYERS || p->layer == layer);
}

void assay_gain_drop(assay_gain *gain, assay_point point, int layer)
{
    for (int i = 0; i < gain->n; i++)
        if (gain->pools[i].point == point && gain->pools[i].layer == layer)
            gain->pools[i].n = 0;
}

/* Size that healthy arithmetic does not reach, in units of gain. */
static double unit_of(assay_dtype dtype)
{
    int mantissa = assay_dtype_mantissa(dtype);
    return fmax(0x1p-22, mantissa ? ldexp(1, -mantissa) / 16 : 0);
}

assay_status assay_gain_judge(assay_gain_verdict *out, const assay_gain *gain, assay_point point,
                              int layer, assay_gain_kind kind, assay_dtype dtype)
{
    assay_gain_verdict v = {
        .point = point, .layer = layer, .kind = kind, .value = NAN, .spread = NAN, .z = NAN};
    double *all;
    for (int i = 0; i < gain->n; i++)
        if (is_wanted(&gain->pools[i], point, layer, kind))
            v.n += gain->pools[i].n;
    ASSAY_TRY(assay_alloc(&all, (size_t)v.n, sizeof *all, "gains"));
    int64_t n = 0;
    for (int i = 0; i < gain->n; i++) {
        const pool *p = &gain->pools[i];
        if (is_wanted(p, point, layer, kind) && p->n) {
            memcpy(all + n, p->gains, (size_t)p->n * sizeof *all);
            n += p->n;
        }
    }
    if (n) {
        v.value = assay_median(all, n);
        v.spread = assay_median_spread(all, n, v.value);
        double error = 1.2533 * v.spread / sqrt((double)n), off = v.value - 1;
        v.z = off == 0 ? 0 : off / fmax(error, 1e-300);
        v.deviates = n >= LEAST && fabs(v.z) >= kinds[kind].z &&
                     fabs(off) >= kinds[kind].units * unit_of(dtype);
    }
    free(all);
    *out = v;
    return ASSAY_OK;
}

assay_status assay_gain_worst(assay_gain_verdict *out, const assay_gain *gain, assay_point point,
                              int layer, assay_dtype dtype)
{
    static const assay_gain_kind order[] = {ASSAY_GAIN_ROW, ASSAY_GAIN_CHANNEL, ASSAY_GAIN_HEAD};
    assay_gain_verdict first = {0}, v = {0};
    for (int i = 0; i < ASSAY_GAIN_KINDS; i++) {
        ASSAY_TRY(assay_gain_judge(&v, gain, point, layer, order[i], dtype));
        if (!i)
            first = v;
        if (v.deviates)
            break;
    }
    *out = v.deviates ? v : first;
    return ASSAY_OK;
}
