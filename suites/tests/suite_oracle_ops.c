#include "references/oracle/oracle_ops.h"

#include "expect.h"

static assay_rope_knobs rope_of(int width, double base)
{
    return (assay_rope_knobs){.base = base,
                              .factor = 1,
                              .magnitude = 1,
                              .width = width,
                              .frequency_width = width,
                              .position_scale = 1,
                              .frequency_format = ASSAY_DTYPE_F64};
}

static void expect_rotated(assay_pairing pairing, const double want[8])
{
    assay_rope_knobs rope = rope_of(8, 10000);
    double f[4], x[8];
    rope.pairing = pairing;
    assay_oracle_rope_frequencies(f, &rope);
    for (int i = 0; i < 8; i++)
        x[i] = i + 1;
    assay_oracle_rotate(x, &rope, f, NULL, 3, ASSAY_DTYPE_F64);
    for (int i = 0; i < 8; i++)
        EXPECT_NEAR(x[i], want[i], 1e-7);
}

START_TEST(rotary_turns_adjacent_pairs)
{
    const double want[8] = {-1.2722325, -1.8388650, 1.6839286, 4.7079066,
                            4.8177772,  6.1472777,  6.9759685, 8.0209640};
    expect_rotated(ASSAY_PAIR_ADJACENT, want);
}
END_TEST

START_TEST(rotary_half_split_gives_other_numbers)
{
    const double want[8] = {-1.6955925, 0.1375517, 2.7886816, 3.9759820,
                            -4.8088425, 6.3230593, 7.0868367, 8.0119640};
    expect_rotated(ASSAY_PAIR_HALF_SPLIT, want);
}
END_TEST

/* transformers: de-interleave, then half-split = adjacent pairs written in another order. */
START_TEST(rotary_pair_orders_are_permutations_of_each_other)
{
    const double adjacent_to_split[8] = {-1.2722325, 1.6839286, 4.8177772, 6.9759685,
                                         -1.8388650, 4.7079066, 6.1472777, 8.0209640};
    const double split_to_adjacent[8] = {-1.6955925, -4.8088425, 0.1375517, 6.3230593,
                                         2.7886816,  7.0868367,  3.9759820, 8.0119640};
    expect_rotated(ASSAY_PAIR_ADJACENT_TO_SPLIT, adjacent_to_split);
    expect_rotated(ASSAY_PAIR_SPLIT_TO_ADJACENT, split_to_adjacent);
}
END_TEST

START_TEST(rotary_turns_back_and_leaves_channels_beyond_its_width)
{
    assay_rope_knobs rope = rope_of(4, 10000);
    double f[2], x[6] = {1, 2, 3, 4, 5, 6};
    assay_oracle_rope_frequencies(f, &rope);
    assay_oracle_rotate(x, &rope, f, NULL, 7, ASSAY_DTYPE_F64);
    ck_assert(fabs(x[0] - 1) > 0.1 && x[4] == 5 && x[5] == 6);
    rope.inverse = true;
    assay_oracle_rotate(x, &rope, f, NULL, 7, ASSAY_DTYPE_F64);
    for (int i = 0; i < 6; i++)
        EXPECT_NEAR(x[i], i + 1, 1e-14);
    rope.skip = true;
    assay_oracle_rotate(x, &rope, f, NULL, 7, ASSAY_DTYPE_F64);
    EXPECT_NEAR(x[0], 1, 1e-14);
}
END_TEST

static assay_rope_knobs yarn_of(double base, double factor, double fast, double slow)
{
    assay_rope_knobs rope = rope_of(64, base);
    rope.yarn = true;
    rope.factor = factor;
    rope.orig_context = 4096;
    rope.beta_fast = fast;
    rope.beta_slow = slow;
    return rope;
}

START_TEST(yarn_ranges_are_those_of_the_models)
{
    static const struct {
        double base, factor, fast, slow, raw_low, raw_high;
        int low, high;
    } rows[] = {{1e4, 40, 32, 1, 10.472241, 22.513441, 10, 23},
                {5e4, 32, 1, 1, 19.164575, 19.164575, 19, 20},
                {5e4, 32, 32, 1, 8.914499, 19.164575, 8, 20},
                {5e4, 64, 32, 1, 8.914499, 19.164575, 8, 20}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assay_rope_knobs rope = yarn_of(rows[i].base, rows[i].factor, rows[i].fast, rows[i].slow);
        int low, high;
        EXPECT_NEAR(assay_oracle_yarn_corr(&rope, rope.beta_fast), rows[i].raw_low, 1e-6);
        EXPECT_NEAR(assay_oracle_yarn_corr(&rope, rope.beta_slow), rows[i].raw_high, 1e-6);
        assay_oracle_yarn_range(&low, &high, &rope);
        ck_assert_int_eq(low, rows[i].low);
        ck_assert_int_eq(high, rows[i].high);
    }
}
END_TEST

static void expect_frequencies(const assay_rope_knobs *rope, const int *at, const double *want,
                               size_t n)
{
    double f[32];
    assay_oracle_rope_frequencies(f, rope);
    for (size_t i = 0; i < n; i++)
        EXPECT_NEAR(f[at[i]], want[i], 5e-9 * want[i]); /* nine digits are given */
}

START_TEST(yarn_frequencies_of_deepseek_v3_and_kimi_k2)
{
    const int at[] = {0, 1, 9, 10, 11, 15, 16, 20, 22, 23, 24, 31};
    const double want[] = {
        1,      0.749894209,    0.0749894209,   0.0562341325,   0.0390069266, 0.00833450895,
        0.0055, 0.000790569415, 0.000177827941, 3.33380358e-05, 2.5e-05,      3.33380358e-06};
    assay_rope_knobs rope = yarn_of(1e4, 40, 32, 1);
    expect_frequencies(&rope, at, want, 12);
    const int k_at[] = {9, 10, 15, 16};
    const double k_11[] = {0.0476886124, 0.0340072782, 0.00627130338, 0.00447213595};
    const double k_32[] = {0.0438387505, 0.0285165197, 0.00272736371, 0.00158388148};
    rope = yarn_of(5e4, 32, 1, 1);
    expect_frequencies(&rope, k_at, k_11, 4);
    rope = yarn_of(5e4, 32, 32, 1); /* betas not read: other numbers */
    expect_frequencies(&rope, k_at, k_32, 4);
}
END_TEST

START_TEST(softmax_scales_are_those_of_the_models)
{
    static const struct {
        double width, factor, m, want;
    } rows[] = {{192, 40, 1, 0.1352337788608801},
                {192, 40, 0.707, 0.11472138679292612},
                {192, 32, 1, 0.13086079996295008},
                {192, 64, 1, 0.14467962580268925},
                {256, 1, 0, 0.0625},
                {192, 1, 1, 0.07216878364870323}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        EXPECT_NEAR(
            assay_oracle_softmax_scale(rows[i].width, 1, rows[i].factor, rows[i].m, rows[i].m),
            rows[i].want, 1e-15);
    EXPECT_NEAR(assay_oracle_yarn_gain(40, 1), 1.3688879454113936, 1e-15);
    EXPECT_NEAR(assay_oracle_yarn_gain(40, 0.707), 1.2608037774058554, 1e-15);
}
END_TEST

START_TEST(rms_norm_adds_epsilon_to_the_mean_square)
{
    const double x[4] = {.001, -.002, .003, -.004}, w[4] = {1, .5, 2, 1};
    const double at_6[4] = {.342997170, -.342997170, 2.057983022, -1.371988681};
    const double at_5[4] = {.239045722, -.239045722, 1.434274331, -.956182887};
    double y[4];
    assay_oracle_rms_norm(y, x, w, 4, 1e-6, ASSAY_NORM_RIGHT, ASSAY_DTYPE_F64);
    for (int i = 0; i < 4; i++)
        EXPECT_NEAR(y[i], at_6[i], 1e-9);
    assay_oracle_rms_norm(y, x, w, 4, 1e-5, ASSAY_NORM_RIGHT, ASSAY_DTYPE_F64);
    for (int i = 0; i < 4; i++)
        EXPECT_NEAR(y[i], at_5[i], 1e-9);
}
END_TEST

START_TEST(norm_variants_differ_as_their_names_say)
{
    const double x[2] = {3, 4}, w[2] = {2, 5}, b[2] = {1, 1}, rms = sqrt(12.5);
    double y[2];
    assay_oracle_rms_norm(y, x, w, 2, 0, ASSAY_NORM_LEFT_OUT, ASSAY_DTYPE_F64);
    ck_assert(y[0] == 3 && y[1] == 4);
    assay_oracle_rms_norm(y, x, w, 2, 0, ASSAY_NORM_SUM, ASSAY_DTYPE_F64);
    EXPECT_NEAR(y[0], 6 / 5.0, 1e-15);
    assay_oracle_rms_norm(y, x, w, 2, 0, ASSAY_NORM_WEIGHT_PLUS_1, ASSAY_DTYPE_F64);
    EXPECT_NEAR(y[1], 4 * 6 / rms, 1e-14);
    assay_oracle_rms_norm(y, x, w, 2, 0, ASSAY_NORM_WEIGHT_MINUS_1, ASSAY_DTYPE_F64);
    EXPECT_NEAR(y[1], 4 * 4 / rms, 1e-14);
    assay_oracle_rms_norm(y, x, w, 2, 0, ASSAY_NORM_NO_WEIGHT, ASSAY_DTYPE_F64);
    EXPECT_NEAR(y[1], 4 / rms, 1e-15);
    assay_oracle_rms_norm(y, x, w, 2, 0, ASSAY_NORM_CENTERED, ASSAY_DTYPE_F64);
    ck_assert(y[0] == -2 && y[1] == 5);
    assay_oracle_layer_norm(y, x, w, b, 2, 0, ASSAY_NORM_RIGHT, ASSAY_DTYPE_F64);
    ck_assert(y[0] == -1 && y[1] == 6);
    assay_oracle_layer_norm(y, x, w, b, 2, 0, ASSAY_NORM_NO_BIAS, ASSAY_DTYPE_F64);
    ck_assert(y[0] == -2 && y[1] == 5);
    assay_oracle_layer_norm(y, x, w, b, 2, 0, ASSAY_NORM_NOT_CENTERED, ASSAY_DTYPE_F64);
    EXPECT_NEAR(y[1], 1 + 4 * 5 / rms, 1e-14);
}
END_TEST

/* Golden routing: 16 experts in 4 groups, 2 groups and 4 experts used, sigmoid with bias. */
static void route_inputs(double logits[16], double bias[16])
{
    for (int i = 0; i < 16; i++) {
        logits[i] = ((37 * i + 11) % 101 - 50) / 25.0;
        bias[i] = ((53 * i + 7) % 31 - 15) / 40.0;
    }
}

static assay_knobs route_knobs(void)
{
    return (assay_knobs){.gate = ASSAY_GATE_SIGMOID,
                         .groups = ASSAY_GROUPS_TOP2_SUM,
                         .n_group_used = 2,
                         .weights_norm = true,
                         .weights_scale = 2.5,
                         .n_expert_used = 4,
                         .round_out = ASSAY_DTYPE_F64};
}

static void route(double weights[4], double ids[4], const assay_knobs *k, const double *bias,
                  int n_group)
{
    double logits[16], unused[16], p[16], scores[16];
    int32_t chosen[4];
    route_inputs(logits, unused);
    assay_oracle_gate(p, logits, 16, k->gate, ASSAY_DTYPE_F64);
    assay_oracle_route_scores(scores, p, bias, 16, n_group, k);
    assay_oracle_top(chosen, scores, 16, 4);
    for (int i = 0; i < 4; i++)
        ids[i] = chosen[i];
    assay_oracle_route_weights(weights, p, bias, ids, 16, 4, k);
}

START_TEST(routing_scores_groups_by_their_two_best)
{
    double logits[16], bias[16], biased[16], group[4];
    const double want[4] = {1.757194548, 1.530755952, 1.139948282, 1.703797511};
    route_inputs(logits, bias);
    assay_oracle_gate(biased, logits, 16, ASSAY_GATE_SIGMOID, ASSAY_DTYPE_F64);
    for (int i = 0; i < 16; i++)
        biased[i] += bias[i];
    assay_oracle_group_scores(group, biased, 16, 4, ASSAY_GROUPS_TOP2_SUM);
    for (int g = 0; g < 4; g++)
        EXPECT_NEAR(group[g], want[g], 1e-9);
    int32_t best[2];
    assay_oracle_group_scores(group, biased, 16, 4, ASSAY_GROUPS_MAX);
    assay_oracle_top(best, group, 4, 2);
    ck_assert(best[0] == 1 && best[1] == 0); /* another rule, other groups */
}
END_TEST

START_TEST(routing_gives_the_golden_experts_and_weights)
{
    double logits[16], bias[16], weights[4], ids[4];
    const double want_ids[4] = {2, 15, 1, 13};
    const double want[4] = {0.739751234, 0.560919229, 0.442652219, 0.756677318};
    assay_knobs k = route_knobs();
    route_inputs(logits, bias);
    route(weights, ids, &k, bias, 4);
    for (int i = 0; i < 4; i++) {
        ck_assert(ids[i] == want_ids[i]);
        EXPECT_NEAR(weights[i], want[i], 1e-9);
    }
    k.bias = ASSAY_BIAS_IN_WEIGHTS;
    route(weights, ids, &k, bias, 4);
    ck_assert(ids[0] == 2 && fabs(weights[0] - want[0]) > 1e-3);
    k = route_knobs();
    k.groups = ASSAY_GROUPS_MAX;
    route(weights, ids, &k, bias, 4);
    for (int i = 0; i < 4; i++)
        ck_assert(ids[i] < 8); /* groups 1 and 0 */
}
END_TEST

START_TEST(routing_by_softmax_without_groups)
{
    double weights[4], ids[4];
    const double want_ids[4] = {5, 13, 2, 10};
    const double want[4] = {0.223001455, 0.168540874, 0.149482345, 0.112976326};
    assay_knobs k = route_knobs();
    k.gate = ASSAY_GATE_SOFTMAX;
    k.weights_norm = false;
    k.weights_scale = 1;
    route(weights, ids, &k, NULL, 0);
    for (int i = 0; i < 4; i++) {
        ck_assert(ids[i] == want_ids[i]);
        EXPECT_NEAR(weights[i], want[i], 1e-9);
    }
    k.gate = ASSAY_GATE_SOFTMAX_SELECTED;
    route(weights, ids, &k, NULL, 0);
    EXPECT_NEAR(weights[0] + weights[1] + weights[2] + weights[3], 1, 1e-15);
    EXPECT_NEAR(weights[0] / weights[1], want[0] / want[1], 1e-7);
}
END_TEST

START_TEST(top_breaks_ties_by_index_and_never_takes_what_is_forbidden)
{
    const double scores[6] = {1, -HUGE_VAL, 2, 2, NAN, 1};
    int32_t ids[6];
    assay_oracle_top(ids, scores, 6, 6);
    const int32_t want[6] = {2, 3, 0, 5, -1, -1};
    ck_assert_mem_eq(ids, want, sizeof want);
}
END_TEST

START_TEST(softmax_of_nothing_is_nothing_and_nan_spreads)
{
    double none[2] = {-HUGE_VAL, -HUGE_VAL}, p[2];
    ck_assert(assay_oracle_softmax(p, none, 2) == -HUGE_VAL && p[0] == 0 && p[1] == 0);
    const double two[2] = {0, log(3)};
    EXPECT_NEAR(assay_oracle_softmax(p, two, 2), log(4), 1e-15);
    EXPECT_NEAR(p[1], 0.75, 1e-15);
    const double bad[2] = {0, NAN};
    assay_oracle_softmax(p, bad, 2);
    ck_assert(isnan(p[0]) && isnan(p[1]));
}
END_TEST

/* Real sums in float32, terms in random order, against the variance that is said of them. */
static double measured_over_said(int n, double common)
{
    uint64_t state = 7 + (uint64_t)n;
    double error = 0, said = 0;
    for (int trial = 0; trial < 4000; trial++) {
        double exact = 0, squares = 0;
        float sum = 0;
        for (int i = 0; i < n; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            float term = (float)((double)(int64_t)(state >> 11) / 0x1p52 - 1 + common);
            exact += term;
            squares += (double)term * term;
            sum = sum + term;
        }
        error += (sum - exact) * (sum - exact);
        said += assay_oracle_sum_variance(exact, squares, n);
    }
    return sqrt(error / said);
}

START_TEST(sums_in_float32_are_off_by_what_is_said_of_them)
{
    static const int lengths[] = {3, 4, 16, 64, 256, 2048};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int common = 0; common < 3; common++) {
            double r = measured_over_said(lengths[i], common);
            ck_assert_msg(r > 0.5 && r < 1.5, "%d terms, mean %d: measured %.3g of what is said",
                          lengths[i], common, r);
        }
}
END_TEST

START_TEST(a_value_is_off_by_exactly_one_deviation)
{
    int n_up = 0;
    for (int i = 1; i <= 400; i++) {
        double off = assay_oracle_off_by(i / 7.0, 0x1p-40) - i / 7.0;
        EXPECT_NEAR(fabs(off), 0x1p-20, 0x1p-40);
        n_up += off > 0;
    }
    ck_assert_int_gt(n_up, 150);
    ck_assert_int_lt(n_up, 250);
}
END_TEST

EXPECT_MAIN("oracle_ops", sums_in_float32_are_off_by_what_is_said_of_them,
            a_value_is_off_by_exactly_one_deviation, rotary_turns_adjacent_pairs,
            rotary_half_split_gives_other_numbers,
            rotary_pair_orders_are_permutations_of_each_other,
            rotary_turns_back_and_leaves_channels_beyond_its_width,
            yarn_ranges_are_those_of_the_models, yarn_frequencies_of_deepseek_v3_and_kimi_k2,
            softmax_scales_are_those_of_the_models, rms_norm_adds_epsilon_to_the_mean_square,
            norm_variants_differ_as_their_names_say, routing_scores_groups_by_their_two_best,
            routing_gives_the_golden_experts_and_weights, routing_by_softmax_without_groups,
            top_breaks_ties_by_index_and_never_takes_what_is_forbidden,
            softmax_of_nothing_is_nothing_and_nan_spreads)
