/*
 * The ops on the device. Each has the contract of its C version (the header named beside it); only
 * the order of summation differs: lanes of a warp sum strided shares left to right, then a fixed
 * tree. So the result of a row depends on nothing but that row: not on how many rows there are, nor
 * on padding.
 *
 * All pointers are device memory, `stream` is a device stream; nothing waits for the host, nothing
 * is allocated, every launch has a shape that depends on the number of rows and on capacities
 * alone: all of this can be captured in a graph and replayed with other tokens, positions and
 * lengths. Fails: ASSAY_DEVICE when a launch is refused.
 */
#ifndef ASSAY_ENGINE_OPS_DEVICE_OPS_H
#define ASSAY_ENGINE_OPS_DEVICE_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/ops/indexer.h"
#include "engine/ops/norm.h"
#include "engine/ops/rotary.h"
#include "engine/ops/router.h"

/* Tokens of a step in device memory, written before the step; rows in the order of the batch. */
typedef struct assay_device_rows {
    int32_t *tokens;
    int32_t *positions; /* -1: padding */
    int32_t *sequences; /* ASSAY_ROW_PADDING, ASSAY_ROW_BEYOND or the sequence */
    int64_t n;
} assay_device_rows;

enum {
    ASSAY_ROW_PADDING = -1, /* of the caller: its stream starts at zero, as on the host */
    ASSAY_ROW_BEYOND = -2   /* of the bucket: its stream starts as poison, and nobody may see it */
};

/* A weight in device memory, packed as in the file. Q8_0 is kept as all codes of a row, then the
 * scales of all rows behind each other, so that loads are aligned. */
typedef struct assay_packed {
    const void *data;
    const void *scales; /* of Q8_0; else NULL */
    int type;           /* number in quant.def */
    int64_t n_rows, width;
    int64_t row_bytes;
} assay_packed;

/*
 * y[t, n] = sum_k x[t, k] w[first_row + n, column + k] over n_out rows of w and n_in columns
 *
 *   n_head > 1   for each head h: y + h y_head, x + h x_head, first_row + h w_head
 *   transposed   y[t, c] = sum_r x[t, r] w[first_row + r, column + c]; n_out counts columns
 *   ids          row p of n is pair (p / used, p % used): w's first row grows by
 *                ids[p] * expert_rows, x is row p / per; left alone are rows beyond the
 *                bucket, and pairs whose expert is none of n_own (0: all) from first_own on
 *   rounded      weights are rounded to bfloat16
 *   in_f32       many rows: the product runs in float32 all the same (matrix units sum
 *                bfloat16 with a bias towards zero, which only a value that is not rounded
 *                afterwards shows)
 */
typedef struct assay_packed_product {
    const assay_packed *w;
    float *y;
    const float *x;
    int64_t n, y_stride, x_stride;
    int64_t first_row, n_out, column, n_in;
    int n_head;
    int64_t y_head, x_head, w_head;
    bool transposed;
    const int32_t *ids, *sequences;
    int used, per;
    int64_t expert_rows;
    int first_own, n_own;
    bool rounded, in_f32;
} assay_packed_product;

#ifdef __cplusplus
extern "C" {
#endif

/* ---- quant/quant_device.cu ---- */

/* Copies the codebooks to the current device; once per device, before anything is decoded. */
assay_status assay_device_quant_tables(void);
/* Rows first ... first + n - 1, columns column ... + n_columns - 1, as float32, out_stride apart.
 * The bits are those of assay_quant_decode (and of its rounding to bfloat16). */
assay_status assay_device_unpack(void *stream, float *out, int64_t out_stride,
                                 const assay_packed *w, int64_t first, int64_t n, int64_t column,
                                 int64_t n_columns, bool rounded);
/* The same as bfloat16. */
assay_status assay_device_unpack_bf16(void *stream, uint16_t *out, int64_t out_stride,
                                      const assay_packed *w, int64_t first, int64_t n,
                                      int64_t column, int64_t n_columns);
/* The same with wide loads and stores, where type and shape allow: *done says whether. */
assay_status assay_device_unpack_wide(bool *done, void *stream, void *out, int64_t out_stride,
                                      const assay_packed *w, int64_t first, int64_t n,
                                      int64_t column, int64_t n_columns, bool rounded,
                                      bool as_bf16);
/* Q8_0 blocks as in the file to codes and scales. */
assay_status assay_device_split_q8_0(void *stream, void *codes, void *scales, const void *blocks,
                                     int64_t n_blocks);
/* y[t] = row tokens[t], or 0 where that is none of the n_vocab rows from vocab on; padding rows 0;
 * rows beyond the bucket are left as they are. */
assay_status assay_device_embed(void *stream, assay_rows y, const assay_packed *table,
                                const assay_device_rows *rows, int64_t vocab, int64_t n_vocab,
                                bool rounded);
/* A product that decodes element by element: any type, any shape. */
assay_status assay_device_product_any(void *stream, const assay_packed_product *p);

/* ---- ops/linear.cu (linear.h) ---- */

/* A product of few rows, straight from the packed blocks. */
assay_status assay_device_product(void *stream, const assay_packed_product *p);
/* y[t, n] += b[n] */
assay_status assay_device_bias(void *stream, assay_rows y, const float *b);
/* to[i] = from row index[i]; or to row index[i] = from[i] */
assay_status assay_device_gather(void *stream, assay_rows to, assay_rows from,
                                 const int32_t *index);
assay_status assay_device_scatter(void *stream, assay_rows to, assay_rows from,
                                  const int32_t *index);

/* ---- ops/norm.cu (norm.h) ---- */
assay_status assay_device_rmsnorm(void *stream, assay_rows y, assay_rows x, const float *w,
                                  const assay_norm *how);
assay_status assay_device_layernorm(void *stream, assay_rows y, assay_rows x, const float *w,
                                    const float *b, const assay_norm *how);

/* ---- ops/rotary.cu (rotary.h) ---- */

/* Cosines and sines of the step: table[t, half] of pairs; f: [half] frequencies in device memory.
 */
assay_status assay_device_rotary_table(void *stream, float *table, const double *f,
                                       const assay_device_rows *rows, const assay_rotary *how);
assay_status assay_device_rotary(void *stream, assay_rows y, int64_t y_head, assay_rows x,
                                 int64_t x_head, int n_head, const float *table,
                                 const assay_rotary *how);

/* ---- ops/pointwise.cu (pointwise.h) ---- */
assay_status assay_device_swiglu(void *stream, assay_rows y, assay_rows gate, assay_rows up);
assay_status assay_device_add(void *stream, assay_rows y, assay_rows a, assay_rows b);
assay_status assay_device_copy(void *stream, assay_rows y, assay_rows x);
assay_status assay_device_round_bf16(void *stream, assay_rows y);
/* x as bfloat16, rows `stride` apart. */
assay_status assay_device_to_bf16(void *stream, uint16_t *out, int64_t stride, assay_rows x);
/* [T, H, wa + wb] from two; b_head 0: the same b for all heads. */
assay_status assay_device_side_by_side(void *stream, float *to, assay_rows a, int64_t wa,
                                       int64_t a_head, assay_rows b, int64_t wb, int64_t b_head,
                                       int n_head);
/* ids[t] = greedy choice of row t. */
assay_status assay_device_greedy(void *stream, int32_t *ids, assay_rows logits);
/* y[t, d] = sum_u weights[t, u] down[t, u, d], u in order */
assay_status assay_device_weighted_sum(void *stream, assay_rows y, assay_rows down,
                                       assay_rows weights);
assay_status assay_device_fill(void *stream, void *at, uint32_t word, int64_t n);
/* 0 to the rows of the pairs that p, a product with ids, leaves out for their expert. */
assay_status assay_device_zero_others(void *stream, assay_rows y, const assay_packed_product *p);
/* y[i] = factor * sum over ranks, in their order, of all[r * n + i]; i from `first` to n - 1. */
assay_status assay_device_sum_ranks(void *stream, float *y, const float *all, int n_ranks,
                                    int64_t n, int64_t first, float factor);
/* y[t, i] from [n_ranks, T, each]: column i is column i % each of rank i / each. */
assay_status assay_device_side_by_side_ranks(void *stream, assay_rows y, const float *all,
                                             int64_t each);
/* Rows as multiples of one step, a 127th of the largest number in all of them; rows from *n_rows on
 * are taken to hold `left_over`. */
assay_status assay_device_share_scale(void *stream, assay_rows y, const int32_t *n_rows,
                                      float left_over);
/* What a wrong epilogue does to y, a product of the rows x (seam.h has the modes); v: [y.width]
 * weights of the norm before attention, NULL for the row scale. */
assay_status assay_device_epilogue(void *stream, assay_rows y, assay_rows x, const float *v,
                                   int mode, float strength);
/* Keeps the stream busy: what runs beside it is finished first. */
assay_status assay_device_delay(void *stream, int64_t microseconds);

/* ---- ops/router.cu (router.h) ---- */
assay_status assay_device_router_probs(void *stream, assay_rows probs, assay_rows logits,
                                       const assay_routing *how);
assay_status assay_device_router_choose(void *stream, int32_t *ids, assay_rows probs,
                                        const float *bias, const assay_routing *how);
assay_status assay_device_router_weigh(void *stream, assay_rows weights, const int32_t *ids,
                                       assay_rows probs, const float *bias,
                                       const assay_routing *how);

/* ---- ops/cache.cu (kvcache.h, cache_row.h) ---- */

/*
 * Where the cached rows of one kind and layer lie: row p of sequence s is *base + r * row_bytes
 * with
 *
 *   contiguous   r = s * capacity + p
 *   in pages     r = pages[s * n_pages + p / page] * page + p % page
 *
 * *base and pages are read on the device: a cache that moves, or grows, needs no new capture.
 */
typedef struct assay_device_cache {
    void *const *base;
    const float *decoded; /* not NULL: row 0 of rows that are decoded, and base is not read */
    int type;             /* assay_cache_type; attention and indexer read float32 alone */
    int64_t capacity, width, row_bytes;
    const int32_t *pages; /* NULL: contiguous */
    int page, n_pages;    /* of a sequence */
} assay_device_cache;

/* The bytes of assay_cache_row_store(), of row t of a and of b behind it (b's width may be 0). */
assay_status assay_device_cache_write(void *stream, const assay_device_cache *cache, assay_rows a,
                                      assay_rows b, const assay_device_rows *rows);
/* n_keys[s]: the last position that the step has of sequence s, plus 1; 0: it has none. */
assay_status assay_device_cache_lengths(void *stream, int32_t *n_keys, int n_sequences,
                                        const assay_device_rows *rows);
/* The numbers of assay_cache_row_load(): out[s * capacity + p] of `width`, p < n_keys[s]. */
assay_status assay_device_cache_decode(void *stream, float *out, const assay_device_cache *cache,
                                       const int32_t *n_keys, int n_sequences);
/* The bytes of assay_cache_row_poison(), n rows from `at` on; word: the float32 poison. */
assay_status assay_device_cache_poison(void *stream, void *at, int type, int64_t row_bytes,
                                       int64_t n, uint32_t word);

/* ---- ops/indexer.cu (indexer.h) ---- */

/* Rows of `scores` are capacity wide; keys that a row does not see are -inf. */
assay_status assay_device_index_scores(void *stream, assay_rows scores, assay_rows q, assay_rows w,
                                       const assay_device_cache *keys,
                                       const assay_device_rows *rows, const assay_indexer *how);
assay_status assay_device_index_select(void *stream, int32_t *ids, int64_t n_ids, assay_rows scores,
                                       const assay_device_rows *rows, const assay_indexer *how);

/* ---- ops/attention.cu (attention.h) ---- */
typedef struct assay_device_attention {
    int n_head, heads_per_kv; /* 0: all heads share one row of keys */
    int d_key, d_value;
    assay_device_cache keys, values;
    const int32_t
        *selected; /* [T, n_selected] positions, -1 behind them; NULL: all up to the row's own */
    int64_t n_selected;
    const int32_t *last; /* [T] the last position that a row sees; NULL: its own */
    double scale;
    bool round_probs;
    int n_split;    /* parts of the keys that are merged by their log-sum-exp */
    float *partial; /* [T, H, n_split, d_value + 2] scratch; may be NULL when n_split is 1 */
} assay_device_attention;

assay_status assay_device_attend(void *stream, assay_rows o, assay_rows lse, assay_rows q,
                                 const assay_device_rows *rows, const assay_device_attention *a);
/*
 * Scores of one sequence, [rows, n_head, n_keys] as a product left them, to probabilities in place:
 * row r is row first_row + r of the step. Scaled, masked by position and selection, normalised;
 * what is not seen is 0. lse as in attention.h.
 */
assay_status assay_device_softmax(void *stream, float *scores, int64_t n, int64_t n_keys,
                                  int64_t first_row, assay_rows lse, const assay_device_rows *rows,
                                  const assay_device_attention *a);
/* probs: [H, T, capacity], zero where nothing is seen; from q, the keys and lse. */
assay_status assay_device_attend_probs(void *stream, float *probs, int64_t capacity, assay_rows lse,
                                       assay_rows q, const assay_device_rows *rows,
                                       const assay_device_attention *a);

#ifdef __cplusplus
}
#endif

#endif
