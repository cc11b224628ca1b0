#include "engine/shard.h"

/* What all kinds need to know. */
typedef struct ask {
    const assay_hparams *hp;
    assay_role role;
    int64_t rows, width;
    int64_t experts; /* 1: none */
    int rank, n_ranks;
    bool whole_experts;
} ask;

static assay_status not_divided(const ask *a, int64_t n, const char *what)
{
    return assay_fail(ASSAY_BAD_SHAPE, "%s: %lld %s do not divide over %d ranks",
                      assay_role_at(a->role)->name, (long long)n, what, a->n_ranks);
}

static void add(assay_shard *s, assay_shard_part part)
{
    s->parts[s->n_parts++] = part;
}

static void whole(assay_shard *s, const ask *a)
{
    s->is_whole = true;
    add(s, (assay_shard_part){0, a->rows, a->rows, 1, 0, a->width});
}

/* This rank's share of rows [first, first + n), repeated for every expert. */
static void share_rows(assay_shard *s, const ask *a, int64_t first, int64_t n)
{
    int64_t each = n / a->n_ranks;
    add(s, (assay_shard_part){first + a->rank * each, each, a->rows / a->experts, a->experts, 0,
                              a->width});
}

static assay_status by_rows(assay_shard *s, const ask *a, int64_t units, const char *what)
{
    if (units % a->n_ranks)
        return not_divided(a, units, what);
    share_rows(s, a, 0, a->rows);
    return ASSAY_OK;
}

static assay_status by_columns(assay_shard *s, const ask *a, int64_t units, const char *what)
{
    int64_t each = a->width / a->n_ranks;
    if (units % a->n_ranks)
        return not_divided(a, units, what);
    s->is_reduced = true;
    add(s, (assay_shard_part){0, a->rows, a->rows, 1, a->rank * each, each});
    return ASSAY_OK;
}

/* Rows of key/value heads from `first` on: a head for each rank, or the same head for several. */
static assay_status by_kv_heads(assay_shard *s, const ask *a, int64_t first, int64_t rows)
{
    int64_t heads = a->hp->n_head_kv, ranks = a->n_ranks;
    if (heads >= ranks ? heads % ranks : ranks % heads)
        return not_divided(a, heads, "key heads");
    int64_t held = heads >= ranks ? heads / ranks : 1;
    int64_t head = heads >= ranks ? a->rank * held : a->rank / (ranks / heads);
    int64_t width = rows / heads;
    add(s, (assay_shard_part){first + head * width, held * width, a->rows, 1, 0, a->width});
    return ASSAY_OK;
}

static assay_status by_qkv(assay_shard *s, const ask *a)
{
    int64_t q = (int64_t)a->hp->n_head * a->hp->d_value;
    int64_t kv = (int64_t)a->hp->n_head_kv * a->hp->d_value;
    if (a->hp->n_head % a->n_ranks)
        return not_divided(a, a->hp->n_head, "heads");
    int64_t each = q / a->n_ranks;
    add(s, (assay_shard_part){a->rank * each, each, a->rows, 1, 0, a->width});
    ASSAY_TRY(by_kv_heads(s, a, q, kv));
    return by_kv_heads(s, a, q + kv, kv);
}

static assay_status by_experts(assay_shard *s, const ask *a)
{
    if (a->experts % a->n_ranks)
        return not_divided(a, a->experts, "experts");
    int64_t each = a->rows / a->n_ranks;
    add(s, (assay_shard_part){a->rank * each, each, a->rows, 1, 0, a->width});
    return ASSAY_OK;
}

static assay_status inside_experts(assay_shard *s, const ask *a)
{
    int64_t per_expert = a->rows / a->experts;
    bool merged = a->role == ASSAY_ROLE_GATE_UP_EXPS;
    int64_t slot = merged ? per_expert / 2 : per_expert;
    if (slot % a->n_ranks)
        return not_divided(a, slot, "channels");
    share_rows(s, a, 0, slot);
    if (merged)
        share_rows(s, a, slot, slot);
    return ASSAY_OK;
}

static void by_vocabulary(assay_shard *s, const ask *a)
{
    int64_t each = (a->rows + a->n_ranks - 1) / a->n_ranks;
    int64_t first = a->rank * each < a->rows ? a->rank * each : a->rows;
    int64_t n = a->rows - first < each ? a->rows - first : each;
    add(s, (assay_shard_part){first, n, a->rows, 1, 0, a->width});
}

static assay_status split(assay_shard *s, const ask *a)
{
    switch (assay_role_at(a->role)->kind) {
    case ASSAY_SHARD_COPY:
        whole(s, a);
        return ASSAY_OK;
    case ASSAY_SHARD_COLUMN:
        return by_rows(s, a, a->rows, "channels");
    case ASSAY_SHARD_HEADS:
        return by_rows(s, a, a->hp->n_head, "heads");
    case ASSAY_SHARD_KV_HEADS:
        return by_kv_heads(s, a, 0, a->rows);
    case ASSAY_SHARD_QKV:
        return by_qkv(s, a);
    case ASSAY_SHARD_ROW:
        return by_columns(s, a, a->width, "channels");
    case ASSAY_SHARD_ROW_HEADS:
        return by_columns(s, a, a->hp->n_head, "heads");
    case ASSAY_SHARD_EXPERT_COLUMN:
        return a->whole_experts ? by_experts(s, a) : inside_experts(s, a);
    case ASSAY_SHARD_EXPERT_ROW:
        return a->whole_experts ? by_experts(s, a) : by_columns(s, a, a->width, "channels");
    case ASSAY_SHARD_VOCAB:
        by_vocabulary(s, a);
        return ASSAY_OK;
    }
    ASSAY_BUG_IF(true);
}

assay_status assay_shard_of(assay_shard *out, const assay_hparams *hp, assay_role role,
                            bool whole_experts, int rank, int n_ranks)
{
    ASSAY_BUG_IF(n_ranks < 1 || rank < 0 || rank >= n_ranks);
    int64_t dims[4];
    int n = assay_role_dims(dims, hp, role);
    assay_shard_kind kind = assay_role_at(role)->kind;
    bool is_expert = kind == ASSAY_SHARD_EXPERT_COLUMN || kind == ASSAY_SHARD_EXPERT_ROW;
    ask a = {.hp = hp,
             .role = role,
             .rows = 1,
             .width = dims[n - 1],
             .experts = is_expert ? dims[0] : 1,
             .rank = rank,
             .n_ranks = n_ranks,
             .whole_experts = whole_experts};
    assay_shard s = {0};
    if (n == 1) { /* a bias is split as the rows that it belongs to */
        a.rows = dims[0];
        a.width = 1;
    }
    for (int d = 0; d + 1 < n; d++)
        a.rows *= dims[d];
    if (n_ranks == 1)
        whole(&s, &a);
    else
        ASSAY_TRY(split(&s, &a));
    *out = s;
    return ASSAY_OK;
}

bool assay_shard_cuts_block(const assay_shard *shard, int block_elements)
{
    for (int i = 0; i < shard->n_parts; i++)
        if (shard->parts[i].first_col % block_elements || shard->parts[i].n_cols % block_elements)
            return true;
    return false;
}

int64_t assay_shard_count(const assay_shard *shard)
{
    int64_t n = 0;
    for (int i = 0; i < shard->n_parts; i++)
        n += shard->parts[i].n_rows * shard->parts[i].repeat * shard->parts[i].n_cols;
    return n;
}
