/*
 * What one rank owns, in the units that the ops count in. All of it follows from engine/shard.h.
 */
#include <stdio.h>

#include "engine/forward.h"
#include "engine/shard.h"

/* First row (or column) and count of a role's first part. */
static assay_status rows_of(int64_t *first, int64_t *n, const assay_hparams *hp, assay_role role,
                            bool whole_experts, int rank, int n_ranks)
{
    assay_shard s;
    ASSAY_TRY(assay_shard_of(&s, hp, role, whole_experts, rank, n_ranks));
    *first = s.parts[0].first;
    *n = s.parts[0].n_rows;
    return ASSAY_OK;
}

static assay_status heads_of(assay_part *p, const assay_hparams *hp)
{
    int64_t first, n;
    assay_role role = hp->is_mla ? ASSAY_ROLE_ATTN_V_B : ASSAY_ROLE_ATTN_Q;
    ASSAY_TRY(rows_of(&first, &n, hp, role, false, p->rank, p->n_ranks));
    p->head = (int)(first / hp->d_value);
    p->n_head = (int)(n / hp->d_value);
    p->kv_head = p->head;
    p->n_head_kv = p->n_head;
    if (hp->is_mla)
        return ASSAY_OK;
    ASSAY_TRY(rows_of(&first, &n, hp, ASSAY_ROLE_ATTN_K, false, p->rank, p->n_ranks));
    p->kv_head = (int)(first / hp->d_head);
    p->n_head_kv = (int)(n / hp->d_head);
    return ASSAY_OK;
}

static assay_status experts_of(assay_part *p, const assay_hparams *hp, bool whole_experts)
{
    int64_t first, n;
    p->n_expert = hp->n_expert;
    p->n_ff_expert = hp->n_ff_expert;
    if (hp->n_expert == 0)
        return ASSAY_OK;
    ASSAY_TRY(rows_of(&first, &n, hp, ASSAY_ROLE_GATE_EXPS, whole_experts, p->rank, p->n_ranks));
    if (whole_experts) {
        p->expert = (int)(first / hp->n_ff_expert);
        p->n_expert = (int)(n / hp->n_ff_expert);
    } else if (p->n_ranks > 1) {
        p->ff_expert = first;
        p->n_ff_expert = n;
    }
    if (hp->n_expert_shared)
        ASSAY_TRY(rows_of(&p->ff_shared, &p->n_ff_shared, hp, ASSAY_ROLE_GATE_SHEXP, false, p->rank,
                          p->n_ranks));
    return ASSAY_OK;
}

assay_status assay_part_of(assay_part *out, const assay_hparams *hp, bool whole_experts, int rank,
                           int n_ranks)
{
    assay_part p = {.rank = rank, .n_ranks = n_ranks};
    ASSAY_TRY(heads_of(&p, hp));
    if (hp->n_layer_dense > 0)
        ASSAY_TRY(rows_of(&p.ff, &p.n_ff, hp, ASSAY_ROLE_FFN_GATE, false, rank, n_ranks));
    ASSAY_TRY(experts_of(&p, hp, whole_experts));
    ASSAY_TRY(rows_of(&p.vocab, &p.n_vocab, hp, ASSAY_ROLE_TOKEN_EMBD, false, rank, n_ranks));
    *out = p;
    return ASSAY_OK;
}

assay_status assay_engine_ranks_fit(const assay_hparams *hparams, bool whole_experts, int n_ranks)
{
    assay_part part;
    char why[256];
    if (assay_part_of(&part, hparams, whole_experts, 0, n_ranks) == ASSAY_OK)
        return ASSAY_OK;
    snprintf(why, sizeof why, "%s", assay_error_text());
    return assay_fail(ASSAY_USAGE, "%d ranks: %s", n_ranks, why);
}
