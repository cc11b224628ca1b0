/*
 * Forms of files that mean the same model: fused and separate tensors, tied heads, shared
 * selections, optional tensors.
 */
#include "references/oracle/oracle.h"

#include <stdio.h>

#include "data.h"
#include "expect.h"
#include "forge_mini.h"
#include "forge_plain.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
enum { D = 8, H = 4, G = 2, W = 4, F = 6, VOCAB = 16 }; /* llama: W is the width of a head */

typedef struct opened {
    assay_gguf *file;
    assay_oracle *oracle;
    assay_pass *pass;
} opened;

static opened open_model(forge_plain *m, const char *name, const assay_knobs *knobs)
{
    static const int32_t tokens[5] = {3, 1, 4, 1, 5};
    const char *path = data_scratch(name);
    opened o;
    int step;
    forge_plain_write(m, path);
    EXPECT_OK(assay_gguf_open(&o.file, path));
    EXPECT_OK(assay_oracle_open(&o.oracle, o.file, 0));
    assay_pass_options options = {.knobs = knobs};
    EXPECT_OK(assay_pass_new(&o.pass, o.oracle, &options));
    EXPECT_OK(assay_pass_add_step(&step, o.pass, tokens, 5, 0));
    return o;
}

static void close_model(opened *o)
{
    assay_pass_free(o->pass);
    assay_oracle_close(o->oracle);
    assay_gguf_close(o->file);
}

static const double *value(opened *o, assay_point point, int layer)
{
    const double *v;
    EXPECT_OK(assay_pass_value(&v, o->pass, 0, point, layer));
    return v;
}

static double largest_difference(const double *a, const double *b, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++)
        most = fmax(most, isnan(a[i] - b[i]) ? HUGE_VAL : fabs(a[i] - b[i]));
    return most;
}

static void ones(forge_plain *m, const char *name, int n, float x)
{
    float w[32];
    for (int i = 0; i < n; i++)
        w[i] = x;
    forge_plain_tensor(m, name, 1, DIMS(n), w);
}

/* One layer; what varies is left to the caller. */
static void llama_head(forge_plain *m)
{
    forge_plain_str(m, "general.architecture", "llama");
    forge_plain_u32(m, "llama.block_count", 1);
    forge_plain_u32(m, "llama.context_length", 64);
    forge_plain_u32(m, "llama.embedding_length", D);
    forge_plain_u32(m, "llama.feed_forward_length", F);
    forge_plain_u32(m, "llama.attention.head_count", H);
    forge_plain_u32(m, "llama.attention.head_count_kv", G);
    forge_plain_u32(m, "llama.attention.key_length", W);
    forge_plain_u32(m, "llama.attention.value_length", W);
    forge_plain_u32(m, "llama.rope.dimension_count", W);
    forge_plain_f32(m, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    forge_plain_pattern(m, "token_embd.weight", 2, DIMS(VOCAB, D), 1, 16);
    ones(m, "output_norm.weight", D, 1);
    ones(m, "blk.0.attn_norm.weight", D, 1);
    ones(m, "blk.0.ffn_norm.weight", D, 1);
    forge_plain_pattern(m, "blk.0.attn_output.weight", 2, DIMS(D, H * W), 5, 16);
    forge_plain_pattern(m, "blk.0.ffn_gate.weight", 2, DIMS(F, D), 6, 16);
    forge_plain_pattern(m, "blk.0.ffn_up.weight", 2, DIMS(F, D), 7, 16);
    forge_plain_pattern(m, "blk.0.ffn_down.weight", 2, DIMS(D, F), 8, 16);
}

/* q, k and v as rows of one pattern: whole, or cut into three tensors. */
static void llama_qkv(forge_plain *m, bool fused)
{
    float rows[(H + 2 * G) * W * D];
    for (int r = 0; r < (H + 2 * G) * W; r++)
        for (int c = 0; c < D; c++)
            rows[r * D + c] = (float)((7 * r + 13 * c + 20) % 23 - 11) / 16;
    if (fused) {
        forge_plain_tensor(m, "blk.0.attn_qkv.weight", 2, DIMS((H + 2 * G) * W, D), rows);
        return;
    }
    forge_plain_tensor(m, "blk.0.attn_q.weight", 2, DIMS(H * W, D), rows);
    forge_plain_tensor(m, "blk.0.attn_k.weight", 2, DIMS(G * W, D), rows + H * W * D);
    forge_plain_tensor(m, "blk.0.attn_v.weight", 2, DIMS(G * W, D), rows + (H + G) * W * D);
}

static opened llama(const char *name, bool fused, bool tied, const float *freqs,
                    const assay_knobs *knobs)
{
    forge_plain m = {0};
    llama_head(&m);
    llama_qkv(&m, fused);
    if (!tied) /* the same numbers as the embedding */
        forge_plain_pattern(&m, "output.weight", 2, DIMS(VOCAB, D), 1, 16);
    if (freqs)
        forge_plain_tensor(&m, "rope_freqs.weight", 1, DIMS(W / 2), freqs);
    return open_model(&m, name, knobs);
}

START_TEST(llama_reads_fused_and_tied_tensors_as_separate_ones)
{
    opened a = llama("a.gguf", false, false, NULL, NULL);
    const double *want = value(&a, ASSAY_POINT_LOGITS, -1);
    ck_assert(!assay_oracle_knobs(a.oracle)->head_tied);
    for (int fused = 0; fused < 2; fused++)
        for (int tied = 0; tied < 2; tied++) {
            opened b = llama("b.gguf", fused, tied, NULL, NULL);
            ck_assert(assay_oracle_knobs(b.oracle)->head_tied == tied);
            ck_assert(largest_difference(value(&b, ASSAY_POINT_LOGITS, -1), want, 5 * VOCAB) <
                      1e-14);
            close_model(&b);
        }
    close_model(&a);
}
END_TEST

START_TEST(llama_divides_angles_by_rope_freqs)
{
    const float one[2] = {1, 1}, two[2] = {2, 2};
    opened plain = llama("plain.gguf", false, true, NULL, NULL);
    opened same = llama("same.gguf", false, true, one, NULL);
    opened halved = llama("halved.gguf", false, true, two, NULL);
    assay_knobs k = *assay_oracle_knobs(plain.oracle);
    k.rope.factor = 2; /* linear scaling */
    opened scaled = llama("plain.gguf", false, true, NULL, &k);
    int n = 5 * G * W;
    const double *want = value(&plain, ASSAY_POINT_K_ROPE, 0);
    ck_assert(largest_difference(value(&same, ASSAY_POINT_K_ROPE, 0), want, n) == 0);
    ck_assert(largest_difference(value(&halved, ASSAY_POINT_K_ROPE, 0), want, n) > 0.01);
    ck_assert(largest_difference(value(&halved, ASSAY_POINT_K_ROPE, 0),
                                 value(&scaled, ASSAY_POINT_K_ROPE, 0), n) < 1e-15);
    close_model(&plain);
    close_model(&same);
    close_model(&halved);
    close_model(&scaled);
}
END_TEST

START_TEST(llama_adds_biases_where_the_file_has_them)
{
    forge_plain m = {0};
    llama_head(&m);
    llama_qkv(&m, false);
    ones(&m, "blk.0.attn_k.bias", G * W, 0.5f);
    opened with = open_model(&m, "bias.gguf", NULL);
    opened without = llama("nobias.gguf", false, true, NULL, NULL);
    const double *a = value(&with, ASSAY_POINT_K, 0), *b = value(&without, ASSAY_POINT_K, 0);
    for (int i = 0; i < 5 * G * W; i++)
        EXPECT_NEAR(a[i], b[i] + 0.5, 1e-15);
    close_model(&with);
    close_model(&without);
}
END_TEST

/* Group of query heads, by division (right) or by remainder. */
START_TEST(llama_groups_query_heads_by_division)
{
    opened a = llama("gqa.gguf", false, true, NULL, NULL);
    assay_knobs k = *assay_oracle_knobs(a.oracle);
    k.kv_heads_modulo = true;
    opened b = llama("gqa2.gguf", false, true, NULL, &k);
    /* token 0 attends to itself: the output is the value of its key head */
    const double *v = value(&a, ASSAY_POINT_V, 0), *x = value(&a, ASSAY_POINT_KERNEL_OUT, 0),
                 *y = value(&b, ASSAY_POINT_KERNEL_OUT, 0);
    for (int h = 0; h < H; h++) {
        ck_assert(largest_difference(x + h * W, v + h / 2 * W, W) < 1e-15);
        ck_assert(largest_difference(y + h * W, v + h % 2 * W, W) < 1e-15);
    }
    close_model(&a);
    close_model(&b);
}
END_TEST

/* The mini attention with experts in place of its dense layer: gate and up apart or in one tensor.
 */
static opened experts(const char *name, bool fused, const assay_knobs *knobs)
{
    enum { E = 4, M = 3, DD = 8 };
    forge_plain m = {0};
    float gate[E * M * DD], up[E * M * DD], both[2 * E * M * DD];
    for (int i = 0; i < E * M * DD; i++) {
        gate[i] = (float)((11 * i) % 19 - 9) / 16;
        up[i] = (float)((5 * i + 3) % 17 - 8) / 16;
        int e = i / (M * DD), rest = i % (M * DD);
        both[2 * e * M * DD + rest] = gate[i];
        both[(2 * e + 1) * M * DD + rest] = up[i];
    }
    forge_plain_str(&m, "general.architecture", "deepseek2");
    forge_plain_u32(&m, "deepseek2.block_count", 1);
    forge_plain_u32(&m, "deepseek2.context_length", 64);
    forge_plain_u32(&m, "deepseek2.embedding_length", DD);
    forge_plain_u32(&m, "deepseek2.attention.head_count", 2);
    forge_plain_u32(&m, "deepseek2.attention.kv_lora_rank", 6);
    forge_plain_u32(&m, "deepseek2.attention.key_length", 8);
    forge_plain_u32(&m, "deepseek2.attention.value_length", 3);
    forge_plain_u32(&m, "deepseek2.rope.dimension_count", 4);
    forge_plain_u32(&m, "deepseek2.expert_count", E);
    forge_plain_u32(&m, "deepseek2.expert_used_count", 2);
    forge_plain_u32(&m, "deepseek2.expert_feed_forward_length", M);
    forge_plain_f32(&m, "deepseek2.attention.layer_norm_rms_epsilon", 1e-6f);
    forge_plain_pattern(&m, "token_embd.weight", 2, DIMS(VOCAB, DD), 1, 16);
    ones(&m, "blk.0.ffn_norm.weight", DD, 1);
    forge_plain_pattern(&m, "blk.0.ffn_gate_inp.weight", 2, DIMS(E, DD), 2, 16);
    forge_plain_pattern(&m, "blk.0.ffn_down_exps.weight", 3, DIMS(E, DD, M), 3, 16);
    if (fused) {
        forge_plain_tensor(&m, "blk.0.ffn_gate_up_exps.weight", 3, DIMS(E, 2 * M, DD), both);
    } else {
        forge_plain_tensor(&m, "blk.0.ffn_gate_exps.weight", 3, DIMS(E, M, DD), gate);
        forge_plain_tensor(&m, "blk.0.ffn_up_exps.weight", 3, DIMS(E, M, DD), up);
    }
    opened o = open_model(&m, name, knobs);
    double x[5 * DD];
    for (int i = 0; i < 5 * DD; i++)
        x[i] = mini_input(i / DD, i % DD);
    EXPECT_OK(assay_pass_put(o.pass, 0, ASSAY_POINT_ATTN_RESID, 0, x, 5 * DD));
    return o;
}

START_TEST(experts_with_gate_and_up_in_one_tensor_are_the_same)
{
    opened a = experts("apart.gguf", false, NULL), b = experts("fused.gguf", true, NULL);
    ck_assert(largest_difference(value(&a, ASSAY_POINT_MOE_OUT, 0),
                                 value(&b, ASSAY_POINT_MOE_OUT, 0), 5 * 8) == 0);
    ck_assert(!assay_oracle_has_point(a.oracle, ASSAY_POINT_SHARED, 0, false));
    /* softmax without renormalisation: the two weights add up to less than one */
    const double *w = value(&a, ASSAY_POINT_MOE_WEIGHTS, 0);
    ck_assert(w[0] >= w[1] && w[0] + w[1] < 1);
    close_model(&a);
    close_model(&b);
}
END_TEST

START_TEST(expert_knobs_compute_other_experts_for_the_same_ids)
{
    opened a = experts("ids.gguf", false, NULL);
    assay_knobs k = *assay_oracle_knobs(a.oracle);
    k.expert_shift = 1;
    double shifted[5 * 2 * 3], ids[10];
    EXPECT_OK(assay_pass_expect(shifted, a.pass, 0, ASSAY_POINT_MOE_EXPERT_GATE, 0, &k));
    const double *own = value(&a, ASSAY_POINT_MOE_TOPK, 0);
    for (int i = 0; i < 10; i++)
        ids[i] = (double)(((int)own[i] + 1) % 4);
    opened b = experts("ids2.gguf", false, NULL);
    EXPECT_OK(assay_pass_put(b.pass, 0, ASSAY_POINT_MOE_TOPK, 0, ids, 10));
    ck_assert(largest_difference(shifted, value(&b, ASSAY_POINT_MOE_EXPERT_GATE, 0), 30) == 0);
    /* an id that no expert has computes nothing */
    ids[0] = -1;
    EXPECT_OK(assay_pass_put(b.pass, 0, ASSAY_POINT_MOE_TOPK, 0, ids, 10));
    ck_assert(value(&b, ASSAY_POINT_MOE_WEIGHTS, 0)[0] == 0);
    ck_assert(value(&b, ASSAY_POINT_MOE_EXPERT_DOWN, 0)[0] == 0);
    /* without following, the pass chooses for itself */
    k = *assay_oracle_knobs(a.oracle);
    k.follow_routing = false;
    double weights[10];
    EXPECT_OK(assay_pass_expect(weights, b.pass, 0, ASSAY_POINT_MOE_WEIGHTS, 0, &k));
    ck_assert(largest_difference(weights, value(&a, ASSAY_POINT_MOE_WEIGHTS, 0), 10) == 0);
    close_model(&a);
    close_model(&b);
}
END_TEST

/* A dense layer and one behind it that predicts the token after the next. */
static void forge_nextn(forge_plain *m)
{
    static const struct {
        const char *name;
        int64_t dims[2];
        int n_dims;
    } tensors[] = {
        {"attn_norm", {D}, 1},      {"attn_kv_a_norm", {6}, 1},        {"ffn_norm", {D}, 1},
        {"attn_q", {16, D}, 2},     {"attn_kv_a_mqa", {10, D}, 2},     {"attn_kv_b", {14, 6}, 2},
        {"attn_output", {D, 6}, 2}, {"ffn_gate", {F, D}, 2},           {"ffn_up", {F, D}, 2},
        {"ffn_down", {D, F}, 2},    {"nextn.eh_proj", {D, 2 * D}, 2},  {"nextn.enorm", {D}, 1},
        {"nextn.hnorm", {D}, 1},    {"nextn.shared_head_norm", {D}, 1}};
    static const struct {
        const char *key;
        unsigned n;
    } keys[] = {{"block_count", 2},
                {"nextn_predict_layers", 1},
                {"context_length", 64},
                {"embedding_length", D},
                {"feed_forward_length", F},
                {"attention.head_count", 2},
                {"attention.kv_lora_rank", 6},
                {"attention.key_length", 8},
                {"attention.value_length", 3},
                {"rope.dimension_count", 4}};
    char name[96];
    forge_plain_str(m, "general.architecture", "deepseek2");
    forge_plain_f32(m, "deepseek2.attention.layer_norm_rms_epsilon", 1e-6f);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(name, sizeof name, "deepseek2.%s", keys[i].key);
        forge_plain_u32(m, name, keys[i].n);
    }
    forge_plain_pattern(m, "token_embd.weight", 2, DIMS(VOCAB, D), 1, 16);
    ones(m, "output_norm.weight", D, 1.5f);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        for (int l = i < 10 ? 0 : 1; l < 2; l++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, tensors[i].name);
            forge_plain_pattern(m, name, tensors[i].n_dims, tensors[i].dims, (int)i + 15 * l + 2,
                                16);
        }
}

/* The halves by hand: enorm of the following token's embedding, hnorm of the final norm's output.
 */
static void expect_joined(opened *o, const double *got, int row, int token, bool exchanged,
                          const double *hidden)
{
    static const char *const names[] = {"token_embd.weight", "blk.1.nextn.enorm.weight",
                                        "blk.1.nextn.hnorm.weight", "blk.1.nextn.eh_proj.weight"};
    double w[4][VOCAB * D * 2], both[2 * D], squares[2] = {0, 0};
    for (int i = 0; i < 4; i++) {
        const double *p;
        int64_t dims[4];
        EXPECT_OK(assay_oracle_weight(&p, dims, o->oracle, names[i]));
        memcpy(w[i], p, (size_t)(dims[2] * dims[3]) * sizeof *p);
    }
    for (int d = 0; d < D; d++) {
        squares[0] += w[0][token * D + d] * w[0][token * D + d] / D;
        squares[1] += hidden[row * D + d] * hidden[row * D + d] / D;
    }
    float eps = 1e-6f;
    for (int d = 0; d < D; d++) {
        both[exchanged ? D + d : d] =
            w[0][token * D + d] / sqrt(squares[0] + (double)eps) * w[1][d];
        both[exchanged ? d : D + d] =
            hidden[row * D + d] / sqrt(squares[1] + (double)eps) * w[2][d];
    }
    for (int r = 0; r < D; r++) {
        double sum = 0;
        for (int c = 0; c < 2 * D; c++)
            sum += w[3][r * 2 * D + c] * both[c];
        EXPECT_NEAR(got[row * D + r], sum, 1e-12);
    }
}

START_TEST(prediction_layers_join_the_following_token_and_the_hidden_state)
{
    static const int following[4] = {1, 4, 1, 5};
    forge_plain m = {0};
    forge_nextn(&m);
    opened o = open_model(&m, "nextn.gguf", NULL);
    ck_assert_int_eq(assay_oracle_shape_of(o.oracle)->n_layer, 1);
    ck_assert(assay_oracle_has_point(o.oracle, ASSAY_POINT_NEXTN_IN, 1, false));
    ck_assert(!assay_oracle_has_point(o.oracle, ASSAY_POINT_NEXTN_IN, 0, false));
    const double *hidden = value(&o, ASSAY_POINT_FINAL_NORM, -1);
    const double *logits = value(&o, ASSAY_POINT_LOGITS, -1),
                 *in = value(&o, ASSAY_POINT_NEXTN_IN, 1);
    for (int t = 0; t < 4; t++)
        expect_joined(&o, in, t, following[t], false, hidden);
    int best = 0;
    for (int i = 1; i < VOCAB; i++)
        if (logits[4 * VOCAB + i] > logits[4 * VOCAB + best])
            best = i;
    expect_joined(&o, in, 4, best, false, hidden); /* nothing follows: the likeliest */
    assay_knobs k = *assay_oracle_knobs(o.oracle);
    double bent[5 * D];
    k.nextn_concat_exchanged = true;
    EXPECT_OK(assay_pass_expect(bent, o.pass, 0, ASSAY_POINT_NEXTN_IN, 1, &k));
    expect_joined(&o, bent, 2, following[2], true, hidden);
    k.nextn_concat_exchanged = false;
    k.nextn_hidden_raw = true;
    EXPECT_OK(assay_pass_expect(bent, o.pass, 0, ASSAY_POINT_NEXTN_IN, 1, &k));
    expect_joined(&o, bent, 2, following[2], false, value(&o, ASSAY_POINT_OUT, 0));
    /* the layer itself starts from there, and ends in its own norm and the shared head */
    const double *norm = value(&o, ASSAY_POINT_NEXTN_NORM, 1);
    const double *draft = value(&o, ASSAY_POINT_NEXTN_LOGITS, 1), *table;
    int64_t dims[4];
    EXPECT_OK(assay_oracle_weight(&table, dims, o.oracle, "token_embd.weight"));
    double sum = 0;
    for (int d = 0; d < D; d++)
        sum += table[7 * D + d] * norm[2 * D + d];
    EXPECT_NEAR(draft[2 * VOCAB + 7], sum, 1e-12);
    close_model(&o);
}
END_TEST

START_TEST(files_that_cannot_be_right_are_refused_with_the_place)
{
    forge_plain m = {0};
    const char *path = data_scratch("bad.gguf");
    assay_gguf *file;
    assay_oracle *oracle;
    forge_plain_str(&m, "general.architecture", "mamba");
    forge_plain_write(&m, path);
    EXPECT_OK(assay_gguf_open(&file, path));
    EXPECT_FAILS(ASSAY_UNSUPPORTED, assay_oracle_open(&oracle, file, 0));
    EXPECT_SAYS("mamba");
    assay_gguf_close(file);
    forge_plain n = {0};
    llama_head(&n); /* no q, k, v */
    opened o = open_model(&n, "holes.gguf", NULL);
    const double *unused;
    EXPECT_FAILS(ASSAY_MISSING, assay_pass_value(&unused, o.pass, 0, ASSAY_POINT_LOGITS, -1));
    EXPECT_SAYS("attn_q.weight");
    close_model(&o);
    forge_plain p = {0};
    llama_head(&p);
    forge_plain_pattern(&p, "blk.0.attn_q.weight", 2, DIMS(H * W, D + 1), 1, 16);
    o = open_model(&p, "shape.gguf", NULL);
    EXPECT_FAILS(ASSAY_BAD_SHAPE, assay_pass_value(&unused, o.pass, 0, ASSAY_POINT_Q, 0));
    EXPECT_SAYS("blk.0.attn_q.weight");
    close_model(&o);
}
END_TEST

EXPECT_MAIN("oracle_forms", llama_reads_fused_and_tied_tensors_as_separate_ones,
            llama_divides_angles_by_rope_freqs, llama_adds_biases_where_the_file_has_them,
            llama_groups_query_heads_by_division,
            experts_with_gate_and_up_in_one_tensor_are_the_same,
            expert_knobs_compute_other_experts_for_the_same_ids,
            prediction_layers_join_the_following_token_and_the_hidden_state,
            files_that_cannot_be_right_are_refused_with_the_place)
