#include "references/row_f32.h"

#include <math.h>

#include "probes/mix.h"

#ifdef __FAST_MATH__
#error "isnan() must mean what it says"
#endif

typedef struct lanes {
    assay_f64s gg, rr, dd, dr, most; /* most: of d * d, whose root is |d| exactly */
} lanes;

ASSAY_INSIDE void add_lanes(lanes *s, const assay_f64s *g, const assay_f64s *r)
{
    const assay_f64s d = *g - *r, square = d * d;
    const assay_i64s more = square > s->most;
    s->gg += *g * *g;
    s->rr += *r * *r;
    s->dd += square;
    s->dr += d * *r;
    s->most = (assay_f64s)(((assay_i64s)square & more) | ((assay_i64s)s->most & ~more));
}

/* Sixteen elements at a time, then eight; returns how many were added. */
ASSAY_INSIDE int64_t add_rest(lanes *s, const float *got, const float *ref, int64_t i, int64_t n)
{
    if (i + ASSAY_LANES_F64 > n)
        return i;
    assay_f32s narrow[2];
    memcpy(&narrow[0], got + i, sizeof *narrow);
    memcpy(&narrow[1], ref + i, sizeof *narrow);
    assay_f64s g = __builtin_convertvector(narrow[0], assay_f64s),
               r = __builtin_convertvector(narrow[1], assay_f64s);
    add_lanes(s, &g, &r);
    return i + ASSAY_LANES_F64;
}

ASSAY_INSIDE void add_sixteen(lanes *s, const float *got, const float *ref)
{
    assay_f64s g[2], r[2];
    assay_widen_f32(&g[0], &g[1], got);
    assay_widen_f32(&r[0], &r[1], ref);
    add_lanes(s, &g[0], &r[0]);
    add_lanes(s, &g[1], &r[1]);
}

ASSAY_INSIDE void finish(assay_row_sums *out, const lanes *s, const float *got, const float *ref,
                         int64_t i, int64_t n)
{
    assay_row_sums rest = {.n = n};
    double most = 0;
    for (int j = 0; j < ASSAY_LANES_F64; j++)
        most = s->most[j] > most ? s->most[j] : most;
    rest.max_abs = sqrt(most);
    for (; i < n; i++) {
        double g = got[i], r = ref[i], d = g - r;
        rest.gg += g * g;
        rest.rr += r * r;
        rest.dd += d * d;
        rest.dr += d * r;
        rest.max_abs = fabs(d) > rest.max_abs ? fabs(d) : rest.max_abs;
    }
    rest.gg = assay_lanes_total(&s->gg) + rest.gg;
    rest.rr = assay_lanes_total(&s->rr) + rest.rr;
    rest.dd = assay_lanes_total(&s->dd) + rest.dd;
    rest.dr = assay_lanes_total(&s->dr) + rest.dr;
    *out = rest;
}

ASSAY_WIDEST_INT static void sum_row(assay_row_sums *out, const float *got, const float *ref,
                                     int64_t n)
{
    lanes s = {.gg = {0}};
    int64_t i = 0;
    for (; i + ASSAY_LANES_F32 <= n; i += ASSAY_LANES_F32)
        add_sixteen(&s, got + i, ref + i);
    i = add_rest(&s, got, ref, i, n);
    finish(out, &s, got, ref, i, n);
}

/* The words of both sides are mixed between the sums: neither waits for the other. */
ASSAY_WIDEST_INT static void sum_and_prove_row(assay_row_sums *out, assay_row_proof *proof,
                                               const float *got, const float *ref, int64_t first,
                                               int64_t n)
{
    lanes s = {.gg = {0}};
    assay_u64s mixed[2] = {{0}, {0}}, at, step;
    int64_t i = 0;
    assay_mix_begin(&at, &step, first / 2);
    for (; i + ASSAY_LANES_F32 <= n; i += ASSAY_LANES_F32) {
        assay_u64s g, r;
        memcpy(&g, got + i, sizeof g);
        memcpy(&r, ref + i, sizeof r);
        g += at;
        r += at;
        at += step;
        ASSAY_MIX(g);
        ASSAY_MIX(r);
        mixed[0] += g;
        mixed[1] += r;
        add_sixteen(&s, got + i, ref + i);
    }
    proof->got += assay_mix_total(&mixed[0]);
    proof->ref += assay_mix_total(&mixed[1]);
    for (int64_t k = i; k < n; k += 2) {
        uint64_t g, r;
        memcpy(&g, got + k, sizeof g);
        memcpy(&r, ref + k, sizeof r);
        proof->got += assay_mix_word(g, (first + k) / 2);
        proof->ref += assay_mix_word(r, (first + k) / 2);
    }
    i = add_rest(&s, got, ref, i, n);
    finish(out, &s, got, ref, i, n);
}

void assay_row_sums_of_f32(assay_row_sums *out, assay_row_proof *proof, const float *got,
                           const float *ref, int64_t first, int64_t n)
{
    ASSAY_BUG_IF(proof && (first % 2 || n % 2));
    if (proof)
        sum_and_prove_row(out, proof, got, ref, first, n);
    else
        sum_row(out, got, ref, n);
    if (!isfinite(out->gg) || !isfinite(out->rr))
        assay_row_sums_carefully_f32(out, got, ref, n);
}

bool assay_channels_fit(double weight, double dd)
{
    return weight >= 0x1p-60 && weight <= 0x1p60 && dd * weight <= 0x1p40;
}

ASSAY_WIDEST_INT static void add_channels(double *de, double *ee, const float *const *got,
                                          const float *const *ref, const float *weight, int64_t n)
{
    int64_t i = 0;
    for (; i + ASSAY_LANES_F32 <= n; i += ASSAY_LANES_F32) {
        assay_f32w d = {0}, e = {0};
        assay_f64s wide[4], sums[4];
        for (int k = 0; k < ASSAY_ROWS_AT_ONCE; k++) {
            assay_f32w g, r, wr;
            memcpy(&g, got[k] + i, sizeof g);
            memcpy(&r, ref[k] + i, sizeof r);
            wr = weight[k] * r;
            d += (g - r) * wr;
            e += wr * r;
        }
        assay_widen_f32(&wide[0], &wide[1], (const float *)&d);
        assay_widen_f32(&wide[2], &wide[3], (const float *)&e);
        memcpy(&sums[0], de + i, 2 * sizeof *sums);
        memcpy(&sums[2], ee + i, 2 * sizeof *sums);
        for (int k = 0; k < 4; k++)
            sums[k] += wide[k];
        memcpy(de + i, &sums[0], 2 * sizeof *sums);
        memcpy(ee + i, &sums[2], 2 * sizeof *sums);
    }
    for (; i < n; i++) {
        float d = 0, e = 0;
        for (int k = 0; k < ASSAY_ROWS_AT_ONCE; k++) {
            float r = ref[k][i], wr = weight[k] * r;
            d += (got[k][i] - r) * wr;
            e += wr * r;
        }
        de[i] += d;
        ee[i] += e;
    }
}

void assay_channels_add_f32(double *de, double *ee, const float *const got[ASSAY_ROWS_AT_ONCE],
                            const float *const ref[ASSAY_ROWS_AT_ONCE],
                            const float weight[ASSAY_ROWS_AT_ONCE], int64_t n)
{
    add_channels(de, ee, got, ref, weight, n);
}

void assay_channels_add_wide(double *de, double *ee, const float *got, const float *ref,
                             double weight, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double r = ref[i], wr = weight * r;
        de[i] += (got[i] - r) * wr;
        ee[i] += wr * r;
    }
}
