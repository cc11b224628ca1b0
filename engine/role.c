#include "engine/role.h"

#include <stdio.h>

enum { GLOBAL, LAYER };

static const assay_role_info table[ASSAY_ROLE_COUNT] = {
#define X(id, name, scope, shape, kind) {name, scope == LAYER, shape, ASSAY_SHARD_##kind},
#include "engine/role.def"
#undef X
};

const assay_role_info *assay_role_at(assay_role role)
{
    ASSAY_BUG_IF((unsigned)role >= ASSAY_ROLE_COUNT);
    return &table[role];
}

char *assay_role_format(char out[64], assay_role role, int layer)
{
    const assay_role_info *info = assay_role_at(role);
    if (info->per_layer)
        snprintf(out, 64, "blk.%d.%s", layer, info->name);
    else
        snprintf(out, 64, "%s", info->name);
    return out;
}

int64_t assay_hparams_axis(const assay_hparams *hp, char letter)
{
    switch (letter) {
    case 'H':
        return hp->n_head;
    case 'G':
        return hp->n_head_kv;
    case 'D':
        return hp->n_embd;
    case 'Q':
        return hp->n_rank_q;
    case 'L':
        return hp->n_rank_kv;
    case 'R':
        return hp->d_rope;
    case 'P':
        return hp->d_rope / 2;
    case 'K':
        return hp->is_mla ? hp->d_nope + hp->d_rope : hp->d_head;
    case 'N':
        return hp->d_nope;
    case 'V':
        return hp->d_value;
    case 'B':
        return hp->d_nope + hp->d_value;
    case 'C':
        return hp->n_rank_kv + hp->d_rope;
    case 'F':
        return hp->n_ff;
    case 'M':
        return hp->n_ff_expert;
    case 'Z':
        return (int64_t)hp->n_ff_expert * hp->n_expert_shared;
    case 'E':
        return hp->n_expert;
    case 'U':
        return hp->n_expert_used;
    case 'I':
        return hp->index_n_head;
    case 'J':
        return hp->index_d_head;
    case 'W':
        return hp->n_vocab;
    case 'Y':
        return (int64_t)(hp->n_head + 2 * hp->n_head_kv) * hp->d_value;
    default:
        ASSAY_BUG_IF(true);
    }
}

int assay_role_dims(int64_t dims[4], const assay_hparams *hp, assay_role role)
{
    int n = 0;
    dims[0] = 1;
    for (const char *c = assay_role_at(role)->shape; *c; c++)
        if (*c == ',')
            dims[++n] = 1;
        else if (*c >= '0' && *c <= '9')
            dims[n] *= *c - '0';
        else
            dims[n] *= assay_hparams_axis(hp, *c);
    return n + 1;
}
