/*
 * The pass on whole models: against what transformers computes, free-running and forced, on both
 * attention paths; and the rules of puts, intervals and knobs.
 */
#include "references/oracle/oracle.h"

#include <stdio.h>

#include "data.h"
#include "expect.h"
#include "references/run.h"

typedef struct scene {
    assay_gguf *file;
    assay_oracle *oracle;
    assay_run *run;
    assay_knobs knobs; /* transformers: latent norms at 1e-6 */
} scene;

/* Model and reference; false when they are not here. */
static bool scene_open(scene *s, const char *model, const char *reference, const char *prompt)
{
    bool shipped = !strcmp(model, "glm5-tiny-Q4_K_M") && prompt && strcmp(prompt, "long");
    char name[128];
    snprintf(name, sizeof name, shipped ? "%s.gguf" : "models/%s.gguf", model);
    const char *model_path = shipped ? data_shipped(name) : data_large(name);
    snprintf(name, sizeof name, shipped ? "%s.%s.h5" : "references/%s.%s.h5", model, reference);
    const char *run_path = shipped ? data_shipped(name) : data_large(name);
    if (!model_path || !run_path)
        return false;
    assay_run_options options = assay_run_options_default();
    options.prompt = prompt;
    EXPECT_OK(assay_gguf_open(&s->file, model_path));
    EXPECT_OK(assay_oracle_open(&s->oracle, s->file, 0));
    EXPECT_OK(assay_run_open(&s->run, &run_path, 1, &options));
    s->knobs = *assay_oracle_knobs(s->oracle);
    s->knobs.eps[ASSAY_NORM_OF_Q_A] = s->knobs.eps[ASSAY_NORM_OF_KV_A] = 1e-6;
    return true;
}

static void scene_close(scene *s)
{
    assay_run_close(s->run);
    assay_oracle_close(s->oracle);
    assay_gguf_close(s->file);
}

static assay_pass *pass_over(scene *s, int prompt, bool latent, int max_steps)
{
    assay_pass *pass;
    assay_pass_options options = {.latent = latent, .knobs = &s->knobs};
    EXPECT_OK(assay_pass_new(&pass, s->oracle, &options));
    int n = assay_run_prompt_at(s->run, prompt)->n_steps;
    for (int i = 0; i < n && i < max_steps; i++) {
        const assay_run_step *step = assay_run_step_at(s->run, prompt, i);
        int index;
        EXPECT_OK(
            assay_pass_add_step(&index, pass, step->tokens, step->n_tokens, step->first_position));
        ck_assert_int_eq(index, i);
    }
    return pass;
}

static int64_t count_of(const assay_seen *seen)
{
    int64_t n = assay_seen_count(seen);
    return n;
}

static double *read_seen(scene *s, const assay_seen *seen)
{
    double *values = malloc((size_t)count_of(seen) * sizeof *values);
    ck_assert_ptr_nonnull(values);
    EXPECT_OK(assay_run_read(values, s->run, seen));
    return values;
}

/* NaN when anything is not finite. */
static double distance(const double *got, const double *want, int64_t n)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    return sqrt(error) / sqrt(size);
}

static bool is_judged(const assay_seen *seen)
{
    return seen->has_values && seen->rank < 0 && seen->hand_over == 0 && !seen->partial;
}

/* Puts every captured value of the first steps (ids only, if asked); returns how many. */
static int put_all(scene *s, assay_pass *pass, int prompt, int max_steps, bool only_keys)
{
    int n = 0, n_steps = assay_run_prompt_at(s->run, prompt)->n_steps;
    for (int step = 0; step < n_steps && step < max_steps; step++)
        for (int i = 0; i < assay_run_n_seen(s->run, prompt, step); i++) {
            const assay_seen *seen = assay_run_seen_at(s->run, prompt, step, i);
            if (!is_judged(seen) || (only_keys && seen->point != ASSAY_POINT_INDEX_TOPK))
                continue;
            double *values = read_seen(s, seen);
            EXPECT_OK(assay_pass_put(pass, step, seen->point, seen->layer, values, count_of(seen)));
            free(values);
            n++;
        }
    return n;
}

static const struct {
    const char *model, *prompt;
} cases[] = {{"glm5-tiny-Q4_K_M", "count"},   {"glm5-tiny-Q4_K_M", "text"},
             {"glm5-tiny-bf16", "count"},     {"glm5-tiny-bf16", "text"},
             {"dsv3-tiny-bf16", "count"},     {"dsv3-tiny-bf16", "text"},
             {"dsv2lite-tiny-bf16", "count"}, {"dsv2lite-tiny-bf16", "text"},
             {"llama-tiny-bf16", "count"},    {"llama-tiny-bf16", "text"}};
#define N_CASES ((int)(sizeof cases / sizeof *cases))

START_TEST(free_running_logits_are_those_of_transformers_on_both_paths)
{
    for (int c = 0; c < N_CASES; c++)
        for (int latent = 0; latent < 2; latent++) {
            scene s;
            if (!scene_open(&s, cases[c].model, "hf-fp32", cases[c].prompt))
                continue;
            assay_pass *pass = pass_over(&s, 0, latent, 4);
            int n = assay_run_prompt_at(s.run, 0)->n_steps;
            for (int step = 0; step < n && step < 4; step++) {
                const assay_seen *seen = assay_run_find(s.run, 0, step, ASSAY_POINT_LOGITS, -1);
                const double *got;
                ck_assert_ptr_nonnull(seen);
                double *want = read_seen(&s, seen);
                EXPECT_OK(assay_pass_value(&got, pass, step, ASSAY_POINT_LOGITS, -1));
                double rel = distance(got, want, count_of(seen));
                ck_assert_msg(rel <= 5e-6, "%s %s step %d %s: %g", cases[c].model, cases[c].prompt,
                              step, latent ? "latent" : "expanded", rel);
                free(want);
            }
            assay_pass_free(pass);
            scene_close(&s);
        }
}
END_TEST

static void expect_forced(scene *s, int max_steps, double bound, int least)
{
    assay_pass *pass = pass_over(s, 0, false, max_steps);
    int n_judged = 0, n_steps = assay_run_prompt_at(s->run, 0)->n_steps;
    put_all(s, pass, 0, max_steps, false);
    for (int step = 0; step < n_steps && step < max_steps; step++)
        for (int i = 0; i < assay_run_n_seen(s->run, 0, step); i++) {
            const assay_seen *seen = assay_run_seen_at(s->run, 0, step, i);
            char name[ASSAY_POINT_NAME_BYTES];
            if (!is_judged(seen) || assay_point_at(seen->point)->is_ids)
                continue;
            int64_t n = count_of(seen);
            double *got = read_seen(s, seen), *want = malloc((size_t)n * sizeof *want);
            EXPECT_OK(assay_pass_expect(want, pass, step, seen->point, seen->layer, NULL));
            double rel = distance(got, want, n);
            ck_assert_msg(rel <= bound, "%s step %d: %g",
                          assay_point_format(name, seen->point, seen->layer), step, rel);
            free(got);
            free(want);
            n_judged++;
        }
    ck_assert_int_ge(n_judged, least);
    assay_pass_free(pass);
}

START_TEST(forced_pass_agrees_with_transformers_at_every_point)
{
    for (int c = 0; c < N_CASES; c++) {
        scene s;
        if (!scene_open(&s, cases[c].model, "hf-fp32", cases[c].prompt))
            continue;
        expect_forced(&s, 17, 1e-6, 35);
        scene_close(&s);
    }
}
END_TEST

START_TEST(long_prompt_agrees_when_the_selection_is_followed)
{
    scene s;
    if (!scene_open(&s, "glm5-tiny-Q4_K_M", "hf-fp32", "long"))
        return;
    expect_forced(&s, 1, 2e-6, 40);
    const assay_seen *seen = assay_run_find(s.run, 0, 0, ASSAY_POINT_LOGITS, -1);
    double *want = read_seen(&s, seen);
    for (int latent = 0; latent < 2; latent++) {
        assay_pass *pass = pass_over(&s, 0, latent, 1);
        const double *got;
        EXPECT_OK(assay_pass_value(&got, pass, 0, ASSAY_POINT_LOGITS, -1));
        double free_running = distance(got, want, count_of(seen));
        ck_assert(free_running > 5e-3); /* exact ties at score 0 fall otherwise */
        assay_pass_free(pass);
        pass = pass_over(&s, 0, latent, 1);
        ck_assert_int_eq(put_all(&s, pass, 0, 1, true), 4);
        EXPECT_OK(assay_pass_value(&got, pass, 0, ASSAY_POINT_LOGITS, -1));
        ck_assert(distance(got, want, count_of(seen)) <= 5e-6);
        assay_pass_free(pass);
    }
    free(want);
    scene_close(&s);
}
END_TEST

/* Every flip of a healthy selection is a tie or within the noise of float32 scores. */
START_TEST(selection_gap_of_a_healthy_run_is_rounding)
{
    scene s;
    if (!scene_open(&s, "glm5-tiny-Q4_K_M", "hf-fp32", "long"))
        return;
    assay_pass *pass = pass_over(&s, 0, false, 1);
    put_all(&s, pass, 0, 1, false);
    int64_t T = assay_run_step_at(s.run, 0, 0)->n_tokens;
    double *gap = malloc((size_t)T * sizeof *gap), *scale = malloc((size_t)T * sizeof *scale);
    int64_t *flips = malloc((size_t)T * sizeof *flips);
    for (int layer = 0; layer < 4; layer++) {
        EXPECT_OK(assay_pass_selection_gap(gap, flips, scale, pass, 0, ASSAY_POINT_INDEX_TOPK,
                                           layer, NULL));
        for (int64_t t = 0; t < T; t++)
            ck_assert_msg(gap[t] >= 0 && gap[t] <= 1e-5 * (1 + scale[t]), "layer %d row %d: %g",
                          layer, (int)t, gap[t]);
        if (layer == 0)
            continue;
        EXPECT_OK(assay_pass_selection_gap(gap, flips, scale, pass, 0, ASSAY_POINT_MOE_TOPK, layer,
                                           NULL));
        for (int64_t t = 0; t < T; t++)
            ck_assert(gap[t] == 0 && flips[t] == 0);
    }
    free(gap);
    free(scale);
    free(flips);
    assay_pass_free(pass);
    scene_close(&s);
}
END_TEST

START_TEST(selection_gap_measures_a_wrong_expert)
{
    scene s;
    ck_assert(scene_open(&s, "glm5-tiny-Q4_K_M", "hf-fp32", "count"));
    assay_pass *pass = pass_over(&s, 0, false, 1);
    const double *right;
    double ids[16], scores[64], gap[8], scale[8];
    int64_t flips[8];
    EXPECT_OK(assay_pass_value(&right, pass, 0, ASSAY_POINT_MOE_TOPK, 2));
    memcpy(ids, right, sizeof ids);
    EXPECT_OK(assay_pass_selection_scores(scores, pass, 0, ASSAY_POINT_MOE_TOPK, 2, NULL));
    int worst = 0;
    for (int e = 1; e < 8; e++)
        if (scores[3 * 8 + e] < scores[3 * 8 + worst])
            worst = e;
    double lost = scores[3 * 8 + (int)ids[3 * 2]];
    ids[3 * 2] = worst;  /* token 3 gets the least of all instead of its best */
    ids[5 * 2 + 1] = 99; /* token 5 an expert that no model has */
    EXPECT_OK(assay_pass_put(pass, 0, ASSAY_POINT_MOE_TOPK, 2, ids, 16));
    EXPECT_OK(assay_pass_selection_gap(gap, flips, scale, pass, 0, ASSAY_POINT_MOE_TOPK, 2, NULL));
    for (int t = 0; t < 8; t++)
        ck_assert_int_eq(flips[t], t == 3 || t == 5);
    EXPECT_NEAR(gap[3], lost - scores[3 * 8 + worst], 1e-15);
    ck_assert(isinf(gap[5]) && gap[0] == 0);
    assay_pass_free(pass);
    scene_close(&s);
}
END_TEST

START_TEST(paths_are_equal_to_float64_rounding)
{
    scene s;
    ck_assert(scene_open(&s, "glm5-tiny-Q4_K_M", "hf-fp32", "text"));
    assay_pass *a = pass_over(&s, 0, false, 1), *b = pass_over(&s, 0, true, 1);
    static const assay_point points[] = {ASSAY_POINT_PROBS, ASSAY_POINT_LSE, ASSAY_POINT_KERNEL_OUT,
                                         ASSAY_POINT_PROJ, ASSAY_POINT_OUT};
    for (int layer = 0; layer < 4; layer++)
        for (size_t p = 0; p < sizeof points / sizeof *points; p++) {
            const double *x, *y;
            int n_dims;
            int64_t dims[ASSAY_MAX_DIMS], n = 1;
            EXPECT_OK(assay_pass_dims(&n_dims, dims, a, 0, points[p], layer));
            for (int d = 0; d < n_dims; d++)
                n *= dims[d];
            EXPECT_OK(assay_pass_value(&x, a, 0, points[p], layer));
            EXPECT_OK(assay_pass_value(&y, b, 0, points[p], layer));
            ck_assert(distance(x, y, n) <= 1e-12);
        }
    assay_pass_free(a);
    assay_pass_free(b);
    scene_close(&s);
}
END_TEST

START_TEST(decoding_equals_prefill)
{
    scene s;
    ck_assert(scene_open(&s, "glm5-tiny-Q4_K_M", "hf-fp32", "count"));
    const assay_run_step *step = assay_run_step_at(s.run, 0, 0);
    assay_pass *whole = pass_over(&s, 0, false, 1), *parts;
    assay_pass_options options = {.latent = true, .knobs = &s.knobs};
    EXPECT_OK(assay_pass_new(&parts, s.oracle, &options));
    for (int64_t at = 0, i = 0; at < step->n_tokens; at += 3) {
        int index;
        int64_t n = step->n_tokens - at < 3 ? step->n_tokens - at : 3;
        EXPECT_OK(assay_pass_add_step(&index, parts, step->tokens + at, n, at));
        ck_assert_int_eq(index, i++);
    }
    const double *want, *got;
    EXPECT_OK(assay_pass_value(&want, whole, 0, ASSAY_POINT_LOGITS, -1));
    EXPECT_OK(assay_pass_value(&got, parts, 2, ASSAY_POINT_LOGITS, -1));
    ck_assert(distance(got, want + 6 * 1024, 2 * 1024) <= 1e-12);
    assay_pass_free(whole);
    assay_pass_free(parts);
    scene_close(&s);
}
END_TEST

START_TEST(put_values_replace_inputs_but_not_expectations)
{
    scene s;
    ck_assert(scene_open(&s, "glm5-tiny-Q4_K_M", "hf-fp32", "count"));
    assay_pass *pass = pass_over(&s, 0, false, 1);
    double zeros[8 * 256] = {0}, out[8 * 256], clean[8 * 256];
    const double *got;
    EXPECT_OK(assay_pass_expect(clean, pass, 0, ASSAY_POINT_PROJ, 1, NULL));
    EXPECT_OK(assay_pass_put(pass, 0, ASSAY_POINT_PROJ, 1, zeros, 8 * 256));
    ck_assert(assay_pass_is_put(pass, 0, ASSAY_POINT_PROJ, 1));
    EXPECT_OK(assay_pass_expect(out, pass, 0, ASSAY_POINT_PROJ, 1, NULL));
    ck_assert(distance(out, clean, 8 * 256) == 0);
    EXPECT_OK(assay_pass_value(&got, pass, 0, ASSAY_POINT_PROJ, 1));
    ck_assert(got[0] == 0 && got[2047] == 0);
    const double *before;
    EXPECT_OK(assay_pass_value(&before, pass, 0, ASSAY_POINT_OUT, 0));
    EXPECT_OK(assay_pass_value(&got, pass, 0, ASSAY_POINT_ATTN_RESID, 1));
    ck_assert_mem_eq(got, before, sizeof zeros);
    EXPECT_FAILS(ASSAY_BAD_SHAPE, assay_pass_put(pass, 0, ASSAY_POINT_PROJ, 1, zeros, 8 * 256 - 1));
    EXPECT_SAYS("blk.1.attn.proj");
    EXPECT_FAILS(ASSAY_MISSING, assay_pass_put(pass, 0, ASSAY_POINT_FFN_GATE, 1, zeros, 8 * 256));
    EXPECT_FAILS(ASSAY_MISSING, assay_pass_put(pass, 0, ASSAY_POINT_PROJ, 4, zeros, 8 * 256));
    assay_pass_free(pass);
    scene_close(&s);
}
END_TEST

/* A phantom output: right numbers in kernel_out, zeros in what the projection reads. */
START_TEST(projection_reads_the_hand_over_where_it_was_captured)
{
    scene s;
    ck_assert(scene_open(&s, "glm5-tiny-Q4_K_M", "hf-fp32", "count"));
    assay_pass *pass = pass_over(&s, 0, false, 1);
    double zeros[8 * 512] = {0}, out[8 * 256];
    EXPECT_OK(assay_pass_put(pass, 0, ASSAY_POINT_OUT_ATTN, 1, zeros, 8 * 512));
    EXPECT_OK(assay_pass_expect(out, pass, 0, ASSAY_POINT_PROJ, 1, NULL));
    for (int i = 0; i < 8 * 256; i++)
        ck_assert(out[i] == 0);
    assay_pass_free(pass);
    scene_close(&s);
}
END_TEST

START_TEST(knobs_reach_only_the_interval_of_uncaptured_ops)
{
    scene s;
    ck_assert(scene_open(&s, "glm5-tiny-Q4_K_M", "hf-fp32", "count"));
    assay_pass *pass = pass_over(&s, 0, false, 1);
    double clean[8 * 256], bent[8 * 256];
    const double *kept;
    assay_knobs k = s.knobs;
    k.rope.base *= 2;
    EXPECT_OK(assay_pass_expect(clean, pass, 0, ASSAY_POINT_PROJ, 0, NULL));
    EXPECT_OK(assay_pass_expect(bent, pass, 0, ASSAY_POINT_PROJ, 0, &k));
    ck_assert(distance(bent, clean, 8 * 256) > 1e-4);
    EXPECT_OK(assay_pass_value(&kept, pass, 0, ASSAY_POINT_KERNEL_OUT, 0)); /* nothing is kept */
    EXPECT_OK(assay_pass_put(pass, 0, ASSAY_POINT_KERNEL_OUT, 0, kept, 8 * 512));
    EXPECT_OK(assay_pass_expect(bent, pass, 0, ASSAY_POINT_PROJ, 0, &k));
    ck_assert(distance(bent, clean, 8 * 256) == 0);
    assay_pass_free(pass);
    scene_close(&s);
}
END_TEST

START_TEST(interval_lists_the_uncaptured_ops_behind_a_value)
{
    scene s;
    ck_assert(scene_open(&s, "glm5-tiny-Q4_K_M", "hf-fp32", "count"));
    assay_pass *pass = pass_over(&s, 0, false, 2);
    assay_point points[16];
    int layers[16], steps[16];
    double zeros[8 * 512] = {0};
    EXPECT_OK(assay_pass_put(pass, 0, ASSAY_POINT_KERNEL_OUT, 1, zeros, 8 * 512));
    ck_assert_int_eq(assay_pass_interval(points, layers, steps, 16, pass, 0, ASSAY_POINT_PROJ, 1),
                     1);
    ck_assert(points[0] == ASSAY_POINT_OUT_ATTN && layers[0] == 1 && steps[0] == 0);
    ck_assert_int_eq(
        assay_pass_interval(points, layers, steps, 16, pass, 0, ASSAY_POINT_OUT_ATTN, 1), 0);
    /* decode: keys of the earlier step belong to it too; the list stops at its room */
    ck_assert_int_eq(
        assay_pass_interval(points, layers, steps, 16, pass, 1, ASSAY_POINT_KERNEL_OUT, 0), 16);
    bool earlier = false;
    for (int i = 0; i < 16; i++)
        earlier |= steps[i] == 0 && points[i] == ASSAY_POINT_K;
    ck_assert(earlier);
    assay_pass_free(pass);
    scene_close(&s);
}
END_TEST

/* One NaN in the key of token 5 must not reach the tokens before it. */
START_TEST(non_finite_values_stay_behind_the_mask)
{
    scene s;
    ck_assert(scene_open(&s, "glm5-tiny-Q4_K_M", "hf-fp32", "count"));
    assay_pass *pass = pass_over(&s, 0, false, 1);
    const double *v, *out;
    double *bad = malloc(8 * 512 * sizeof *bad);
    EXPECT_OK(assay_pass_value(&v, pass, 0, ASSAY_POINT_V, 1));
    memcpy(bad, v, 8 * 512 * sizeof *bad);
    bad[5 * 512 + 70] = NAN; /* head 1, channel 6 */
    EXPECT_OK(assay_pass_put(pass, 0, ASSAY_POINT_V, 1, bad, 8 * 512));
    EXPECT_OK(assay_pass_value(&out, pass, 0, ASSAY_POINT_KERNEL_OUT, 1));
    for (int t = 0; t < 8; t++)
        for (int c = 0; c < 512; c++)
            ck_assert_int_eq(isnan(out[t * 512 + c]), t >= 5 && c == 70);
    free(bad);
    assay_pass_free(pass);
    scene_close(&s);
}
END_TEST

START_TEST(probabilities_alone_are_multiplied_with_the_values)
{
    scene s;
    ck_assert(scene_open(&s, "glm5-tiny-Q4_K_M", "hf-fp32", "count"));
    assay_pass *pass = pass_over(&s, 0, false, 1);
    double first[8 * 8 * 8] = {0}, out[8 * 512];
    for (int i = 0; i < 64; i++)
        first[i * 8] = 1; /* every query looks at key 0 */
    double v[512];
    const double *values;
    EXPECT_OK(assay_pass_value(&values, pass, 0, ASSAY_POINT_V, 0));
    memcpy(v, values, sizeof v); /* a put drops what was computed */
    EXPECT_OK(assay_pass_put(pass, 0, ASSAY_POINT_PROBS, 0, first, 512));
    EXPECT_OK(assay_pass_expect(out, pass, 0, ASSAY_POINT_KERNEL_OUT, 0, NULL));
    for (int t = 0; t < 8; t++)
        ck_assert(distance(out + t * 512, v, 512) < 1e-15);
    /* with a captured query the probabilities are a dump that no kernel reads */
    const double *q;
    EXPECT_OK(assay_pass_value(&q, pass, 0, ASSAY_POINT_Q_ROPE, 0));
    EXPECT_OK(assay_pass_put(pass, 0, ASSAY_POINT_Q_ROPE, 0, q, 8 * 8 * 32));
    EXPECT_OK(assay_pass_expect(out, pass, 0, ASSAY_POINT_KERNEL_OUT, 0, NULL));
    ck_assert(distance(out + 7 * 512, v, 512) > 0.01);
    assay_pass_free(pass);
    scene_close(&s);
}
END_TEST

/* The sum of all ranks' parts is the whole, for every kind of cut. */
START_TEST(partial_sums_of_ranks_add_up)
{
    static const struct {
        assay_point point;
        int layer;
        assay_partial_kind kind;
    } rows[] = {{ASSAY_POINT_EMBED, -1, ASSAY_PARTIAL_COLUMNS},
                {ASSAY_POINT_PROJ, 1, ASSAY_PARTIAL_COLUMNS},
                {ASSAY_POINT_FFN_OUT, 0, ASSAY_PARTIAL_COLUMNS},
                {ASSAY_POINT_SHARED, 1, ASSAY_PARTIAL_COLUMNS},
                {ASSAY_POINT_MOE_ROUTED, 1, ASSAY_PARTIAL_COLUMNS},
                {ASSAY_POINT_MOE_ROUTED, 2, ASSAY_PARTIAL_EXPERTS},
                {ASSAY_POINT_MOE_OUT, 3, ASSAY_PARTIAL_EXPERTS}};
    scene s;
    ck_assert(scene_open(&s, "glm5-tiny-Q4_K_M", "hf-fp32", "count"));
    assay_pass *pass = pass_over(&s, 0, false, 1);
    double whole[8 * 256], sum[8 * 256], part[8 * 256];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memset(sum, 0, sizeof sum);
        EXPECT_OK(assay_pass_expect(whole, pass, 0, rows[i].point, rows[i].layer, NULL));
        for (int r = 0; r < 4; r++) {
            EXPECT_OK(assay_pass_expect_partial(part, pass, 0, rows[i].point, rows[i].layer, r, 4,
                                                rows[i].kind, NULL));
            for (int j = 0; j < 8 * 256; j++)
                sum[j] += part[j];
        }
        ck_assert(distance(sum, whole, 8 * 256) < 1e-13);
        ck_assert(distance(part, whole, 8 * 256) > 0.1);
    }
    EXPECT_FAILS(ASSAY_BAD_SHAPE, assay_pass_expect_partial(part, pass, 0, ASSAY_POINT_PROJ, 1, 0,
                                                            3, ASSAY_PARTIAL_COLUMNS, NULL));
    EXPECT_FAILS(ASSAY_MISSING, assay_pass_expect_partial(part, pass, 0, ASSAY_POINT_IN_NORM, 1, 0,
                                                          2, ASSAY_PARTIAL_COLUMNS, NULL));
    assay_pass_free(pass);
    scene_close(&s);
}
END_TEST

START_TEST(a_small_weight_budget_and_forgetting_change_nothing)
{
    scene s;
    ck_assert(scene_open(&s, "glm5-tiny-Q4_K_M", "hf-fp32", "count"));
    assay_oracle *tight;
    EXPECT_OK(assay_oracle_open(&tight, s.file, 1 << 16)); /* chunks of four rows */
    assay_pass *a = pass_over(&s, 0, false, 1), *b;
    assay_pass_options options = {.knobs = &s.knobs};
    EXPECT_OK(assay_pass_new(&b, tight, &options));
    const assay_run_step *step = assay_run_step_at(s.run, 0, 0);
    int index;
    const double *x, *y;
    EXPECT_OK(assay_pass_add_step(&index, b, step->tokens, step->n_tokens, 0));
    for (int layer = 0; layer < 4; layer++) {
        EXPECT_OK(assay_pass_value(&y, b, 0, ASSAY_POINT_OUT, layer));
        assay_pass_forget(b, layer);
    }
    int64_t ops = assay_pass_n_ops(b);
    EXPECT_OK(assay_pass_value(&y, b, 0, ASSAY_POINT_LOGITS, -1));
    ck_assert_int_eq(assay_pass_n_ops(b) - ops, 2); /* the last layer was kept */
    EXPECT_OK(assay_pass_value(&x, a, 0, ASSAY_POINT_LOGITS, -1));
    ck_assert(distance(y, x, 8 * 1024) <= 1e-13);
    assay_pass_free(a);
    assay_pass_free(b);
    assay_oracle_close(tight);
    scene_close(&s);
}
END_TEST

START_TEST(pass_refuses_tokens_outside_of_the_vocabulary)
{
    scene s;
    ck_assert(scene_open(&s, "glm5-tiny-Q4_K_M", "hf-fp32", "count"));
    assay_pass *pass;
    int step;
    const int32_t bad[2] = {0, 1024};
    EXPECT_OK(assay_pass_new(&pass, s.oracle, NULL));
    EXPECT_FAILS(ASSAY_CANNOT_JUDGE, assay_pass_add_step(&step, pass, bad, 2, 0));
    EXPECT_FAILS(ASSAY_BAD_SHAPE, assay_pass_add_step(&step, pass, bad, 0, 0));
    assay_pass_free(pass);
    scene_close(&s);
}
END_TEST

EXPECT_MAIN("oracle_pass", free_running_logits_are_those_of_transformers_on_both_paths,
            forced_pass_agrees_with_transformers_at_every_point,
            long_prompt_agrees_when_the_selection_is_followed,
            selection_gap_of_a_healthy_run_is_rounding, selection_gap_measures_a_wrong_expert,
            paths_are_equal_to_float64_rounding, decoding_equals_prefill,
            put_values_replace_inputs_but_not_expectations,
            projection_reads_the_hand_over_where_it_was_captured,
            knobs_reach_only_the_interval_of_uncaptured_ops,
            interval_lists_the_uncaptured_ops_behind_a_value,
            non_finite_values_stay_behind_the_mask,
            probabilities_alone_are_multiplied_with_the_values, partial_sums_of_ranks_add_up,
            a_small_weight_budget_and_forgetting_change_nothing,
            pass_refuses_tokens_outside_of_the_vocabulary)
