#include "references/logits_row.h"

#include <math.h>

#include "engine/base/wide.h"

enum { TOP = ASSAY_LOGITS_TOP, CHUNK = 1024, LOOK = 128 };

/* Whole numbers in the order of the floats: NaN lies beyond either infinity. */
ASSAY_INSIDE int32_t key_of(const float *x)
{
    int32_t bits;
    memcpy(&bits, x, sizeof bits);
    return bits ^ (int32_t)((uint32_t)(bits >> 31) >> 1);
}

#define KEY_OF_INFINITY 0x7F800000
#define KEY_OF_MINUS_INFINITY (-KEY_OF_INFINITY - 1)

typedef struct extremes {
    int32_t most, least; /* keys */
} extremes;

ASSAY_WIDEST static extremes extremes_of(const float *x, int64_t n)
{
    int32_t most = INT32_MIN, least = INT32_MAX;
#pragma omp simd reduction(max : most) reduction(min : least)
    for (int64_t i = 0; i < n; i++) {
        int32_t key = key_of(&x[i]);
        most = key > most ? key : most;
        least = key < least ? key : least;
    }
    return (extremes){most, least};
}

/* The largest, largest first; the lower id wins ties. */
typedef struct top {
    int n;
    bool has_nan;
    float logit[TOP];
    int64_t id[TOP];
} top;

static void take(top *t, const float *x, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (t->n == TOP && x[i] <= t->logit[TOP - 1])
            continue;
        int at = t->n;
        while (at > 0 && x[i] > t->logit[at - 1])
            at--;
        for (int k = t->n < TOP ? t->n : TOP - 1; k > at; k--) {
            t->logit[k] = t->logit[k - 1];
            t->id[k] = t->id[k - 1];
        }
        t->logit[at] = x[i];
        t->id[at] = first + i;
        t->n += t->n < TOP;
    }
}

static int64_t part_of(int64_t first, int64_t n, int64_t most)
{
    return n - first < most ? n - first : most;
}

/* Few parts of a row hold one of its largest: the others are only asked for their extremes. */
static void look_at(top *t, const float *x, int64_t first, int64_t n)
{
    const extremes seen = extremes_of(x, n);
    t->has_nan |= seen.most > KEY_OF_INFINITY || seen.least < KEY_OF_MINUS_INFINITY;
    if (t->n == TOP && seen.most <= key_of(&t->logit[TOP - 1]))
        return;
    for (int64_t i = 0; i < n; i += LOOK) {
        const int64_t m = part_of(i, n, LOOK);
        if (t->n < TOP || extremes_of(x + i, m).most > key_of(&t->logit[TOP - 1]))
            take(t, x + i, first + i, m);
    }
}

/* Of a part of both rows: p = e^(ref - its largest), d = log(q / p) but for a constant. */
typedef struct part {
    float p[CHUNK], d[CHUNK];
} part;

/* z = sum p, a = sum p d, b = sum q - p - p d. */
typedef struct totals {
    assay_f64s z, a, b;
    bool rules_out; /* the candidate alone gives an id nothing */
} totals;

/*
 * e^x of x <= 0 to float32's digits, 0 below e^-87: 2^n e^f with |f| <= ln(2) / 2 and the series to
 * f^7. A loop over expf() takes ten times as long.
 */
ASSAY_WIDEST static void exponentials(float *out, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float rounder = 0x1.8p23f;
        float y = x[i] < -88 ? -88 : x[i], whole = y * 0x1.715476p0f + rounder, power;
        uint32_t bits;
        memcpy(&bits, &whole, sizeof bits);
        bits = (bits + 127) << 23;
        memcpy(&power, &bits, sizeof power);
        whole -= rounder;
        float f = (y - whole * 0x1.62e4p-1f) - whole * 0x1.7f7d1cp-20f;
        float series = 1 / 24.f + f * (1 / 120.f + f * (1 / 720.f + f * (1 / 5040.f)));
        series = 1 + f * (1 + f * (0.5f + f * (1 / 6.f + f * series)));
        out[i] = y < -87 ? 0 : power * series;
    }
}

/* Logarithms of p go to out->p. Returns the bits of the largest |d|, those of infinity or NaN being
 * larger than any number's. */
ASSAY_WIDEST static int32_t subtract(part *out, const float *got, const float *ref, float ref_max,
                                     float shift, int64_t n)
{
    int32_t most = 0;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        float d = (got[i] - ref[i]) - shift;
        int32_t bits;
        memcpy(&bits, &d, sizeof bits);
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
        out->d[i] = d;
        out->p[i] = ref[i] - ref_max;
    }
    return most;
}

ASSAY_INSIDE void add(assay_f64s *sum, assay_f32w x)
{
    assay_f64w wide = __builtin_convertvector(x, assay_f64w);
    assay_f64s half[2];
    memcpy(half, &wide, sizeof half);
    *sum += half[0] + half[1];
}

/* Where all |d| <= 2^-5: e^d - 1 - d by its series to d^5. n: whole groups. */
ASSAY_WIDEST static void add_near(totals *t, const part *of, int64_t n)
{
    for (int64_t i = 0; i < n; i += ASSAY_LANES_F32) {
        assay_f32w p, d;
        memcpy(&p, of->p + i, sizeof p);
        memcpy(&d, of->d + i, sizeof d);
        const assay_f32w pd = p * d;
        add(&t->z, p);
        add(&t->a, pd);
        add(&t->b, pd * d * (0.5f + d * (1 / 6.f + d * (1 / 24.f + d * (1 / 120.f)))));
    }
}

/* Any d. An id that has no p (any more) adds its q alone. */
ASSAY_WIDEST static void find_far(part *of, float *b, const float *q, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float p = of->p[i], d = p > 0 ? of->d[i] : 0, pd = p * d, c = d < -1 ? -1 : d > 1 ? 1 : d;
        float series = 1 / 5040.f + c * (1 / 40320.f + c * (1 / 362880.f + c * (1 / 3628800.f)));
        series = 1 / 24.f + c * (1 / 120.f + c * (1 / 720.f + c * series));
        series = 0.5f + c * (1 / 6.f + c * series);
        float far = (q[i] - p) - pd, near = pd * d * series;
        b[i] = p > 0 && d == c ? near : far;
        of->d[i] = pd;
    }
}

ASSAY_WIDEST static void add_far(totals *t, const part *of, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i += ASSAY_LANES_F32) {
        assay_f32w x[3];
        memcpy(&x[0], of->p + i, sizeof *x);
        memcpy(&x[1], of->d + i, sizeof *x);
        memcpy(&x[2], b + i, sizeof *x);
        add(&t->z, x[0]);
        add(&t->a, x[1]);
        add(&t->b, x[2]);
    }
}

static bool rules_out(const float *got, const float *ref, int64_t n)
{
    int found = 0;
#pragma omp simd reduction(| : found)
    for (int64_t i = 0; i < n; i++)
        found |= (got[i] == -INFINITY) & (ref[i] > -INFINITY);
    return found;
}

static void add_part(totals *t, const float *got, const float *ref, float got_max, float ref_max,
                     int64_t n)
{
    const float near = 0x1p-5f;
    const int64_t whole = (n + ASSAY_LANES_F32 - 1) / ASSAY_LANES_F32 * ASSAY_LANES_F32;
    part of;
    const int32_t most = subtract(&of, got, ref, ref_max, got_max - ref_max, n);
    exponentials(of.p, of.p, n);
    for (int64_t i = n; i < whole; i++)
        of.p[i] = of.d[i] = 0;
    if (most <= key_of(&near)) {
        add_near(t, &of, whole);
        return;
    }
    float q[CHUNK], b[CHUNK] = {0};
    for (int64_t i = 0; i < n; i++)
        q[i] = got[i] - got_max;
    exponentials(q, q, n);
    find_far(&of, b, q, n);
    add_far(t, &of, b, whole);
    t->rules_out |= rules_out(got, ref, n);
}

/*
 *   KL = log(sum p e^d / z) - sum p d / z = log1p((a + b) / z) - a / z
 *
 * which a constant in d does not change, keeps its digits however small it is.
 */
static double divergence(const totals *t)
{
    const double z = assay_lanes_total(&t->z), a = assay_lanes_total(&t->a) / z,
                 b = assay_lanes_total(&t->b) / z, kl = log1p(a + b) - a;
    if (t->rules_out || isnan(kl))
        return INFINITY;
    return kl > 0 ? kl : 0;
}

/* Both rows, and room for parts that are not float32 as they lie. */
typedef struct sides {
    const assay_stored *got, *ref;
    int64_t got_first, ref_first;
    float got_room[CHUNK], ref_room[CHUNK];
} sides;

static const float *got_at(sides *s, int64_t i, int64_t n)
{
    return assay_stored_at_f32(s->got, s->got_first + i, n, s->got_room);
}

static const float *ref_at(sides *s, int64_t i, int64_t n)
{
    return assay_stored_at_f32(s->ref, s->ref_first + i, n, s->ref_room);
}

assay_logits_row assay_logits_row_of(const assay_stored *got, int64_t got_first,
                                     const assay_stored *ref, int64_t ref_first, int64_t n_vocab)
{
    sides s = {.got = got, .ref = ref, .got_first = got_first, .ref_first = ref_first};
    top of_got = {.n = 0}, of_ref = {.n = 0};
    totals t = {.rules_out = false};
    bool same = true;
    int common = 0;
    for (int64_t i = 0; i < n_vocab; i += CHUNK) {
        int64_t n = part_of(i, n_vocab, CHUNK);
        const float *x = got_at(&s, i, n), *y = ref_at(&s, i, n);
        look_at(&of_got, x, i, n);
        look_at(&of_ref, y, i, n);
        same = same && !memcmp(x, y, (size_t)n * sizeof *x);
    }
    if (of_got.has_nan || of_ref.has_nan)
        return (assay_logits_row){.kl = INFINITY};
    for (int i = 0; i < of_got.n; i++)
        for (int j = 0; j < of_ref.n; j++)
            common += of_got.id[i] == of_ref.id[j];
    assay_logits_row out = {.overlap = (double)common / of_ref.n};
    const float got_max = of_got.logit[0], ref_max = of_ref.logit[0];
    out.same_top = *ref_at(&s, of_got.id[0], 1) == ref_max;
    if (!isfinite(got_max) || !isfinite(ref_max)) {
        out.kl = INFINITY;
        return out;
    }
    for (int64_t i = 0; !same && i < n_vocab; i += CHUNK) {
        int64_t n = part_of(i, n_vocab, CHUNK);
        add_part(&t, got_at(&s, i, n), ref_at(&s, i, n), got_max, ref_max, n);
    }
    out.kl = same ? 0 : divergence(&t);
    return out;
}
