/*
 * Real attention in float32 against the variance that the oracle says of it: few keys and many,
 * scores that are alike and one that holds most.
 */
#include "expect.h"
#include "references/oracle/oracle_private.h"

enum { D = 64, V = 16, MOST_KEYS = 128, N_TRIALS = 600 };

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*state >> 11) / 0x1p52 - 1;
}

typedef struct head {
    int n;
    double scale, q[D], k[MOST_KEYS * D], v[MOST_KEYS * V]; /* float32 numbers */
} head;

static void fill(head *h, int n, double spread, uint64_t *state)
{
    h->n = n;
    h->scale = (double)(float)(1 / sqrt(D));
    for (int i = 0; i < D; i++)
        h->q[i] = (float)(spread * uniform(state));
    for (int i = 0; i < n * D; i++)
        h->k[i] = (float)(spread * uniform(state));
    for (int i = 0; i < n * V; i++)
        h->v[i] = (float)uniform(state);
}

/* As plainly as an engine does it: one chain for every sum. */
static void in_float32(float *o, float *p, float *lse, const head *h)
{
    float most = -INFINITY, sum = 0;
    for (int j = 0; j < h->n; j++) {
        float dot = 0;
        for (int i = 0; i < D; i++)
            dot = dot + (float)h->q[i] * (float)h->k[j * D + i];
        p[j] = dot * (float)h->scale;
        most = p[j] > most ? p[j] : most;
    }
    for (int j = 0; j < h->n; j++) {
        p[j] = expf(p[j] - most);
        sum = sum + p[j];
    }
    *lse = most + logf(sum);
    for (int i = 0; i < V; i++)
        o[i] = 0;
    for (int j = 0; j < h->n; j++) {
        p[j] = p[j] / sum;
        for (int i = 0; i < V; i++)
            o[i] = o[i] + p[j] * (float)h->v[j * V + i];
    }
}

typedef struct sums {
    double of_out, of_probs, of_lse; /* squares */
} sums;

static double square(double x)
{
    return x * x;
}

/* Adds what float32 is off by, and what is said of it. */
static void compare(sums *measured, sums *said, const head *h)
{
    double s[MOST_KEYS], p[MOST_KEYS], variance[MOST_KEYS], off[MOST_KEYS], o[V], o_off[V];
    float o32[V], p32[MOST_KEYS], lse32;
    oracle_factor keys = {.values = h->k, .ld = D};
    EXPECT_OK(assay_oracle_multiply(s, h->n, h->q, D, &keys, 1, h->n, D, false));
    EXPECT_OK(assay_oracle_multiply_variance(variance, s, h->n, h->q, D, &keys, 1, h->n, D));
    double most = -HUGE_VAL;
    for (int j = 0; j < h->n; j++) {
        s[j] *= h->scale;
        most = s[j] > most ? s[j] : most;
    }
    double lse = assay_oracle_softmax(p, s, h->n);
    double all = assay_oracle_key_variance(variance, s, p, h->n, h->scale);
    EXPECT_OK(assay_oracle_gemm(o, V, p, h->n, h->v, V, 1, V, h->n, true, false));
    memcpy(o_off, o, sizeof o);
    EXPECT_OK(assay_oracle_values_off(o_off, V, p, variance, h->v, V, 1, h->n, V));
    memcpy(off, p, sizeof off);
    assay_oracle_probs_off(off, variance, h->n);
    in_float32(o32, p32, &lse32, h);
    for (int i = 0; i < V; i++) {
        measured->of_out += square(o32[i] - o[i]);
        said->of_out += square(o_off[i] - o[i]);
    }
    for (int j = 0; j < h->n; j++) {
        measured->of_probs += square(p32[j] - p[j]);
        said->of_probs += square(off[j] - p[j]);
    }
    measured->of_lse += square(lse32 - lse);
    said->of_lse += square(assay_oracle_lse_off(lse, most, all, p, h->n) - lse);
}

static void expect_ratio(double measured, double said, const char *what, int n, double spread)
{
    double r = sqrt(measured / said);
    ck_assert_msg(r > 0.7 && r < 1.4, "%s of %d keys, spread %g: measured %.3g of what is said",
                  what, n, spread, r);
}

START_TEST(attention_in_float32_is_off_by_what_is_said_of_it)
{
    static const int n_keys[] = {2, 3, 5, 16, MOST_KEYS};
    static const double spreads[] = {0.5, 1.5, 3};
    for (size_t a = 0; a < sizeof n_keys / sizeof *n_keys; a++)
        for (size_t b = 0; b < sizeof spreads / sizeof *spreads; b++) {
            uint64_t state = 11 + a;
            sums measured = {0}, said = {0};
            for (int trial = 0; trial < N_TRIALS; trial++) {
                static head h;
                fill(&h, n_keys[a], spreads[b], &state);
                compare(&measured, &said, &h);
            }
            expect_ratio(measured.of_out, said.of_out, "output", n_keys[a], spreads[b]);
            expect_ratio(measured.of_probs, said.of_probs, "probabilities", n_keys[a], spreads[b]);
            expect_ratio(measured.of_lse, said.of_lse, "log-sum-exp", n_keys[a], spreads[b]);
        }
}
END_TEST

/* A key that holds everything: its score does not matter. */
START_TEST(attention_to_one_key_is_off_by_a_rounding_alone)
{
    double variance[2] = {1e-10, 1e-10}, scores[2] = {0, -HUGE_VAL}, p[2] = {1, 0}, off[2] = {1, 0};
    assay_oracle_key_variance(variance, scores, p, 2, 1);
    ck_assert(variance[1] == 0);
    assay_oracle_probs_off(off, variance, 2);
    ck_assert(fabs(off[0] - 1) < 0x1p-24 && off[1] == 0);
    double v[2] = {0.75, NAN}, o[1] = {0.75};
    EXPECT_OK(assay_oracle_values_off(o, 1, p, variance, v, 1, 1, 2, 1));
    ck_assert(fabs(o[0] - 0.75) < 0x1p-24);
}
END_TEST

EXPECT_MAIN("oracle_attention_noise", attention_in_float32_is_off_by_what_is_said_of_it,
            attention_to_one_key_is_off_by_a_rounding_alone)
