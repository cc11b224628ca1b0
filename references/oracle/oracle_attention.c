/*
 * Attention over the keys of all steps so far, plain: scores, mask, softmax, product with the
 * values.
 *
 *   expanded  q_h = [nope | rotated]      k_h(j), v_h(j)                         out [T, H, V]
 *   latent    q_h = [absorbed | rotated]  [latent(j) | rotated(j)], latent(j)    out [T, H, L]
 *   llama     q_h = rotated               k_g(j), v_g(j), g = h / (H / G)        out [T, H, V]
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "references/oracle/oracle_private.h"

/* Queries, keys and values as the heads read them. */
typedef struct heads {
    double *q; /* [T, H, width] */
    double *k; /* [S, n_key, width] */
    double *v; /* [S, n_key, v_width]; NULL: not needed */
    int64_t n_key, width, v_width, v_heads;
} heads;

static void heads_free(heads *a)
{
    free(a->q);
    free(a->k);
    free(a->v);
}

/* Rows of `a` (a_width of each a_stride, from a_at on) beside rows of `b`. */
static assay_status beside(double **out, int64_t n, const double *a, int64_t a_stride,
                           int64_t a_width, const double *b, int64_t b_width)
{
    int64_t width = a_width + b_width;
    ASSAY_TRY(assay_alloc(out, (size_t)(n * width), sizeof **out, "heads of attention"));
    for (int64_t i = 0; i < n; i++) {
        if (a_width)
            memcpy(*out + i * width, a + i * a_stride, (size_t)a_width * sizeof **out);
        if (b_width)
            memcpy(*out + i * width + a_width, b + i * b_width, (size_t)b_width * sizeof **out);
    }
    return ASSAY_OK;
}

static assay_status heads_latent(heads *a, const oracle_call *c)
{
    const assay_oracle_shape *s = &c->eval->oracle->shape;
    int64_t L = s->n_rank_kv, R = s->d_rope;
    ASSAY_TRY(beside(&a->q, c->n_tokens * s->n_head, c->in[0], L, L, c->in[1], R));
    ASSAY_TRY(beside(&a->k, c->n_keys, c->in[2], L, L, c->in[3], R));
    assay_oracle_through_codec(a->k, c->n_keys, L + R, c->eval->knobs); /* one row holds both */
    ASSAY_TRY(beside(&a->v, c->n_keys, a->k, L + R, L, NULL, 0));
    a->n_key = a->v_heads = 1;
    a->width = L + R;
    a->v_width = L;
    return ASSAY_OK;
}

static assay_status heads_expanded(heads *a, const oracle_call *c)
{
    const assay_oracle_shape *s = &c->eval->oracle->shape;
    int64_t K = oracle_key_width(c->eval->oracle), R = s->d_rope, G = s->n_head_kv;
    if (s->is_mla) {
        G = s->n_head;
        ASSAY_TRY(beside(&a->q, c->n_tokens * s->n_head, c->in[0], K, K - R, c->in[1], R));
    } else {
        ASSAY_TRY(beside(&a->q, c->n_tokens * s->n_head, c->in[0], K, K, NULL, 0));
    }
    ASSAY_TRY(beside(&a->k, c->n_keys * G, c->in[2], K, K, NULL, 0));
    if (c->in[3])
        ASSAY_TRY(beside(&a->v, c->n_keys * G, c->in[3], s->d_value, s->d_value, NULL, 0));
    assay_oracle_through_codec(a->k, c->n_keys, G * K, c->eval->knobs);
    if (a->v)
        assay_oracle_through_codec(a->v, c->n_keys, G * s->d_value, c->eval->knobs);
    a->n_key = a->v_heads = G;
    a->width = K;
    a->v_width = s->d_value;
    return ASSAY_OK;
}

static bool is_visible(const assay_knobs *k, int64_t query, int64_t key)
{
    if (!k->mask_none && key > query + k->mask_shift)
        return false;
    if (k->window > 0 && key <= query - k->window)
        return false;
    return key >= k->key_first && (k->key_limit <= 0 || key < k->key_limit);
}

/* Leaves of `seen` only what the scores choose; where at most top_k are seen, all stay. */
static void keep_best(uint8_t *seen, double *masked, int32_t *ids, const double *scores,
                      int64_t n_keys, int64_t top_k)
{
    int64_t n_seen = 0;
    for (int64_t j = 0; j < n_keys; j++) {
        masked[j] = seen[j] ? scores[j] : -HUGE_VAL;
        n_seen += seen[j];
    }
    if (n_seen <= top_k)
        return;
    assay_oracle_top(ids, masked, n_keys, top_k);
    for (int64_t j = 0; j < n_keys; j++)
        seen[j] = 0;
    for (int64_t i = 0; i < top_k; i++)
        if (ids[i] >= 0)
            seen[ids[i]] = 1;
}

/* A selection of all n_causal keys that a row may see leaves the row to the mask, as engines do
 * that attend densely there. */
static void keep_ids(uint8_t *seen, uint8_t *chosen, const double *ids, int64_t n_ids,
                     int64_t n_keys, int64_t n_causal)
{
    int64_t n_chosen = 0;
    for (int64_t j = 0; j < n_keys; j++)
        chosen[j] = 0;
    for (int64_t i = 0; i < n_ids; i++)
        if (ids[i] >= 0 && ids[i] < (double)n_keys)
            chosen[(int64_t)ids[i]] = 1;
    for (int64_t j = 0; j < n_causal; j++)
        n_chosen += chosen[j];
    for (int64_t j = 0; j < n_keys && n_chosen < n_causal; j++)
        seen[j] &= chosen[j];
}

assay_status assay_oracle_mask(uint8_t *seen, const oracle_call *c, const double *selection)
{
    const assay_knobs *k = c->eval->knobs;
    int64_t S = c->n_keys;
    double *masked;
    ASSAY_TRY(assay_alloc(&masked, (size_t)S, 2 * sizeof *masked, "mask of a row"));
    int32_t *ids = (int32_t *)(masked + S);
    for (int64_t t = 0; t < c->n_tokens; t++) {
        uint8_t *row = seen + t * S;
        for (int64_t j = 0; j < S; j++)
            row[j] = is_visible(k, c->at->first_key + t, j);
        if (selection && c->selection_is_ids)
            keep_ids(row, (uint8_t *)masked, selection + t * c->n_selected, c->n_selected, S,
                     c->at->first_key + t + 1);
        else if (selection)
            keep_best(row, masked, ids, selection + t * S, S,
                      k->index_top_k < S ? k->index_top_k : S);
    }
    free(masked);
    return ASSAY_OK;
}

/* Softmax over keys from ... to - 1 alone, zeros elsewhere; returns its log-sum-exp. */
static double softmax_of(double *p, const double *s, int64_t n, int64_t from, int64_t to)
{
    memset(p, 0, (size_t)n * sizeof *p);
    return assay_oracle_softmax(p + from, s + from, to - from);
}

/* How much of each part enters when two parts are merged. */
static void merge_weights(double w[2], double lse_a, double lse_b, assay_merge kind)
{
    if (lse_a == -HUGE_VAL || lse_b == -HUGE_VAL) { /* an empty part has no say */
        double full = lse_b == -HUGE_VAL ? lse_a : lse_b;
        double share = kind == ASSAY_MERGE_EMPTY_COUNTS ? 1 / (1 + exp(-full)) : 1;
        w[0] = lse_b == -HUGE_VAL ? share : 0;
        w[1] = lse_b == -HUGE_VAL ? 0 : share;
        return;
    }
    double gap = lse_b - lse_a;
    if (kind == ASSAY_MERGE_LSE_SIGN)
        gap = -gap;
    if (kind == ASSAY_MERGE_LSE_BASE_2)
        gap *= log(2);
    w[0] = 1 / (1 + exp(gap));
    w[1] = 1 / (1 + exp(-gap));
    if (kind == ASSAY_MERGE_MEAN)
        w[0] = w[1] = 0.5;
    if (kind == ASSAY_MERGE_SUM)
        w[0] = w[1] = 1;
    if (kind == ASSAY_MERGE_FIRST_ONLY || kind == ASSAY_MERGE_LAST_ONLY) {
        w[0] = kind == ASSAY_MERGE_FIRST_ONLY;
        w[1] = !w[0];
    }
}

/* log(exp(a) + exp(b)) */
static double log_add(double a, double b)
{
    double high = fmax(a, b);
    return high == -HUGE_VAL ? high : high + log(exp(a - high) + exp(b - high));
}

/* What a part's log-sum-exp counts for in the common sum; -inf: nothing. */
static double counts_for(double lse, assay_merge kind)
{
    if (lse == -HUGE_VAL)
        return kind == ASSAY_MERGE_EMPTY_COUNTS ? 0 : lse;
    return kind == ASSAY_MERGE_LSE_SIGN     ? -lse
           : kind == ASSAY_MERGE_LSE_BASE_2 ? lse * log(2)
           : kind == ASSAY_MERGE_MEAN       ? 0
                                            : lse;
}

/* Parts of merge_at keys, each with the weight exp(counts) over the sum of all. */
static void merge_all(double *p, double *part, const double *s, int64_t n, const assay_knobs *k)
{
    double total = -HUGE_VAL, last = -HUGE_VAL;
    int64_t last_at = 0, n_repeats = 0;
    for (int64_t at = 0; at < n; at += k->merge_at) {
        int64_t end = at + k->merge_at < n ? at + k->merge_at : n;
        double lse = softmax_of(part, s, n, at, end);
        n_repeats = lse > -HUGE_VAL ? 0 : n_repeats + 1;
        last = lse > -HUGE_VAL ? lse : last;
        last_at = lse > -HUGE_VAL ? at : last_at;
        if (k->merge == ASSAY_MERGE_EMPTY_REPEATS && lse == -HUGE_VAL)
            lse = last;
        total = log_add(total, counts_for(lse, k->merge));
    }
    memset(p, 0, (size_t)n * sizeof *p);
    for (int64_t at = 0; at < n; at += k->merge_at) {
        int64_t end = at + k->merge_at < n ? at + k->merge_at : n;
        double counts = counts_for(softmax_of(part, s, n, at, end), k->merge);
        double w = counts > -HUGE_VAL ? exp(counts - total) : 0;
        if (k->merge == ASSAY_MERGE_EMPTY_REPEATS && at == last_at)
            w *= (double)(1 + n_repeats);
        if (k->merge == ASSAY_MERGE_LAST_ONLY || k->merge == ASSAY_MERGE_FIRST_ONLY)
            w = at == (k->merge == ASSAY_MERGE_LAST_ONLY ? last_at : 0);
        if (k->merge == ASSAY_MERGE_SUM)
            w = 1;
        for (int64_t j = at; j < end; j++)
            p[j] = w * part[j];
    }
}

/* The same over n_zeros keys of zeros besides. */
static double with_zeros(double *p, int64_t n, double lse, double n_zeros)
{
    double most = lse > 0 ? lse : 0;
    double all = most + log(exp(lse - most) + n_zeros * exp(-most));
    for (int64_t j = 0; j < n; j++)
        p[j] *= exp(lse - all);
    return all;
}

/* Probabilities of one row; other: scratch of n. */
static double probabilities(double *p, double *other, const double *s, int64_t n,
                            const assay_knobs *k)
{
    int64_t cut = k->merge_at;
    double lse = softmax_of(p, s, n, 0, n);
    if (k->key_extra > 0 && lse > -HUGE_VAL)
        lse = with_zeros(p, n, lse, k->key_extra);
    if (cut <= 0 || cut >= n)
        return lse;
    if (k->merge_parts == ASSAY_PARTS_ALL) {
        merge_all(p, other, s, n, k);
        return lse;
    }
    double w[2], lse_a = softmax_of(p, s, n, 0, cut);
    for (int64_t at = cut; at < n; at += k->merge_parts == ASSAY_PARTS_CHAIN ? cut : n) {
        int64_t end = k->merge_parts == ASSAY_PARTS_CHAIN && at + cut < n ? at + cut : n;
        double lse_b = softmax_of(other, s, n, at, end);
        merge_weights(w, lse_a, lse_b, k->merge);
        for (int64_t j = 0; j < n; j++)
            p[j] = w[0] * p[j] + w[1] * other[j];
        lse_a = log_add(lse_a, lse_b);
    }
    return lse;
}

static bool all_finite(const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

/* out[t] = sum_j p[t, j] v[j]; a key of probability 0 adds nothing, whatever its value is. */
static assay_status with_values(double *out, int64_t ld_out, const double *p, const double *v,
                                int64_t ld_v, int64_t T, int64_t S, int64_t width, bool finite,
                                bool f32)
{
    if (finite)
        return assay_oracle_gemm(out, ld_out, p, S, v, ld_v, T, width, S, true, f32);
    for (int64_t t = 0; t < T; t++) {
        memset(out + t * ld_out, 0, (size_t)width * sizeof *out);
        for (int64_t j = 0; j < S; j++)
            if (p[t * S + j] != 0)
                for (int64_t i = 0; i < width; i++)
                    out[t * ld_out + i] += p[t * S + j] * v[j * ld_v + i];
    }
    return ASSAY_OK;
}

static double shaped(double dot, const assay_knobs *k, assay_dtype half)
{
    double s = assay_oracle_round_one(assay_oracle_round_one(dot, half) * k->softmax_scale, half);
    return k->logit_cap != 0 ? k->logit_cap * tanh(s / k->logit_cap) : s;
}

static int64_t key_head(const oracle_call *c, int64_t h, int64_t n_key)
{
    int64_t H = c->eval->oracle->shape.n_head;
    return c->eval->knobs->kv_heads_modulo ? h % n_key : h / (H / n_key);
}

static double largest(const double *x, int64_t n)
{
    double most = -HUGE_VAL;
    for (int64_t j = 0; j < n; j++)
        most = x[j] > most ? x[j] : most;
    return most;
}

/* One head: p [T, S] (scratch, left holding the probabilities), lse into column h. In float32 the
 * exact result is taken, and then off by its own deviation (variance: [T, S] scratch). */
static assay_status one_head(double *out, double *p, double *row, double *variance,
                             const uint8_t *seen, const oracle_call *c, const heads *a, int64_t h,
                             bool finite)
{
    const assay_knobs *k = c->eval->knobs;
    int64_t T = c->n_tokens, S = c->n_keys, H = c->eval->oracle->shape.n_head;
    int64_t g = key_head(c, h, a->n_key);
    assay_dtype half = assay_oracle_half(k);
    bool is_off = k->round_out == ASSAY_DTYPE_F32;
    bool f32 = k->round_out != ASSAY_DTYPE_F64 && !is_off;
    const double *q = a->q + h * a->width;
    oracle_factor keys = {.values = a->k + g * a->width, .ld = a->n_key * a->width};
    ASSAY_TRY(assay_oracle_multiply(p, S, q, H * a->width, &keys, T, S, a->width, f32));
    if (is_off)
        ASSAY_TRY(
            assay_oracle_multiply_variance(variance, p, S, q, H * a->width, &keys, T, S, a->width));
    for (int64_t t = 0; t < T; t++) {
        for (int64_t j = 0; j < S; j++)
            row[j] = seen[t * S + j] ? shaped(p[t * S + j], k, half) : -HUGE_VAL;
        double lse = probabilities(p + t * S, row + S, row, S, k);
        if (is_off) {
            double all =
                assay_oracle_key_variance(variance + t * S, row, p + t * S, S, k->softmax_scale);
            lse = assay_oracle_lse_off(lse, largest(row, S), all, p + t * S, S);
        }
        if (c->point == ASSAY_POINT_LSE)
            out[t * H + h] = lse;
        if (c->point == ASSAY_POINT_PROBS && is_off)
            assay_oracle_probs_off(p + t * S, variance + t * S, S);
    }
    assay_oracle_round(p, T * S, half);
    assay_oracle_round(p, T * S, k->round_probs);
    if (c->point == ASSAY_POINT_PROBS)
        memcpy(out + h * T * S, p, (size_t)(T * S) * sizeof *out);
    if (c->point == ASSAY_POINT_PROBS || c->point == ASSAY_POINT_LSE)
        return ASSAY_OK;
    const double *v = a->v + g * a->v_width;
    int64_t ld_o = H * a->v_width, ld_v = a->v_heads * a->v_width;
    out += h * a->v_width;
    ASSAY_TRY(with_values(out, ld_o, p, v, ld_v, T, S, a->v_width, finite, f32));
    return is_off ? assay_oracle_values_off(out, ld_o, p, variance, v, ld_v, T, S, a->v_width)
                  : ASSAY_OK;
}

static assay_status prepare(heads *a, const oracle_call *c)
{
    const assay_knobs *k = c->eval->knobs;
    bool latent = c->eval->oracle->shape.is_mla &&
                  (c->point == ASSAY_POINT_O_LATENT ||
                   (c->eval->pass->latent && c->point != ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(latent ? heads_latent(a, c) : heads_expanded(a, c));
    ASSAY_TRY(assay_oracle_from_slots(a->k, c->n_keys, a->n_key * a->width, k->key_row_shift,
                                      k->key_wrap, k->key_scale));
    if (!a->v)
        return ASSAY_OK;
    return assay_oracle_from_slots(a->v, c->n_keys, a->v_heads * a->v_width, k->value_row_shift,
                                   k->key_wrap, k->value_scale);
}

assay_status assay_oracle_op_attention(double *out, const oracle_call *c)
{
    heads a = {0};
    uint8_t *seen = NULL;
    double *p = NULL;
    int64_t T = c->n_tokens, S = c->n_keys;
    assay_status s;
    ASSAY_GO(prepare(&a, c));
    ASSAY_GO(assay_alloc(&seen, (size_t)(T * S), 1, "attention mask"));
    ASSAY_GO(assay_alloc(&p, (size_t)(2 * T * S + 2 * S), sizeof *p, "attention scores"));
    ASSAY_GO(assay_oracle_mask(seen, c, c->in[4]));
    bool finite = !a.v || all_finite(a.v, S * a.v_heads * a.v_width);
    for (int64_t h = 0; h < c->eval->oracle->shape.n_head; h++)
        ASSAY_GO(one_head(out, p, p + 2 * T * S, p + T * S, seen, c, &a, h, finite));
out:
    free(p);
    free(seen);
    heads_free(&a);
    return s;
}

/* kernel_out from captured probabilities alone. */
assay_status assay_oracle_op_probs_values(double *out, const oracle_call *c)
{
    const assay_oracle_shape *s = &c->eval->oracle->shape;
    int64_t T = c->n_tokens, S = c->n_keys, G = s->is_mla ? s->n_head : s->n_head_kv;
    bool finite = all_finite(c->in[1], S * G * s->d_value);
    for (int64_t h = 0; h < s->n_head; h++)
        ASSAY_TRY(with_values(out + h * s->d_value, s->n_head * s->d_value, c->in[0] + h * T * S,
                              c->in[1] + key_head(c, h, G) * s->d_value, G * s->d_value, T, S,
                              s->d_value, finite, c->eval->knobs->round_out != ASSAY_DTYPE_F64));
    return ASSAY_OK;
}
