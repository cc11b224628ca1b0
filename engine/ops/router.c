#include "engine/ops/router.h"

#include <math.h>

static void softmax_row(float *p, const float *x, int n)
{
    float most = x[0];
    double sum = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > most)
            most = x[i];
    for (int i = 0; i < n; i++) {
        p[i] = expf(x[i] - most);
        sum += p[i];
    }
    for (int i = 0; i < n; i++)
        p[i] = (float)(p[i] / sum);
}

void assay_op_router_probs(assay_rows probs, assay_rows logits, const assay_routing *how)
{
    ASSAY_BUG_IF(probs.n != logits.n || probs.width != logits.width ||
                 probs.width != how->n_expert);
    for (int64_t t = 0; t < probs.n; t++) {
        const float *x = logits.at + t * logits.stride;
        float *p = probs.at + t * probs.stride;
        if (how->gating == ASSAY_GATING_SOFTMAX)
            softmax_row(p, x, how->n_expert);
        else
            for (int e = 0; e < how->n_expert; e++)
                p[e] = 1.0f / (1.0f + expf(-x[e]));
    }
}

static float group_score(const float *sel, int n, const assay_routing *how)
{
    float best = -INFINITY, second = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) {
        sum += sel[i];
        if (sel[i] > best) {
            second = best;
            best = sel[i];
        } else if (sel[i] > second) {
            second = sel[i];
        }
    }
    if (how->group_sum_all)
        return sum;
    return how->group_rule == ASSAY_GROUP_MAX || n < 2 ? best : best + second;
}

/* The k largest of v in descending order, equal ones by smaller index. */
static void largest(int32_t *ids, const float *v, int n, int k)
{
    bool used[n];
    for (int i = 0; i < n; i++)
        used[i] = false;
    for (int j = 0; j < k; j++) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (!used[i] && (best < 0 || v[i] > v[best]))
                best = i;
        ids[j] = best;
        used[best] = true;
    }
}

static void forbid_groups(float *sel, const assay_routing *how)
{
    int size = how->n_expert / how->n_group;
    float score[how->n_group];
    int32_t keep[how->n_group];
    for (int g = 0; g < how->n_group; g++)
        score[g] = group_score(sel + g * size, size, how);
    largest(keep, score, how->n_group, how->n_group_used);
    for (int g = 0; g < how->n_group; g++) {
        bool kept = false;
        for (int i = 0; i < how->n_group_used; i++)
            kept = kept || keep[i] == g;
        for (int i = 0; i < size && !kept; i++)
            sel[g * size + i] = how->group_mask_zero ? 0.0f : -INFINITY;
    }
}

void assay_op_router_choose(int32_t *ids, assay_rows probs, const float *bias,
                            const assay_routing *how)
{
    float sel[how->n_expert];
    ASSAY_BUG_IF(how->n_used > how->n_expert || how->n_expert > 512);
    for (int64_t t = 0; t < probs.n; t++) {
        const float *p = probs.at + t * probs.stride;
        for (int e = 0; e < how->n_expert; e++)
            sel[e] = bias ? p[e] + bias[e] : p[e];
        if (how->n_group > 1)
            forbid_groups(sel, how);
        largest(ids + t * how->n_used, sel, how->n_expert, how->n_used);
    }
}

void assay_op_router_weigh(assay_rows weights, const int32_t *ids, assay_rows probs,
                           const float *bias, const assay_routing *how)
{
    ASSAY_BUG_IF(weights.width != how->n_used || weights.n != probs.n);
    for (int64_t t = 0; t < probs.n; t++) {
        const float *p = probs.at + t * probs.stride;
        float *w = weights.at + t * weights.stride;
        float sum = 0;
        for (int u = 0; u < how->n_used; u++) {
            int32_t e = ids[t * how->n_used + u];
            w[u] = how->bias_in_weights && bias ? p[e] + bias[e] : p[e];
            sum += w[u];
        }
        if (!(sum > 0x1p-14f) && sum == sum)
            sum = 0x1p-14f;
        for (int u = 0; u < how->n_used; u++) {
            if (how->weights_norm)
                w[u] /= sum;
            w[u] *= (float)how->weights_scale;
        }
    }
}
