/*
 * The oracle's arithmetic, as small functions over plain arrays: no model, no pass, no weights.
 *
 * round: the format that intermediate values are kept in (knobs.h, round_out); F64 keeps everything
 * exact. All sums run left to right in float64;
 * rounding puts the error of a float32 sum on top where an op has long ones (sum_variance).
 */
#ifndef ASSAY_REFERENCES_ORACLE_ORACLE_OPS_H
#define ASSAY_REFERENCES_ORACLE_ORACLE_OPS_H

#include <stdint.h>

#include "references/oracle/knobs.h"

/* x[0 ... n-1] rounded to the format; F64 and integers: unchanged. */
void assay_oracle_round(double *x, int64_t n, assay_dtype format);
double assay_oracle_round_one(double x, assay_dtype format);
/* Format of values that engines keep in float32 even when they compute in 16 bits (router). */
assay_dtype assay_oracle_at_least_f32(assay_dtype format);

/*
 * Variance of what float32 makes of a sum of n terms t whose exact value is `sum` and whose squares
 * sum to `squares`. Each partial sum s_k is rounded, by 0.43 x 2^-24 |s_k| in the root mean square,
 * and roundings are as good as independent (Higham and Mary, SIAM J. Sci. Comput. 41, 2019,
 * A2815). The mean over all orders of the terms is
 *
 *     sum over k of E s_k^2 = (n + 1) / 6 (squares + 2 sum^2)
 *
 * for one chain of additions, which is what the noisiest engine does; many short chains have less.
 * One real sum in float32 in its place would do as well where many are pooled. Of one to four it
 * may be exact by luck, and a floor must not be.
 */
double assay_oracle_sum_variance(double sum, double squares, int64_t n);
/* Variance of one rounding of x to float32. */
double assay_oracle_rounding_variance(double x);
/* x one standard deviation off, up or down: a fixed bit of x says which. */
double assay_oracle_off_by(double x, double variance);

/*
 * rms:    y = x / sqrt(mean(x^2) + eps) * w
 * layer:  y = (x - mean(x)) / sqrt(mean((x - mean)^2) + eps) * w + b
 * Source: arXiv:1910.07467; eps is added to the mean square, not to the root. y may be x.
 */
void assay_oracle_rms_norm(double *y, const double *x, const double *w, int64_t n, double eps,
                           assay_norm_kind kind, assay_dtype round);
void assay_oracle_layer_norm(double *y, const double *x, const double *w, const double *b,
                             int64_t n, double eps, assay_norm_kind kind, assay_dtype round);

/*
 * YaRN (arXiv:2309.00071 as DeepSeek, transformers and llama.cpp compute it):
 *   corr(b) = R ln(orig / (2 pi b)) / (2 ln base)
 *   keep_i  = 1 - clamp((i - low) / max(0.001, high - low), 0, 1)
 *   f_i     = keep_i theta_i + (1 - keep_i) theta_i / factor,   theta_i = base^(-2i / R)
 * without YaRN and with a factor: f_i = theta_i / factor.
 */
double assay_oracle_yarn_corr(const assay_rope_knobs *rope, double beta);
void assay_oracle_yarn_range(int *low, int *high, const assay_rope_knobs *rope);
/* f[0 ... rope->width / 2 - 1] */
void assay_oracle_rope_frequencies(double *f, const assay_rope_knobs *rope);
/* gm(s, m) = 1 for s <= 1, else 0.1 m ln s + 1 */
double assay_oracle_yarn_gain(double factor, double multiplier);
/* (attn_factor ratio (1 + 0.1 M ln s))^2 / sqrt(width); M = mscale_all_dim, ratio from
 * model-spec 3.5 */
double assay_oracle_softmax_scale(double width, double attn_factor, double factor, double mscale,
                                  double mscale_all_dim);

/* Rotates the first rope->width channels of x in place by the angles position * f[i]. divisors:
 * llama's rope_freqs (angle i is divided by it), NULL: none. */
void assay_oracle_rotate(double *x, const assay_rope_knobs *rope, const double *f,
                         const double *divisors, double position, assay_dtype round);

double assay_oracle_silu(double x);
double assay_oracle_act(double x, assay_activation kind);

/* p = softmax(s) over finite-or-not s; -inf entries get 0; all -inf: zeros. Returns log-sum-exp. */
double assay_oracle_softmax(double *p, const double *s, int64_t n);

/* ids[0 ... k-1]: the largest scores, descending, equal scores by smaller index; -inf and NaN are
 * never chosen; missing ones -1. */
void assay_oracle_top(int32_t *ids, const double *scores, int64_t n, int64_t k);

/*
 * Expert choice (model-spec 6.1), one token of n experts:
 *   gate      probabilities of the logits
 *   scores    probabilities + bias, forbidden groups at -inf
 *   weights   probabilities at the chosen ids, renormalised over max(sum, 2^-14), scaled
 * bias NULL: none. ids of -1 weigh 0.
 */
void assay_oracle_gate(double *p, const double *logits, int64_t n, assay_gate gate,
                       assay_dtype round);
void assay_oracle_group_scores(double *group, const double *biased, int64_t n, int n_group,
                               assay_groups rule);
/* What the bias adds to candidate i in the choice. */
double assay_oracle_choice_bias(const double *bias, int64_t i, const assay_knobs *knobs);
void assay_oracle_route_scores(double *scores, const double *p, const double *bias, int64_t n,
                               int n_group, const assay_knobs *knobs);
void assay_oracle_route_weights(double *weights, const double *p, const double *bias,
                                const double *ids, int64_t n, int64_t k, const assay_knobs *knobs);

#endif
