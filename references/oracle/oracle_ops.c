#include "references/oracle/oracle_ops.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/status.h"

#ifdef __FAST_MATH__
#error "the oracle needs exact NaN and infinity"
#endif

#define PI 3.14159265358979323846

double assay_oracle_round_one(double x, assay_dtype format)
{
    switch (format) {
    case ASSAY_DTYPE_F32:
        return (float)x;
    case ASSAY_DTYPE_F16:
        return assay_f16_to_f32(assay_f32_to_f16((float)x));
    case ASSAY_DTYPE_BF16:
        return assay_bf16_to_f32(assay_f32_to_bf16((float)x));
    case ASSAY_DTYPE_F8E4M3:
        return assay_f8e4m3_to_f32(assay_f32_to_f8e4m3((float)x));
    default:
        return x;
    }
}

void assay_oracle_round(double *x, int64_t n, assay_dtype format)
{
    if (format == ASSAY_DTYPE_F64)
        return;
    for (int64_t i = 0; i < n; i++)
        x[i] = assay_oracle_round_one(x[i], format);
}

assay_dtype assay_oracle_at_least_f32(assay_dtype format)
{
    return format == ASSAY_DTYPE_F64 ? format : ASSAY_DTYPE_F32;
}

double assay_oracle_rounding_variance(double x)
{
    const double rounding = 0.43 * 0x1p-24;
    return rounding * rounding * x * x;
}

double assay_oracle_sum_variance(double sum, double squares, int64_t n)
{
    return assay_oracle_rounding_variance(1) * (double)(n + 1) / 6 * (squares + 2 * sum * sum);
}

double assay_oracle_off_by(double x, double variance)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bool up = bits * 0x9E3779B97F4A7C15u >> 63;
    return up ? x + sqrt(variance) : x - sqrt(variance);
}

static double mean_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (double)n;
}

/* Shared end of both norms: (x - mean) * scale * weight + bias. */
static void normalise(double *y, const double *x, const double *w, const double *b, int64_t n,
                      double mean, double scale, assay_norm_kind kind, assay_dtype round)
{
    for (int64_t i = 0; i < n; i++) {
        double v = assay_oracle_round_one((x[i] - mean) * scale, round);
        if (kind == ASSAY_NORM_WEIGHT_PLUS_1)
            v *= w[i] + 1;
        else if (kind == ASSAY_NORM_WEIGHT_MINUS_1)
            v *= w[i] - 1;
        else if (kind != ASSAY_NORM_NO_WEIGHT)
            v *= w[i];
        if (b && kind != ASSAY_NORM_NO_BIAS && kind != ASSAY_NORM_NO_WEIGHT)
            v += b[i];
        y[i] = assay_oracle_round_one(v, round);
    }
}

static void norm(double *y, const double *x, const double *w, const double *b, int64_t n,
                 double eps, assay_norm_kind kind, bool centered, assay_dtype round)
{
    if (kind == ASSAY_NORM_LEFT_OUT) {
        memmove(y, x, (size_t)n * sizeof *y);
        return;
    }
    double mean = centered ? mean_of(x, n) : 0, squares = 0, fourths = 0;
    for (int64_t i = 0; i < n; i++) {
        double square = (x[i] - mean) * (x[i] - mean);
        squares += square;
        fourths += square * square;
    }
    if (round != ASSAY_DTYPE_F64)
        squares = assay_oracle_off_by(squares, assay_oracle_sum_variance(squares, fourths, n));
    if (kind != ASSAY_NORM_SUM)
        squares /= (double)n;
    double scale =
        assay_oracle_round_one(1 / sqrt(squares + eps), assay_oracle_at_least_f32(round));
    normalise(y, x, w, b, n, mean, scale, kind, round);
}

void assay_oracle_rms_norm(double *y, const double *x, const double *w, int64_t n, double eps,
                           assay_norm_kind kind, assay_dtype round)
{
    norm(y, x, w, NULL, n, eps, kind, kind == ASSAY_NORM_CENTERED, round);
}

void assay_oracle_layer_norm(double *y, const double *x, const double *w, const double *b,
                             int64_t n, double eps, assay_norm_kind kind, assay_dtype round)
{
    /* one kernel in every engine: nothing in between is rounded to 16 bits */
    norm(y, x, w, b, n, eps, kind, kind != ASSAY_NORM_NOT_CENTERED,
         assay_oracle_at_least_f32(round));
    assay_oracle_round(y, n, round);
}

double assay_oracle_yarn_corr(const assay_rope_knobs *rope, double beta)
{
    return rope->frequency_width * log(rope->orig_context / (2 * PI * beta)) /
           (2 * log(rope->base));
}

void assay_oracle_yarn_range(int *low, int *high, const assay_rope_knobs *rope)
{
    double l = floor(assay_oracle_yarn_corr(rope, rope->beta_fast));
    double h = ceil(assay_oracle_yarn_corr(rope, rope->beta_slow));
    *low = (int)fmax(0, l);
    *high = (int)fmin(rope->frequency_width - 1, h);
}

void assay_oracle_rope_frequencies(double *f, const assay_rope_knobs *rope)
{
    int low = 0, high = 0;
    if (rope->yarn && rope->factor != 1)
        assay_oracle_yarn_range(&low, &high, rope);
    for (int i = 0; i < rope->width / 2; i++) {
        double theta = pow(rope->base, -2.0 * i / rope->frequency_width);
        double keep = 0;
        if (rope->yarn && rope->factor != 1)
            keep = 1 - fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
        f[i] = keep * theta + (1 - keep) * theta / rope->factor;
    }
}

double assay_oracle_yarn_gain(double factor, double multiplier)
{
    return factor <= 1 ? 1 : 0.1 * multiplier * log(factor) + 1;
}

double assay_oracle_softmax_scale(double width, double attn_factor, double factor, double mscale,
                                  double mscale_all_dim)
{
    double ratio = mscale_all_dim != 0 ? assay_oracle_yarn_gain(factor, mscale) /
                                             assay_oracle_yarn_gain(factor, mscale_all_dim)
                                       : assay_oracle_yarn_gain(factor, 1);
    double gain = attn_factor * ratio * assay_oracle_yarn_gain(factor, mscale_all_dim);
    return gain * gain / sqrt(width);
}

void assay_oracle_rotate(double *x, const assay_rope_knobs *rope, const double *f,
                         const double *divisors, double position, assay_dtype round)
{
    int half = rope->width / 2;
    double kept[1024];
    if (rope->skip || half == 0 || rope->width > 1024)
        return;
    memcpy(kept, x, (size_t)rope->width * sizeof *x);
    bool split_in =
        rope->pairing == ASSAY_PAIR_HALF_SPLIT || rope->pairing == ASSAY_PAIR_SPLIT_TO_ADJACENT;
    bool split_out =
        rope->pairing == ASSAY_PAIR_HALF_SPLIT || rope->pairing == ASSAY_PAIR_ADJACENT_TO_SPLIT;
    assay_dtype angles = assay_oracle_at_least_f32(round);
    for (int i = 0; i < half; i++) {
        double frequency = assay_oracle_round_one(divisors ? f[i] / divisors[i] : f[i], angles);
        frequency = assay_oracle_round_one(frequency, rope->frequency_format);
        double angle = assay_oracle_round_one(position * frequency, angles);
        double c = assay_oracle_round_one(cos(angle) * rope->magnitude, round);
        double s = assay_oracle_round_one(sin(angle) * rope->magnitude, round);
        if (rope->inverse)
            s = -s;
        double a = kept[split_in ? i : 2 * i], b = kept[split_in ? i + half : 2 * i + 1];
        double ac = assay_oracle_round_one(a * c, round), as = assay_oracle_round_one(a * s, round);
        double bc = assay_oracle_round_one(b * c, round), bs = assay_oracle_round_one(b * s, round);
        x[split_out ? i : 2 * i] = assay_oracle_round_one(ac - bs, round);
        x[split_out ? i + half : 2 * i + 1] = assay_oracle_round_one(as + bc, round);
    }
}

double assay_oracle_silu(double x)
{
    return x / (1 + exp(-x));
}

double assay_oracle_act(double x, assay_activation kind)
{
    switch (kind) {
    case ASSAY_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / PI) * (x + 0.044715 * x * x * x)));
    case ASSAY_ACT_GELU_ERF:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case ASSAY_ACT_QUICK_GELU:
        return x / (1 + exp(-1.702 * x));
    case ASSAY_ACT_RELU:
        return x > 0 ? x : 0;
    case ASSAY_ACT_RELU_SQUARED:
        return x > 0 ? x * x : 0;
    case ASSAY_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case ASSAY_ACT_TANH:
        return tanh(x);
    case ASSAY_ACT_IDENTITY:
        return x;
    default:
        return assay_oracle_silu(x);
    }
}

double assay_oracle_softmax(double *p, const double *s, int64_t n)
{
    double largest = -HUGE_VAL, sum = 0;
    while (n > 0 && s[n - 1] == -HUGE_VAL) /* behind the causal mask */
        p[--n] = 0;
    for (int64_t i = 0; i < n; i++)
        if (s[i] > largest)
            largest = s[i];
    for (int64_t i = 0; i < n; i++) {
        /* s == largest also covers +inf, whose difference with itself would be NaN */
        p[i] = s[i] == -HUGE_VAL ? 0 : s[i] == largest ? 1 : exp(s[i] - largest);
        sum += p[i];
    }
    if (sum == 0)
        return -HUGE_VAL;
    for (int64_t i = 0; i < n; i++)
        p[i] /= sum;
    return largest + log(sum);
}

typedef struct ranked {
    double score;
    int32_t id;
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

void assay_oracle_top(int32_t *ids, const double *scores, int64_t n, int64_t k)
{
    ranked few[512],
        *all = n <= 512 ? few : assay_alloc_or_lack((size_t)n, sizeof *all, "ranked scores");
    int64_t m = 0;
    for (int64_t i = 0; all && i < n; i++)
        if (scores[i] > -HUGE_VAL)
            all[m++] = (ranked){scores[i], (int32_t)i};
    if (m)
        qsort(all, (size_t)m, sizeof *all, by_rank);
    for (int64_t i = 0; i < k; i++)
        ids[i] = i < m ? all[i].id : -1;
    if (all != few)
        free(all);
}

void assay_oracle_gate(double *p, const double *logits, int64_t n, assay_gate gate,
                       assay_dtype round)
{
    if (gate == ASSAY_GATE_SOFTMAX)
        assay_oracle_softmax(p, logits, n);
    for (int64_t i = 0; gate != ASSAY_GATE_SOFTMAX && i < n; i++) {
        double power = assay_oracle_round_one(exp(-logits[i]), round);
        p[i] =
            gate == ASSAY_GATE_SIGMOID ? 1 / assay_oracle_round_one(1 + power, round) : logits[i];
    }
    assay_oracle_round(p, n, round);
}

void assay_oracle_group_scores(double *group, const double *biased, int64_t n, int n_group,
                               assay_groups rule)
{
    int64_t width = n / n_group;
    for (int g = 0; g < n_group; g++) {
        double first = -HUGE_VAL, second = -HUGE_VAL, sum = 0;
        for (int64_t i = g * width; i < (g + 1) * width; i++) {
            sum += biased[i];
            if (biased[i] > first) {
                second = first;
                first = biased[i];
            } else if (biased[i] > second)
                second = biased[i];
        }
        group[g] = rule == ASSAY_GROUPS_SUM_ALL                 ? sum
                   : rule == ASSAY_GROUPS_TOP2_SUM && width > 1 ? first + second
                                                                : first;
    }
}

double assay_oracle_choice_bias(const double *bias, int64_t i, const assay_knobs *knobs)
{
    if (!bias || knobs->bias == ASSAY_BIAS_LEFT_OUT ||
        (knobs->bias_count && i >= knobs->bias_count))
        return 0;
    return bias[knobs->bias_count ? knobs->bias_first + i : i];
}

void assay_oracle_route_scores(double *scores, const double *p, const double *bias, int64_t n,
                               int n_group, const assay_knobs *knobs)
{
    for (int64_t i = 0; i < n; i++)
        scores[i] = p[i] + assay_oracle_choice_bias(bias, i, knobs);
    if (n_group <= 1 || n_group > 512 || knobs->groups == ASSAY_GROUPS_NONE)
        return;
    double group[512];
    int32_t chosen[512];
    bool allowed[512] = {false};
    assay_oracle_group_scores(group, scores, n, n_group, knobs->groups);
    int used = knobs->n_group_used < n_group ? knobs->n_group_used : n_group;
    assay_oracle_top(chosen, group, n_group, used);
    for (int i = 0; i < used; i++)
        if (chosen[i] >= 0)
            allowed[chosen[i]] = true;
    for (int64_t i = 0; i < n; i++)
        if (!allowed[i / (n / n_group)])
            scores[i] = knobs->group_mask_zero ? 0 : -HUGE_VAL;
}

void assay_oracle_route_weights(double *weights, const double *p, const double *bias,
                                const double *ids, int64_t n, int64_t k, const assay_knobs *knobs)
{
    assay_dtype round = assay_oracle_at_least_f32(knobs->round_out);
    double sum = 0;
    for (int64_t i = 0; i < k; i++) {
        int64_t id = ids[i] >= 0 && ids[i] < (double)n ? (int64_t)ids[i] : -1;
        weights[i] = id < 0 ? 0 : p[id];
        if (id >= 0 && bias && knobs->bias == ASSAY_BIAS_IN_WEIGHTS)
            weights[i] += bias[id];
    }
    if (knobs->gate == ASSAY_GATE_SOFTMAX_SELECTED)
        assay_oracle_softmax(weights, weights, k);
    for (int64_t i = 0; i < k; i++)
        sum += weights[i];
    if (sum < 0x1p-14) /* llama.cpp's guard; transformers adds 1e-20: equal for every real sum */
        sum = 0x1p-14;
    sum = assay_oracle_round_one(sum, round);
    for (int64_t i = 0; i < k; i++) {
        double share = knobs->weights_norm ? weights[i] / sum : weights[i];
        weights[i] = assay_oracle_round_one(share, round) * knobs->weights_scale;
    }
}
