#include "references/forced_pool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "references/gain.h"

typedef struct seen_point { /* of one layer */
    bool seen;
    assay_dtype format; /* the coarsest */
} seen_point;

enum { LAYERS = ASSAY_MAX_LAYERS + 1 }; /* [0]: global points */

struct assay_forced_pool {
    assay_gain *got, *rounded;
    seen_point points[ASSAY_POINT_COUNT][LAYERS];
};

assay_status assay_forced_pool_new(assay_forced_pool **out)
{
    assay_forced_pool *p;
    assay_status s = ASSAY_OK;
    ASSAY_TRY(assay_alloc(&p, 1, sizeof *p, "pooled gains"));
    ASSAY_GO(assay_gain_new(&p->got));
    ASSAY_GO(assay_gain_new(&p->rounded));
    *out = p;
    return ASSAY_OK;
out:
    assay_forced_pool_free(p);
    return s;
}

void assay_forced_pool_free(assay_forced_pool *pool)
{
    if (!pool)
        return;
    assay_gain_free(pool->got);
    assay_gain_free(pool->rounded);
    free(pool);
}

assay_status assay_forced_pool_add(assay_forced_pool *pool, const assay_judged *judged,
                                   const double *got, const double *expected, const double *rounded)
{
    const assay_judged *j = judged;
    if (j->layer + 1 >= LAYERS || j->n_cols < 2)
        return ASSAY_OK;
    seen_point *at = &pool->points[j->point][j->layer + 1];
    if (!at->seen || assay_dtype_mantissa(j->format) < assay_dtype_mantissa(at->format))
        at->format = j->format;
    at->seen = true;
    ASSAY_TRY(assay_gain_add(pool->got, j->point, j->layer, got, expected, j->n_rows, j->n_groups,
                             j->n_cols / j->n_groups));
    return assay_gain_add(pool->rounded, j->point, j->layer, rounded, expected, j->n_rows,
                          j->n_groups, j->n_cols / j->n_groups);
}

static bool deviates(assay_gain_verdict *v, const assay_gain_verdict *own)
{
    return v->deviates && fabs(v->value - 1) > 3 * fabs(own->value - 1);
}

static assay_status ask(assay_gain_verdict *v, bool *found, const assay_forced_pool *pool,
                        assay_point point, int layer, assay_dtype format)
{
    assay_gain_verdict own;
    ASSAY_TRY(assay_gain_judge(v, pool->got, point, layer, ASSAY_GAIN_ROW, format));
    ASSAY_TRY(assay_gain_judge(&own, pool->rounded, point, layer, ASSAY_GAIN_ROW, format));
    *found = deviates(v, &own);
    return ASSAY_OK;
}

static void make_home(assay_judged *j, const assay_gain_verdict *v)
{
    double error = fmax(1.2533 * v->spread / sqrt((double)v->n), 1e-12);
    j->is_home = true;
    j->pooled_gain = j->gain = j->gain_row_median = v->value;
    j->rel = j->row_rel_max = j->row_rel_median = fabs(v->value - 1);
    j->floor_rel = j->floor_row_max = j->floor_row_median = error;
    j->one_minus_cos = 0;
    snprintf(j->why, sizeof j->why,
             "median gain of %lld rows %.7g, %.0f standard errors from 1; no single value shows it",
             (long long)v->n, v->value, fabs(v->z));
}

/* The value of this point and layer with most rows. */
static assay_judged *fullest(assay_judged *judged, int n, assay_point point, int layer)
{
    assay_judged *best = NULL;
    for (int i = 0; i < n; i++) {
        assay_judged *j = &judged[i];
        if (j->point == point && j->layer == layer && !j->against &&
            (!best || j->n_rows > best->n_rows))
            best = j;
    }
    return best;
}

static void set_homes(assay_judged *judged, int n, const assay_forced_pool *pool,
                      const assay_gain_verdict *v)
{
    for (int layer = -1; layer < ASSAY_MAX_LAYERS; layer++) {
        bool wanted = v->layer == ASSAY_GAIN_ALL_LAYERS || v->layer == layer;
        assay_judged *j = wanted && pool->points[v->point][layer + 1].seen
                              ? fullest(judged, n, v->point, layer)
                              : NULL;
        if (j)
            make_home(j, v);
    }
}

/* Layer by layer; where none stands out alone, all of them together. */
static assay_status judge_point(assay_forced_pool *pool, assay_judged *judged, int n,
                                assay_point point)
{
    assay_gain_verdict v;
    bool found = false, any = false;
    assay_dtype format = ASSAY_DTYPE_F64;
    int n_layers = 0;
    for (int layer = -1; layer < ASSAY_MAX_LAYERS; layer++) {
        const seen_point *at = &pool->points[point][layer + 1];
        if (!at->seen)
            continue;
        n_layers++;
        if (n_layers == 1 || assay_dtype_mantissa(at->format) < assay_dtype_mantissa(format))
            format = at->format;
        ASSAY_TRY(ask(&v, &found, pool, point, layer, at->format));
        if (found)
            set_homes(judged, n, pool, &v);
        any = any || found;
    }
    if (any || n_layers < 2)
        return ASSAY_OK;
    ASSAY_TRY(ask(&v, &found, pool, point, ASSAY_GAIN_ALL_LAYERS, format));
    if (found)
        set_homes(judged, n, pool, &v);
    return ASSAY_OK;
}

assay_status assay_forced_pool_judge(assay_forced_pool *pool, assay_judged *judged, int n)
{
    bool has_home[ASSAY_POINT_COUNT] = {false};
    for (int i = 0; i < n; i++)
        has_home[judged[i].point] = has_home[judged[i].point] || judged[i].is_home;
    for (int point = 0; point < ASSAY_POINT_COUNT; point++)
        if (!has_home[point])
            ASSAY_TRY(judge_point(pool, judged, n, (assay_point)point));
    return ASSAY_OK;
}
