#include "engine/ops/attention_split.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Outputs of all parts: o [n_parts][rows of q, width], lse [n_parts][rows of q, heads]. */
typedef struct parts {
    int64_t n;
    float *o, *lse;
    int64_t *range; /* begin and end of one part's rows */
} parts;

static assay_status new_parts(parts *p, int64_t n, assay_rows o, assay_rows lse,
                              const assay_attention *a)
{
    *p = (parts){.n = n};
    ASSAY_TRY(assay_alloc(&p->o, (size_t)(n * o.n * o.width), sizeof *p->o, "parts of attention"));
    ASSAY_TRY(assay_alloc(&p->lse, (size_t)(n * lse.n * lse.width), sizeof *p->lse,
                          "parts of attention"));
    return assay_alloc(&p->range, (size_t)a->n_rows * 2, sizeof *p->range, "parts of attention");
}

static void free_parts(parts *p)
{
    free(p->o);
    free(p->lse);
    free(p->range);
}

static int64_t within(int64_t x, int64_t most)
{
    return x < 0 ? 0 : x > most ? most : x;
}

/* The kernel on keys first ... first + n - 1. */
static assay_status one_part(parts *p, int64_t part, int64_t first, int64_t n, assay_rows o,
                             assay_rows lse, float *probs, int64_t n_probs, assay_rows q,
                             const assay_attention *a)
{
    assay_attention sub = *a;
    sub.keys = a->keys + first * a->key_stride;
    sub.values = a->values + first * a->value_stride;
    sub.n_keys = n;
    sub.n_zeros = first + n == a->n_keys ? a->n_zeros : 0;
    sub.begin = p->range;
    sub.end = p->range + a->n_rows;
    sub.selected_stride = a->selected_stride ? a->selected_stride : a->n_keys;
    if (a->selected)
        sub.selected = a->selected + first;
    for (int64_t r = 0; r < a->n_rows; r++) {
        p->range[r] = within(a->begin[r] - first, n);
        p->range[a->n_rows + r] = within(a->end[r] - first, n);
    }
    return assay_op_attention(assay_rows_of(p->o + part * o.n * o.width, o.n, o.width),
                              assay_rows_of(p->lse + part * lse.n * lse.width, lse.n, lse.width),
                              probs ? probs + first : NULL, n_probs, q, &sub);
}

/* The lse of a part as the merge takes it. */
static double taken_lse(const parts *p, int64_t part, int64_t at, int64_t stride, double before,
                        assay_merge_kind kind)
{
    double l = p->lse[part * stride + at];
    bool empty = isinf(l);
    switch (kind) {
    case ASSAY_MERGE_EMPTY_STALE:
        return empty && part > 0 ? before : l;
    case ASSAY_MERGE_EMPTY_INF:
        return empty ? INFINITY : l;
    case ASSAY_MERGE_LOCAL_LSE:
        return empty ? l : p->lse[at];
    case ASSAY_MERGE_SIGN:
        return empty ? l : -l;
    case ASSAY_MERGE_LOG2:
        return l * log(2);
    default:
        return l;
    }
}

/* Weights of the parts of one row and head; returns their log-sum-exp. */
static double weigh(double *weight, const parts *p, int64_t at, int64_t stride,
                    assay_merge_kind kind)
{
    double most = -INFINITY, sum = 0, l[p->n];
    int64_t n_seen = 0, last = -1;
    for (int64_t i = 0; i < p->n; i++) {
        l[i] = taken_lse(p, i, at, stride, i ? l[i - 1] : -INFINITY, kind);
        if (l[i] != -INFINITY) {
            n_seen++;
            last = i;
        }
        most = l[i] > most ? l[i] : most;
    }
    for (int64_t i = 0; i < p->n; i++) {
        weight[i] = l[i] == -INFINITY ? 0 : l[i] == most ? 1 : exp(l[i] - most);
        sum += weight[i];
    }
    double lse = n_seen ? most + log(sum) : -INFINITY;
    for (int64_t i = 0; i < p->n && n_seen; i++) {
        weight[i] /= sum;
        if (kind == ASSAY_MERGE_EQUAL)
            weight[i] = l[i] == -INFINITY ? 0 : 1 / (double)n_seen;
        if (kind == ASSAY_MERGE_LAST)
            weight[i] = i == last;
    }
    return lse;
}

/* Where part `part` has one row's head. */
static const float *output_of(const parts *p, int64_t part, int64_t t, int head, assay_rows o,
                              int64_t lse_at, int64_t lse_size, const assay_attention *a,
                              assay_merge_kind kind)
{
    int64_t size = o.n * o.width, at = t * o.width + (int64_t)head * a->d_value;
    if (kind == ASSAY_MERGE_STRIDE && part > 0)
        at = t * o.width + (int64_t)head * a->d_value * 3 / 2;
    at = at < size - a->d_value ? at : size - a->d_value;
    while (kind == ASSAY_MERGE_EMPTY_STALE && part > 0 && isinf(p->lse[part * lse_size + lse_at]))
        part--;
    return p->o + part * size + at;
}

static void merge_row(assay_rows o, assay_rows lse, float *probs, int64_t n_probs, const parts *p,
                      const assay_attention *a, int64_t n_part, int64_t t, int head,
                      assay_merge_kind kind)
{
    double weight[p->n];
    int64_t at = t * lse.width + head, n_lse = lse.n * lse.width;
    float *out = o.at + t * o.stride + (int64_t)head * a->d_value;
    lse.at[t * lse.stride + head] = (float)weigh(weight, p, at, n_lse, kind);
    for (int d = 0; d < a->d_value; d++)
        out[d] = 0;
    for (int64_t i = 0; i < p->n; i++) {
        if (weight[i] == 0) /* what an empty part holds is never read */
            continue;
        const float *from = output_of(p, i, t, head, o, at, n_lse, a, kind);
        for (int d = 0; d < a->d_value; d++)
            out[d] += (float)weight[i] * from[d];
    }
    for (int64_t j = 0; probs && j < a->n_keys; j++)
        probs[((int64_t)head * o.n + t) * n_probs + j] *= (float)weight[j / n_part];
}

assay_status assay_op_attention_split(assay_rows o, assay_rows lse, float *probs, int64_t n_probs,
                                      assay_rows q, const assay_attention *a, int64_t n_part,
                                      assay_merge_kind kind)
{
    parts p;
    if (n_part <= 0 || a->n_keys <= n_part)
        return assay_op_attention(o, lse, probs, n_probs, q, a);
    assay_status s = new_parts(&p, (a->n_keys + n_part - 1) / n_part, o, lse, a);
    for (int64_t i = 0; i < p.n && s == ASSAY_OK; i++) {
        int64_t first = i * n_part, n = a->n_keys - first < n_part ? a->n_keys - first : n_part;
        s = one_part(&p, i, first, n, o, lse, probs, n_probs, q, a);
    }
    for (int64_t r = 0; r < a->n_rows && s == ASSAY_OK; r++)
        for (int h = 0; h < a->n_head; h++)
            merge_row(o, lse, probs, n_probs, &p, a, n_part, a->rows[r], h, kind);
    free_parts(&p);
    return s;
}
