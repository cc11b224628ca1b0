#include "engine/ops/attention.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/number.h"
#include "engine/ops/linear.h"

#define BLOCK 32       /* rows whose scores are held at once */
#define MANY (1 << 18) /* multiplications from which on threads pay */

typedef struct scratch {
    float *q, *s, *o; /* [BLOCK, d_key], [BLOCK, n_keys], [BLOCK, d_value] */
    float *turned;    /* [d_value, n_keys]: the values of a head, where that pays; else NULL */
} scratch;

/* Rows from which on a product with turned values makes up for turning them; the bits are the same
 * whichever way they lie. */
enum { ROWS_THAT_TURN = 16, MOST_TURNED = 1 << 20 };

static bool turns(const assay_attention *a)
{
    return a->n_rows >= ROWS_THAT_TURN && a->n_keys * a->d_value <= MOST_TURNED && !a->steady;
}

static void turn(float *to, const float *values, const assay_attention *a)
{
    enum { TILE = 16 };
    for (int64_t j0 = 0; j0 < a->n_keys; j0 += TILE)
        for (int64_t d0 = 0; d0 < a->d_value; d0 += TILE)
            for (int64_t d = d0; d < a->d_value && d < d0 + TILE; d++)
                for (int64_t j = j0; j < a->n_keys && j < j0 + TILE; j++)
                    to[d * a->n_keys + j] = values[j * a->value_stride + d];
}

/* The keys that a row may see: first ... end - 1, of these the selected ones (NULL: all). */
typedef struct sight {
    int64_t first, end;
    const uint8_t *selected;
} sight;

static sight sight_of(const assay_attention *a, int64_t row)
{
    int64_t stride = a->selected_stride ? a->selected_stride : a->n_keys;
    return (sight){a->begin[row] > 0 ? a->begin[row] : 0,
                   a->end[row] < a->n_keys ? a->end[row] : a->n_keys,
                   a->selected ? a->selected + row * stride : NULL};
}

/* Keys behind the last that a row of the block sees take no part: their probabilities are 0. */
static int64_t n_seen(const assay_attention *a, int64_t first, int64_t n)
{
    int64_t end = 0;
    for (int64_t i = first; i < first + n; i++)
        end = sight_of(a, i).end > end ? sight_of(a, i).end : end;
    return a->empty ? a->n_keys : end;
}

/* n scores to probabilities in place; returns the log-sum-exp. */
static float softmax(float *s, const assay_attention *a, int head, int64_t row, int64_t n)
{
    float scale = (float)(a->scale * (a->head_scale ? a->head_scale[head] : 1.0f));
    float most = -INFINITY;
    double sum = 0;
    bool any = false, nan = false;
    const sight see = sight_of(a, row);
    for (int64_t j = see.first; j < see.end; j++) {
        if (see.selected && !see.selected[j])
            continue;
        s[j] *= scale;
        if (a->cap > 0)
            s[j] = (float)a->cap * tanhf(s[j] / (float)a->cap);
        nan = nan || isnan(s[j]);
        if (s[j] > most)
            most = s[j];
        any = true;
    }
    if (a->n_zeros > 0 && any) {
        most = most > 0 ? most : 0;
        sum = a->n_zeros * expf(-most);
    }
    for (int64_t j = 0; j < n; j++) {
        bool seen = j >= see.first && j < see.end && (!see.selected || see.selected[j]);
        s[j] = seen ? (nan ? NAN : expf(s[j] - most)) : 0.0f;
        sum += s[j];
    }
    for (int64_t j = 0; j < n && !any && a->empty; j++)
        s[j] = a->empty == 1 ? NAN : 1.0f / (float)a->n_keys;
    if (!any)
        return -INFINITY;
    for (int64_t j = 0; j < n; j++) {
        s[j] = (float)(s[j] / sum);
        if (a->round_probs)
            s[j] = assay_bf16_to_f32(assay_f32_to_bf16(s[j]));
    }
    return (float)(most + log(sum));
}

static void store(assay_rows o, assay_rows lse, float *probs, int64_t n_probs, int64_t n_all,
                  const scratch *w, const assay_attention *a, int head, int64_t row, int64_t i,
                  int64_t seen, float l)
{
    int64_t t = a->rows[row];
    float gain = a->head_gain ? a->head_gain[head] : 1.0f;
    float *out = o.at + t * o.stride + (int64_t)head * a->d_value;
    for (int d = 0; d < a->d_value; d++)
        out[d] = w->o[i * a->d_value + d] * gain;
    lse.at[t * lse.stride + head] = l;
    if (probs) {
        float *to = probs + ((int64_t)head * n_all + t) * n_probs;
        memcpy(to, w->s + i * a->n_keys, (size_t)seen * sizeof *to);
        memset(to + seen, 0, (size_t)(a->n_keys - seen) * sizeof *to);
    }
}

static void one_head(assay_rows o, assay_rows lse, float *probs, int64_t n_probs, assay_rows q,
                     const scratch *w, const assay_attention *a, int head)
{
    const float *keys = a->keys + a->kv_head[head] * a->key_head;
    const float *values = a->values + a->kv_head[head] * a->value_head;
    if (w->turned)
        turn(w->turned, values, a);
    for (int64_t first = 0; first < a->n_rows; first += BLOCK) {
        int64_t n = a->n_rows - first < BLOCK ? a->n_rows - first : BLOCK;
        int64_t seen = n_seen(a, first, n);
        assay_rows scores = {w->s, n, seen, a->n_keys};
        float l[BLOCK];
        for (int64_t i = 0; i < n; i++)
            memcpy(w->q + i * a->d_key,
                   q.at + a->rows[first + i] * q.stride + (int64_t)head * a->d_key,
                   (size_t)a->d_key * sizeof *w->q);
        assay_op_linear(scores, assay_rows_of(w->q, n, a->d_key), keys, a->key_stride, false);
        for (int64_t i = 0; i < n; i++)
            l[i] = softmax(w->s + i * a->n_keys, a, head, first + i, seen);
        assay_rows out = assay_rows_of(w->o, n, a->d_value);
        if (w->turned)
            assay_op_linear(out, scores, w->turned, a->n_keys, false);
        else
            (a->steady ? assay_op_linear_t_steady : assay_op_linear_t)(out, scores, values,
                                                                       a->value_stride, false);
        for (int64_t i = 0; i < n; i++)
            store(o, lse, probs, n_probs, q.n, w, a, head, first + i, i, seen, l[i]);
    }
}

/* No keys at all: nothing to multiply. */
static void nothing_seen(assay_rows o, assay_rows lse, const assay_attention *a)
{
    for (int64_t i = 0; i < a->n_rows; i++) {
        memset(o.at + a->rows[i] * o.stride, 0, (size_t)(a->n_head * a->d_value) * sizeof *o.at);
        for (int h = 0; h < a->n_head; h++)
            lse.at[a->rows[i] * lse.stride + h] = -INFINITY;
    }
}

/* All heads, or this thread's share of them; false: no memory. */
static bool heads(assay_rows o, assay_rows lse, float *probs, int64_t n_probs, assay_rows q,
                  const assay_attention *a, size_t floats, bool share)
{
    int64_t n = a->n_rows < BLOCK ? a->n_rows : BLOCK;
    float *memory = malloc(floats * sizeof *memory + 1);
    int team = share ? omp_get_num_threads() : 1, mine = share ? omp_get_thread_num() : 0;
    if (!memory)
        return false;
    scratch w = {memory, memory + n * a->d_key, memory + n * (a->d_key + a->n_keys), NULL};
    if (turns(a))
        w.turned = w.o + n * a->d_value;
    for (int h = a->n_head * mine / team; h < a->n_head * (mine + 1) / team; h++)
        one_head(o, lse, probs, n_probs, q, &w, a, h);
    free(memory);
    return true;
}

assay_status assay_op_attention(assay_rows o, assay_rows lse, float *probs, int64_t n_probs,
                                assay_rows q, const assay_attention *a)
{
    ASSAY_BUG_IF(q.width != (int64_t)a->n_head * a->d_key);
    ASSAY_BUG_IF(o.width != (int64_t)a->n_head * a->d_value || lse.width != a->n_head);
    if (a->n_keys == 0) {
        nothing_seen(o, lse, a);
        return ASSAY_OK;
    }
    int64_t n = a->n_rows < BLOCK ? a->n_rows : BLOCK;
    size_t floats = (size_t)n * (size_t)(a->d_key + a->n_keys + a->d_value) +
                    (turns(a) ? (size_t)(a->n_keys * a->d_value) : 0);
    bool failed = false, share = a->n_head * a->n_rows * a->n_keys * (a->d_key + a->d_value) > MANY;
    if (!share) {
        failed = !heads(o, lse, probs, n_probs, q, a, floats, false);
    } else {
#pragma omp parallel
        if (!heads(o, lse, probs, n_probs, q, a, floats, true))
#pragma omp atomic write
            failed = true;
    }
    if (failed)
        return assay_fail(ASSAY_NO_MEMORY, "attention: no memory for %zu floats a thread", floats);
    return ASSAY_OK;
}
