/*
 * Attention of one layer on the device; the counterpart of engine/forward_attn.c and
 * engine/forward_index.c.
 */
#include <math.h>

#include "engine/device/device_inside.h"

static assay_status project_to(assay_engine *e, assay_point to, assay_rows x, assay_role role,
                               int layer, assay_role bias)
{
    ASSAY_TRY(assay_device_begin(e, to, layer));
    ASSAY_TRY(assay_device_linear(e, assay_device_rows_of(e, to), x, role, layer, bias));
    return assay_device_done(e, to, layer);
}

/* What queries and keys are made from: the merged projection, and the norm of its first part. */
static assay_status latents(assay_engine *e, int layer)
{
    static const assay_point points[2] = {ASSAY_POINT_Q_A, ASSAY_POINT_KV_A};
    static const assay_role roles[2] = {ASSAY_ROLE_ATTN_Q_A, ASSAY_ROLE_ATTN_KV_A};
    static const assay_role biases[2] = {ASSAY_ROLE_COUNT, ASSAY_ROLE_COUNT};
    assay_rows x;
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_IN_NORM, ASSAY_POINT_Q_A));
    if (!e->hp->n_rank_q)
        return project_to(e, ASSAY_POINT_KV_A, x, ASSAY_ROLE_ATTN_KV_A, layer, ASSAY_ROLE_COUNT);
    ASSAY_TRY(assay_device_merged(e, ASSAY_SLOT_FUSED_QA, points, roles, biases, x, layer));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_Q_A, ASSAY_POINT_Q_A_NORM));
    return assay_device_norm(e, ASSAY_POINT_Q_A_NORM, x, ASSAY_ROLE_ATTN_Q_A_NORM, ASSAY_NORM_Q_A,
                             layer);
}

static assay_status queries(assay_engine *e, int layer)
{
    bool direct = !e->hp->n_rank_q;
    assay_rows x;
    ASSAY_TRY(assay_device_read(&x, e, direct ? ASSAY_POINT_IN_NORM : ASSAY_POINT_Q_A_NORM,
                                ASSAY_POINT_Q));
    return project_to(e, ASSAY_POINT_Q, x, direct ? ASSAY_ROLE_ATTN_Q : ASSAY_ROLE_ATTN_Q_B, layer,
                      ASSAY_ROLE_COUNT);
}

/* The rotation of queries or keys, with the file's own factors on frequencies if it has some. */
static assay_status rotary_of(assay_rotary *how, assay_engine *e, int layer, int which)
{
    *how = assay_rotary_of(e, layer, which);
    if (!assay_model_weight(e->model, ASSAY_ROLE_ROPE_FREQS, -1))
        return ASSAY_OK;
    return assay_vector(&how->freqs, e, ASSAY_ROLE_ROPE_FREQS, -1);
}

static assay_status rotate_mla(assay_engine *e, int layer)
{
    const assay_hparams *hp = e->hp;
    assay_rotary q_how, k_how;
    assay_rows q, kv;
    ASSAY_TRY(rotary_of(&q_how, e, layer, ASSAY_TURN_Q));
    ASSAY_TRY(rotary_of(&k_how, e, layer, ASSAY_TURN_K));
    ASSAY_TRY(assay_device_read(&q, e, ASSAY_POINT_Q, ASSAY_POINT_Q_ROPE));
    q.at += hp->d_nope;
    q.width = hp->d_rope;
    ASSAY_TRY(assay_device_turn(e, ASSAY_POINT_Q_ROPE, q, hp->d_nope + hp->d_rope, e->part.n_head,
                                &q_how, layer));
    ASSAY_TRY(assay_device_read(&kv, e, ASSAY_POINT_KV_A, ASSAY_POINT_KV_LATENT));
    ASSAY_TRY(assay_device_norm(e, ASSAY_POINT_KV_LATENT, assay_rows_columns(kv, 0, hp->n_rank_kv),
                                ASSAY_ROLE_ATTN_KV_A_NORM, ASSAY_NORM_KV_A, layer));
    return assay_device_turn(e, ASSAY_POINT_K_ROPE,
                             assay_rows_columns(kv, hp->n_rank_kv, hp->d_rope), 0, 1, &k_how,
                             layer);
}

/* The two halves of kv_b, from a file with kv_b or with k_b [H, L, N] and v_b [H, V, L]. */
static bool has_parts(const assay_engine *e, int layer)
{
    return assay_device_weight(e, ASSAY_ROLE_ATTN_K_B, layer) &&
           assay_device_weight(e, ASSAY_ROLE_ATTN_V_B, layer);
}

/* Per head, from this rank's first one on: to[n] = sum over the latent of key half (is_value: value
 * half) times x. */
static assay_status half_up(assay_engine *e, int layer, bool is_value, int64_t head, float *y,
                            int64_t y_stride, int64_t y_head, assay_rows x, int64_t x_head)
{
    const assay_hparams *hp = e->hp;
    int64_t n = hp->d_nope, v = hp->d_value, rank = hp->n_rank_kv;
    bool parts = has_parts(e, layer);
    assay_packed_product p = {.y = y,
                              .x = x.at,
                              .n = x.n,
                              .y_stride = y_stride,
                              .x_stride = x.stride,
                              .n_out = is_value ? v : n,
                              .n_in = rank,
                              .n_head = e->part.n_head,
                              .y_head = y_head,
                              .x_head = x_head};
    if (parts) {
        p.w = assay_device_weight(e, is_value ? ASSAY_ROLE_ATTN_V_B : ASSAY_ROLE_ATTN_K_B, layer);
        p.w_head = is_value ? v : rank;
        p.transposed = !is_value;
        p.first_row = head * p.w_head;
    } else {
        p.w = assay_device_weight(e, ASSAY_ROLE_ATTN_KV_B, layer);
        p.w_head = n + v;
        p.first_row = head * (n + v) + (is_value ? n : 0);
    }
    return assay_device_multiply(e, &p);
}

static assay_status expand(assay_engine *e, int layer)
{
    const assay_hparams *hp = e->hp;
    assay_device *d = e->device;
    int64_t n = hp->d_nope, v = hp->d_value, b = n + v;
    int n_head = e->part.n_head, head = assay_part_of_weight(e, ASSAY_ROLE_ATTN_KV_B, layer).head;
    assay_rows latent, k_rope, kv, k, value;
    ASSAY_TRY(assay_device_read(&latent, e, ASSAY_POINT_KV_LATENT, ASSAY_POINT_KV_B));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_KV_B, layer));
    kv = assay_device_rows_of(e, ASSAY_POINT_KV_B);
    ASSAY_TRY(half_up(e, layer, false, head, kv.at, kv.stride, b, latent, 0));
    ASSAY_TRY(half_up(e, layer, true, head, kv.at + n, kv.stride, b, latent, 0));
    ASSAY_TRY(assay_device_done(e, ASSAY_POINT_KV_B, layer));
    ASSAY_TRY(assay_device_read(&kv, e, ASSAY_POINT_KV_B, ASSAY_POINT_K));
    ASSAY_TRY(assay_device_read(&k_rope, e, ASSAY_POINT_K_ROPE, ASSAY_POINT_K));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_K, layer));
    k = assay_device_rows_of(e, ASSAY_POINT_K);
    ASSAY_RUN(d, assay_device_side_by_side(d->at, k.at, kv, n, b, k_rope, hp->d_rope, 0, n_head));
    ASSAY_TRY(assay_device_done(e, ASSAY_POINT_K, layer));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_V, layer));
    value = assay_device_rows_of(e, ASSAY_POINT_V);
    kv.at += n;
    ASSAY_RUN(d, assay_device_side_by_side(d->at, value.at, kv, v, b, kv, 0, 0, n_head));
    ASSAY_TRY(assay_device_done(e, ASSAY_POINT_V, layer));
    ASSAY_TRY(assay_device_read(&k, e, ASSAY_POINT_K, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(assay_device_read(&value, e, ASSAY_POINT_V, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(assay_device_write_cache(e, ASSAY_KV_K, layer, k, (assay_rows){0}));
    return assay_device_write_cache(e, ASSAY_KV_V, layer, value, (assay_rows){0});
}

/* q absorbed with the key half of kv_b; the latent row with its rotated key goes into the cache. */
static assay_status absorb(assay_engine *e, int layer)
{
    const assay_hparams *hp = e->hp;
    int64_t n = hp->d_nope, rank = hp->n_rank_kv;
    int64_t head = assay_part_of_weight(e, ASSAY_ROLE_ATTN_K_B, layer).head;
    assay_rows q, latent, k_rope;
    ASSAY_TRY(assay_device_read(&q, e, ASSAY_POINT_Q, ASSAY_POINT_Q_LATENT));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_Q_LATENT, layer));
    assay_rows y = assay_device_rows_of(e, ASSAY_POINT_Q_LATENT);
    bool parts = has_parts(e, layer);
    int64_t w_head = parts ? rank : n + hp->d_value;
    assay_packed_product p = {
        .w = assay_device_weight(e, parts ? ASSAY_ROLE_ATTN_K_B : ASSAY_ROLE_ATTN_KV_B, layer),
        .y = y.at,
        .x = q.at,
        .n = q.n,
        .y_stride = y.stride,
        .x_stride = q.stride,
        .first_row = head * w_head,
        .n_out = rank,
        .n_in = n,
        .n_head = e->part.n_head,
        .y_head = rank,
        .x_head = n + hp->d_rope,
        .w_head = w_head,
        .transposed = !parts};
    ASSAY_TRY(assay_device_multiply(e, &p));
    ASSAY_TRY(assay_device_done(e, ASSAY_POINT_Q_LATENT, layer));
    ASSAY_TRY(assay_device_read(&latent, e, ASSAY_POINT_KV_LATENT, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(assay_device_read(&k_rope, e, ASSAY_POINT_K_ROPE, ASSAY_POINT_KERNEL_OUT));
    return assay_device_write_cache(e, ASSAY_KV_LATENT, layer, latent, k_rope);
}

#define SCORE_FLOATS ((int64_t)64 << 20) /* scores held at once by dense attention */

/* Whether a step's rows are whole sequences one after the other, many rows each: then attention is
 * three dense steps (scores, softmax, values) for each of them. */
static bool is_dense(const assay_engine *e)
{
    if (e->options.page_size || e->options.key_split)
        return false;
    for (int i = 0; i < e->n_spans; i++) {
        const assay_span *s = &e->spans[i];
        if (s->n_rows <= ASSAY_DEVICE_FEW || s->rows[s->n_rows - 1] - s->rows[0] != s->n_rows - 1)
            return false;
    }
    int64_t n = 0;
    for (int i = 0; i < e->n_spans; i++)
        n += e->spans[i].n_rows;
    return n == e->device->n_bucket; /* no padding */
}

static assay_status multiply_timed(assay_device *d, const assay_cuda_product *m)
{
    float ms;
    if (d->is_dry)
        return ASSAY_OK;
    if (d->times_products)
        ASSAY_TRY(assay_cuda_record(d->before, d->at));
    ASSAY_RUN(d, assay_cuda_multiply(d->blas, m));
    if (!d->times_products)
        return ASSAY_OK;
    ASSAY_TRY(assay_cuda_record(d->after, d->at));
    ASSAY_TRY(assay_cuda_wait_host(d->after));
    ASSAY_TRY(assay_cuda_elapsed(&ms, d->before, d->after));
    d->counted.product_ms += ms;
    return ASSAY_OK;
}

/* Rows first ... first + n - 1 of the step, all of one sequence. Query heads that share keys are
 * rows of one product; key heads are its batch. */
static assay_status dense_rows(assay_engine *e, const assay_span *s,
                               const assay_device_attention *a, assay_rows q, assay_rows o,
                               assay_rows lse, float *scores, int64_t first, int64_t n,
                               const float *keys, const float *values)
{
    assay_device *d = e->device;
    int64_t groups = a->heads_per_kv ? a->n_head / a->heads_per_kv : 1;
    int64_t together = a->n_head / groups, n_keys = s->n_keys;
    bool one = together == a->n_head; /* [rows * heads] lie one after the other */
    int64_t loops = one || together == 1 ? 1 : together;
    for (int64_t h = 0; h < loops; h++) { /* query head h of every group */
        assay_cuda_product m = {.n_rows = one ? n * a->n_head : n,
                                .n_out = n_keys,
                                .n_in = a->d_key,
                                .n_batch = groups,
                                .y = scores + h * n_keys,
                                .x = q.at + first * q.stride + h * a->d_key,
                                .w = keys,
                                .y_stride = one ? n_keys : a->n_head * n_keys,
                                .x_stride = one ? a->d_key : q.stride,
                                .w_stride = a->keys.width,
                                .y_step = together * n_keys,
                                .x_step = together * a->d_key,
                                .w_step = a->d_key};
        ASSAY_TRY(multiply_timed(d, &m));
    }
    ASSAY_RUN(d, assay_device_softmax(d->at, scores, n, n_keys, first, lse, &d->rows, a));
    for (int64_t h = 0; h < loops; h++) {
        assay_cuda_product m = {.n_rows = one ? n * a->n_head : n,
                                .n_out = a->d_value,
                                .n_in = n_keys,
                                .n_batch = groups,
                                .y = o.at + first * o.stride + h * a->d_value,
                                .x = scores + h * n_keys,
                                .w = values,
                                .y_stride = one ? a->d_value : o.stride,
                                .x_stride = one ? n_keys : a->n_head * n_keys,
                                .w_stride = a->values.width,
                                .y_step = together * a->d_value,
                                .x_step = together * n_keys,
                                .w_step = a->d_value,
                                .transposed = true};
        ASSAY_TRY(multiply_timed(d, &m));
    }
    return ASSAY_OK;
}

/* Rows whose scores fit, at most those of the step. */
static int64_t rows_at_once(const assay_engine *e)
{
    int64_t most = SCORE_FLOATS / ((int64_t)e->part.n_head * e->options.max_positions);
    if (most < 1)
        most = 1;
    return most < e->device->n_bucket ? most : e->device->n_bucket;
}

static assay_status dense_attention(assay_engine *e, int layer, const assay_device_attention *a,
                                    assay_rows q, assay_rows o, assay_rows lse, float *scores)
{
    assay_device *d = e->device;
    bool latent = e->hp->is_mla && e->options.path == ASSAY_PATH_LATENT;
    int64_t most = rows_at_once(e);
    if (!d->blas)
        ASSAY_TRY(assay_cuda_blas_new(&d->blas, d->stream));
    for (int i = 0; i < e->n_spans; i++) {
        const assay_span *s = &e->spans[i];
        int64_t at = s->sequence * a->keys.capacity;
        const float *keys = a->keys.decoded, *values = a->values.decoded;
        if (!keys) {
            keys = d->caches[latent ? ASSAY_KV_LATENT : ASSAY_KV_K][layer];
            values = d->caches[latent ? ASSAY_KV_LATENT : ASSAY_KV_V][layer];
        }
        for (int64_t r = 0; r < s->n_rows; r += most) {
            int64_t n = s->n_rows - r < most ? s->n_rows - r : most;
            ASSAY_TRY(dense_rows(e, s, a, q, o, lse, scores, s->rows[0] + r, n,
                                 keys + at * a->keys.width, values + at * a->values.width));
        }
    }
    return ASSAY_OK;
}

/* Few rows, or rows of several requests among each other: the kernel; else dense steps. */
static assay_status attend(assay_engine *e, int layer, const assay_device_attention *a,
                           assay_rows q, assay_rows o, assay_rows lse)
{
    assay_device *d = e->device;
    void *scores = NULL;
    if (d->n_bucket > ASSAY_DEVICE_FEW)
        ASSAY_TRY(assay_device_scratch(
            &scores, d, ASSAY_SCRATCH_SCORES,
            (size_t)(rows_at_once(e) * e->part.n_head * e->options.max_positions) * 4));
    if (scores && is_dense(e))
        return dense_attention(e, layer, a, q, o, lse, scores);
    ASSAY_RUN(d, assay_device_attend(d->at, o, lse, q, &d->rows, a));
    return ASSAY_OK;
}

/* The kernel over all rows: o is [T, H, value width of the path]. */
static assay_status kernel(assay_engine *e, int layer, assay_rows q, assay_rows o)
{
    const assay_hparams *hp = e->hp;
    assay_device *d = e->device;
    bool latent = hp->is_mla && e->options.path == ASSAY_PATH_LATENT;
    assay_device_attention a = {.n_head = e->part.n_head,
                                .heads_per_kv = latent ? 0 : e->part.n_head / e->part.n_head_kv,
                                .d_key = latent       ? hp->n_rank_kv + hp->d_rope
                                         : hp->is_mla ? hp->d_nope + hp->d_rope
                                                      : hp->d_head,
                                .d_value = latent ? hp->n_rank_kv : hp->d_value,
                                .scale = hp->softmax_scale *
                                         assay_bent(e, ASSAY_SEAM_SOFTMAX_SCALE, layer, 1),
                                .round_probs = e->options.dtype == ASSAY_DTYPE_BF16,
                                .n_split = d->n_split};
    ASSAY_TRY(assay_device_read_cache(&a.keys, e, latent ? ASSAY_KV_LATENT : ASSAY_KV_K, layer));
    a.values = a.keys;
    if (!latent)
        ASSAY_TRY(assay_device_read_cache(&a.values, e, ASSAY_KV_V, layer));
    if (hp->has_indexer) {
        ASSAY_TRY(assay_device_read(NULL, e, ASSAY_POINT_INDEX_TOPK, ASSAY_POINT_KERNEL_OUT));
        a.selected = assay_device_ids(e, ASSAY_POINT_INDEX_TOPK);
        a.n_selected =
            hp->index_top_k < e->options.max_positions ? hp->index_top_k : e->options.max_positions;
    }
    if (a.round_probs)
        a.n_split = 1;
    if (a.n_split > 1)
        ASSAY_TRY(assay_device_scratch((void **)&a.partial, d, ASSAY_SCRATCH_PARTIAL,
                                       (size_t)(q.n * a.n_head * a.n_split * (a.d_value + 2)) * 4));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_LSE, layer));
    assay_rows lse = assay_device_rows_of(e, ASSAY_POINT_LSE);
    if (assay_bent(e, ASSAY_SEAM_GRAPH_METADATA, layer, 0) == 2)
        a.last = d->captured_positions;
    ASSAY_TRY(attend(e, layer, &a, q, o, lse));
    if (assay_point_wanted(e, ASSAY_POINT_PROBS, layer)) {
        ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_PROBS, layer));
        float *probs = assay_device_rows_of(e, ASSAY_POINT_PROBS).at;
        ASSAY_RUN(d, assay_device_attend_probs(d->at, probs, e->options.max_positions, lse, q,
                                               &d->rows, &a));
        ASSAY_TRY(assay_device_done_exact(e, ASSAY_POINT_PROBS, layer));
        assay_device_no_reader(e, ASSAY_POINT_PROBS);
    }
    ASSAY_TRY(assay_device_done_exact(e, ASSAY_POINT_LSE, layer));
    assay_device_no_reader(e, ASSAY_POINT_LSE);
    return ASSAY_OK;
}

/*
 * The hand-over, as on the host: in a healthy run the kernel writes what the projection reads.
 */
static assay_status open_output(assay_engine *e, int layer)
{
    assay_device *d = e->device;
    int mode = (int)assay_bent(e, ASSAY_SEAM_ATTN_OUT_BUFFER, layer, ASSAY_DIVERT_NONE);
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_OUT_ATTN, layer));
    if (mode < ASSAY_DIVERT_ZEROED || mode > ASSAY_DIVERT_LAST_STEP)
        return ASSAY_OK;
    assay_rows out = assay_device_rows_of(e, ASSAY_POINT_OUT_ATTN);
    if (mode != ASSAY_DIVERT_POISONED)
        ASSAY_RUN(d, assay_device_fill(d->at, out.at, 0, out.n * out.width));
    return assay_device_divert(e, ASSAY_POINT_OUT_ATTN, layer);
}

static assay_status hand_over(assay_engine *e, int layer)
{
    assay_device *d = e->device;
    const assay_use_of_slot *at = &d->uses[ASSAY_POINT_OUT_ATTN];
    if (e->options.dtype == ASSAY_DTYPE_BF16)
        ASSAY_RUN(d, assay_device_round_bf16(d->at, assay_device_rows_of(e, ASSAY_POINT_OUT_ATTN)));
    assay_device_mark(e, ASSAY_POINT_OUT_ATTN);
    if (at->written.data != at->buffer.data) {
        assay_slot_fact fact = {
            layer, at->written.owner, true, true, 0, "was written, and nobody read it", NULL};
        if (!d->is_dry)
            ASSAY_TRY(assay_slots_note(&e->slots, ASSAY_POINT_OUT_ATTN, &fact));
    }
    ASSAY_TRY(assay_device_show(e, ASSAY_POINT_KERNEL_OUT, layer, &at->written, &at->written,
                                &at->buffer));
    return assay_device_show(e, ASSAY_POINT_OUT_ATTN, layer, &at->buffer, &at->written,
                             &at->buffer);
}

/* q of the kernel: [T, H, a | rotated] from two points. */
static assay_status gather_q(assay_rows *q, assay_engine *e, assay_point a, int64_t wa,
                             int64_t a_head)
{
    assay_device *d = e->device;
    int n_head = e->part.n_head, rope = e->hp->d_rope;
    assay_rows first, second;
    void *at;
    ASSAY_TRY(assay_device_read(&first, e, a, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(assay_device_read(&second, e, ASSAY_POINT_Q_ROPE, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(assay_device_scratch(&at, d, ASSAY_SCRATCH_CAT,
                                   (size_t)(first.n * n_head * (wa + rope)) * sizeof(float)));
    ASSAY_RUN(d,
              assay_device_side_by_side(d->at, at, first, wa, a_head, second, rope, rope, n_head));
    *q = assay_rows_of(at, first.n, n_head * (wa + rope));
    return ASSAY_OK;
}

static assay_status mla(assay_engine *e, int layer)
{
    const assay_hparams *hp = e->hp;
    int64_t rank = hp->n_rank_kv, v = hp->d_value;
    bool latent = e->options.path == ASSAY_PATH_LATENT;
    assay_rows q, x;
    bool indexes = hp->has_indexer && hp->index_full[layer];
    bool aside = indexes && assay_device_has_side(e);
    ASSAY_TRY(latents(e, layer));
    if (aside) { /* selection beside queries, keys and their rotation */
        ASSAY_TRY(assay_device_fork(e));
        ASSAY_TRY(assay_device_index(e, layer));
        ASSAY_TRY(assay_device_unfork(e));
    }
    ASSAY_TRY(queries(e, layer));
    ASSAY_TRY(rotate_mla(e, layer));
    ASSAY_TRY(latent ? absorb(e, layer) : expand(e, layer));
    if (indexes && !aside)
        ASSAY_TRY(assay_device_index(e, layer));
    if (aside)
        ASSAY_TRY(assay_device_join(e));
    ASSAY_TRY(open_output(e, layer));
    assay_rows o = assay_device_rows_of(e, ASSAY_POINT_OUT_ATTN);
    if (!latent) {
        ASSAY_TRY(gather_q(&q, e, ASSAY_POINT_Q, hp->d_nope, hp->d_nope + hp->d_rope));
        ASSAY_TRY(kernel(e, layer, q, o));
        return hand_over(e, layer);
    }
    ASSAY_TRY(gather_q(&q, e, ASSAY_POINT_Q_LATENT, rank, rank));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_O_LATENT, layer));
    ASSAY_TRY(kernel(e, layer, q, assay_device_rows_of(e, ASSAY_POINT_O_LATENT)));
    ASSAY_TRY(assay_device_done(e, ASSAY_POINT_O_LATENT, layer));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_O_LATENT, ASSAY_POINT_KERNEL_OUT));
    int head = assay_part_of_weight(e, ASSAY_ROLE_ATTN_V_B, layer).head;
    ASSAY_TRY(half_up(e, layer, true, head, o.at, o.stride, v, x, rank));
    return hand_over(e, layer);
}

static assay_status llama_part(assay_engine *e, assay_point to, assay_rows x, assay_role role,
                               assay_role bias, int64_t first, int layer)
{
    assay_device *d = e->device;
    const float *b;
    if (assay_device_weight(e, role, layer))
        return project_to(e, to, x, role, layer, bias);
    ASSAY_TRY(assay_device_begin(e, to, layer));
    assay_rows y = assay_device_rows_of(e, to);
    assay_slice slice = {first, y.width, 0, x.width};
    ASSAY_TRY(assay_device_linear_slice(e, y, x, ASSAY_ROLE_ATTN_QKV, layer, slice));
    b = assay_device_vector(e, ASSAY_ROLE_ATTN_QKV_BIAS, layer);
    if (b)
        ASSAY_RUN(d, assay_device_bias(d->at, y, b + first));
    return assay_device_done(e, to, layer);
}

static assay_status llama(assay_engine *e, int layer)
{
    const assay_hparams *hp = e->hp;
    const assay_part *p = &e->part, from = assay_part_of_weight(e, ASSAY_ROLE_ATTN_QKV, layer);
    assay_rotary q_how, k_how;
    int64_t width = hp->d_head;
    assay_rows x;
    ASSAY_TRY(rotary_of(&q_how, e, layer, ASSAY_TURN_Q));
    ASSAY_TRY(rotary_of(&k_how, e, layer, ASSAY_TURN_K));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_IN_NORM, ASSAY_POINT_Q));
    ASSAY_TRY(llama_part(e, ASSAY_POINT_Q, x, ASSAY_ROLE_ATTN_Q, ASSAY_ROLE_ATTN_Q_BIAS,
                         from.head * width, layer));
    ASSAY_TRY(llama_part(e, ASSAY_POINT_K, x, ASSAY_ROLE_ATTN_K, ASSAY_ROLE_ATTN_K_BIAS,
                         (hp->n_head + from.kv_head) * width, layer));
    ASSAY_TRY(llama_part(e, ASSAY_POINT_V, x, ASSAY_ROLE_ATTN_V, ASSAY_ROLE_ATTN_V_BIAS,
                         (hp->n_head + hp->n_head_kv + from.kv_head) * width, layer));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_Q, ASSAY_POINT_Q_ROPE));
    x.width = width;
    ASSAY_TRY(assay_device_turn(e, ASSAY_POINT_Q_ROPE, x, width, p->n_head, &q_how, layer));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_K, ASSAY_POINT_K_ROPE));
    x.width = width;
    ASSAY_TRY(assay_device_turn(e, ASSAY_POINT_K_ROPE, x, width, p->n_head_kv, &k_how, layer));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_K_ROPE, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(assay_device_write_cache(e, ASSAY_KV_K, layer, x, (assay_rows){0}));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_V, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(assay_device_write_cache(e, ASSAY_KV_V, layer, x, (assay_rows){0}));
    ASSAY_TRY(open_output(e, layer));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_Q_ROPE, ASSAY_POINT_KERNEL_OUT));
    ASSAY_TRY(kernel(e, layer, x, assay_device_rows_of(e, ASSAY_POINT_OUT_ATTN)));
    return hand_over(e, layer);
}

assay_status assay_device_attention_layer(assay_engine *e, int layer)
{
    assay_rows x;
    ASSAY_TRY(e->hp->is_mla ? mla(e, layer) : llama(e, layer));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_OUT_ATTN, ASSAY_POINT_PROJ));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_PROJ, layer));
    ASSAY_TRY(assay_device_linear(e, assay_device_rows_of(e, ASSAY_POINT_PROJ), x,
                                  ASSAY_ROLE_ATTN_OUTPUT, layer, ASSAY_ROLE_ATTN_OUTPUT_BIAS));
    return assay_device_done_reduced(e, ASSAY_POINT_PROJ, layer);
}

static assay_status index_queries(assay_engine *e, int layer)
{
    const assay_hparams *hp = e->hp;
    assay_rotary how = assay_rotary_of(e, layer, ASSAY_TURN_INDEX_Q);
    assay_rows x;
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_Q_A_NORM, ASSAY_POINT_INDEX_Q_PROJ));
    ASSAY_TRY(
        project_to(e, ASSAY_POINT_INDEX_Q_PROJ, x, ASSAY_ROLE_INDEX_Q_B, layer, ASSAY_ROLE_COUNT));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_INDEX_Q_PROJ, ASSAY_POINT_INDEX_Q));
    x.width = hp->index_d_head;
    return assay_device_turn(e, ASSAY_POINT_INDEX_Q, x, hp->index_d_head, hp->index_n_head, &how,
                             layer);
}

static assay_status index_keys(assay_engine *e, int layer)
{
    assay_device *d = e->device;
    assay_rotary how = assay_rotary_of(e, layer, ASSAY_TURN_INDEX_K);
    assay_norm norm = assay_norm_of(e, layer, ASSAY_NORM_INDEX);
    assay_rows x;
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_IN_NORM, ASSAY_POINT_INDEX_K_PROJ));
    ASSAY_TRY(
        project_to(e, ASSAY_POINT_INDEX_K_PROJ, x, ASSAY_ROLE_INDEX_K, layer, ASSAY_ROLE_COUNT));
    assay_rows stream = x;
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_INDEX_K_PROJ, ASSAY_POINT_INDEX_K_NORM));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_INDEX_K_NORM, layer));
    ASSAY_RUN(d, assay_device_layernorm(d->at, assay_device_rows_of(e, ASSAY_POINT_INDEX_K_NORM), x,
                                        assay_device_vector(e, ASSAY_ROLE_INDEX_K_NORM, layer),
                                        assay_device_vector(e, ASSAY_ROLE_INDEX_K_NORM_BIAS, layer),
                                        &norm));
    ASSAY_TRY(assay_device_done(e, ASSAY_POINT_INDEX_K_NORM, layer));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_INDEX_K_NORM, ASSAY_POINT_INDEX_K));
    ASSAY_TRY(assay_device_turn(e, ASSAY_POINT_INDEX_K, x, 0, 1, &how, layer));
    ASSAY_TRY(project_to(e, ASSAY_POINT_INDEX_WEIGHTS, stream, ASSAY_ROLE_INDEX_PROJ, layer,
                         ASSAY_ROLE_COUNT));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_INDEX_K, ASSAY_POINT_INDEX_SCORES));
    return assay_device_write_cache(e, ASSAY_KV_INDEX, layer, x, (assay_rows){0});
}

assay_status assay_device_index(assay_engine *e, int layer)
{
    assay_device *d = e->device;
    assay_indexer how = assay_indexer_of(e, layer);
    assay_device_cache cache;
    int64_t top_k = e->hp->index_top_k, most = e->options.max_positions; /* as the point's axis X */
    int64_t n_ids = top_k < most ? top_k : most;
    assay_rows q, w, x;
    ASSAY_TRY(index_queries(e, layer));
    ASSAY_TRY(index_keys(e, layer));
    ASSAY_TRY(assay_device_read_cache(&cache, e, ASSAY_KV_INDEX, layer));
    ASSAY_TRY(assay_device_read(&q, e, ASSAY_POINT_INDEX_Q, ASSAY_POINT_INDEX_SCORES));
    ASSAY_TRY(assay_device_read(&w, e, ASSAY_POINT_INDEX_WEIGHTS, ASSAY_POINT_INDEX_SCORES));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_INDEX_SCORES, layer));
    x = assay_device_rows_of(e, ASSAY_POINT_INDEX_SCORES);
    ASSAY_RUN(d, assay_device_index_scores(d->at, x, q, w, &cache, &d->rows, &how));
    ASSAY_TRY(assay_device_done_exact(e, ASSAY_POINT_INDEX_SCORES, layer));
    ASSAY_TRY(assay_device_read(&x, e, ASSAY_POINT_INDEX_SCORES, ASSAY_POINT_INDEX_TOPK));
    ASSAY_TRY(assay_device_begin(e, ASSAY_POINT_INDEX_TOPK, layer));
    ASSAY_RUN(d, assay_device_index_select(d->at, assay_device_ids(e, ASSAY_POINT_INDEX_TOPK),
                                           n_ids, x, &d->rows, &how));
    return assay_device_done_exact(e, ASSAY_POINT_INDEX_TOPK, layer);
}
