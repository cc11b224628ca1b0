#include "references/agreement.h"

#include <math.h>
#include <string.h>

enum { TOP = 5, BLOCK = 64 };

void assay_agreement_init(assay_agreement *agreement)
{
    *agreement = (assay_agreement){.worst_position = -1, .prompt = -1, .step = -1};
}

static bool has_nan(const double *x, int64_t n)
{
    int bad = 0;
#pragma omp simd reduction(| : bad)
    for (int64_t i = 0; i < n; i++)
        bad |= x[i] != x[i];
    return bad;
}

/* Ids of the largest values, largest first; the lower id wins ties. */
static int top_of(int64_t out[TOP], const double *x, int64_t n)
{
    int kept = 0;
    double least = -INFINITY; /* of five */
    for (int64_t i = 0; i < n; i++) {
        if (kept == TOP && x[i] <= least)
            continue;
        int at = kept;
        while (at > 0 && x[i] > x[out[at - 1]])
            at--;
        for (int k = kept < TOP ? kept : TOP - 1; k > at; k--)
            out[k] = out[k - 1];
        out[at] = i;
        kept += kept < TOP;
        least = x[out[kept - 1]];
    }
    return kept;
}

/*
 * Of logits that hardly differ, as those of healthy runs do. With weights p of the reference and
 * d = (got - its largest) - (ref - its largest):
 *
 *   KL = log(sum p exp(d)) - sum p d = log1p(a + b) - a
 *   a = sum p d,   b = sum p (exp(d) - 1 - d)
 *
 * keeps its digits however small it is. exp(d) - 1 - d to d^7; p in float32 shifts the result by
 * parts in 10^7. False: some d is too large for that.
 */
static bool find_small_divergence(double *kl, const double *got, const double *ref, int64_t n,
                                  double got_max, double ref_max)
{
    double z = 0, a = 0, b = 0;
    for (int64_t i = 0; i < n; i++) {
        double r = ref[i] - ref_max, d = got[i] - got_max - r;
        if (!(fabs(d) <= 0x1p-5))
            return false;
        double e = expf((float)r);
        double c = 1 / 24. + d * (1 / 120. + d * (1 / 720. + d * (1 / 5040.)));
        z += e;
        a += e * d;
        b += e * (d * d * (1 / 2. + d * (1 / 6. + d * c)));
    }
    a /= z;
    b /= z;
    *kl = fmax(log1p(a + b) - a, 0);
    return true;
}

/* KL(ref || got) from both sums of exponentials, with weights e that sum up to ref_sum. */
static double divergence(const double *got, const double *ref, int64_t n, double got_max,
                         double ref_max)
{
    double got_sum = 0, ref_sum = 0, off = 0, kl;
    if (find_small_divergence(&kl, got, ref, n, got_max, ref_max))
        return kl;
    for (int64_t i = 0; i < n; i++) {
        double e = exp(ref[i] - ref_max);
        got_sum += exp(got[i] - got_max);
        ref_sum += e;
        if (e > 0) /* an id that only the candidate rules out costs infinity */
            off += e * (ref[i] - ref_max - (got[i] - got_max));
    }
    kl = off / ref_sum + log(got_sum) - log(ref_sum);
    if (isnan(kl))
        return INFINITY;
    return kl > 0 ? kl : 0;
}

typedef struct one_row {
    double kl, overlap;
    bool same_top;
} one_row;

static one_row look_at_row(const double *got, const double *ref, int64_t n)
{
    int64_t top_got[TOP], top_ref[TOP];
    if (has_nan(got, n) || has_nan(ref, n))
        return (one_row){.kl = INFINITY};
    int n_ref = top_of(top_ref, ref, n);
    if (isfinite(ref[top_ref[0]]) && !memcmp(got, ref, (size_t)n * sizeof *got))
        return (one_row){.overlap = 1, .same_top = true};
    int n_got = top_of(top_got, got, n), common = 0;
    for (int i = 0; i < n_got; i++)
        for (int j = 0; j < n_ref; j++)
            common += top_got[i] == top_ref[j];
    return (one_row){.kl = divergence(got, ref, n, got[top_got[0]], ref[top_ref[0]]),
                     .overlap = (double)common / n_ref,
                     .same_top = ref[top_got[0]] == ref[top_ref[0]]};
}

static void add_block(assay_agreement *a, int prompt, int step, int64_t first, const double *got,
                      const double *ref, int64_t n_rows, int64_t n_vocab)
{
    one_row rows[BLOCK];
#pragma omp parallel for schedule(dynamic, 1) if (n_rows * n_vocab > 1 << 14)
    for (int64_t r = 0; r < n_rows; r++)
        rows[r] = look_at_row(got + r * n_vocab, ref + r * n_vocab, n_vocab);
    for (int64_t r = 0; r < n_rows; r++) {
        a->n_rows++;
        a->n_top1_equal += rows[r].same_top;
        a->top5_overlap += rows[r].overlap;
        a->kl_mean += rows[r].kl;
        if (a->worst_position < 0 || rows[r].kl > a->kl_max) {
            a->kl_max = rows[r].kl;
            a->worst_position = first + r;
            a->prompt = prompt;
            a->step = step;
        }
    }
}

void assay_agreement_add(assay_agreement *agreement, int prompt, int step, int64_t first,
                         const double *got, const double *ref, int64_t n_rows, int64_t n_vocab)
{
    for (int64_t r = 0; r < n_rows && n_vocab > 0; r += BLOCK)
        add_block(agreement, prompt, step, first + r, got + r * n_vocab, ref + r * n_vocab,
                  n_rows - r < BLOCK ? n_rows - r : BLOCK, n_vocab);
}

void assay_agreement_finish(assay_agreement *agreement)
{
    if (!agreement->n_rows)
        return;
    agreement->kl_mean /= (double)agreement->n_rows;
    agreement->top5_overlap /= (double)agreement->n_rows;
}
