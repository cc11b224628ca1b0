/*
 * One way through a row of both sides: sums and checksums. Differences are rounded to float32
 * (close values have theirs exactly); widened, their products and those of the reference have
 * every digit in float64, so that this file may be compiled with contraction: a fused multiply-add
 * rounds as an addition of the exact product does.
 */
#include <math.h>

#include "probes/mix.h"
#include "references/row_f32.h"

#ifdef __FAST_MATH__
#error "isfinite() must mean what it says"
#endif

enum { AHEAD = 512 }; /* elements */

typedef int32_t i32w __attribute__((vector_size(ASSAY_LANES_F32 * sizeof(int32_t))));

/* Totals of the lanes of one row; n_bad: elements that are not finite. */
typedef struct totals {
    double rr, dd, dr, max_abs;
    int64_t n_bad;
    bool is_odd; /* such an element differs from the other side's, or is NaN */
} totals;

static int64_t count_of(const i32w *lanes)
{
    int64_t n = 0;
    for (int j = 0; j < ASSAY_LANES_F32; j++)
        n += (*lanes)[j];
    return n;
}

static bool has_any(const i32w *lanes)
{
    int32_t bits = 0;
    for (int j = 0; j < ASSAY_LANES_F32; j++)
        bits |= (*lanes)[j];
    return bits != 0;
}

/* Bits of numbers that are not negative order as whole numbers do. */
static float largest_of(const i32w *bits)
{
    int32_t most = 0;
    float out;
    for (int j = 0; j < ASSAY_LANES_F32; j++)
        most = (*bits)[j] > most ? (*bits)[j] : most;
    memcpy(&out, &most, sizeof out);
    return out;
}

/* Of the last elements of a row, zeros behind them: they add nothing to any sum. */
typedef struct rest {
    float got[ASSAY_LANES_F32], ref[ASSAY_LANES_F32];
} rest;

static void copy_rest(rest *out, const float *got, const float *ref, int64_t n)
{
    memset(out, 0, sizeof *out);
    memcpy(out->got, got, (size_t)n * sizeof *got);
    memcpy(out->ref, ref, (size_t)n * sizeof *ref);
}

/* Sixteen at a time; behind the last whole group what is left of the row. */
ASSAY_WIDEST_INT static void add_groups(totals *out, assay_row_proof *proof, const float *got,
                                        const float *ref, int64_t first, int64_t n, bool proves)
{
    const bool masked = proof->masked;
    const int32_t infinite = 0x7F800000;
    assay_f64s rr = {0}, dd = {0}, dr = {0};
    assay_u64s sum_got, sum_ref, at, step;
    i32w most = {0}, n_bad = {0}, odd = {0};
    rest last;
    memcpy(&sum_got, proof->got, sizeof sum_got);
    memcpy(&sum_ref, proof->ref, sizeof sum_ref);
    assay_sum_begin(&at, &step, first / 2);
    for (int64_t i = 0; i < n; i += ASSAY_LANES_F32) {
        const float *of_got = got + i, *of_ref = ref + i;
        assay_f32w g, r;
        __builtin_prefetch(of_got + AHEAD); /* the processor's own stops at the end of a page */
        __builtin_prefetch(of_ref + AHEAD);
        if (n - i < ASSAY_LANES_F32) {
            copy_rest(&last, of_got, of_ref, n - i);
            of_got = last.got;
            of_ref = last.ref;
        }
        memcpy(&g, of_got, sizeof g);
        memcpy(&r, of_ref, sizeof r);
        if (proves) { /* words of both sides: neither waits for the other */
            assay_u64s x = (assay_u64s)g + at, y = (assay_u64s)r + at;
            at += step;
            x = ASSAY_SUM_TERM(x);
            y = ASSAY_SUM_TERM(y);
            if (n - i < ASSAY_LANES_F32) { /* zeros add something */
                const assay_i64s lane = {0, 1, 2, 3, 4, 5, 6, 7};
                const assay_u64s kept = (assay_u64s)((lane - (n - i) / 2) >> 63);
                x &= kept;
                y &= kept;
            }
            sum_got += x;
            sum_ref += y;
        }
        if (masked) {
            const i32w size_g = (i32w)g & INT32_MAX, size_r = (i32w)r & INT32_MAX;
            const i32w bad = ~((size_g - infinite) & (size_r - infinite)) >> 31;
            odd |= bad & (((i32w)g ^ (i32w)r) | ((infinite - size_g) >> 31));
            n_bad -= bad;
            g = (assay_f32w)((i32w)g & ~bad);
            r = (assay_f32w)((i32w)r & ~bad);
        }
        const assay_f32w d = g - r;
        const i32w size = (i32w)d & INT32_MAX, more = (most - size) >> 31;
        most = (size & more) | (most & ~more);
        const assay_f64w wide_d = __builtin_convertvector(d, assay_f64w),
                         wide_r = __builtin_convertvector(r, assay_f64w);
        for (int half = 0; half < 2; half++) {
            assay_f64s x, y;
            memcpy(&x, (const char *)&wide_d + half * sizeof x, sizeof x);
            memcpy(&y, (const char *)&wide_r + half * sizeof y, sizeof y);
            rr += y * y;
            dd += x * x;
            dr += x * y;
        }
    }
    *out = (totals){.rr = assay_lanes_total(&rr),
                    .dd = assay_lanes_total(&dd),
                    .dr = assay_lanes_total(&dr),
                    .max_abs = largest_of(&most),
                    .n_bad = masked ? count_of(&n_bad) : 0,
                    .is_odd = masked && has_any(&odd)};
    memcpy(proof->got, &sum_got, sizeof sum_got);
    memcpy(proof->ref, &sum_ref, sizeof sum_ref);
}

/* Whether the sums say everything that is asked. |got|^2 = |ref|^2 + 2 <d, ref> + |d|^2, which
 * loses its digits where got is much the smaller. */
static bool finish(assay_row_sums *out, const totals *t, int64_t n)
{
    const double gg = t->rr + 2 * t->dr + t->dd;
    *out = (assay_row_sums){
        .gg = gg, .rr = t->rr, .dd = t->dd, .dr = t->dr, .max_abs = t->max_abs, .n = n - t->n_bad};
    return !t->is_odd && isfinite(t->rr) && isfinite(t->dd) && gg >= 0x1p-10 * t->rr;
}

static bool sum_row(assay_row_sums *out, assay_row_proof *proof, const float *got, const float *ref,
                    int64_t first, int64_t n, bool proves)
{
    totals t;
    add_groups(&t, proof, got, ref, first, n, proves);
    proof->masked = proof->masked && t.n_bad;
    return finish(out, &t, n);
}

/* In float64: rows whose masks differ, that hold NaN, or whose candidate is nearly zero. */
static void sum_wide(assay_row_sums *out, const float *got, const float *ref, int64_t n)
{
    enum { AT_ONCE = 256 };
    double wide_got[AT_ONCE], wide_ref[AT_ONCE];
    *out = (assay_row_sums){0};
    for (int64_t first = 0; first < n; first += AT_ONCE) {
        int64_t m = n - first < AT_ONCE ? n - first : AT_ONCE;
        for (int64_t i = 0; i < m; i++) {
            wide_got[i] = got[first + i];
            wide_ref[i] = ref[first + i];
        }
        assay_row_sums part = assay_row_sums_of(wide_got, wide_ref, m);
        assay_row_sums_add(out, &part);
    }
}

void assay_row_sums_of_f32(assay_row_sums *out, assay_row_proof *proof, const float *got,
                           const float *ref, int64_t first, int64_t n)
{
    ASSAY_BUG_IF(proof->proves && (first % 2 || n % 2));
    if (sum_row(out, proof, got, ref, first, n, proof->proves))
        return;
    if (!proof->masked) {
        proof->masked = true;
        if (sum_row(out, proof, got, ref, first, n, false))
            return;
    }
    sum_wide(out, got, ref, n);
}
