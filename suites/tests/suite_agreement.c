#include <math.h>

#include "expect.h"
#include "probes/recorder.h"
#include "references/agreement.h"

enum { N = 1000 };

static float got[N], ref[N];

/* Logits between -span and span; the candidate's off by at most `off`. */
static void fill(uint64_t seed, double span, double off)
{
    for (int i = 0; i < N; i++) {
        double a = ldexp((double)(assay_mix(seed + (uint64_t)i) >> 11), -53);
        double b = ldexp((double)(assay_mix(seed + N + (uint64_t)i) >> 11), -53);
        ref[i] = (float)(span * (2 * a - 1));
        got[i] = (float)(ref[i] + off * (2 * b - 1));
    }
}

/* As it is defined, with more digits than a double has. */
static long double divergence_by_definition(void)
{
    long double got_sum = 0, ref_sum = 0, kl = 0;
    for (int i = 0; i < N; i++) {
        got_sum += expl(got[i]);
        ref_sum += expl(ref[i]);
    }
    for (int i = 0; i < N; i++) {
        long double p = expl(ref[i]) / ref_sum, q = expl(got[i]) / got_sum;
        kl += p * logl(p / q);
    }
    return kl;
}

static assay_rows_seen rows_of(const void *logits, assay_dtype dtype, int64_t n_rows, int64_t n)
{
    return (assay_rows_seen){.n_tokens = n_rows,
                             .n_sub = 1,
                             .n_cols = n,
                             .values = {.data = logits, .dtype = dtype},
                             .n_t = n_rows,
                             .n_middle = 1,
                             .n_inner = n};
}

static assay_agreement look_at(const assay_rows_seen *x, const assay_rows_seen *y, int64_t position)
{
    assay_agreement a;
    assay_agreement_init(&a);
    assay_agreement_add(&a, 0, 0, position, x, y);
    assay_agreement_finish(&a);
    return a;
}

static assay_agreement look(void)
{
    const assay_rows_seen x = rows_of(got, ASSAY_DTYPE_F32, 1, N),
                          y = rows_of(ref, ASSAY_DTYPE_F32, 1, N);
    return look_at(&x, &y, 0);
}

START_TEST(agreement_of_hand_computed_rows)
{
    /* p = softmax(0, log 3) = 1/4, 3/4; q = softmax(0, 0): KL = log 2 - H(p) */
    const double a[] = {0, 0, 0, 0, 0, 1}, b[] = {0, log(3), 0, 0, 0, 0};
    const assay_rows_seen x = rows_of(a, ASSAY_DTYPE_F64, 3, 2),
                          y = rows_of(b, ASSAY_DTYPE_F64, 3, 2);
    const assay_agreement seen = look_at(&x, &y, 5);
    const double first = log(2) + 0.25 * log(0.25) + 0.75 * log(0.75),
                 third = -log(2) + log(exp(0.5) + exp(-0.5));
    ck_assert_int_eq(seen.n_rows, 3);
    EXPECT_NEAR(seen.kl_max, first, 2e-7);
    EXPECT_NEAR(seen.kl_mean, (first + third) / 3, 2e-7);
    ck_assert_int_eq(seen.n_top1_equal, 2); /* ties of the reference are free */
    ck_assert(first > third);
    ck_assert_int_eq(seen.worst_position, 5);
}
END_TEST

START_TEST(the_largest_are_found_wherever_they_stand)
{
    for (int at = 0; at < N; at += 37) {
        fill((uint64_t)at, 5, 0);
        for (int k = 0; k < 5; k++) { /* two of the five are others */
            got[(at + 301 * k) % N] = 9 + (float)k;
            ref[(at + 301 * k + (k < 2)) % N] = 9 + (float)k;
        }
        const assay_agreement seen = look();
        EXPECT_NEAR(seen.top5_overlap, 0.6, 1e-12);
        ck_assert_int_eq(seen.n_top1_equal, 1);
    }
}
END_TEST

START_TEST(divergence_is_that_of_its_definition_near_and_far)
{
    static const double offs[] = {1e-6, 1e-4, 1e-2, 0.031, 0.032, 0.1, 1, 3, 10};
    for (size_t k = 0; k < sizeof offs / sizeof *offs; k++) {
        fill(k, 15, offs[k]);
        double wanted = (double)divergence_by_definition();
        ck_assert(wanted > 0);
        /* the definition itself loses what is below 10^-19 of a logit */
        EXPECT_NEAR(look().kl_max, wanted, 3e-7 * wanted + 1e-17);
    }
}
END_TEST

START_TEST(a_shift_of_all_logits_is_no_divergence)
{
    fill(1, 15, 0);
    for (int i = 0; i < N; i++)
        got[i] = (ref[i] = rintf(ref[i] * 1024) / 1024) + 3;
    assay_agreement a = look();
    EXPECT_NEAR(a.kl_max, 0, 1e-15);
    ck_assert_int_eq(a.n_top1_equal, 1);
    EXPECT_NEAR(a.top5_overlap, 1, 0);
}
END_TEST

START_TEST(rows_that_are_the_same_agree_in_everything)
{
    fill(2, 15, 0);
    ref[7] = got[7] = -INFINITY; /* ruled out by both */
    assay_agreement a = look();
    EXPECT_NEAR(a.kl_max, 0, 0);
    ck_assert_int_eq(a.n_top1_equal, 1);
    EXPECT_NEAR(a.top5_overlap, 1, 0);
}
END_TEST

START_TEST(an_id_that_one_side_rules_out_counts_by_whose_it_is)
{
    fill(3, 5, 0);
    ref[7] = -INFINITY; /* the reference gives it nothing: finite */
    ck_assert(isfinite(look().kl_max) && look().kl_max > 0);
    fill(3, 5, 0);
    got[7] = -INFINITY;
    ck_assert(isinf(look().kl_max));
    ref[7] = -300; /* nothing in float32, which is not nothing */
    ck_assert(isinf(look().kl_max));
}
END_TEST

START_TEST(rows_without_a_distribution_diverge_by_infinity)
{
    fill(4, 5, 0);
    for (int sign = -1; sign <= 1; sign += 2) {
        got[0] = ref[0] = copysignf(NAN, (float)sign);
        ck_assert(isinf(look().kl_max) && !look().n_top1_equal);
    }
    for (int i = 0; i < N; i++)
        got[i] = ref[i] = -INFINITY;
    ck_assert(isinf(look().kl_max));
    fill(4, 5, 0);
    got[0] = ref[0] = INFINITY;
    ck_assert(isinf(look().kl_max));
}
END_TEST

EXPECT_MAIN("agreement", agreement_of_hand_computed_rows, the_largest_are_found_wherever_they_stand,
            divergence_is_that_of_its_definition_near_and_far,
            a_shift_of_all_logits_is_no_divergence, rows_that_are_the_same_agree_in_everything,
            an_id_that_one_side_rules_out_counts_by_whose_it_is,
            rows_without_a_distribution_diverge_by_infinity)
