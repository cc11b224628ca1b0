/*
 * The up-projection kv_b in both of its forms: multiplied out (keys and values per head) and
 * absorbed (queries taken into the latent space, results taken out of it).
 *
 *   K_h [N, L], V_h [V, L]      old files: rows of attn_kv_b, per head N key rows and then V value
 * rows new files: attn_k_b holds K_h^T as [L, N], attn_v_b holds V_h
 */
#include <stdlib.h>
#include <string.h>

#include "references/oracle/oracle_private.h"

/* All rows of a slice, from `row` on, into memory of the caller. */
static assay_status copy_rows(double *out, oracle_eval *e, const oracle_matrix *w, int64_t slice,
                              int64_t row, int64_t n_rows)
{
    while (n_rows > 0) {
        const double *rows;
        int64_t n;
        ASSAY_TRY(assay_oracle_rows(&rows, &n, e->oracle, w, slice, row));
        n = n < n_rows ? n : n_rows;
        memcpy(out, rows, (size_t)(n * w->cols) * sizeof *out);
        out += n * w->cols;
        row += n;
        n_rows -= n;
    }
    return ASSAY_OK;
}

static void transpose(double *out, const double *x, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            out[c * rows + r] = x[r * cols + c];
}

static bool is_split(const oracle_call *call)
{
    return assay_oracle_find(call->eval->oracle, call->layer, "attn_k_b.weight") != NULL;
}

/* The head's rows [K_h; V_h] as the file has them; scratch holds as much. */
static assay_status read_head(double *rows, double *scratch, const oracle_call *call, int head)
{
    oracle_eval *e = call->eval;
    const assay_oracle_shape *s = &e->oracle->shape;
    int64_t N = s->d_nope, V = s->d_value, L = s->n_rank_kv;
    assay_kv_b_view view = e->knobs->kv_b;
    double *keys = rows, *values = rows + N * L;
    oracle_matrix k, v;
    if (is_split(call)) {
        ASSAY_TRY(assay_oracle_matrix(&k, e->oracle, call->layer, "attn_k_b.weight", s->n_head, L,
                                      N, e->knobs));
        ASSAY_TRY(assay_oracle_matrix(&v, e->oracle, call->layer, "attn_v_b.weight", s->n_head, V,
                                      L, e->knobs));
        ASSAY_TRY(copy_rows(scratch, e, &k, head, 0, L));
        transpose(keys, scratch, L, N);
        if (view == ASSAY_KV_B_KEY_TRANSPOSED)
            memcpy(keys, scratch, (size_t)(N * L) * sizeof *keys);
        if (view == ASSAY_KV_B_KEY_RESTRIDED) {
            memcpy(scratch, keys, (size_t)(N * L) * sizeof *keys);
            transpose(keys, scratch, L, N);
        }
        ASSAY_TRY(copy_rows(values, e, &v, head, 0, V));
    } else {
        ASSAY_TRY(assay_oracle_matrix(&k, e->oracle, call->layer, "attn_kv_b.weight", 1,
                                      s->n_head * (N + V), L, e->knobs));
        ASSAY_TRY(copy_rows(rows, e, &k, 0, head * (N + V), N + V));
        if (view == ASSAY_KV_B_KEY_TRANSPOSED || view == ASSAY_KV_B_KEY_RESTRIDED) {
            memcpy(scratch, keys, (size_t)(N * L) * sizeof *keys);
            transpose(keys, scratch, L, N);
        }
    }
    if (view == ASSAY_KV_B_VALUE_TRANSPOSED) {
        memcpy(scratch, values, (size_t)(V * L) * sizeof *values);
        transpose(values, scratch, L, V);
    }
    return ASSAY_OK;
}

assay_status assay_oracle_kv_b_head(double *key, double *value, const oracle_call *call, int head)
{
    const assay_oracle_shape *s = &call->eval->oracle->shape;
    int64_t N = s->d_nope, V = s->d_value, L = s->n_rank_kv;
    double *rows;
    if (call->eval->knobs->kv_b == ASSAY_KV_B_OTHER_HEAD)
        head = (head + call->eval->knobs->kv_b_head_shift) % s->n_head;
    if (call->eval->knobs->kv_b == ASSAY_KV_B_FIRST_HEAD)
        head = 0;
    ASSAY_TRY(assay_alloc(&rows, (size_t)(2 * (N + V) * L), sizeof *rows, "a head of kv_b"));
    double *turned = rows + (N + V) * L;
    assay_status status = read_head(rows, turned, call, head);
    if (call->eval->knobs->kv_b == ASSAY_KV_B_HALVES_EXCHANGED) {
        memcpy(turned, rows + N * L, (size_t)(V * L) * sizeof *rows);
        memcpy(turned + V * L, rows, (size_t)(N * L) * sizeof *rows);
    } else {
        memcpy(turned, rows, (size_t)((N + V) * L) * sizeof *rows);
    }
    if (key)
        memcpy(key, turned, (size_t)(N * L) * sizeof *rows);
    if (value)
        memcpy(value, turned + N * L, (size_t)(V * L) * sizeof *rows);
    free(rows);
    return status;
}

/* What ggml rounds the input of this tensor's product to; only where the engine has that product.
 */
static oracle_partner partner_of(const oracle_call *call, const char *name)
{
    const assay_gguf_tensor_info *t = call->eval->knobs->activations_q8
                                          ? assay_oracle_find(call->eval->oracle, call->layer, name)
                                          : NULL;
    const oracle_quant *q = t ? assay_oracle_quant_find(t->type) : NULL;
    return q ? q->partner : ORACLE_PARTNER_NONE;
}

/* Views of the product's cut leave the matrix itself alone. */
static bool is_as_stored(assay_kv_b_view view)
{
    return view == ASSAY_KV_B_RIGHT || view == ASSAY_KV_B_SPLIT_EXCHANGED ||
           view == ASSAY_KV_B_SPLIT_BY_KIND;
}

/*
 * One half of a head as a factor. It lies in memory as the file has it: K_h as [N, L] rows of kv_b
 * or as [L, N] in k_b, V_h as [V, L]; under a view of kv_b it is put together in *owned.
 */
static assay_status half_of(oracle_factor *out, double **owned, const oracle_call *call, int h,
                            bool of_key)
{
    oracle_eval *e = call->eval;
    const assay_oracle_shape *s = &e->oracle->shape;
    int64_t N = s->d_nope, V = s->d_value, L = s->n_rank_kv, have;
    bool split = is_split(call);
    int64_t rows = of_key ? (split ? L : N) : V, row = split ? 0 : h * (N + V) + (of_key ? 0 : N);
    oracle_matrix w;
    if (is_as_stored(e->knobs->kv_b)) {
        if (!split)
            ASSAY_TRY(assay_oracle_matrix(&w, e->oracle, call->layer, "attn_kv_b.weight", 1,
                                          s->n_head * (N + V), L, e->knobs));
        else
            ASSAY_TRY(assay_oracle_matrix(&w, e->oracle, call->layer,
                                          of_key ? "attn_k_b.weight" : "attn_v_b.weight", s->n_head,
                                          rows, of_key ? N : L, e->knobs));
        *out = (oracle_factor){.ld = w.cols, .transposed = of_key && split /* as K_h^T */};
        ASSAY_TRY(assay_oracle_rows(&out->values, &have, e->oracle, &w, split ? h : 0, row));
        if (have >= rows)
            return ASSAY_OK;
    }
    ASSAY_TRY(assay_alloc(owned, (size_t)((of_key ? N : V) * L), sizeof **owned, "half a head"));
    *out = (oracle_factor){.values = *owned, .ld = L};
    return assay_oracle_kv_b_head(of_key ? *owned : NULL, of_key ? NULL : *owned, call, h);
}

/*
 * Per head h: y[t, h] = x[t, h] M_h^T, or x[t, h] M_h where `backward`, M_h the key or value half;
 * the input is rounded first where the knobs ask for it. Rows of x and y lie x_row and y_row apart,
 * heads x_head and y_head.
 */
typedef struct per_head {
    int64_t x_row, x_head, x_width, y_row, y_head, y_at, y_width;
    bool of_key, backward;
    const char *weight;
} per_head;

static assay_status one_half(double *y, const double *x, double *rounded, const oracle_call *call,
                             const per_head *p, int h)
{
    oracle_partner partner = partner_of(call, p->weight);
    const double *from = x + h * p->x_head;
    double *owned = NULL;
    oracle_factor m = {0};
    assay_status s = half_of(&m, &owned, call, h, p->of_key);
    m.transposed = m.transposed != p->backward;
    for (int64_t t = 0; t < call->n_tokens; t++) {
        memcpy(rounded + t * p->x_width, from + t * p->x_row, (size_t)p->x_width * sizeof *rounded);
        assay_oracle_round_activation(rounded + t * p->x_width, p->x_width, partner);
    }
    if (s == ASSAY_OK)
        s = assay_oracle_multiply(y + h * p->y_head + p->y_at, p->y_row, rounded, p->x_width, &m,
                                  call->n_tokens, p->y_width, p->x_width,
                                  call->eval->knobs->round_out != ASSAY_DTYPE_F64);
    free(owned);
    return s;
}

static assay_status all_heads(double *y, const double *x, const oracle_call *call,
                              const per_head *p)
{
    double *rounded;
    ASSAY_TRY(assay_alloc(&rounded, (size_t)(call->n_tokens * p->x_width), sizeof *rounded,
                          "inputs of a head"));
    assay_status s = ASSAY_OK;
    for (int h = 0; h < call->eval->oracle->shape.n_head && s == ASSAY_OK; h++)
        s = one_half(y, x, rounded, call, p, h);
    free(rounded);
    return s;
}

/* q_latent[t, h, l] = sum_n K_h[n, l] q[t, h, n] */
assay_status assay_oracle_op_q_latent(double *out, const oracle_call *call)
{
    const assay_oracle_shape *s = &call->eval->oracle->shape;
    per_head p = {.x_row = call->in_width[0],
                  .x_head = oracle_key_width(call->eval->oracle),
                  .x_width = s->d_nope,
                  .y_row = call->width,
                  .y_head = s->n_rank_kv,
                  .y_width = s->n_rank_kv,
                  .of_key = true,
                  .backward = true,
                  .weight = "attn_k_b.weight"};
    return all_heads(out, call->in[0], call, &p);
}

/* kernel_out[t, h, v] = sum_l V_h[v, l] o_latent[t, h, l] */
assay_status assay_oracle_op_values_out(double *out, const oracle_call *call)
{
    const assay_oracle_shape *s = &call->eval->oracle->shape;
    per_head p = {.x_row = call->in_width[0],
                  .x_head = s->n_rank_kv,
                  .x_width = s->n_rank_kv,
                  .y_row = call->width,
                  .y_head = s->d_value,
                  .y_width = s->d_value,
                  .weight = "attn_v_b.weight"};
    return all_heads(out, call->in[0], call, &p);
}

/* kv_b[t, h] = [K_h; V_h] kv_latent[t] */
assay_status assay_oracle_op_kv_b(double *out, const oracle_call *call)
{
    const assay_oracle_shape *s = &call->eval->oracle->shape;
    per_head p = {.x_row = s->n_rank_kv,
                  .x_width = s->n_rank_kv,
                  .y_row = call->width,
                  .y_head = s->d_nope + s->d_value,
                  .y_width = s->d_nope,
                  .of_key = true,
                  .weight = "attn_kv_b.weight"};
    ASSAY_TRY(all_heads(out, call->in[0], call, &p));
    p.of_key = false;
    p.y_at = s->d_nope;
    p.y_width = s->d_value;
    return all_heads(out, call->in[0], call, &p);
}

/* Where head h's keys and values start in a row of kv_b. */
static int64_t key_at(const assay_oracle_shape *s, assay_kv_b_view view, int64_t h)
{
    if (view == ASSAY_KV_B_SPLIT_BY_KIND)
        return h * s->d_nope;
    return h * (s->d_nope + s->d_value) + (view == ASSAY_KV_B_SPLIT_EXCHANGED ? s->d_value : 0);
}

static int64_t value_at(const assay_oracle_shape *s, assay_kv_b_view view, int64_t h)
{
    if (view == ASSAY_KV_B_SPLIT_BY_KIND)
        return (int64_t)s->n_head * s->d_nope + h * s->d_value;
    return h * (s->d_nope + s->d_value) + (view == ASSAY_KV_B_SPLIT_EXCHANGED ? 0 : s->d_nope);
}

/* k[t, h] = [nope part of kv_b | k_rope], the rotary part shared by all heads */
assay_status assay_oracle_op_k(double *out, const oracle_call *call)
{
    const assay_oracle_shape *s = &call->eval->oracle->shape;
    int64_t N = s->d_nope, R = s->d_rope;
    for (int64_t t = 0; t < call->n_tokens; t++)
        for (int64_t h = 0; h < s->n_head; h++) {
            double *k = out + t * call->width + h * (N + R);
            memcpy(k, call->in[0] + t * call->in_width[0] + key_at(s, call->eval->knobs->kv_b, h),
                   (size_t)N * sizeof *k);
            memcpy(k + N, call->in[1] + t * R, (size_t)R * sizeof *k);
        }
    return ASSAY_OK;
}

assay_status assay_oracle_op_v(double *out, const oracle_call *call)
{
    const assay_oracle_shape *s = &call->eval->oracle->shape;
    for (int64_t t = 0; t < call->n_tokens; t++)
        for (int64_t h = 0; h < s->n_head; h++)
            memcpy(out + t * call->width + h * s->d_value,
                   call->in[0] + t * call->in_width[0] + value_at(s, call->eval->knobs->kv_b, h),
                   (size_t)s->d_value * sizeof *out);
    return ASSAY_OK;
}
