/*
 * Ops outside of attention and experts: embedding, norms, projections, rotary, feed-forward,
 * residual adds, output head.
 */
#include <math.h>
#include <string.h>

#include "references/oracle/oracle_private.h"

assay_dtype assay_oracle_half(const assay_knobs *knobs)
{
    return assay_dtype_mantissa(knobs->round_out) < 24 ? knobs->round_out : ASSAY_DTYPE_F64;
}

assay_status assay_oracle_op_embed(double *out, const oracle_call *call)
{
    const assay_oracle *o = call->eval->oracle;
    oracle_matrix w;
    int64_t width = o->shape.n_embd;
    ASSAY_TRY(assay_oracle_matrix(&w, o, -1, "token_embd.weight", 1, o->shape.n_vocab, width,
                                  call->eval->knobs));
    for (int64_t t = 0; t < call->n_tokens; t++) {
        ASSAY_TRY(
            assay_oracle_row(out + t * width, call->eval->oracle, &w, 0, call->at->tokens[t]));
        for (int64_t d = 0; d < width; d++)
            out[t * width + d] *= call->eval->knobs->embed_scale;
    }
    return ASSAY_OK;
}

/* One row of a one-row weight (norms, biases). */
assay_status assay_oracle_vector(const double **out, oracle_eval *e, int layer, const char *name,
                                 int64_t n)
{
    oracle_matrix w;
    int64_t rows;
    ASSAY_TRY(assay_oracle_matrix(&w, e->oracle, layer, name, 1, 1, n, e->knobs));
    return assay_oracle_rows(out, &rows, e->oracle, &w, 0, 0);
}

static const struct {
    assay_point point;
    int norm;
    const char *weight;
} norms[] = {
    {ASSAY_POINT_IN_NORM, ASSAY_NORM_OF_ATTN, "attn_norm.weight"},
    {ASSAY_POINT_Q_A_NORM, ASSAY_NORM_OF_Q_A, "attn_q_a_norm.weight"},
    {ASSAY_POINT_KV_LATENT, ASSAY_NORM_OF_KV_A, "attn_kv_a_norm.weight"},
    {ASSAY_POINT_FFN_NORM, ASSAY_NORM_OF_FFN, "ffn_norm.weight"},
    {ASSAY_POINT_FINAL_NORM, ASSAY_NORM_OF_FINAL, "output_norm.weight"},
    {ASSAY_POINT_NEXTN_NORM, ASSAY_NORM_OF_FINAL, "nextn.shared_head_norm.weight"},
};

assay_status assay_oracle_op_norm(double *out, const oracle_call *call)
{
    const assay_knobs *k = call->eval->knobs;
    size_t i = 0;
    while (norms[i].point != call->point)
        i++;
    const double *w;
    const char *name = norms[i].weight;
    int layer = call->layer;
    if (call->point == ASSAY_POINT_NEXTN_NORM &&
        !assay_oracle_find(call->eval->oracle, layer, name)) {
        name = "output_norm.weight"; /* shared with the trunk */
        layer = -1;
    }
    ASSAY_TRY(assay_oracle_vector(&w, call->eval, layer, name, call->width));
    /* the latent is the first part of a wider row */
    for (int64_t t = 0; t < call->n_tokens; t++)
        assay_oracle_rms_norm(out + t * call->width, call->in[0] + t * call->in_width[0], w,
                              call->width, k->eps[norms[i].norm], k->norm[norms[i].norm],
                              k->round_out);
    return ASSAY_OK;
}

assay_status assay_oracle_op_index_norm(double *out, const oracle_call *call)
{
    const assay_knobs *k = call->eval->knobs;
    const double *w, *b;
    ASSAY_TRY(
        assay_oracle_vector(&w, call->eval, call->layer, "indexer.k_norm.weight", call->width));
    ASSAY_TRY(assay_oracle_vector(&b, call->eval, call->layer, "indexer.k_norm.bias", call->width));
    for (int64_t t = 0; t < call->n_tokens; t++)
        assay_oracle_layer_norm(out + t * call->width, call->in[0] + t * call->width, w, b,
                                call->width, k->eps[ASSAY_NORM_OF_INDEX_K],
                                k->norm[ASSAY_NORM_OF_INDEX_K], k->round_out);
    return ASSAY_OK;
}

static const struct {
    assay_point point;
    const char *weight, *bias;
} projections[] = {
    {ASSAY_POINT_Q_A, "attn_q_a.weight", NULL},
    {ASSAY_POINT_Q, "attn_q.weight", "attn_q.bias"},
    {ASSAY_POINT_KV_A, "attn_kv_a_mqa.weight", NULL},
    {ASSAY_POINT_K, "attn_k.weight", "attn_k.bias"},
    {ASSAY_POINT_V, "attn_v.weight", "attn_v.bias"},
    {ASSAY_POINT_INDEX_Q_PROJ, "indexer.attn_q_b.weight", NULL},
    {ASSAY_POINT_INDEX_K_PROJ, "indexer.attn_k.weight", NULL},
    {ASSAY_POINT_INDEX_WEIGHTS, "indexer.proj.weight", NULL},
    {ASSAY_POINT_PROJ, "attn_output.weight", "attn_output.bias"},
    {ASSAY_POINT_FFN_GATE, "ffn_gate.weight", "ffn_gate.bias"},
    {ASSAY_POINT_FFN_UP, "ffn_up.weight", "ffn_up.bias"},
    {ASSAY_POINT_FFN_OUT, "ffn_down.weight", "ffn_down.bias"},
    {ASSAY_POINT_MOE_LOGITS, "ffn_gate_inp.weight", NULL},
    {ASSAY_POINT_SHARED_GATE, "ffn_gate_shexp.weight", NULL},
    {ASSAY_POINT_SHARED_UP, "ffn_up_shexp.weight", NULL},
    {ASSAY_POINT_SHARED, "ffn_down_shexp.weight", NULL},
};

/* First row and row count of q, k and v in llama's one-tensor form [(H + 2 G) d, D]. */
static void part_of_qkv(int64_t *row, int64_t *rows, const oracle_call *call)
{
    const assay_oracle_shape *s = &call->eval->oracle->shape;
    int64_t q = (int64_t)s->n_head * s->d_rope, k = (int64_t)s->n_head_kv * s->d_rope;
    *rows = q + k + (int64_t)s->n_head_kv * s->d_value;
    *row = call->point == ASSAY_POINT_Q ? 0 : call->point == ASSAY_POINT_K ? q : q + k;
}

assay_status assay_oracle_op_project(double *out, const oracle_call *call)
{
    oracle_eval *e = call->eval;
    size_t i = 0;
    while (projections[i].point != call->point)
        i++;
    const char *name = projections[i].weight;
    oracle_part part = {.n_rows = call->width, .n_cols = call->in_width[0]};
    int64_t rows = call->width;
    if (call->point == ASSAY_POINT_Q && e->oracle->has_q_lora)
        name = "attn_q_b.weight";
    bool attention_input = call->point == ASSAY_POINT_Q || call->point == ASSAY_POINT_K ||
                           call->point == ASSAY_POINT_V;
    if (attention_input && !assay_oracle_find(e->oracle, call->layer, name) &&
        assay_oracle_find(e->oracle, call->layer, "attn_qkv.weight")) {
        name = "attn_qkv.weight";
        part_of_qkv(&part.row, &rows, call);
    }
    oracle_matrix w;
    ASSAY_TRY(
        assay_oracle_matrix(&w, e->oracle, call->layer, name, 1, rows, part.n_cols, e->knobs));
    ASSAY_TRY(assay_oracle_product(out, call->width, call->in[0], part.n_cols, call->n_tokens,
                                   e->oracle, &w, part, e->knobs));
    if (!projections[i].bias || !assay_oracle_find(e->oracle, call->layer, projections[i].bias))
        return ASSAY_OK;
    const double *b;
    ASSAY_TRY(assay_oracle_vector(&b, e, call->layer, projections[i].bias, call->width));
    for (int64_t j = 0; j < call->n; j++)
        out[j] += b[j % call->width];
    return ASSAY_OK;
}

/* n heads of `width` channels per token; the rotated ones start at `first` of each head. */
static assay_status rotate_heads(double *x, const oracle_call *call, const assay_rope_knobs *rope,
                                 int64_t n, int64_t width, int64_t first, bool is_query)
{
    double f[512];
    const double *divisors = NULL;
    assay_rope_knobs used = *rope;
    if (used.width > call->eval->oracle->shape.d_rope)
        used.width = call->eval->oracle->shape.d_rope;
    if (is_query ? used.skip_q : used.skip_k)
        used.skip = true;
    if (used.use_freqs)
        ASSAY_TRY(assay_oracle_vector(&divisors, call->eval, -1, "rope_freqs.weight",
                                      call->eval->oracle->shape.d_rope / 2));
    assay_oracle_rope_frequencies(f, &used);
    double offset = is_query ? used.position_offset_q : used.position_offset_k;
    for (int64_t t = 0; t < call->n_tokens; t++)
        for (int64_t h = 0; h < n; h++)
            assay_oracle_rotate(x + (t * n + h) * width + first, &used, f, divisors,
                                (double)(call->at->first_position + t) * used.position_scale +
                                    offset,
                                call->eval->knobs->round_out);
    return ASSAY_OK;
}

assay_status assay_oracle_op_q_rope(double *out, const oracle_call *call)
{
    int64_t R = call->eval->oracle->shape.d_rope, K = oracle_key_width(call->eval->oracle);
    int64_t heads = call->eval->oracle->shape.n_head;
    for (int64_t i = 0; i < call->n_tokens * heads; i++)
        memcpy(out + i * R, call->in[0] + i * K + K - R, (size_t)R * sizeof *out);
    return rotate_heads(out, call, &call->eval->knobs->rope, heads, R, 0, true);
}

assay_status assay_oracle_op_k_rope(double *out, const oracle_call *call)
{
    /* MLA: one head behind the latent; llama: every key/value head whole */
    const assay_oracle_shape *s = &call->eval->oracle->shape;
    int64_t R = s->d_rope, heads = s->is_mla ? 1 : s->n_head_kv;
    int64_t stride = call->in_width[0] / heads;
    for (int64_t i = 0; i < call->n_tokens * heads; i++)
        memcpy(out + i * R, call->in[0] + i * stride + stride - R, (size_t)R * sizeof *out);
    return rotate_heads(out, call, &call->eval->knobs->rope, heads, R, 0, false);
}

assay_status assay_oracle_op_index_rope(double *out, const oracle_call *call)
{
    const assay_oracle_shape *s = &call->eval->oracle->shape;
    bool is_query = call->point == ASSAY_POINT_INDEX_Q;
    int64_t first = call->eval->knobs->index_rope_last ? s->index_d_head - s->d_rope : 0;
    memcpy(out, call->in[0], (size_t)call->n * sizeof *out);
    return rotate_heads(out, call, &call->eval->knobs->index_rope, is_query ? s->index_n_head : 1,
                        s->index_d_head, first, is_query);
}

assay_status assay_oracle_op_copy(double *out, const oracle_call *call)
{
    memcpy(out, call->in[0], (size_t)call->n * sizeof *out);
    return ASSAY_OK;
}

assay_status assay_oracle_op_residual(double *out, const oracle_call *call)
{
    const assay_knobs *k = call->eval->knobs;
    bool attn = call->point == ASSAY_POINT_ATTN_RESID;
    double stream = attn ? k->stream_times : 1, times = attn ? k->attn_times : k->ffn_times;
    for (int64_t i = 0; i < call->n; i++)
        out[i] = stream * call->in[0][i] + times * call->in[1][i];
    return ASSAY_OK;
}

/* Column i of gate and up laid side by side, n each. */
static double beside(const double *gate, const double *up, int64_t i, int64_t n)
{
    return i < n ? gate[i] : up[i - n];
}

/* n: width of one gate (an expert's). */
static void act_row(double *out, const double *gate, const double *up, int64_t n,
                    const assay_knobs *k)
{
    assay_dtype half = assay_oracle_half(k);
    for (int64_t i = 0; i < n; i++) {
        double g = k->gate_up_riffle ? beside(gate, up, 2 * i, n) : gate[i];
        double u = k->gate_up_riffle ? beside(gate, up, 2 * i + 1, n) : up[i];
        double act = assay_oracle_round_one(assay_oracle_act(g, k->activation), half);
        out[i] = k->up_left_out ? act : act * u;
    }
}

assay_status assay_oracle_op_act(double *out, const oracle_call *call)
{
    const assay_knobs *k = call->eval->knobs;
    const double *gate = call->in[k->gate_up_exchanged ? 1 : 0];
    const double *up = call->in[k->gate_up_exchanged ? 0 : 1];
    int64_t n = call->point == ASSAY_POINT_MOE_EXPERT_ACT ? call->eval->oracle->shape.n_ff_expert
                                                          : call->width;
    for (int64_t i = 0; i < call->n; i += n)
        act_row(out + i, gate + i, up + i, n, k);
    return ASSAY_OK;
}

assay_status assay_oracle_op_logits(double *out, const oracle_call *call)
{
    oracle_eval *e = call->eval;
    const assay_knobs *k = e->knobs;
    oracle_matrix w;
    oracle_part part = {.n_rows = call->width, .n_cols = call->in_width[0]};
    const char *name = k->head_tied ? "token_embd.weight" : "output.weight";
    int layer = -1;
    if (call->layer >= 0 &&
        assay_oracle_find(e->oracle, call->layer, "nextn.shared_head_head.weight")) {
        name = "nextn.shared_head_head.weight";
        layer = call->layer;
    }
    ASSAY_TRY(assay_oracle_matrix(&w, e->oracle, layer, name, 1, call->width, part.n_cols, k));
    ASSAY_TRY(assay_oracle_product(out, call->width, call->in[0], part.n_cols, call->n_tokens,
                                   e->oracle, &w, part, k));
    for (int64_t i = 0; i < call->n; i++) {
        out[i] *= k->logits_scale;
        if (k->final_cap != 0)
            out[i] = k->final_cap * tanh(out[i] / k->final_cap);
    }
    return ASSAY_OK;
}

assay_status assay_oracle_weight(const double **out, int64_t dims[4], assay_oracle *oracle,
                                 const char *name)
{
    const assay_gguf_tensor_info *t = name ? assay_gguf_find_tensor(oracle->file, name) : NULL;
    if (!t)
        return assay_fail(ASSAY_MISSING, "%s: no tensor '%s'", assay_gguf_path(oracle->file),
                          name ? name : "(null)");
    oracle_matrix w = {.info = t,
                       .quant = assay_oracle_quant_find(t->type),
                       .slices = 1,
                       .rows = t->ne[1] * t->ne[2] * t->ne[3],
                       .cols = t->ne[0],
                       .round = ASSAY_DTYPE_F64,
                       .whole = true};
    if (!w.quant)
        return assay_fail(ASSAY_UNSUPPORTED, "tensor '%s': type %d cannot be decoded", name,
                          t->type);
    for (int d = 0; d < 4; d++)
        dims[d] = t->ne[3 - d];
    int64_t n;
    return assay_oracle_rows(out, &n, oracle, &w, 0, 0);
}
