/*
 * Attention of one layer: queries, keys and values of both kinds of model, the cache, the kernel,
 * the hand-over of its output.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/crew.h"
#include "engine/forward.h"
#include "engine/ops/attention_split.h"
#include "engine/ops/linear.h"
#include "engine/ops/pointwise.h"
#include "engine/quant.h"

enum { FEW_ROWS = 4 }; /* of a step */

/* Heads of a and b side by side: to[T, H, wa + wb]. b_head 0: the same b for all heads. */
static void side_by_side(float *to, assay_rows a, int64_t wa, int64_t a_head, assay_rows b,
                         int64_t wb, int64_t b_head, int n_head)
{
    for (int64_t t = 0; t < a.n; t++)
        for (int h = 0; h < n_head; h++) {
            float *at = to + (t * n_head + h) * (wa + wb);
            memcpy(at, a.at + t * a.stride + h * a_head, (size_t)wa * sizeof *at);
            memcpy(at + wa, b.at + t * b.stride + h * b_head, (size_t)wb * sizeof *at);
        }
}

/* q by one projection, or by q_a, norm, q_b; kv_a beside it. */
static assay_status queries(assay_engine *e, int layer)
{
    const assay_hparams *hp = e->hp;
    assay_rows x, q;
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_IN_NORM, ASSAY_POINT_Q_A));
    if (hp->n_rank_q) {
        ASSAY_TRY(assay_forward_fused_qa(e, x, layer));
        ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_Q_A, ASSAY_POINT_Q_A_NORM));
        ASSAY_TRY(assay_forward_norm(e, ASSAY_POINT_Q_A_NORM, x, ASSAY_ROLE_ATTN_Q_A_NORM,
                                     ASSAY_NORM_Q_A, layer));
        ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_Q_A_NORM, ASSAY_POINT_Q));
    } else {
        ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_KV_A, layer));
        ASSAY_TRY(assay_linear_role(e, assay_slots_written(&e->slots, ASSAY_POINT_KV_A), x,
                                    ASSAY_ROLE_ATTN_KV_A, layer, ASSAY_ROLE_COUNT));
        ASSAY_TRY(assay_point_done(e, ASSAY_POINT_KV_A, layer));
    }
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_Q, layer));
    q = assay_slots_written(&e->slots, ASSAY_POINT_Q);
    ASSAY_TRY(assay_linear_role(e, q, x, hp->n_rank_q ? ASSAY_ROLE_ATTN_Q_B : ASSAY_ROLE_ATTN_Q,
                                layer, ASSAY_ROLE_COUNT));
    return assay_point_done(e, ASSAY_POINT_Q, layer);
}

/* Rotates n_head vectors of the rotary width that lie in x, `head` apart. */
static assay_status rotate(assay_engine *e, assay_point to, assay_rows x, int64_t head, int n_head,
                           int layer)
{
    assay_rotary how =
        assay_rotary_of(e, layer, to == ASSAY_POINT_Q_ROPE ? ASSAY_TURN_Q : ASSAY_TURN_K);
    const float *freqs = NULL;
    if (assay_model_weight(e->model, ASSAY_ROLE_ROPE_FREQS, -1))
        ASSAY_TRY(assay_vector(&freqs, e, ASSAY_ROLE_ROPE_FREQS, -1));
    how.freqs = freqs;
    ASSAY_TRY(assay_point_begin(e, to, layer));
    assay_rows y = assay_slots_written(&e->slots, to);
    y.width = x.width;
    assay_op_rotary(y, x.width, x, head, n_head, e->positions, &how);
    return assay_point_done(e, to, layer);
}

static assay_status rotate_mla(assay_engine *e, int layer)
{
    const assay_hparams *hp = e->hp;
    int64_t key = hp->d_nope + hp->d_rope;
    assay_rows q, kv;
    ASSAY_TRY(assay_point_read(&q, e, ASSAY_POINT_Q, ASSAY_POINT_Q_ROPE));
    q.at += hp->d_nope;
    q.width = hp->d_rope;
    ASSAY_TRY(rotate(e, ASSAY_POINT_Q_ROPE, q, key, e->part.n_head, layer));
    ASSAY_TRY(assay_point_read(&kv, e, ASSAY_POINT_KV_A, ASSAY_POINT_KV_LATENT));
    ASSAY_TRY(assay_forward_norm(e, ASSAY_POINT_KV_LATENT, assay_rows_columns(kv, 0, hp->n_rank_kv),
                                 ASSAY_ROLE_ATTN_KV_A_NORM, ASSAY_NORM_KV_A, layer));
    return rotate(e, ASSAY_POINT_K_ROPE, assay_rows_columns(kv, hp->n_rank_kv, hp->d_rope), 0, 1,
                  layer);
}

static assay_status kv_b_of(const float **out, assay_engine *e, int layer)
{
    const assay_hparams *hp = e->hp;
    bool bent;
    if ((!assay_model_keeps(e->model) || e->options.seams) && !e->kv_b_scratch) {
        size_t rank = (size_t)hp->n_rank_kv;
        ASSAY_TRY(assay_alloc(&e->kv_b_scratch,
                              (size_t)hp->n_head * (size_t)(hp->d_nope + hp->d_value) * rank +
                                  (size_t)hp->d_nope * rank,
                              sizeof *e->kv_b_scratch, "kv_b"));
    }
    ASSAY_TRY(assay_bent_kv_b_parts(&bent, out, e, layer, e->kv_b_scratch));
    if (!bent)
        ASSAY_TRY(assay_model_kv_b(out, e->model, layer, e->options.dtype, e->kv_b_scratch));
    return assay_bent_kv_b(&bent, out, e, layer, *out);
}

/* Key and value rows of all heads, from k_b and v_b as the file has them. */
typedef struct parts_job {
    assay_rows y, latent;
    const assay_weight *k_b, *v_b;
    int64_t nope, value, first_head;
    float *memory; /* [member][n_floats] */
    int64_t n_floats;
} parts_job;

static void decode_head(float *out, const assay_weight *w, int64_t head, int64_t n_rows)
{
    const assay_quant *quant = assay_quant_find(w->info->type);
    int64_t row_bytes = assay_quant_bytes(quant, w->width);
    quant->decode(out, (const char *)w->info->data + head * n_rows * row_bytes, n_rows * w->width);
}

/* k_b [L, N] is multiplied as it lies, v_b [V, L] from the other side. */
static void rows_of_head(void *user, int64_t h, int member)
{
    const parts_job *j = user;
    float *rows = j->memory + member * j->n_floats;
    int64_t rank = j->latent.width, at = h * (j->nope + j->value);
    assay_rows keys = assay_rows_columns(j->y, at, j->nope);
    decode_head(rows, j->k_b, j->first_head + h, rank);
    for (int64_t t = 0; t < keys.n; t++)
        assay_op_linear_t(assay_rows_of(keys.at + t * keys.stride, 1, j->nope),
                          assay_rows_of(j->latent.at + t * j->latent.stride, 1, rank), rows,
                          j->nope, false);
    decode_head(rows, j->v_b, j->first_head + h, j->value);
    assay_op_linear_alone(assay_rows_columns(j->y, at + j->nope, j->value), j->latent, rows, rank,
                          false);
}

static assay_status few_rows_from_parts(assay_engine *e, assay_rows y, assay_rows latent,
                                        const assay_weight *k_b, const assay_weight *v_b,
                                        int64_t first)
{
    int64_t n = e->hp->d_nope, v = e->hp->d_value;
    parts_job j = {y, latent, k_b, v_b, n, v, first, NULL, latent.width * (n > v ? n : v)};
    ASSAY_TRY(assay_scratch(&j.memory, e, (size_t)(e->options.n_threads * j.n_floats)));
    assay_crew_run(rows_of_head, &j, e->part.n_head, e->options.n_threads);
    return ASSAY_OK;
}

/* The transposed key half is put together once where many rows of the step make up for it. */
static assay_status rows_from_parts(assay_engine *e, assay_rows y, assay_rows latent,
                                    const assay_weight *k_b, const assay_weight *v_b, int layer)
{
    int64_t n = e->hp->d_nope, v = e->hp->d_value, b = n + v, rank = latent.width;
    int64_t first = assay_part_of_weight(e, ASSAY_ROLE_ATTN_KV_B, layer).head;
    const float *w;
    if (y.n <= FEW_ROWS)
        return few_rows_from_parts(e, y, latent, k_b, v_b, first);
    ASSAY_TRY(kv_b_of(&w, e, layer));
    for (int64_t h = 0; h < e->part.n_head; h++) {
        assay_product(e, assay_rows_columns(y, h * b, n), latent, w + (first + h) * b * rank, rank,
                      false);
        ASSAY_TRY(assay_linear_streaming(e, assay_rows_columns(y, h * b + n, v), latent, v_b,
                                         (assay_slice){(first + h) * v, v, 0, rank}, false));
    }
    return ASSAY_OK;
}

/* Key and value rows of all heads, from the latent row. Of integers only where the file has kv_b as
 * one weight: its transposed key half has no blocks along the latent row. */
static assay_status key_and_value_rows(assay_engine *e, assay_rows y, assay_rows latent, int layer)
{
    const assay_weight *kv_b = assay_model_weight(e->model, ASSAY_ROLE_ATTN_KV_B, layer);
    const assay_weight *k_b = assay_model_weight(e->model, ASSAY_ROLE_ATTN_K_B, layer);
    const assay_weight *v_b = assay_model_weight(e->model, ASSAY_ROLE_ATTN_V_B, layer);
    int64_t first = assay_part_of_weight(e, ASSAY_ROLE_ATTN_KV_B, layer).head;
    int64_t b = e->hp->d_nope + e->hp->d_value, rank = latent.width;
    const float *w;
    if (!e->options.seams && kv_b && !(k_b && v_b))
        return assay_linear(e, y, latent, kv_b,
                            (assay_slice){first * b, e->part.n_head * b, 0, rank}, false);
    if (k_b && v_b && assay_streams(e, k_b) && assay_streams(e, v_b) && !e->options.batch_invariant)
        return rows_from_parts(e, y, latent, k_b, v_b, layer);
    ASSAY_TRY(kv_b_of(&w, e, layer));
    assay_product(e, y, latent, w + first * b * rank, rank, false);
    return ASSAY_OK;
}

/* Keys and values per head. */
static assay_status expand(assay_engine *e, int layer)
{
    const assay_hparams *hp = e->hp;
    int64_t b = hp->d_nope + hp->d_value, n_head = e->part.n_head;
    assay_rows latent, k_rope, kv;
    ASSAY_TRY(assay_point_read(&latent, e, ASSAY_POINT_KV_LATENT, ASSAY_POINT_KV_B));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_KV_B, layer));
    ASSAY_TRY(
        key_and_value_rows(e, assay_slots_written(&e->slots, ASSAY_POINT_KV_B), latent, layer));
    ASSAY_TRY(assay_point_done(e, ASSAY_POINT_KV_B, layer));
    ASSAY_TRY(assay_point_read(&kv, e, ASSAY_POINT_KV_B, ASSAY_POINT_K));
    ASSAY_TRY(assay_point_read(&k_rope, e, ASSAY_POINT_K_ROPE, ASSAY_POINT_K));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_K, layer));
    side_by_side(assay_slots_written(&e->slots, ASSAY_POINT_K).at, kv, hp->d_nope, b, k_rope,
                 hp->d_rope, 0, (int)n_head);
    ASSAY_TRY(assay_point_done(e, ASSAY_POINT_K, layer));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_V, layer));
    kv.at += hp->d_nope;
    side_by_side(assay_slots_written(&e->slots, ASSAY_POINT_V).at, kv, hp->d_value, b, kv, 0, 0,
                 (int)n_head);
    ASSAY_TRY(assay_point_done(e, ASSAY_POINT_V, layer));
    assay_rows k, v;
    ASSAY_TRY(assay_point_read(&k, e, ASSAY_POINT_K, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(assay_point_read(&v, e, ASSAY_POINT_V, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(assay_cache_write(e, ASSAY_KV_K, layer, k));
    return assay_cache_write(e, ASSAY_KV_V, layer, v);
}

/* One head's key half [L, N] (k_b as stored) or [N, L] (rows of kv_b), and its value half [V, L]:
 * weights of the file, or values. */
typedef struct halves {
    const assay_weight *k, *v;
    const float *k_b, *kv_b, *v_b;
} halves;

static assay_status halves_of(halves *out, assay_engine *e, int layer)
{
    const assay_weight *k_b = assay_model_weight(e->model, ASSAY_ROLE_ATTN_K_B, layer);
    const assay_weight *v_b = assay_model_weight(e->model, ASSAY_ROLE_ATTN_V_B, layer);
    *out = (halves){0};
    if (k_b && v_b && !e->options.seams) {
        *out = (halves){.k = k_b, .v = v_b};
        return ASSAY_OK;
    }
    if (!k_b || !v_b || !assay_model_keeps(e->model) ||
        assay_bent(e, ASSAY_SEAM_KV_B_VIEW, layer, 0) != 0)
        return kv_b_of(&out->kv_b, e, layer);
    ASSAY_TRY(assay_weight_values(&out->k_b, e, k_b));
    return assay_weight_values(&out->v_b, e, v_b);
}

/* q absorbed with the key half of kv_b; the latent row with its rotated key goes into the cache. */
static assay_status absorb(assay_engine *e, int layer, const halves *w)
{
    const assay_hparams *hp = e->hp;
    int64_t n = hp->d_nope, rank = hp->n_rank_kv, key = n + hp->d_rope, b = n + hp->d_value;
    int64_t from_head = assay_part_of_weight(e, ASSAY_ROLE_ATTN_K_B, layer).head;
    assay_rows q, latent, k_rope;
    float *row;
    ASSAY_TRY(assay_point_read(&q, e, ASSAY_POINT_Q, ASSAY_POINT_Q_LATENT));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_Q_LATENT, layer));
    assay_rows y = assay_slots_written(&e->slots, ASSAY_POINT_Q_LATENT);
    for (int h = 0; h < e->part.n_head; h++) {
        int64_t head = from_head + h;
        assay_rows to = assay_rows_columns(y, h * rank, rank);
        assay_rows from = assay_rows_columns(q, h * key, n);
        if (w->k)
            ASSAY_TRY(
                assay_linear(e, to, from, w->k, (assay_slice){head * rank, rank, 0, n}, false));
        else if (w->k_b)
            assay_product(e, to, from, w->k_b + head * rank * n, n, false);
        else
            assay_product_t(e, to, from, w->kv_b + head * b * rank, rank, false);
    }
    ASSAY_TRY(assay_point_done(e, ASSAY_POINT_Q_LATENT, layer));
    ASSAY_TRY(assay_point_read(&latent, e, ASSAY_POINT_KV_LATENT, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(assay_point_read(&k_rope, e, ASSAY_POINT_K_ROPE, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(assay_cat(&row, e, (size_t)(latent.n * (rank + hp->d_rope))));
    side_by_side(row, latent, rank, 0, k_rope, hp->d_rope, 0, 1);
    return assay_cache_write(e, ASSAY_KV_LATENT, layer,
                             assay_rows_of(row, latent.n, rank + hp->d_rope));
}

/* o[h] = value half of head h times its latent output. */
static assay_status value_up(assay_engine *e, int layer, const halves *w)
{
    const assay_hparams *hp = e->hp;
    int64_t first = assay_part_of_weight(e, ASSAY_ROLE_ATTN_V_B, layer).head;
    int64_t rank = hp->n_rank_kv, v = hp->d_value, b = hp->d_nope + v;
    assay_rows x, y = assay_slots_written(&e->slots, ASSAY_POINT_OUT_ATTN);
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_O_LATENT, ASSAY_POINT_KERNEL_OUT));
    for (int h = 0; h < e->part.n_head; h++) {
        int64_t head = first + h;
        assay_rows to = assay_rows_columns(y, h * v, v);
        assay_rows from = assay_rows_columns(x, h * rank, rank);
        const float *half =
            w->v_b ? w->v_b + head * v * rank : w->kv_b + (head * b + hp->d_nope) * rank;
        if (w->v)
            ASSAY_TRY(assay_linear(e, to, from, w->v, (assay_slice){head * v, v, 0, rank}, false));
        else
            assay_product(e, to, from, half, rank, false);
    }
    return ASSAY_OK;
}

/* Which keys each row of a span may see besides the causal mask; NULL: all. */
static assay_status selection_of(uint8_t **out, assay_engine *e, const assay_span *s, int layer)
{
    int64_t dims[ASSAY_MAX_DIMS];
    *out = NULL;
    if (!e->hp->has_indexer || layer >= e->hp->n_layer ||
        assay_bent(e, ASSAY_SEAM_SELECT_IGNORED, layer, 0) != 0)
        return ASSAY_OK;
    ASSAY_TRY(assay_slots_read(&e->slots, ASSAY_POINT_INDEX_TOPK, ASSAY_POINT_KERNEL_OUT));
    const int32_t *ids = assay_slots_ids(&e->slots, ASSAY_POINT_INDEX_TOPK);
    assay_point_dims(dims, e, ASSAY_POINT_INDEX_TOPK);
    uint8_t *mask;
    ASSAY_TRY(assay_alloc(&mask, (size_t)(s->n_rows * s->n_keys), 1, "selection"));
    for (int64_t r = 0; r < s->n_rows; r++) {
        uint8_t *row = mask + r * s->n_keys;
        int64_t n = 0;
        for (int64_t i = 0; i < dims[1]; i++) {
            int32_t j = ids[s->rows[r] * dims[1] + i];
            if (j < 0 || j >= s->n_keys)
                continue;
            n += !row[j] && j <= s->first + r;
            row[j] = 1;
        }
        if (n ==
            s->first + r + 1) /* all that it may see: dense, and the causal mask alone decides */
            memset(row, 1, (size_t)s->n_keys);
    }
    *out = mask;
    return ASSAY_OK;
}

/* What the kernel of this path reads, from the cache of one sequence. own[2]: to free. */
static assay_status keys_of(assay_attention *a, float *own[2], assay_engine *e, const assay_span *s,
                            int layer)
{
    const assay_hparams *hp = e->hp;
    if (hp->is_mla && e->options.path == ASSAY_PATH_LATENT) {
        ASSAY_TRY(
            assay_cache_read(&a->keys, &a->key_stride, &own[0], e, ASSAY_KV_LATENT, layer, s));
        a->values = a->keys;
        a->value_stride = a->key_stride;
        a->d_key = hp->n_rank_kv + hp->d_rope;
        a->d_value = hp->n_rank_kv;
        return ASSAY_OK;
    }
    ASSAY_TRY(assay_cache_read(&a->keys, &a->key_stride, &own[0], e, ASSAY_KV_K, layer, s));
    ASSAY_TRY(assay_cache_read(&a->values, &a->value_stride, &own[1], e, ASSAY_KV_V, layer, s));
    a->d_key = hp->is_mla ? hp->d_nope + hp->d_rope : hp->d_head;
    a->d_value = hp->d_value;
    a->key_head = a->d_key;
    a->value_head = a->d_value;
    return ASSAY_OK;
}

/* What differs from head to head: its key head, and what seams do to one head. */
static void heads_of(int *kv_head, float *scale, float *gain, const assay_engine *e, int layer)
{
    const assay_part *p = &e->part;
    bool shared = e->hp->is_mla && e->options.path == ASSAY_PATH_LATENT;
    int map = (int)assay_bent(e, ASSAY_SEAM_KV_HEAD_MAP, layer, 0);
    int per_kv_head = p->n_head / p->n_head_kv;
    for (int h = 0; h < p->n_head; h++) {
        assay_seam_place place = assay_place_of(e, layer);
        place.head = p->head + h;
        kv_head[h] = shared     ? 0
                     : map == 1 ? h % p->n_head_kv
                     : map == 2 ? (h / per_kv_head + 1) % p->n_head_kv
                                : h / per_kv_head;
        scale[h] = (float)assay_seam_value(e->options.seams, ASSAY_SEAM_SOFTMAX_SCALE, place, 1);
        gain[h] = (float)assay_seam_value(e->options.seams, ASSAY_SEAM_HEAD_GAIN, place, 1);
    }
}

/* Keys that each row sees, by the causal mask and what seams do to it. */
static void mask_of(int64_t *begin, int64_t *end, const assay_engine *e, const assay_span *s,
                    int layer)
{
    assay_seam_place place = assay_place_of(e, layer);
    place.sequence = s->sequence;
    int64_t shift = (int64_t)assay_seam_value(e->options.seams, ASSAY_SEAM_MASK_SHIFT, place, 0);
    int64_t window = (int64_t)assay_bent(e, ASSAY_SEAM_MASK_WINDOW, layer, 0);
    bool none = assay_bent(e, ASSAY_SEAM_MASK_NONE, layer, 0) != 0;
    for (int64_t r = 0; r < s->n_rows; r++) {
        int64_t last = s->first + r + 1 + shift;
        end[r] = none || last > s->n_keys ? s->n_keys : last < 0 ? 0 : last;
        begin[r] = window > 0 && end[r] > window ? end[r] - window : 0;
    }
}

static assay_status kernel_of_span(assay_engine *e, const assay_span *s, int layer, assay_rows q,
                                   assay_rows o, assay_rows lse, float *probs)
{
    int kv_head[e->part.n_head];
    float scale[e->part.n_head], gain[e->part.n_head], *own[2] = {NULL, NULL};
    int64_t *range;
    uint8_t *selected = NULL;
    assay_status status;
    ASSAY_TRY(assay_alloc(&range, (size_t)s->n_rows * 2, sizeof *range, "mask"));
    mask_of(range, range + s->n_rows, e, s, layer);
    heads_of(kv_head, scale, gain, e, layer);
    status = selection_of(&selected, e, s, layer);
    if (status == ASSAY_OK) {
        assay_attention a = {.n_head = e->part.n_head,
                             .kv_head = kv_head,
                             .n_keys = s->n_keys,
                             .n_rows = s->n_rows,
                             .rows = s->rows,
                             .begin = range,
                             .end = range + s->n_rows,
                             .selected = selected,
                             .scale = e->hp->softmax_scale,
                             .cap = assay_bent(e, ASSAY_SEAM_LOGIT_CAP, layer, 0),
                             .head_scale = scale,
                             .head_gain = gain,
                             .empty = (int)assay_bent(e, ASSAY_SEAM_EMPTY_ROW, layer, 0),
                             .steady = e->options.batch_invariant,
                             .n_zeros = assay_bent(e, ASSAY_SEAM_KEYS_BEYOND, layer, 0),
                             .round_probs = e->options.dtype == ASSAY_DTYPE_BF16};
        status = keys_of(&a, own, e, s, layer);
        if (status == ASSAY_OK)
            status = assay_op_attention_split(
                o, lse, probs, e->n_keys_most, q, &a, e->options.key_split,
                (assay_merge_kind)assay_bent(e, ASSAY_SEAM_MERGE, layer, ASSAY_MERGE_RIGHT));
    }
    free(own[0]);
    free(own[1]);
    free(selected);
    free(range);
    return status;
}

/* Padding rows see nothing. */
static void clear_padding(assay_engine *e, int layer, assay_rows o, assay_rows lse)
{
    float fill = assay_bent(e, ASSAY_SEAM_EMPTY_ROW, layer, 0) == 1 ? NAN : 0;
    for (int64_t t = 0; t < e->batch.n; t++) {
        if (e->sequences[t] >= 0)
            continue;
        for (int64_t i = 0; i < o.width; i++)
            o.at[t * o.stride + i] = fill;
        for (int64_t h = 0; h < lse.width; h++)
            lse.at[t * lse.stride + h] = -INFINITY;
    }
}

/* The kernel over all sequences: o is [T, H, value width of the path]. */
static assay_status kernel(assay_engine *e, int layer, assay_rows q, assay_rows o)
{
    float *probs = NULL;
    if (assay_point_wanted(e, ASSAY_POINT_PROBS, layer)) {
        ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_PROBS, layer));
        assay_buffer *b = &e->slots.slots[ASSAY_POINT_PROBS].buffer;
        memset(b->data, 0, (size_t)assay_buffer_count(b) * sizeof(float));
        probs = b->data;
    }
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_LSE, layer));
    assay_rows lse = assay_slots_written(&e->slots, ASSAY_POINT_LSE);
    for (int i = 0; i < e->n_spans; i++)
        ASSAY_TRY(kernel_of_span(e, &e->spans[i], layer, q, o, lse, probs));
    clear_padding(e, layer, o, lse);
    if (probs) {
        ASSAY_TRY(assay_point_done_exact(e, ASSAY_POINT_PROBS, layer));
        assay_slots_no_reader(&e->slots, ASSAY_POINT_PROBS);
    }
    ASSAY_TRY(assay_point_done_exact(e, ASSAY_POINT_LSE, layer));
    assay_slots_no_reader(&e->slots, ASSAY_POINT_LSE);
    return ASSAY_OK;
}

/* Blocks of heads as another rank order would have put them together. */
static void reorder_heads(assay_engine *e, int layer)
{
    const assay_seam_setting *s =
        assay_seam_at(e->options.seams, ASSAY_SEAM_HEAD_ORDER, assay_place_of(e, layer));
    assay_rows y = assay_slots_rows(&e->slots, ASSAY_POINT_OUT_ATTN);
    if (!s || s->n_ints < 2 || e->part.n_head % s->n_ints)
        return;
    int64_t width = y.width / s->n_ints;
    for (int64_t t = 0; t < y.n; t++) {
        float row[y.width];
        memcpy(row, y.at + t * y.stride, (size_t)y.width * sizeof *row);
        for (int i = 0; i < s->n_ints; i++)
            if (s->ints[i] >= 0 && s->ints[i] < s->n_ints)
                memcpy(y.at + t * y.stride + i * width, row + s->ints[i] * width,
                       (size_t)width * sizeof *row);
    }
}

/*
 * The hand-over: the caller allocates attn.out and gives the kernel a pointer to it; what the
 * kernel wrote (kernel_out) and what the output projection reads (out) are one buffer in a healthy
 * run.
 */
static assay_status hand_over(assay_engine *e, int layer)
{
    assay_slot *slot = &e->slots.slots[ASSAY_POINT_OUT_ATTN];
    if (e->options.dtype == ASSAY_DTYPE_BF16)
        assay_op_round_bf16(assay_slots_written(&e->slots, ASSAY_POINT_OUT_ATTN));
    assay_bend_rows(e, ASSAY_POINT_KERNEL_OUT, layer,
                    assay_slots_written(&e->slots, ASSAY_POINT_OUT_ATTN));
    ASSAY_TRY(assay_point_settle(e, ASSAY_POINT_OUT_ATTN, layer));
    assay_slots_done(&e->slots, ASSAY_POINT_OUT_ATTN);
    ASSAY_TRY(assay_point_show(e, ASSAY_POINT_KERNEL_OUT, layer, &slot->written, &slot->written,
                               &slot->buffer));
    reorder_heads(e, layer);
    return assay_point_show(e, ASSAY_POINT_OUT_ATTN, layer, &slot->buffer, &slot->written,
                            &slot->buffer);
}

static assay_status project(assay_engine *e, int layer)
{
    assay_rows x;
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_OUT_ATTN, ASSAY_POINT_PROJ));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_PROJ, layer));
    ASSAY_TRY(assay_linear_role(e, assay_slots_written(&e->slots, ASSAY_POINT_PROJ), x,
                                ASSAY_ROLE_ATTN_OUTPUT, layer, ASSAY_ROLE_ATTN_OUTPUT_BIAS));
    return assay_point_done_reduced(e, ASSAY_POINT_PROJ, layer);
}

/* q of the kernel: [T, H, a | b] from two points. */
static assay_status gather_q(assay_rows *q, assay_engine *e, assay_point a, int64_t wa,
                             int64_t a_head)
{
    int n_head = e->part.n_head, rope = e->hp->d_rope;
    assay_rows first, second;
    float *at;
    ASSAY_TRY(assay_point_read(&first, e, a, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(assay_point_read(&second, e, ASSAY_POINT_Q_ROPE, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(assay_cat(&at, e, (size_t)(first.n * n_head * (wa + rope))));
    side_by_side(at, first, wa, a_head, second, rope, rope, n_head);
    *q = assay_rows_of(at, first.n, n_head * (wa + rope));
    return ASSAY_OK;
}

static assay_status mla_expanded(assay_engine *e, int layer)
{
    const assay_hparams *hp = e->hp;
    assay_rows q;
    ASSAY_TRY(gather_q(&q, e, ASSAY_POINT_Q, hp->d_nope, hp->d_nope + hp->d_rope));
    return kernel(e, layer, q, assay_slots_written(&e->slots, ASSAY_POINT_OUT_ATTN));
}

static assay_status mla_latent(assay_engine *e, int layer, const halves *w)
{
    assay_rows q;
    ASSAY_TRY(gather_q(&q, e, ASSAY_POINT_Q_LATENT, e->hp->n_rank_kv, e->hp->n_rank_kv));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_O_LATENT, layer));
    ASSAY_TRY(kernel(e, layer, q, assay_slots_written(&e->slots, ASSAY_POINT_O_LATENT)));
    ASSAY_TRY(assay_point_done(e, ASSAY_POINT_O_LATENT, layer));
    return value_up(e, layer, w);
}

static assay_status mla(assay_engine *e, int layer)
{
    bool latent = e->options.path == ASSAY_PATH_LATENT;
    halves w;
    ASSAY_TRY(queries(e, layer));
    ASSAY_TRY(rotate_mla(e, layer));
    if (latent) {
        ASSAY_TRY(halves_of(&w, e, layer));
        ASSAY_TRY(absorb(e, layer, &w));
    } else {
        ASSAY_TRY(expand(e, layer));
    }
    if (e->hp->has_indexer && layer < e->hp->n_layer && e->hp->index_full[layer])
        ASSAY_TRY(assay_forward_index(e, layer));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_OUT_ATTN, layer));
    ASSAY_TRY(latent ? mla_latent(e, layer, &w) : mla_expanded(e, layer));
    return hand_over(e, layer);
}

/* One of q, k, v of llama: a tensor of its own, or rows `first` ... of the merged one. */
static assay_status llama_part(assay_engine *e, assay_point to, assay_rows x, assay_role role,
                               assay_role bias, int64_t first, int layer)
{
    const assay_weight *own = assay_model_weight(e->model, role, layer);
    ASSAY_TRY(assay_point_begin(e, to, layer));
    assay_rows y = assay_slots_written(&e->slots, to);
    if (own) {
        ASSAY_TRY(assay_linear_role(e, y, x, role, layer, bias));
    } else {
        const assay_weight *all = assay_model_weight(e->model, ASSAY_ROLE_ATTN_QKV, layer);
        assay_slice slice = {first, y.width, 0, all->width};
        ASSAY_TRY(assay_linear(e, y, x, all, slice, false));
        if (assay_model_weight(e->model, ASSAY_ROLE_ATTN_QKV_BIAS, layer)) {
            const float *b;
            ASSAY_TRY(assay_vector(&b, e, ASSAY_ROLE_ATTN_QKV_BIAS, layer));
            assay_op_bias(y, b + first);
        }
    }
    return assay_point_done(e, to, layer);
}

static assay_status llama(assay_engine *e, int layer)
{
    const assay_hparams *hp = e->hp;
    const assay_part *p = &e->part;
    const assay_part from = assay_part_of_weight(e, ASSAY_ROLE_ATTN_QKV, layer);
    int64_t d = hp->d_head;
    assay_rows x;
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_IN_NORM, ASSAY_POINT_Q));
    ASSAY_TRY(llama_part(e, ASSAY_POINT_Q, x, ASSAY_ROLE_ATTN_Q, ASSAY_ROLE_ATTN_Q_BIAS,
                         from.head * d, layer));
    ASSAY_TRY(llama_part(e, ASSAY_POINT_K, x, ASSAY_ROLE_ATTN_K, ASSAY_ROLE_ATTN_K_BIAS,
                         (hp->n_head + from.kv_head) * d, layer));
    ASSAY_TRY(llama_part(e, ASSAY_POINT_V, x, ASSAY_ROLE_ATTN_V, ASSAY_ROLE_ATTN_V_BIAS,
                         (hp->n_head + hp->n_head_kv + from.kv_head) * d, layer));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_Q, ASSAY_POINT_Q_ROPE));
    x.width = d;
    ASSAY_TRY(rotate(e, ASSAY_POINT_Q_ROPE, x, d, p->n_head, layer));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_K, ASSAY_POINT_K_ROPE));
    x.width = d;
    ASSAY_TRY(rotate(e, ASSAY_POINT_K_ROPE, x, d, p->n_head_kv, layer));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_K_ROPE, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(assay_cache_write(e, ASSAY_KV_K, layer, x));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_V, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(assay_cache_write(e, ASSAY_KV_V, layer, x));
    ASSAY_TRY(assay_point_begin(e, ASSAY_POINT_OUT_ATTN, layer));
    ASSAY_TRY(assay_point_read(&x, e, ASSAY_POINT_Q_ROPE, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(kernel(e, layer, x, assay_slots_written(&e->slots, ASSAY_POINT_OUT_ATTN)));
    return hand_over(e, layer);
}

assay_status assay_forward_attention(assay_engine *e, int layer)
{
    ASSAY_TRY(e->hp->is_mla ? mla(e, layer) : llama(e, layer));
    return project(e, layer);
}
