/*
 * Every knob against what its name says, on the shipped model: by another way of computing the same
 * thing, or by a knob that must agree with it.
 */
#include "references/oracle/oracle.h"

#include <stdio.h>

#include "data.h"
#include "expect.h"
#include "forge_plain.h"

enum { T = 8, H = 8, V = 64, D = 256, R = 32, N_OUT = T * H * V };

typedef struct bench {
    assay_gguf *file;
    assay_oracle *oracle;
    assay_pass *pass;
    assay_knobs k; /* a copy to bend */
} bench;

static const double *value(bench *b, assay_point point, int layer)
{
    const double *v;
    EXPECT_OK(assay_pass_value(&v, b->pass, 0, point, layer));
    return v;
}

/* Puts the right value. Pointers to computed values end with it. */
static void fix(bench *b, assay_point point, int layer)
{
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS], n = 1;
    EXPECT_OK(assay_pass_dims(&n_dims, dims, b->pass, 0, point, layer));
    for (int d = 0; d < n_dims; d++)
        n *= dims[d];
    EXPECT_OK(assay_pass_put(b->pass, 0, point, layer, value(b, point, layer), n));
}

/* What the layers 1 and 2 start from is put, so that knobs bend one layer alone. */
static bench bench_open(void)
{
    static const int32_t tokens[T] = {17, 300, 301, 302, 5, 6, 7, 8};
    bench b;
    int step;
    EXPECT_OK(assay_gguf_open(&b.file, data_shipped("glm5-tiny-Q4_K_M.gguf")));
    EXPECT_OK(assay_oracle_open(&b.oracle, b.file, 0));
    EXPECT_OK(assay_pass_new(&b.pass, b.oracle, NULL));
    EXPECT_OK(assay_pass_add_step(&step, b.pass, tokens, T, 0));
    b.k = *assay_oracle_knobs(b.oracle);
    fix(&b, ASSAY_POINT_OUT, 0);
    fix(&b, ASSAY_POINT_OUT, 1);
    return b;
}

static void bench_close(bench *b)
{
    assay_pass_free(b->pass);
    assay_oracle_close(b->oracle);
    assay_gguf_close(b->file);
}

static void bent(double *out, bench *b, assay_point point, int layer)
{
    EXPECT_OK(assay_pass_expect(out, b->pass, 0, point, layer, &b->k));
}

static void fix_attention(bench *b)
{
    static const assay_point inputs[] = {ASSAY_POINT_Q, ASSAY_POINT_Q_ROPE, ASSAY_POINT_K,
                                         ASSAY_POINT_V};
    for (int i = 0; i < 4; i++)
        fix(b, inputs[i], 1);
}

static double gap(const double *a, const double *b, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++)
        most = fmax(most, isnan(a[i] - b[i]) ? HUGE_VAL : fabs(a[i] - b[i]));
    return most;
}

START_TEST(masks_and_windows_limit_the_keys)
{
    bench b = bench_open();
    assay_knobs right = b.k;
    double x[N_OUT], y[N_OUT];
    fix_attention(&b);
    const double *v = value(&b, ASSAY_POINT_V, 1), *clean = value(&b, ASSAY_POINT_KERNEL_OUT, 1);
    b.k.window = 1; /* only itself */
    bent(x, &b, ASSAY_POINT_KERNEL_OUT, 1);
    ck_assert(gap(x, v, N_OUT) < 1e-14);
    b.k = right;
    b.k.window = T;
    bent(x, &b, ASSAY_POINT_KERNEL_OUT, 1);
    ck_assert(gap(x, clean, N_OUT) == 0);
    b.k = right;
    b.k.mask_shift = -1; /* the first token sees nothing */
    bent(x, &b, ASSAY_POINT_KERNEL_OUT, 1);
    for (int i = 0; i < H * V; i++)
        ck_assert(x[i] == 0);
    ck_assert(gap(x + H * V, v, H * V) < 1e-14); /* the second only the first */
    b.k = right;
    b.k.mask_none = true;
    bent(x, &b, ASSAY_POINT_KERNEL_OUT, 1);
    b.k.mask_none = false;
    b.k.mask_shift = T;
    bent(y, &b, ASSAY_POINT_KERNEL_OUT, 1);
    ck_assert(gap(x, y, N_OUT) == 0 && gap(x, clean, H * V) > 1e-3);
    ck_assert(gap(x + 7 * H * V, clean + 7 * H * V, H * V) == 0); /* the last sees all anyway */
    bench_close(&b);
}
END_TEST

START_TEST(merged_parts_are_the_whole_unless_merged_wrongly)
{
    bench b = bench_open();
    assay_knobs right = b.k;
    double first[N_OUT], last[N_OUT], x[N_OUT];
    fix_attention(&b);
    const double *clean = value(&b, ASSAY_POINT_KERNEL_OUT, 1);
    b.k.key_limit = 3;
    bent(first, &b, ASSAY_POINT_KERNEL_OUT, 1);
    b.k = right;
    b.k.key_first = 3;
    bent(last, &b, ASSAY_POINT_KERNEL_OUT, 1);
    b.k = right;
    b.k.merge_at = 3;
    bent(x, &b, ASSAY_POINT_KERNEL_OUT, 1);
    ck_assert(gap(x, clean, N_OUT) < 1e-14);
    static const struct {
        assay_merge kind;
        double a, b;
    } rows[] = {{ASSAY_MERGE_FIRST_ONLY, 1, 0},
                {ASSAY_MERGE_LAST_ONLY, 0, 1},
                {ASSAY_MERGE_MEAN, .5, .5},
                {ASSAY_MERGE_SUM, 1, 1}};
    for (int r = 0; r < 4; r++) {
        b.k.merge = rows[r].kind;
        bent(x, &b, ASSAY_POINT_KERNEL_OUT, 1);
        ck_assert(gap(x, clean, 3 * H * V) < 1e-14); /* rows with one part alone */
        for (int i = 3 * H * V; i < N_OUT; i++)
            EXPECT_NEAR(x[i], rows[r].a * first[i] + rows[r].b * last[i], 1e-13);
    }
    b.k.merge = ASSAY_MERGE_LSE_SIGN;
    bent(x, &b, ASSAY_POINT_KERNEL_OUT, 1);
    ck_assert(gap(x, clean, N_OUT) > 1e-3);
    bench_close(&b);
}
END_TEST

START_TEST(cache_knobs_shift_and_scale_what_attention_reads)
{
    bench b = bench_open();
    assay_knobs right = b.k;
    double x[N_OUT], y[N_OUT];
    fix_attention(&b);
    const double *clean = value(&b, ASSAY_POINT_KERNEL_OUT, 1), *v = value(&b, ASSAY_POINT_V, 1);
    b.k.value_scale = 3;
    bent(x, &b, ASSAY_POINT_KERNEL_OUT, 1);
    for (int i = 0; i < N_OUT; i++)
        EXPECT_NEAR(x[i], 3 * clean[i], 1e-13);
    b.k = right;
    b.k.key_scale = 0.5;
    bent(x, &b, ASSAY_POINT_KERNEL_OUT, 1);
    b.k = right;
    b.k.softmax_scale *= 0.5;
    bent(y, &b, ASSAY_POINT_KERNEL_OUT, 1);
    ck_assert(gap(x, y, N_OUT) < 1e-14 && gap(x, clean, N_OUT) > 1e-4);
    b.k = right;
    b.k.window = 1;
    b.k.value_row_shift = 1; /* slot j holds the value of token j - 1 */
    bent(x, &b, ASSAY_POINT_KERNEL_OUT, 1);
    ck_assert(gap(x + H * V, v, (T - 1) * H * V) < 1e-14);
    for (int i = 0; i < H * V; i++)
        ck_assert(x[i] == 0);
    b.k = right;
    b.k.round_cache = ASSAY_DTYPE_F16;
    bent(x, &b, ASSAY_POINT_KERNEL_OUT, 1);
    double off = gap(x, clean, N_OUT);
    ck_assert(off > 1e-7 && off < 1e-2);
    b.k = right;
    b.k.logit_cap = 1e-9; /* all logits equal: the mean of the values seen */
    bent(x, &b, ASSAY_POINT_KERNEL_OUT, 1);
    for (int c = 0; c < H * V; c++)
        EXPECT_NEAR(x[H * V + c], (v[c] + v[H * V + c]) / 2, 1e-8);
    bench_close(&b);
}
END_TEST

START_TEST(rotary_knobs_move_queries_and_keys)
{
    bench b = bench_open();
    assay_knobs right = b.k;
    double q[T * H * R], k[T * R], p[H * T * T];
    const double *clean_q = value(&b, ASSAY_POINT_Q_ROPE, 1);
    const double *clean_k = value(&b, ASSAY_POINT_K_ROPE, 1);
    const double *clean_p = value(&b, ASSAY_POINT_PROBS, 1);
    b.k.rope.position_offset_q = b.k.rope.position_offset_k = 5; /* cancels in the scores */
    bent(q, &b, ASSAY_POINT_Q_ROPE, 1);
    bent(p, &b, ASSAY_POINT_PROBS, 1);
    ck_assert(gap(q, clean_q, T * H * R) > 0.1 && gap(p, clean_p, H * T * T) < 1e-12);
    b.k.rope.position_offset_k = 0; /* one side alone does not */
    bent(k, &b, ASSAY_POINT_K_ROPE, 1);
    bent(p, &b, ASSAY_POINT_PROBS, 1);
    ck_assert(gap(k, clean_k, T * R) == 0 && gap(p, clean_p, H * T * T) > 1e-4);
    b.k = right;
    b.k.rope.skip_k = true;
    bent(k, &b, ASSAY_POINT_K_ROPE, 1);
    const double *kv = value(&b, ASSAY_POINT_KV_A, 1);
    for (int t = 0; t < T; t++)
        ck_assert(gap(k + t * R, kv + t * (D + R) + D, R) == 0);
    bent(q, &b, ASSAY_POINT_Q_ROPE, 1);
    ck_assert(gap(q, clean_q, T * H * R) == 0);
    b.k = right;
    b.k.rope.pairing = ASSAY_PAIR_ADJACENT_TO_SPLIT; /* another order alone: scores stay */
    bent(k, &b, ASSAY_POINT_K_ROPE, 1);
    for (int t = 0; t < T; t++)
        for (int i = 0; i < R; i++)
            ck_assert(k[t * R + i] == clean_k[t * R + (i < R / 2 ? 2 * i : 2 * (i - R / 2) + 1)]);
    bent(p, &b, ASSAY_POINT_PROBS, 1);
    ck_assert(gap(p, clean_p, H * T * T) < 1e-14);
    bench_close(&b);
}
END_TEST

START_TEST(component_knobs_count_parts_again_or_leave_them_out)
{
    bench b = bench_open();
    assay_knobs right = b.k;
    double x[T * D];
    const double *routed = value(&b, ASSAY_POINT_MOE_ROUTED, 1);
    const double *shared = value(&b, ASSAY_POINT_SHARED, 1);
    const double *resid = value(&b, ASSAY_POINT_ATTN_RESID, 1);
    const double *before = value(&b, ASSAY_POINT_OUT, 0);
    const double *proj = value(&b, ASSAY_POINT_PROJ, 1);
    const double *norm = value(&b, ASSAY_POINT_IN_NORM, 1);
    const double *out = value(&b, ASSAY_POINT_MOE_OUT, 1);
    b.k.routed_times = 2;
    b.k.shared_times = 0;
    bent(x, &b, ASSAY_POINT_MOE_OUT, 1);
    for (int i = 0; i < T * D; i++)
        ck_assert(x[i] == 2 * routed[i] + 0 * shared[i]);
    b.k = right;
    b.k.attn_times = 0.5;
    bent(x, &b, ASSAY_POINT_ATTN_RESID, 1);
    for (int i = 0; i < T * D; i++)
        ck_assert(x[i] == before[i] + 0.5 * proj[i]);
    b.k = right;
    b.k.stream_times = 2;
    bent(x, &b, ASSAY_POINT_ATTN_RESID, 1);
    for (int i = 0; i < T * D; i++)
        ck_assert(x[i] == 2 * before[i] + proj[i]);
    b.k = right;
    b.k.residual_after_norm = true;
    bent(x, &b, ASSAY_POINT_ATTN_RESID, 1);
    for (int i = 0; i < T * D; i++)
        ck_assert(x[i] == norm[i] + proj[i]);
    b.k = right;
    b.k.ffn_times = 0;
    bent(x, &b, ASSAY_POINT_OUT, 1);
    ck_assert(gap(x, resid, T * D) == 0 && gap(out, x, T * D) > 0);
    bench_close(&b);
}
END_TEST

START_TEST(activation_knobs_exchange_gate_and_up)
{
    bench b = bench_open();
    double x[T * 512];
    const double *gate = value(&b, ASSAY_POINT_FFN_GATE, 0), *up = value(&b, ASSAY_POINT_FFN_UP, 0);
    b.k.gate_up_exchanged = true;
    bent(x, &b, ASSAY_POINT_FFN_ACT, 0);
    for (int i = 0; i < T * 512; i++)
        EXPECT_NEAR(x[i], up[i] / (1 + exp(-up[i])) * gate[i], 1e-14);
    b.k.gate_up_exchanged = false;
    b.k.activation = ASSAY_ACT_GELU_TANH;
    bent(x, &b, ASSAY_POINT_FFN_ACT, 0);
    for (int i = 0; i < T * 512; i++) /* tanh form against the error function */
        EXPECT_NEAR(x[i], 0.5 * gate[i] * (1 + erf(gate[i] / sqrt(2))) * up[i],
                    2e-3 * fabs(up[i]) + 1e-12);
    b.k.activation = ASSAY_ACT_RELU;
    bent(x, &b, ASSAY_POINT_FFN_ACT, 0);
    for (int i = 0; i < T * 512; i++)
        ck_assert(x[i] == (gate[i] > 0 ? gate[i] : 0) * up[i]);
    b.k.activation = ASSAY_ACT_IDENTITY;
    b.k.gate_up_riffle = true; /* columns 2i and 2i + 1 of [gate | up] */
    bent(x, &b, ASSAY_POINT_FFN_ACT, 0);
    ck_assert(x[3] == gate[6] * gate[7] && x[300] == up[88] * up[89]);
    b.k.gate_up_riffle = false;
    b.k.up_left_out = true;
    bent(x, &b, ASSAY_POINT_FFN_ACT, 0);
    for (int i = 0; i < T * 512; i++)
        ck_assert(x[i] == gate[i]);
    bench_close(&b);
}
END_TEST

START_TEST(weight_knobs_read_other_weights_or_other_strides)
{
    bench b = bench_open();
    assay_knobs right = b.k;
    double x[T * D];
    const double *w, *in = value(&b, ASSAY_POINT_IN_NORM, 1), *clean;
    int64_t dims[4];
    clean = value(&b, ASSAY_POINT_Q_A, 1);
    fix(&b, ASSAY_POINT_IN_NORM, 1);
    in = value(&b, ASSAY_POINT_IN_NORM, 1);
    clean = value(&b, ASSAY_POINT_Q_A, 1);
    b.k.weight_layer_shift = 1;
    bent(x, &b, ASSAY_POINT_Q_A, 1);
    EXPECT_OK(assay_oracle_weight(&w, dims, b.oracle, "blk.2.attn_q_a.weight"));
    ck_assert(dims[0] == 1 && dims[1] == 1 && dims[2] == D && dims[3] == D);
    for (int j = 0; j < D; j += 17) {
        double sum = 0;
        for (int i = 0; i < D; i++)
            sum += w[j * D + i] * in[3 * D + i];
        EXPECT_NEAR(x[3 * D + j], sum, 1e-12);
    }
    b.k = right;
    b.k.weight_view = ASSAY_WEIGHT_ROWS_REVERSED;
    bent(x, &b, ASSAY_POINT_Q_A, 1);
    for (int j = 0; j < D; j++)
        EXPECT_NEAR(x[j], clean[D - 1 - j], 1e-12);
    b.k.weight_view = ASSAY_WEIGHT_TRANSPOSED;
    bent(x, &b, ASSAY_POINT_Q_A, 1);
    EXPECT_OK(assay_oracle_weight(&w, dims, b.oracle, "blk.1.attn_q_a.weight"));
    for (int j = 0; j < D; j += 17) {
        double sum = 0;
        for (int i = 0; i < D; i++)
            sum += w[i * D + j] * in[i];
        EXPECT_NEAR(x[j], sum, 1e-12);
    }
    b.k = right;
    b.k.weight_layer_shift = 3;
    EXPECT_FAILS(ASSAY_MISSING,
                 assay_pass_expect(x, b.pass, 0, ASSAY_POINT_Q_A, 1, &b.k)); /* no layer 4 */
    bench_close(&b);
}
END_TEST

START_TEST(rounding_knobs_round_outputs_to_their_format)
{
    bench b = bench_open();
    double x[T * D];
    b.k.round_out = ASSAY_DTYPE_BF16;
    bent(x, &b, ASSAY_POINT_OUT, 2);
    for (int i = 0; i < T * D; i++)
        ck_assert(x[i] == assay_bf16_to_f32(assay_f32_to_bf16((float)x[i])));
    double logits[T * 8];
    bent(logits, &b, ASSAY_POINT_MOE_LOGITS, 2); /* the router stays in float32 */
    int n_finer = 0;
    for (int i = 0; i < T * 8; i++) {
        ck_assert(logits[i] == (float)logits[i]);
        n_finer += logits[i] != assay_bf16_to_f32(assay_f32_to_bf16((float)logits[i]));
    }
    ck_assert_int_gt(n_finer, T * 4);
    b.k.round_out = ASSAY_DTYPE_F64;
    b.k.activations_q8 = true;
    double q8[T * D];
    fix(&b, ASSAY_POINT_IN_NORM, 1);
    const double *clean = value(&b, ASSAY_POINT_Q_A, 1);
    bent(q8, &b, ASSAY_POINT_Q_A, 1);
    double off = gap(q8, clean, T * D);
    ck_assert(off > 1e-5 && off < 0.5);
    bench_close(&b);
}
END_TEST

START_TEST(asking_again_with_the_same_knobs_costs_one_op)
{
    bench b = bench_open();
    double x[T * D], y[T * D], first;
    b.k.rope.base *= 3;
    fix(&b, ASSAY_POINT_PROJ, 1);
    bent(x, &b, ASSAY_POINT_PROJ, 1);
    int64_t ops = assay_pass_n_ops(b.pass);
    bent(y, &b, ASSAY_POINT_PROJ, 1);
    ck_assert_int_eq(assay_pass_n_ops(b.pass) - ops, 1);
    ck_assert(gap(x, y, T * D) == 0);
    first = x[0];
    double *norm = malloc(T * D * sizeof *norm);
    memcpy(norm, value(&b, ASSAY_POINT_IN_NORM, 1), T * D * sizeof *norm);
    for (int i = 0; i < T * D; i++)
        norm[i] *= i % 2 ? 1.5 : 1;
    EXPECT_OK(assay_pass_put(b.pass, 0, ASSAY_POINT_IN_NORM, 1, norm, T * D)); /* forgotten now */
    bent(y, &b, ASSAY_POINT_PROJ, 1);
    ck_assert(y[0] != first);
    free(norm);
    bench_close(&b);
}
END_TEST

/* Two layers of which the second has no indexer of its own. */
static void forge_shared(const char *path)
{
    static const bool full[2] = {true, false};
    forge_plain m = {0};
    forge_plain_str(&m, "general.architecture", "glm-dsa");
    static const struct {
        const char *key;
        unsigned n;
    } keys[] = {{"block_count", 2},
                {"context_length", 64},
                {"embedding_length", 8},
                {"feed_forward_length", 4},
                {"attention.head_count", 2},
                {"attention.head_count_kv", 1},
                {"attention.key_length", 10},
                {"attention.value_length", 6},
                {"attention.key_length_mla", 8},
                {"attention.value_length_mla", 3},
                {"attention.q_lora_rank", 6},
                {"attention.kv_lora_rank", 6},
                {"rope.dimension_count", 4},
                {"leading_dense_block_count", 2},
                {"expert_count", 0},
                {"attention.indexer.head_count", 2},
                {"attention.indexer.key_length", 8},
                {"attention.indexer.top_k", 2}};
    char name[96];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(name, sizeof name, "glm-dsa.%s", keys[i].key);
        forge_plain_u32(&m, name, keys[i].n);
    }
    forge_plain_bools(&m, "glm-dsa.attention.indexer.types", full, 2);
    forge_plain_f32(&m, "glm-dsa.attention.layer_norm_rms_epsilon", 1e-6f);
    forge_plain_pattern(&m, "token_embd.weight", 2, (int64_t[]){16, 8}, 9, 16);
    static const struct {
        const char *name;
        int64_t dims[3];
        int n_dims, layers;
    } tensors[] = {{"attn_norm", {8}, 1, 2},         {"attn_q_a_norm", {6}, 1, 2},
                   {"attn_kv_a_norm", {6}, 1, 2},    {"ffn_norm", {8}, 1, 2},
                   {"attn_q_a", {6, 8}, 2, 2},       {"attn_q_b", {16, 6}, 2, 2},
                   {"attn_kv_a_mqa", {10, 8}, 2, 2}, {"attn_k_b", {2, 6, 4}, 3, 2},
                   {"attn_v_b", {2, 3, 6}, 3, 2},    {"attn_output", {8, 6}, 2, 2},
                   {"ffn_gate", {4, 8}, 2, 2},       {"ffn_up", {4, 8}, 2, 2},
                   {"ffn_down", {8, 4}, 2, 2},       {"indexer.attn_q_b", {16, 6}, 2, 1},
                   {"indexer.attn_k", {8, 8}, 2, 1}, {"indexer.proj", {2, 8}, 2, 1},
                   {"indexer.k_norm", {8}, 1, 1}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        for (int l = 0; l < tensors[i].layers; l++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, tensors[i].name);
            forge_plain_pattern(&m, name, tensors[i].n_dims, tensors[i].dims, (int)i + 20 * l + 1,
                                16);
        }
    forge_plain_pattern(&m, "blk.0.indexer.k_norm.bias", 1, (int64_t[]){8}, 3, 16);
    forge_plain_write(&m, path);
}

START_TEST(a_layer_without_an_indexer_uses_the_selection_before_it)
{
    static const int32_t tokens[6] = {3, 1, 4, 15, 9, 2};
    const char *path = data_scratch("shared.gguf");
    assay_gguf *file;
    assay_oracle *oracle;
    assay_pass *pass;
    int step;
    forge_shared(path);
    EXPECT_OK(assay_gguf_open(&file, path));
    EXPECT_OK(assay_oracle_open(&oracle, file, 0));
    EXPECT_OK(assay_pass_new(&pass, oracle, NULL));
    EXPECT_OK(assay_pass_add_step(&step, pass, tokens, 6, 0));
    ck_assert(assay_oracle_has_point(oracle, ASSAY_POINT_INDEX_SCORES, 0, false));
    ck_assert(!assay_oracle_has_point(oracle, ASSAY_POINT_INDEX_SCORES, 1, false));
    const double *own, *handed, *probs;
    EXPECT_OK(assay_pass_value(&own, pass, 0, ASSAY_POINT_INDEX_TOPK, 0));
    EXPECT_OK(assay_pass_value(&handed, pass, 0, ASSAY_POINT_INDEX_TOPK, 1));
    EXPECT_OK(assay_pass_value(&probs, pass, 0, ASSAY_POINT_PROBS, 1));
    ck_assert_mem_eq(own, handed, 12 * sizeof *own);
    for (int t = 0; t < 6; t++)
        for (int j = 0; j < 6; j++) {
            bool chosen = own[2 * t] == j || own[2 * t + 1] == j;
            for (int h = 0; h < 2; h++)
                ck_assert((probs[(h * 6 + t) * 6 + j] > 0) == (chosen && j <= t));
        }
    /* a captured selection of the full layer is followed by both */
    double first[12];
    for (int i = 0; i < 12; i++)
        first[i] = i % 2 ? 5 : 0; /* key 5 is masked for all but the last token */
    EXPECT_OK(assay_pass_put(pass, 0, ASSAY_POINT_INDEX_TOPK, 0, first, 12));
    EXPECT_OK(assay_pass_value(&probs, pass, 0, ASSAY_POINT_PROBS, 1));
    for (int t = 0; t < 5; t++)
        ck_assert(probs[t * 6] == 1 && probs[t * 6 + 5] == 0);
    ck_assert(probs[5 * 6 + 5] > 0);
    assay_pass_free(pass);
    assay_oracle_close(oracle);
    assay_gguf_close(file);
}
END_TEST

EXPECT_MAIN("oracle_knobs", masks_and_windows_limit_the_keys,
            merged_parts_are_the_whole_unless_merged_wrongly,
            cache_knobs_shift_and_scale_what_attention_reads, rotary_knobs_move_queries_and_keys,
            component_knobs_count_parts_again_or_leave_them_out,
            activation_knobs_exchange_gate_and_up, weight_knobs_read_other_weights_or_other_strides,
            rounding_knobs_round_outputs_to_their_format,
            asking_again_with_the_same_knobs_costs_one_op,
            a_layer_without_an_indexer_uses_the_selection_before_it)
