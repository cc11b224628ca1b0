/*
 * What float32 does to one head of attention, in closed form. One realisation of the noise of the
 * scores says little about the others: with a few keys it may cancel. So the exact result is off by
 * the root of its variance, as sums are (oracle_ops.h).
 *
 * Key j's part e^(s_j - m) has a relative error e_j, independent of other keys', of variance
 *
 *   S_j = scale^2 Var(dot_j) + r(s_j) + r(s_j - m) + 4 r(1)
 *
 * with Var(dot_j) of a sum in float32, r(x) the variance of one rounding of x: the scaled score,
 * its distance from the largest one, and an exponential within one unit in the last place, that is
 * twice as far off as a rounding. Their sum in float32 has the relative variance
 * N = Var(sum_j p_j). To first order in e, with A = sum_j p_j^2 S_j:
 *
 *   p_j   off by p_j (e_j - sum_i p_i e_i)   Var = p_j^2 S_j (1 - 2 p_j) + p_j^2 (A + N) + r(p_j)
 *   o     off by sum_j p_j (v_j - o) e_j     Var = sum_j p_j^2 S_j (v_j - o)^2 + o^2 N + Var(sum)
 *   lse   off by sum_j p_j e_j               Var = A + N + r(m) + r(lse - m)
 */
#include <math.h>
#include <stdlib.h>

#include "references/oracle/oracle_private.h"

/* Of the sum of all keys' parts, relative to it. */
static double norm_variance(const double *p, int64_t n)
{
    double squares = 0;
    int64_t terms = 0;
    for (int64_t j = 0; j < n; j++) {
        squares += p[j] * p[j];
        terms += p[j] != 0;
    }
    return assay_oracle_sum_variance(1, squares, terms);
}

double assay_oracle_key_variance(double *variance, const double *scores, const double *p, int64_t n,
                                 double scale)
{
    double most = -HUGE_VAL, all = 0;
    for (int64_t j = 0; j < n; j++)
        most = scores[j] > most ? scores[j] : most;
    for (int64_t j = 0; j < n; j++) {
        double of_key = scale * scale * variance[j] + assay_oracle_rounding_variance(scores[j]) +
                        assay_oracle_rounding_variance(scores[j] - most) +
                        4 * assay_oracle_rounding_variance(1);
        variance[j] = p[j] != 0 && isfinite(scores[j]) ? p[j] * p[j] * of_key : 0;
        all += variance[j];
    }
    return all;
}

double assay_oracle_lse_off(double lse, double most, double all, const double *p, int64_t n)
{
    if (!isfinite(lse))
        return lse;
    return assay_oracle_off_by(lse, all + norm_variance(p, n) +
                                        assay_oracle_rounding_variance(most) +
                                        assay_oracle_rounding_variance(lse - most));
}

void assay_oracle_probs_off(double *p, const double *variance, int64_t n)
{
    double all = norm_variance(p, n);
    for (int64_t j = 0; j < n; j++)
        all += variance[j];
    for (int64_t j = 0; j < n; j++)
        p[j] = assay_oracle_off_by(p[j], fmax(variance[j] * (1 - 2 * p[j]) + p[j] * p[j] * all, 0) +
                                             assay_oracle_rounding_variance(p[j]));
}

/* y[T, w] = x[T, S] v[S, w] */
static assay_status times(double *y, const double *x, const double *v, int64_t T, int64_t S,
                          int64_t w)
{
    return assay_oracle_gemm(y, w, x, S, v, w, T, w, S, true, false);
}

assay_status assay_oracle_values_off(double *o, int64_t ld_o, const double *p,
                                     const double *variance, const double *v, int64_t ld_v,
                                     int64_t T, int64_t S, int64_t w)
{
    double *memory;
    assay_status s;
    ASSAY_TRY(assay_alloc(&memory, (size_t)(2 * S * w + T * S + 3 * T * w), sizeof *memory,
                          "noise of attention"));
    double *value = memory, *square = value + S * w, *share = square + S * w;
    double *of_square = share + T * S, *of_value = of_square + T * w, *terms = of_value + T * w;
    for (int64_t j = 0; j < S; j++)
        for (int64_t i = 0; i < w; i++) { /* a key that is not seen adds nothing, whatever it is */
            double x = isfinite(v[j * ld_v + i]) ? v[j * ld_v + i] : 0;
            value[j * w + i] = x;
            square[j * w + i] = x * x;
        }
    for (int64_t i = 0; i < T * S; i++)
        share[i] = p[i] * p[i];
    ASSAY_GO(times(of_square, variance, square, T, S, w));
    ASSAY_GO(times(of_value, variance, value, T, S, w));
    ASSAY_GO(times(terms, share, square, T, S, w));
    for (int64_t t = 0; t < T; t++) {
        double all = 0, normed = norm_variance(p + t * S, S);
        int64_t n = 0;
        for (int64_t j = 0; j < S; j++) {
            all += variance[t * S + j];
            n += p[t * S + j] != 0;
        }
        for (int64_t i = 0; i < w; i++) {
            double *x = o + t * ld_o + i;
            double of_scores = of_square[t * w + i] - 2 * *x * of_value[t * w + i] + *x * *x * all;
            of_scores += *x * *x * normed;
            if (isfinite(*x))
                *x = assay_oracle_off_by(
                    *x, fmax(of_scores, 0) + assay_oracle_sum_variance(*x, terms[t * w + i], n));
        }
    }
out:
    free(memory);
    return s;
}
