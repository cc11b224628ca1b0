#include "references/contrast.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "engine/base/wide.h"
#include "references/metric.h"

enum { MAX_BLOCKS = 32, LEAST_BLOCK = 8 };

typedef struct pass {
    const assay_rows_seen *got, *ref;
    const uint8_t *state; /* NULL: no gains */
    uint8_t dirty;
    int64_t width, block, n_blocks;
    assay_row_sums *rows; /* [n_tokens, n_sub] */
    double *gains;        /* [n_tokens]; NaN: takes no part */
    double *channels;     /* [n_blocks, 2, width] */
    double *room;         /* [threads, 2, width] */
} pass;

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

/* The token's own gain, and what weighs it among the others; 0: it takes no part. */
static double weigh(double *gain, const assay_row_sums *rows, int64_t n_sub, int64_t n_cols)
{
    double ee = 0, de = 0;
    bool finite = true;
    for (int64_t s = 0; s < n_sub; s++) {
        finite = finite && rows[s].n == n_cols;
        ee += rows[s].rr;
        de += rows[s].dr;
    }
    bool good = finite && isfinite(ee) && ee > 0 && isfinite(de);
    *gain = good ? 1 + de / ee : NAN;
    return good ? 1 / ee : 0;
}

static void run_token(const pass *p, int64_t t, double *de, double *room)
{
    int64_t n_sub = p->got->n_sub, n_cols = p->got->n_cols;
    assay_row_sums *rows = p->rows + t * n_sub;
    double *room_got = room, *room_ref = room + p->width;
    for (int64_t s = 0; s < n_sub; s++) {
        const double *got = assay_rows_at(p->got, t, s, room_got + s * n_cols),
                     *ref = assay_rows_at(p->ref, t, s, room_ref + s * n_cols);
        rows[s] = assay_row_sums_of(got, ref, n_cols);
    }
    p->gains[t] = NAN;
    if (!p->state || p->state[t * n_sub] & p->dirty)
        return;
    double weight = weigh(&p->gains[t], rows, n_sub, n_cols);
    for (int64_t s = 0; s < n_sub && weight > 0; s++) { /* widened already, and in the cache */
        const double *got = p->got->values.dtype == ASSAY_DTYPE_F64
                                ? assay_rows_at(p->got, t, s, NULL)
                                : room_got + s * n_cols;
        const double *ref = p->ref->values.dtype == ASSAY_DTYPE_F64
                                ? assay_rows_at(p->ref, t, s, NULL)
                                : room_ref + s * n_cols;
        add_channels(de + s * n_cols, de + p->width + s * n_cols, got, ref, n_cols, weight);
    }
}

static void run_blocks(const pass *p)
{
    int64_t n = p->got->n_tokens;
#pragma omp parallel for schedule(dynamic, 1) if (n * p->width > 1 << 15)
    for (int64_t b = 0; b < p->n_blocks; b++) {
        double *room = p->room + 2 * p->width * omp_get_thread_num();
        int64_t end = (b + 1) * p->block < n ? (b + 1) * p->block : n;
        for (int64_t t = b * p->block; t < end; t++)
            run_token(p, t, p->channels + 2 * p->width * b, room);
    }
    for (int64_t b = 1; b < p->n_blocks && p->state; b++)
        for (int64_t i = 0; i < 2 * p->width; i++)
            p->channels[i] += p->channels[2 * p->width * b + i];
}

/* Gains of the tokens that took part. */
static assay_status add_gains(assay_gain *gain, assay_point point, int layer, const pass *p)
{
    int64_t kept = 0;
    for (int64_t t = 0; t < p->got->n_tokens; t++)
        if (!(p->state[t * p->got->n_sub] & p->dirty))
            p->gains[kept++] = p->gains[t];
    return assay_gain_add_sums(gain, point, layer, p->gains, kept, p->channels,
                               p->channels + p->width, p->got->n_sub, p->got->n_cols);
}

assay_status assay_contrast(assay_metrics *out, double *row_errors, assay_gain *gain,
                            assay_point point, int layer, const assay_rows_seen *got,
                            const assay_rows_seen *ref, const uint8_t *state, uint8_t dirty)
{
    ASSAY_BUG_IF(got->n_tokens != ref->n_tokens || got->n_sub != ref->n_sub ||
                 got->n_cols != ref->n_cols);
    int64_t n = got->n_tokens, block = (n + MAX_BLOCKS - 1) / MAX_BLOCKS;
    pass p = {.got = got,
              .ref = ref,
              .state = gain ? state : NULL,
              .dirty = dirty,
              .width = got->n_sub * got->n_cols,
              .block = block > LEAST_BLOCK ? block : LEAST_BLOCK};
    p.n_blocks = (n + p.block - 1) / p.block;
    int64_t n_rows = n * got->n_sub, n_threads = omp_get_max_threads();
    assay_status s;
    ASSAY_GO(assay_alloc(&p.rows, (size_t)n_rows, sizeof *p.rows, "rows"));
    ASSAY_GO(assay_alloc(&p.gains, (size_t)n, sizeof *p.gains, "gains"));
    ASSAY_GO(assay_alloc(&p.channels, (size_t)(2 * p.width * (gain ? p.n_blocks : 0)),
                         sizeof *p.channels, "gains"));
    ASSAY_GO(assay_alloc(&p.room, (size_t)(2 * p.width * n_threads), sizeof *p.room, "rows"));
    run_blocks(&p);
    assay_metrics_from_rows(out, row_errors, p.rows, n_rows, got->n_cols);
    if (gain)
        s = add_gains(gain, point, layer, &p);
out:
    free(p.rows);
    free(p.gains);
    free(p.channels);
    free(p.room);
    return s;
}
