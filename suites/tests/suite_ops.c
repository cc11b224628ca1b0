/*
 * The engine's ops on golden numbers.
 */
#include "engine/ops/attention.h"
#include "engine/ops/indexer.h"
#include "engine/ops/linear.h"
#include "engine/ops/norm.h"
#include "engine/ops/pointwise.h"
#include "engine/ops/rotary.h"
#include "engine/ops/router.h"
#include "expect.h"

static void expect_floats(const float *got, const double *want, int n, double bound)
{
    for (int i = 0; i < n; i++)
        EXPECT_NEAR(got[i], want[i], bound);
}

static const assay_rotary plain = {.turned = 8,
                                   .frequency_width = 8,
                                   .base = 10000,
                                   .factor = 1,
                                   .magnitude = 1,
                                   .position_scale = 1};

START_TEST(rotary_turns_adjacent_pairs)
{
    static const double want[] = {-1.2722325, -1.8388650, 1.6839286, 4.7079066,
                                  4.8177772,  6.1472777,  6.9759685, 8.0209640};
    float x[] = {1, 2, 3, 4, 5, 6, 7, 8};
    int32_t position = 3;
    assay_rows r = assay_rows_of(x, 1, 8);
    assay_op_rotary(r, 0, r, 0, 1, &position, &plain);
    expect_floats(x, want, 8, 2e-6);
}
END_TEST

START_TEST(rotary_half_split_is_another_rotation)
{
    static const double want[] = {-1.6955925, 0.1375517, 2.7886816, 3.9759820,
                                  -4.8088425, 6.3230593, 7.0868367, 8.0119640};
    float x[] = {1, 2, 3, 4, 5, 6, 7, 8};
    int32_t position = 3;
    assay_rows r = assay_rows_of(x, 1, 8);
    assay_rotary how = plain;
    how.half_split = true;
    assay_op_rotary(r, 0, r, 0, 1, &position, &how);
    expect_floats(x, want, 8, 2e-6);
}
END_TEST

START_TEST(rotary_leaves_padding_and_channels_behind_alone)
{
    float x[] = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6};
    int32_t positions[] = {5, -1};
    assay_rotary how = plain;
    how.turned = how.frequency_width = 4;
    assay_rows r = assay_rows_of(x, 2, 6);
    assay_op_rotary(r, 0, r, 0, 1, positions, &how);
    ck_assert(x[4] == 5 && x[5] == 6);
    for (int i = 0; i < 6; i++)
        ck_assert(x[6 + i] == i + 1);
    ck_assert(x[0] != 1);
}
END_TEST

typedef struct yarn_golden {
    const char *name;
    double base, factor, fast, slow, low, high, raw[2];
    int n, at[12];
    double f[12];
} yarn_golden;

static const yarn_golden goldens[] = {
    {"DeepSeek-V3",
     1e4,
     40,
     32,
     1,
     10,
     23,
     {10.472241, 22.513441},
     12,
     {0, 1, 9, 10, 11, 15, 16, 20, 22, 23, 24, 31},
     {1, 0.749894209, 0.0749894209, 0.0562341325, 0.0390069266, 0.00833450895, 0.0055,
      0.000790569415, 0.000177827941, 3.33380358e-05, 2.5e-05, 3.33380358e-06}},
    {"Kimi-K2, betas 1 and 1",
     5e4,
     32,
     1,
     1,
     19,
     20,
     {19.164575, 19.164575},
     4,
     {9, 10, 15, 16},
     {0.0476886124, 0.0340072782, 0.00627130338, 0.00447213595}},
    {"Kimi-K2, betas 32 and 1",
     5e4,
     32,
     32,
     1,
     8,
     20,
     {8.914499, 19.164575},
     4,
     {9, 10, 15, 16},
     {0.0438387505, 0.0285165197, 0.00272736371, 0.00158388148}},
};

START_TEST(rotary_yarn_frequencies_are_the_published_ones)
{
    for (size_t g = 0; g < sizeof goldens / sizeof *goldens; g++) {
        const yarn_golden *y = &goldens[g];
        assay_rotary how = {.turned = 64,
                            .frequency_width = 64,
                            .base = y->base,
                            .factor = y->factor,
                            .yarn = true,
                            .orig_context = 4096,
                            .beta_fast = y->fast,
                            .beta_slow = y->slow,
                            .magnitude = 1};
        double f[32], raw[2], bound[2];
        assay_rotary_frequencies(f, &how);
        assay_rotary_yarn_range(raw, bound, &how);
        EXPECT_NEAR(bound[0], y->low, 0);
        EXPECT_NEAR(bound[1], y->high, 0);
        EXPECT_NEAR(raw[0], y->raw[0], 1e-6);
        EXPECT_NEAR(raw[1], y->raw[1], 1e-6);
        for (int i = 0; i < y->n; i++)
            EXPECT_NEAR(f[y->at[i]] / y->f[i], 1, 1e-8);
    }
}
END_TEST

START_TEST(rotary_linear_factor_and_freqs_divide_angles)
{
    static const float freqs[] = {1, 2, 4, 8};
    assay_rotary how = plain;
    double f[4], g[4];
    assay_rotary_frequencies(f, &how);
    how.factor = 4;
    how.freqs = freqs;
    assay_rotary_frequencies(g, &how);
    for (int i = 0; i < 4; i++)
        EXPECT_NEAR(f[i] / 4 / freqs[i], g[i], 1e-15);
}
END_TEST

START_TEST(norm_adds_eps_to_the_mean_square)
{
    static const double small[] = {.342997170, -.342997170, 2.057983022, -1.371988681};
    static const double large[] = {.239045722, -.239045722, 1.434274331, -.956182887};
    float x[] = {.001f, -.002f, .003f, -.004f}, w[] = {1, .5f, 2, 1}, y[4];
    assay_norm how = {.eps = 1e-6};
    assay_op_rmsnorm(assay_rows_of(y, 1, 4), assay_rows_of(x, 1, 4), w, &how);
    expect_floats(y, small, 4, 3e-7);
    how.eps = 1e-5;
    assay_op_rmsnorm(assay_rows_of(y, 1, 4), assay_rows_of(x, 1, 4), w, &how);
    expect_floats(y, large, 4, 3e-7);
}
END_TEST

START_TEST(norm_of_layers_subtracts_the_mean)
{
    float x[] = {1, 3, 1, 3}, w[] = {1, 1, 2, 2}, b[] = {0, 0, 1, 1}, y[4];
    static const double want[] = {-1, 1, -1, 3};
    assay_norm how = {.eps = 0};
    assay_op_layernorm(assay_rows_of(y, 1, 4), assay_rows_of(x, 1, 4), w, b, &how);
    expect_floats(y, want, 4, 1e-6);
}
END_TEST

static void golden_routing(float *logits, float *bias)
{
    for (int i = 0; i < 16; i++) {
        logits[i] = (float)((37 * i + 11) % 101 - 50) / 25;
        bias[i] = (float)((53 * i + 7) % 31 - 15) / 40;
    }
}

START_TEST(router_picks_the_golden_experts_by_sum_of_two)
{
    static const int32_t want_ids[] = {2, 15, 1, 13};
    static const double want[] = {0.739751234, 0.560919229, 0.442652219, 0.756677318};
    float logits[16], bias[16], probs[16], weights[4];
    int32_t ids[4];
    golden_routing(logits, bias);
    assay_routing how = {.n_expert = 16,
                         .n_used = 4,
                         .n_group = 4,
                         .n_group_used = 2,
                         .gating = ASSAY_GATING_SIGMOID,
                         .group_rule = ASSAY_GROUP_TOP2_SUM,
                         .weights_norm = true,
                         .weights_scale = 2.5};
    assay_rows p = assay_rows_of(probs, 1, 16);
    assay_op_router_probs(p, assay_rows_of(logits, 1, 16), &how);
    assay_op_router_choose(ids, p, bias, &how);
    assay_op_router_weigh(assay_rows_of(weights, 1, 4), ids, p, bias, &how);
    ck_assert_mem_eq(ids, want_ids, sizeof ids);
    expect_floats(weights, want, 4, 3e-7);
    how.group_rule = ASSAY_GROUP_MAX; /* groups 1 and 0 instead of 0 and 3 */
    assay_op_router_choose(ids, p, bias, &how);
    for (int i = 0; i < 4; i++)
        ck_assert_int_lt(ids[i], 8);
}
END_TEST

START_TEST(router_softmax_without_groups_picks_the_golden_experts)
{
    static const int32_t want_ids[] = {5, 13, 2, 10};
    static const double want[] = {0.223001455, 0.168540874, 0.149482345, 0.112976326};
    float logits[16], bias[16], probs[16], weights[4];
    int32_t ids[4];
    golden_routing(logits, bias);
    assay_routing how = {.n_expert = 16,
                         .n_used = 4,
                         .n_group = 1,
                         .n_group_used = 1,
                         .gating = ASSAY_GATING_SOFTMAX,
                         .weights_scale = 1};
    assay_rows p = assay_rows_of(probs, 1, 16);
    assay_op_router_probs(p, assay_rows_of(logits, 1, 16), &how);
    assay_op_router_choose(ids, p, NULL, &how);
    assay_op_router_weigh(assay_rows_of(weights, 1, 4), ids, p, NULL, &how);
    ck_assert_mem_eq(ids, want_ids, sizeof ids);
    expect_floats(weights, want, 4, 1e-7);
}
END_TEST

START_TEST(router_stays_in_range_on_nan)
{
    float logits[8], probs[8];
    int32_t ids[3];
    for (int i = 0; i < 8; i++)
        logits[i] = NAN;
    assay_routing how = {.n_expert = 8,
                         .n_used = 3,
                         .n_group = 4,
                         .n_group_used = 2,
                         .gating = ASSAY_GATING_SIGMOID};
    assay_rows p = assay_rows_of(probs, 1, 8);
    assay_op_router_probs(p, assay_rows_of(logits, 1, 8), &how);
    assay_op_router_choose(ids, p, NULL, &how);
    for (int i = 0; i < 3; i++)
        ck_assert(ids[i] >= 0 && ids[i] < 8 && ids[i] != ids[(i + 1) % 3]);
}
END_TEST

START_TEST(indexer_selects_larger_scores_then_smaller_positions)
{
    static const float scores[] = {0, 2, 0, 2, NAN, -1};
    static const int32_t want[] = {1, 3, 0, 2, -1, -1};
    int32_t ids[6], order[6];
    assay_indexer how = {.n_head = 1, .d_head = 2, .scale = 1, .top_k = 4};
    assay_op_index_select(ids, 6, order, scores, 6, &how);
    ck_assert_mem_eq(ids, want, sizeof ids);
}
END_TEST

START_TEST(attention_without_keys_is_zero_and_lse_minus_infinity)
{
    float q[4] = {1, 2, 3, 4}, o[4] = {NAN, NAN, NAN, NAN}, l[2] = {0, 0};
    int kv_head[2] = {0, 1};
    int64_t row = 0, begin = 0, end = 0;
    float keys[4] = {0}, values[4] = {0};
    assay_attention a = {.n_head = 2,
                         .kv_head = kv_head,
                         .d_key = 2,
                         .d_value = 2,
                         .keys = keys,
                         .values = values,
                         .key_stride = 4,
                         .value_stride = 4,
                         .key_head = 2,
                         .value_head = 2,
                         .n_keys = 1,
                         .n_rows = 1,
                         .rows = &row,
                         .begin = &begin,
                         .end = &end,
                         .scale = 1};
    for (int n_keys = 0; n_keys < 2; n_keys++) { /* no key, and one that is masked */
        a.n_keys = n_keys;
        EXPECT_OK(assay_op_attention(assay_rows_of(o, 1, 4), assay_rows_of(l, 1, 2), NULL, 0,
                                     assay_rows_of(q, 1, 4), &a));
        for (int i = 0; i < 4; i++)
            ck_assert(o[i] == 0);
        ck_assert(isinf(l[0]) && l[0] < 0 && isinf(l[1]) && l[1] < 0);
    }
}
END_TEST

START_TEST(attention_with_equal_scores_is_the_mean_and_lse_counts_keys)
{
    float q[2] = {0, 0}, o[2], l[1], probs[3];
    float keys[6] = {1, 2, 3, 4, 5, 6}, values[6] = {1, 0, 2, 0, 6, 3};
    int kv_head = 0;
    int64_t row = 0, begin = 0, end = 3;
    assay_attention a = {.n_head = 1,
                         .kv_head = &kv_head,
                         .d_key = 2,
                         .d_value = 2,
                         .keys = keys,
                         .values = values,
                         .key_stride = 2,
                         .value_stride = 2,
                         .n_keys = 3,
                         .n_rows = 1,
                         .rows = &row,
                         .begin = &begin,
                         .end = &end,
                         .scale = 0.5};
    EXPECT_OK(assay_op_attention(assay_rows_of(o, 1, 2), assay_rows_of(l, 1, 1), probs, 3,
                                 assay_rows_of(q, 1, 2), &a));
    EXPECT_NEAR(o[0], 3, 1e-6);
    EXPECT_NEAR(o[1], 1, 1e-6);
    EXPECT_NEAR(l[0], log(3), 1e-6);
    EXPECT_NEAR(probs[1], 1.0 / 3, 1e-7);
}
END_TEST

START_TEST(linear_has_the_same_bits_in_any_batch_and_whichever_way_the_weight_lies)
{
    enum { K = 77, N = 70, T = 71 };
    static float x[T * K], w[N * K], turned[K * N], one[N], all[T * N], other[T * N];
    for (int i = 0; i < T * K; i++)
        x[i] = (float)sin(i);
    for (int i = 0; i < N * K; i++)
        turned[i % K * N + i / K] = w[i] = (float)cos(3 * i);
    assay_op_linear(assay_rows_of(all, T, N), assay_rows_of(x, T, K), w, K, false);
    assay_op_linear_t(assay_rows_of(other, T, N), assay_rows_of(x, T, K), turned, N, false);
    ck_assert_mem_eq(all, other, sizeof all);
    for (int t = 0; t < T; t++) {
        assay_op_linear(assay_rows_of(one, 1, N), assay_rows_of(x + t * K, 1, K), w, K, false);
        ck_assert_mem_eq(one, all + t * N, sizeof one);
        for (int n = 0; n < N; n++) {
            double exact = 0;
            for (int k = 0; k < K; k++)
                exact += (double)x[t * K + k] * w[n * K + k];
            EXPECT_NEAR(one[n], exact, 1e-5);
        }
    }
}
END_TEST

START_TEST(linear_adds_to_what_is_there_whatever_the_sizes)
{
    enum { MOST = 36 };
    static float x[MOST * MOST], w[MOST * MOST], turned[MOST * MOST], y[MOST * MOST],
        z[MOST * MOST];
    for (int i = 0; i < MOST * MOST; i++) {
        x[i] = (float)(i % 7 - 3);
        w[i] = (float)(i % 5 - 2);
    }
    for (int size = 1; size <= MOST; size++) { /* small whole numbers: every order is exact */
        int n = size, k = MOST + 1 - size, t = 1 + size % 9;
        for (int i = 0; i < n * k; i++)
            turned[i % k * n + i / k] = w[i];
        for (int i = 0; i < t * n; i++)
            y[i] = z[i] = 1;
        assay_op_linear(assay_rows_of(y, t, n), assay_rows_of(x, t, k), w, k, true);
        assay_op_linear_t(assay_rows_of(z, t, n), assay_rows_of(x, t, k), turned, n, true);
        for (int i = 0; i < t * n; i++) {
            float exact = 1;
            for (int j = 0; j < k; j++)
                exact += x[i / n * k + j] * w[i % n * k + j];
            ck_assert(y[i] == exact && z[i] == exact);
        }
    }
}
END_TEST

START_TEST(greedy_takes_the_first_of_equals_and_never_nan)
{
    static const float logits[] = {NAN, 1, 3, 3, NAN};
    static const float nothing[] = {NAN, NAN};
    ck_assert_int_eq(assay_op_greedy(logits, 5), 2);
    ck_assert_int_eq(assay_op_greedy(nothing, 2), 0);
}
END_TEST

EXPECT_MAIN("ops", rotary_turns_adjacent_pairs, rotary_half_split_is_another_rotation,
            rotary_leaves_padding_and_channels_behind_alone,
            rotary_yarn_frequencies_are_the_published_ones,
            rotary_linear_factor_and_freqs_divide_angles, norm_adds_eps_to_the_mean_square,
            norm_of_layers_subtracts_the_mean, router_picks_the_golden_experts_by_sum_of_two,
            router_softmax_without_groups_picks_the_golden_experts, router_stays_in_range_on_nan,
            indexer_selects_larger_scores_then_smaller_positions,
            attention_without_keys_is_zero_and_lse_minus_infinity,
            attention_with_equal_scores_is_the_mean_and_lse_counts_keys,
            linear_has_the_same_bits_in_any_batch_and_whichever_way_the_weight_lies,
            linear_adds_to_what_is_there_whatever_the_sizes,
            greedy_takes_the_first_of_equals_and_never_nan)
