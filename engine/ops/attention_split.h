/*
 * Attention with the keys cut into parts, each computed alone and merged by log-sum-exp:
 *
 *   lse = ln sum_p exp(lse_p)        o = sum_p exp(lse_p - lse) o_p
 *
 * A part that shows a row no key has lse_p = -inf and weighs nothing; a row that sees nothing in
 * any part gets o = 0 and lse = -inf. Weights in double, the sum over parts in float32 in the order
 * of the keys. Source: Dao et al. 2022, arXiv:2205.14135, and flash-decoding's split over keys.
 */
#ifndef ASSAY_ENGINE_OPS_ATTENTION_SPLIT_H
#define ASSAY_ENGINE_OPS_ATTENTION_SPLIT_H

#include "engine/ops/attention.h"

/* What wrong merges do. */
typedef enum {
    ASSAY_MERGE_RIGHT,
    ASSAY_MERGE_LOG2,        /* the parts' lse is taken for a base-2 logarithm */
    ASSAY_MERGE_SIGN,        /* weights from -lse */
    ASSAY_MERGE_EQUAL,       /* the mean of the parts that have keys */
    ASSAY_MERGE_LAST,        /* the last part that has keys overwrites the others */
    ASSAY_MERGE_EMPTY_STALE, /* an empty part keeps output and lse of the part before it */
    ASSAY_MERGE_LOCAL_LSE,   /* every part's lse is the first part's */
    ASSAY_MERGE_EMPTY_INF,   /* an empty part has lse +inf, and so all the weight */
    ASSAY_MERGE_STRIDE       /* parts behind the first: head h is read at h 3/2 */
} assay_merge_kind;

/* Arguments as assay_op_attention; n_part keys a part. */
assay_status assay_op_attention_split(assay_rows o, assay_rows lse, float *probs, int64_t n_probs,
                                      assay_rows q, const assay_attention *a, int64_t n_part,
                                      assay_merge_kind kind);

#endif
