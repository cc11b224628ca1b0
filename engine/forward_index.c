/*
 * The indexer of one layer: which keys its rows (and those of the following layers that reuse it)
 * attend to.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/forward.h"
#include "engine/ops/indexer.h"

/* Rotates the first channels of every head; a wrong engine the last, as in the main attention. */
static void rotate_index(assay_engine *e, assay_rows y, assay_rows x, int n_head, int which,
                         int layer)
{
    assay_rotary how = assay_rotary_of(e, layer, which);
    int64_t d = e->hp->index_d_head;
    x.width = y.width = d;
    if (assay_bent(e, ASSAY_SEAM_INDEX_ROPE_LAST, layer, 0) != 0) {
        int64_t rest = d - how.turned;
        for (int64_t t = 0; t < x.n; t++)
            for (int h = 0; h < n_head; h++)
                memcpy(y.at + t * y.stride + h * d, x.at + t * x.stride + h * d,
                       (size_t)rest * sizeof *y.at);
        x.at += rest;
        y.at += rest;
        x.width = y.width = how.turned;
    }
    assay_op_rotary(y, d, x, d, n_head, e->positions, &how);
}

static assay_status index_queries(assay_engine *e, int layer)
{
    const assay_hparams *hp = e->hp;
    assay_rows x;
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_Q_A_NORM, ASSAY_POINT_INDEX_Q_PROJ));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_INDEX_Q_PROJ, layer));
    ASSAY_TRY(assay_linear_role(e, assay_slots_written(&e->slots, ASSAY_POINT_INDEX_Q_PROJ), x,
                                ASSAY_ROLE_INDEX_Q_B, layer, ASSAY_ROLE_COUNT));
    ASSAY_TRY(assay_point_done(e, ASSAY_POINT_INDEX_Q_PROJ, layer));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_INDEX_Q_PROJ, ASSAY_POINT_INDEX_Q));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_INDEX_Q, layer));
    rotate_index(e, assay_slots_written(&e->slots, ASSAY_POINT_INDEX_Q), x, hp->index_n_head,
                 ASSAY_TURN_INDEX_Q, layer);
    return assay_point_done(e, ASSAY_POINT_INDEX_Q, layer);
}

static assay_status index_keys(assay_engine *e, int layer)
{
    assay_norm norm = assay_norm_of(e, layer, ASSAY_NORM_INDEX);
    const float *w, *b;
    assay_rows x;
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_IN_NORM, ASSAY_POINT_INDEX_K_PROJ));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_INDEX_K_PROJ, layer));
    ASSAY_TRY(assay_linear_role(e, assay_slots_written(&e->slots, ASSAY_POINT_INDEX_K_PROJ), x,
                                ASSAY_ROLE_INDEX_K, layer, ASSAY_ROLE_COUNT));
    ASSAY_TRY(assay_point_done(e, ASSAY_POINT_INDEX_K_PROJ, layer));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_INDEX_WEIGHTS, layer));
    ASSAY_TRY(assay_linear_role(e, assay_slots_written(&e->slots, ASSAY_POINT_INDEX_WEIGHTS), x,
                                ASSAY_ROLE_INDEX_PROJ, layer, ASSAY_ROLE_COUNT));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_INDEX_K_PROJ, ASSAY_POINT_INDEX_K_NORM));
    ASSAY_TRY(assay_pair_of_vectors(&w, &b, e, ASSAY_ROLE_INDEX_K_NORM,
                                    ASSAY_ROLE_INDEX_K_NORM_BIAS, layer));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_INDEX_K_NORM, layer));
    assay_op_layernorm(assay_slots_written(&e->slots, ASSAY_POINT_INDEX_K_NORM), x, w, b, &norm);
    ASSAY_TRY(assay_point_done(e, ASSAY_POINT_INDEX_K_NORM, layer));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_INDEX_K_NORM, ASSAY_POINT_INDEX_K));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_INDEX_K, layer));
    rotate_index(e, assay_slots_written(&e->slots, ASSAY_POINT_INDEX_K), x, 1, ASSAY_TURN_INDEX_K,
                 layer);
    ASSAY_TRY(assay_point_done(e, ASSAY_POINT_INDEX_K, layer));
    ASSAY_TRY(assay_point_done(e, ASSAY_POINT_INDEX_WEIGHTS, layer));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_INDEX_K, ASSAY_POINT_INDEX_SCORES));
    return assay_cache_write(e, ASSAY_KV_INDEX, layer, x);
}

/* Scores of all rows; padding rows and keys that are not seen are -inf. */
static assay_status scores(assay_engine *e, int layer, float *memory)
{
    assay_indexer how = assay_indexer_of(e, layer);
    assay_rows q, w, y;
    ASSAY_TRY(assay_point_read(&q, e, ASSAY_POINT_INDEX_Q, ASSAY_POINT_INDEX_SCORES));
    ASSAY_TRY(assay_point_read(&w, e, ASSAY_POINT_INDEX_WEIGHTS, ASSAY_POINT_INDEX_SCORES));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_INDEX_SCORES, layer));
    y = assay_slots_written(&e->slots, ASSAY_POINT_INDEX_SCORES);
    for (int64_t t = 0; t < y.n; t++)
        for (int64_t j = 0; j < y.width && e->sequences[t] < 0; j++)
            y.at[t * y.stride + j] = -INFINITY;
    for (int i = 0; i < e->n_spans; i++) {
        const assay_span *s = &e->spans[i];
        const float *keys;
        float *own;
        int64_t stride;
        ASSAY_TRY(assay_cache_read(&keys, &stride, &own, e, ASSAY_KV_INDEX, layer, s));
        for (int64_t r = 0; r < s->n_rows; r++) {
            int64_t t = s->rows[r];
            assay_rows k = {(float *)keys, s->first + r + 1, how.d_head, stride};
            assay_op_index_scores(y.at + t * y.stride, y.width, memory, q.at + t * q.stride,
                                  w.at + t * w.stride, k, &how);
        }
        free(own);
    }
    return assay_point_done_exact(e, ASSAY_POINT_INDEX_SCORES, layer);
}

static assay_status choose(assay_engine *e, int layer, int32_t *order)
{
    assay_indexer how = assay_indexer_of(e, layer);
    int64_t dims[ASSAY_MAX_DIMS];
    assay_rows x;
    assay_point_dims(dims, e, ASSAY_POINT_INDEX_TOPK);
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_INDEX_SCORES, ASSAY_POINT_INDEX_TOPK));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_INDEX_TOPK, layer));
    int32_t *ids = assay_slots_ids(&e->slots, ASSAY_POINT_INDEX_TOPK);
    for (int64_t t = 0; t < e->batch.n; t++) {
        int64_t seen = e->sequences[t] < 0 ? 0 : e->positions[t] + 1;
        assay_op_index_select(ids + t * dims[1], dims[1], order, x.at + t * x.stride, seen, &how);
    }
    return assay_point_done_exact(e, ASSAY_POINT_INDEX_TOPK, layer);
}

assay_status assay_forward_index(assay_engine *e, int layer)
{
    float *memory;
    int32_t *order;
    assay_status s;
    ASSAY_TRY(index_queries(e, layer));
    ASSAY_TRY(index_keys(e, layer));
    size_t n = (size_t)e->n_keys_most;
    ASSAY_TRY(assay_alloc(&memory, n * (size_t)e->hp->index_n_head, sizeof *memory, "indexer"));
    s = scores(e, layer, memory);
    free(memory);
    if (s != ASSAY_OK)
        return s;
    ASSAY_TRY(assay_alloc(&order, n, sizeof *order, "indexer"));
    s = choose(e, layer, order);
    free(order);
    return s;
}
