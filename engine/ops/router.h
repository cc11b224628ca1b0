/*
 * Routing of tokens to experts.
 *
 *   probs:   p = softmax(logits) over all experts, or sigmoid(logits)
 *   choose:  sel = p + bias (where there is one); experts of groups that are not among the best are
 * out (-inf); a group's score is its best sel (max) or the sum of its two best; the k largest sel
 * in descending order, equal ones by smaller id weigh:   w = p[ids] (never with the bias);
 * renormalised: w / max(sum w, 2^-14); times scale
 *
 * Float32; exponentials' sum in double. NaN never leads out of bounds: ids are distinct and in
 * range whatever comes in. Sources: DeepSeek-V2 (arXiv:2405.04434), V3 (arXiv:2412.19437); the
 * clamp is llama.cpp's.
 */
#ifndef ASSAY_ENGINE_OPS_ROUTER_H
#define ASSAY_ENGINE_OPS_ROUTER_H

#include <stdbool.h>

#include "engine/hparams.h"
#include "engine/ops/rows.h"

typedef struct assay_routing {
    int n_expert, n_used, n_group, n_group_used;
    assay_gating gating;
    assay_group_rule group_rule;
    bool group_sum_all;   /* what a wrong engine does: sum of all of a group */
    bool group_mask_zero; /* forbidden groups at 0 instead of -inf */
    bool bias_in_weights; /* weights from sel */
    bool weights_norm;
    double weights_scale;
} assay_routing;

void assay_op_router_probs(assay_rows probs, assay_rows logits, const assay_routing *how);
/* ids: [n, n_used]; bias: [n_expert] or NULL */
void assay_op_router_choose(int32_t *ids, assay_rows probs, const float *bias,
                            const assay_routing *how);
void assay_op_router_weigh(assay_rows weights, const int32_t *ids, assay_rows probs,
                           const float *bias, const assay_routing *how);

#endif
