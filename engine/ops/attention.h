/*
 * The attention kernel over one sequence's keys, for all heads of a rank:
 *
 *   s[j]   = scale * dot(q[t,h], k[j, kv_head[h]])            for the keys that row t sees
 *   p      = softmax(s)      lse[t,h] = ln sum_j exp(s[j])
 *   o[t,h] = sum_j p[j] v[j, kv_head[h]]
 *
 * Row t sees keys begin[t] <= j < end[t], and of those only the selected ones where `selected` is
 * given. A row that sees nothing gets o = 0 and lse = -inf. The expanded path has keys and values
 * per head; the latent path (absorbed) has one key row [latent | rotated] for all heads and the
 * latent part of it as the value: strides tell them apart.
 *
 * Products in float32 (ops/linear.h), over the keys that some row of a block of rows sees; maximum
 * and exponentials in float32, their sum in double. Heads run in parallel; the result does not
 * depend on the number of threads.
 */
#ifndef ASSAY_ENGINE_OPS_ATTENTION_H
#define ASSAY_ENGINE_OPS_ATTENTION_H

#include <stdbool.h>

#include "engine/ops/rows.h"

typedef struct assay_attention {
    int n_head;
    const int *kv_head; /* [n_head] */
    int d_key, d_value;
    const float *keys, *values;       /* position 0, key/value head 0 */
    int64_t key_stride, value_stride; /* from position to position */
    int64_t key_head, value_head;     /* from head to head; 0: shared by all */
    int64_t n_keys;
    int64_t n_rows;
    const int64_t *rows;        /* [n_rows] index of each row in q, o, lse, probs */
    const int64_t *begin, *end; /* [n_rows] */
    const uint8_t *selected;    /* [n_rows, n_keys] or NULL */
    int64_t selected_stride;    /* from row to row of selected; 0: n_keys */
    double scale;
    double cap;              /* s = cap tanh(s / cap); 0: none */
    const float *head_scale; /* [n_head] factor on scale, or NULL */
    const float *head_gain;  /* [n_head] on o, or NULL */
    int empty; /* a row that sees nothing gives: 0 zero (right), 1 NaN, 2 the mean of all values */
    bool round_probs; /* bfloat16 probabilities */
    bool steady;      /* products whose bits do not depend on the number of rows and keys */
    double n_zeros;   /* keys of zeros that every row sees besides (0: none, right) */
} assay_attention;

/* q: rows of n_head * d_key; o: rows of n_head * d_value; lse: rows of n_head; probs: [n_head, q.n,
 * n_probs] or NULL. */
assay_status assay_op_attention(assay_rows o, assay_rows lse, float *probs, int64_t n_probs,
                                assay_rows q, const assay_attention *a);

#endif
