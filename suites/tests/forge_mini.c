#include "forge_mini.h"

#include <stdio.h>

enum { D = 8, H = 2, N = 4, R = 4, V = 3, L = 6, Q = 6, F = 4, HI = 2, DI = 8, W = 16 };

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

static float pattern(int r, int c, int seed)
{
    return (float)((7 * r + 13 * c + 5 * seed) % 23 - 11) / 16;
}

float mini_input(int t, int i)
{
    return (float)((11 * t + 5 * i + 3) % 17 - 8) / 8;
}

static const char *arch_of(mini_kind kind)
{
    return kind == MINI_GLM_DSA ? "glm-dsa" : kind == MINI_DEEPSEEK32 ? "deepseek32" : "deepseek2";
}

static void u32(forge_plain *m, mini_kind kind, const char *key, uint32_t value)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch_of(kind), key);
    forge_plain_u32(m, name, value);
}

static void keys(forge_plain *m, mini_kind kind, int top_k)
{
    char name[96];
    bool old = kind == MINI_DEEPSEEK2_OLD;
    forge_plain_str(m, "general.architecture", arch_of(kind));
    u32(m, kind, "block_count", 1);
    u32(m, kind, "context_length", 64);
    u32(m, kind, "embedding_length", D);
    u32(m, kind, "feed_forward_length", F);
    u32(m, kind, "attention.head_count", H);
    u32(m, kind, "attention.head_count_kv", old ? H : 1);
    u32(m, kind, "attention.key_length", old ? N + R : L + R);
    u32(m, kind, "attention.value_length", old ? V : L);
    if (!old) {
        u32(m, kind, "attention.key_length_mla", N + R);
        u32(m, kind, "attention.value_length_mla", V);
    }
    u32(m, kind, "attention.q_lora_rank", Q);
    u32(m, kind, "attention.kv_lora_rank", L);
    u32(m, kind, "rope.dimension_count", R);
    u32(m, kind, "leading_dense_block_count", 1);
    u32(m, kind, "expert_count", 0);
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", arch_of(kind));
    forge_plain_f32(m, name, 1e-6f);
    if (kind == MINI_GLM_DSA || kind == MINI_DEEPSEEK32) {
        u32(m, kind, "attention.indexer.head_count", HI);
        u32(m, kind, "attention.indexer.key_length", DI);
        u32(m, kind, "attention.indexer.top_k", (uint32_t)top_k);
    }
}

static void ramp(forge_plain *m, const char *name, int n, float first, float step)
{
    float w[16];
    for (int i = 0; i < n; i++)
        w[i] = first + step * (float)i;
    forge_plain_tensor(m, name, 1, DIMS(n), w);
}

static void kv_b(forge_plain *m, bool old)
{
    float k[H * L * N], v[H * V * L];
    if (old) {
        forge_plain_pattern(m, "blk.0.attn_kv_b.weight", 2, DIMS(H * (N + V), L), 4, 16);
        return;
    }
    for (int h = 0; h < H; h++)
        for (int l = 0; l < L; l++) {
            for (int n = 0; n < N; n++)
                k[(h * L + l) * N + n] = pattern(h * (N + V) + n, l, 4);
            for (int i = 0; i < V; i++)
                v[(h * V + i) * L + l] = pattern(h * (N + V) + N + i, l, 4);
        }
    forge_plain_tensor(m, "blk.0.attn_k_b.weight", 3, DIMS(H, L, N), k);
    forge_plain_tensor(m, "blk.0.attn_v_b.weight", 3, DIMS(H, V, L), v);
}

void forge_mini(forge_plain *m, mini_kind kind, int top_k)
{
    keys(m, kind, top_k);
    forge_plain_pattern(m, "token_embd.weight", 2, DIMS(W, D), 9, 16);
    ramp(m, "output_norm.weight", D, 1, 0);
    ramp(m, "blk.0.attn_norm.weight", D, 1, 1.0f / 16);
    ramp(m, "blk.0.attn_q_a_norm.weight", Q, 1, -1.0f / 16);
    ramp(m, "blk.0.attn_kv_a_norm.weight", L, 1, 1.0f / 8);
    ramp(m, "blk.0.ffn_norm.weight", D, 1, 0);
    forge_plain_pattern(m, "blk.0.attn_q_a.weight", 2, DIMS(Q, D), 1, 16);
    forge_plain_pattern(m, "blk.0.attn_q_b.weight", 2, DIMS(H * (N + R), Q), 2, 16);
    forge_plain_pattern(m, "blk.0.attn_kv_a_mqa.weight", 2, DIMS(L + R, D), 3, 16);
    kv_b(m, kind == MINI_DEEPSEEK2_OLD);
    forge_plain_pattern(m, "blk.0.attn_output.weight", 2, DIMS(D, H * V), 5, 16);
    forge_plain_pattern(m, "blk.0.ffn_gate.weight", 2, DIMS(F, D), 10, 16);
    forge_plain_pattern(m, "blk.0.ffn_up.weight", 2, DIMS(F, D), 11, 16);
    forge_plain_pattern(m, "blk.0.ffn_down.weight", 2, DIMS(D, F), 12, 16);
    if (kind != MINI_GLM_DSA && kind != MINI_DEEPSEEK32)
        return;
    forge_plain_pattern(m, "blk.0.indexer.attn_q_b.weight", 2, DIMS(HI * DI, Q), 6, 16);
    forge_plain_pattern(m, "blk.0.indexer.attn_k.weight", 2, DIMS(DI, D), 7, 16);
    ramp(m, "blk.0.indexer.k_norm.weight", DI, 1, 1.0f / 8);
    ramp(m, "blk.0.indexer.k_norm.bias", DI, -3.0f / 16, 1.0f / 16);
    forge_plain_pattern(m, "blk.0.indexer.proj.weight", 2, DIMS(HI, D), 8, 16);
}
