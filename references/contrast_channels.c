#include <math.h>

#include "engine/base/wide.h"
#include "references/contrast_private.h"

enum { RUN = 64 };

int assay_runs_of(assay_run_of_channels *out, int64_t *n_channels, int64_t n_sub, int64_t n_cols)
{
    const int64_t width = n_sub * n_cols, stride = (width + ASSAY_GAIN_KEPT - 1) / ASSAY_GAIN_KEPT,
                  run = stride > 1 && n_cols > RUN ? RUN : n_cols;
    int64_t at = 0, seen = 0;
    int n = 0;
    for (int64_t s = 0; s < n_sub; s++)
        for (int64_t col = 0; col < n_cols; col += run, seen++) {
            const int64_t length = n_cols - col < run ? n_cols - col : run;
            if (stride > 1 && seen % stride)
                continue;
            if (out)
                out[n] = (assay_run_of_channels){s, col, length, at};
            n++;
            at += length;
        }
    *n_channels = at;
    return n;
}

/* The token's own gain, and what weighs it among the others; 0: it takes no part. dd: of the token.
 */
static double weigh(double *gain, double *dd, const assay_row_sums *rows, int64_t n_sub,
                    int64_t n_cols)
{
    double ee = 0, de = 0;
    bool finite = true;
    *dd = 0;
    for (int64_t s = 0; s < n_sub; s++) {
        finite = finite && rows[s].n == n_cols;
        ee += rows[s].rr;
        de += rows[s].dr;
        *dd += rows[s].dd;
    }
    bool good = finite && isfinite(ee) && ee > 0 && isfinite(de);
    *gain = good ? 1 + de / ee : NAN;
    return good ? 1 / ee : 0;
}

/* Weighted <got - ref, ref> and <ref, ref> of each channel. */
ASSAY_WIDEST static void add_channels(double *restrict de, double *restrict ee, const double *got,
                                      const double *ref, int64_t n, double weight)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        double r = ref[i], wr = weight * r;
        de[i] += (got[i] - r) * wr;
        ee[i] += wr * r;
    }
}

/* The tokens ks[0] ... ks[n - 1] of the tile, together. */
static void add_narrow(const pass *p, const tile *t, const int *ks, int n, const float *weights)
{
    for (int r = 0; r < p->n_runs; r++) {
        const assay_run_of_channels *run = &p->runs[r];
        const float *got[AT_ONCE], *ref[AT_ONCE];
        float weight[AT_ONCE] = {0};
        for (int i = 0; i < AT_ONCE; i++) {
            int k = ks[i < n ? i : 0];
            got[i] = narrow_again(p, t, GOT, k, run->sub) + run->col;
            ref[i] = narrow_again(p, t, REF, k, run->sub) + run->col;
            weight[i] = i < n ? weights[i] : 0;
        }
        assay_channels_add_f32(t->de + run->at, t->ee + run->at, got, ref, weight, run->n);
    }
}

static void add_wide(const pass *p, const tile *t, int k, double weight)
{
    for (int r = 0; r < p->n_runs; r++) {
        const assay_run_of_channels *run = &p->runs[r];
        double *de = t->de + run->at, *ee = t->ee + run->at;
        if (p->narrow)
            assay_channels_add_wide(de, ee, narrow_again(p, t, GOT, k, run->sub) + run->col,
                                    narrow_again(p, t, REF, k, run->sub) + run->col, weight,
                                    run->n);
        else
            add_channels(de, ee, wide_again(p, t, GOT, run->sub) + run->col,
                         wide_again(p, t, REF, run->sub) + run->col, run->n, weight);
    }
}

static void add_heads(const pass *p, const tile *t, int64_t token, double weight)
{
    double *de = t->de + p->n_channels, *ee = t->ee + p->n_channels;
    for (int64_t s = 0; s < p->n_heads; s++) {
        const assay_row_sums *row = &p->rows[token * p->n_sub + s];
        de[s] += weight * row->dr;
        ee[s] += weight * row->rr;
    }
}

void assay_contrast_channels(const pass *p, tile *t)
{
    float weights[AT_ONCE];
    int ks[AT_ONCE], n = 0;
    for (int k = 0; k < t->n; k++) {
        int64_t token = t->first + k;
        double dd;
        p->gains[token] = NAN;
        if (p->state[token * p->n_sub] & p->dirty)
            continue;
        double weight =
            weigh(&p->gains[token], &dd, p->rows + token * p->n_sub, p->n_sub, p->n_cols);
        if (weight == 0)
            continue;
        add_heads(p, t, token, weight * ASSAY_CHANNELS_SCALE);
        if (p->narrow && assay_channels_fit(weight, dd)) {
            weights[n] = (float)(weight * ASSAY_CHANNELS_SCALE);
            ks[n++] = k;
        } else {
            add_wide(p, t, k, weight * ASSAY_CHANNELS_SCALE);
        }
    }
    if (n)
        add_narrow(p, t, ks, n, weights);
}
