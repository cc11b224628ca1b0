/*
 * Which op makes a point of this model, and what it reads.
 */
#include "references/oracle/oracle_private.h"

static bool always(const oracle_place *p)
{
    (void)p;
    return true;
}

static bool mla(const oracle_place *p)
{
    return p->oracle->shape.is_mla;
}

static bool q_lora(const oracle_place *p)
{
    return p->oracle->has_q_lora;
}

static bool latent(const oracle_place *p)
{
    return mla(p) && p->latent;
}

static bool full(const oracle_place *p)
{
    return p->oracle->shape.has_indexer && p->layer < p->oracle->shape.n_layer &&
           p->oracle->shape.index_full[p->layer];
}

static bool full_q_lora(const oracle_place *p)
{
    return full(p) && q_lora(p);
}

static bool shared_selection(const oracle_place *p)
{
    return p->oracle->shape.has_indexer && p->layer < p->oracle->shape.n_layer;
}

static bool dense(const oracle_place *p)
{
    return assay_oracle_is_dense(p->oracle, p->layer);
}

static bool moe(const oracle_place *p)
{
    return !dense(p);
}

static bool moe_shared(const oracle_place *p)
{
    return moe(p) && p->oracle->shape.n_ff_shared > 0;
}

/* A layer behind the trunk that predicts further tokens. */
static bool nextn(const oracle_place *p)
{
    return p->layer >= p->oracle->shape.n_layer;
}

static bool is_put(const oracle_place *p, assay_point point)
{
    return assay_oracle_put_at(p->pass, p->step, point, p->layer) != NULL;
}

/* Probabilities were captured, and nothing of what they are made from. */
static bool only_probs(const oracle_place *p)
{
    static const assay_point made_from[] = {ASSAY_POINT_Q,         ASSAY_POINT_Q_ROPE,
                                            ASSAY_POINT_Q_LATENT,  ASSAY_POINT_K,
                                            ASSAY_POINT_KV_LATENT, ASSAY_POINT_K_ROPE};
    if (!p->pass || latent(p) || !is_put(p, ASSAY_POINT_PROBS))
        return false;
    for (size_t i = 0; i < sizeof made_from / sizeof *made_from; i++)
        if (is_put(p, made_from[i]))
            return false;
    return true;
}

#define HERE(point)                                                                                \
    {                                                                                              \
        FROM_HERE, ASSAY_POINT_##point                                                             \
    }
#define BEFORE                                                                                     \
    {                                                                                              \
        FROM_BEFORE, ASSAY_POINT_OUT                                                               \
    }
#define STREAM                                                                                     \
    {                                                                                              \
        FROM_STREAM, ASSAY_POINT_OUT                                                               \
    }
#define CACHE(point)                                                                               \
    {                                                                                              \
        FROM_CACHE, ASSAY_POINT_##point                                                            \
    }
#define LAST(point)                                                                                \
    {                                                                                              \
        FROM_LAST, ASSAY_POINT_##point                                                             \
    }
#define HIDDEN                                                                                     \
    {                                                                                              \
        FROM_HIDDEN, ASSAY_POINT_FINAL_NORM                                                        \
    }
#define SELECTION                                                                                  \
    {                                                                                              \
        FROM_SELECTION, ASSAY_POINT_INDEX_TOPK                                                     \
    }
#define SOURCE(point)                                                                              \
    {                                                                                              \
        FROM_SOURCE, ASSAY_POINT_##point                                                           \
    }
#define NOTHING                                                                                    \
    {                                                                                              \
        FROM_NOWHERE, ASSAY_POINT_EMBED                                                            \
    }

static const oracle_op ops[] = {
#define X(point, when, compute, ...)                                                               \
    {ASSAY_POINT_##point, when, assay_oracle_op_##compute, {__VA_ARGS__}},
#include "references/oracle/oracle_op.def"
#undef X
};

const oracle_op *assay_oracle_op_at(const oracle_place *place, assay_point point)
{
    const assay_oracle_shape *s = &place->oracle->shape;
    bool per_layer = assay_point_at(point)->per_layer;
    if (per_layer != (place->layer >= 0) || place->layer >= s->n_layer + s->n_layer_nextn)
        return NULL;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (ops[i].point == point && ops[i].when(place))
            return &ops[i];
    return NULL;
}

int assay_oracle_source_layer(const assay_oracle *oracle, int layer)
{
    while (layer > 0 && !oracle->shape.index_full[layer])
        layer--;
    return layer;
}

bool assay_oracle_has_point(const assay_oracle *oracle, assay_point point, int layer,
                            bool latent_path)
{
    bool only_latent = point == ASSAY_POINT_Q_LATENT || point == ASSAY_POINT_O_LATENT;
    bool only_expanded = oracle->shape.is_mla && (point == ASSAY_POINT_KV_B ||
                                                  point == ASSAY_POINT_K || point == ASSAY_POINT_V);
    oracle_place place = {.oracle = oracle, .layer = layer, .latent = latent_path};
    if (latent_path ? only_expanded : only_latent)
        return false;
    return assay_oracle_op_at(&place, point) != NULL;
}
