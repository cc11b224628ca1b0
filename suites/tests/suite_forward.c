/*
 * The engine's forward pass: against what transformers computes, and against itself another way.
 */
#include <stdio.h>

#include "data.h"
#include "engine/engine.h"
#include "expect.h"
#include "forge_watch.h"
#include "references/run.h"

#define SHIPPED "glm5-tiny-Q4_K_M.gguf"

static assay_model *open_model(const char *path, double eps_latent)
{
    assay_model *model;
    assay_model_options options = assay_model_options_default();
    options.conventions.eps_q_a = options.conventions.eps_kv_a = eps_latent;
    EXPECT_OK(assay_model_open(&model, path, &options));
    return model;
}

static assay_engine *new_engine(assay_model *model, assay_path path, watch *seen)
{
    assay_engine *engine;
    assay_engine_options options = assay_engine_options_default();
    options.path = path;
    options.n_threads = 2;
    if (seen) {
        options.tap = watch_tap;
        options.tap_user = seen;
    }
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    return engine;
}

static bool is_id_point(assay_point p)
{
    return assay_point_at(p)->is_ids;
}

/* ---- against references ---- */

typedef struct follow {
    const assay_run *run;
    int prompt;
} follow;

/* Puts the reference's selection of keys in place of the engine's. */
static assay_status follow_selection(void *user, const assay_tap_event *event)
{
    const follow *f = user;
    if (event->point != ASSAY_POINT_INDEX_TOPK)
        return ASSAY_OK;
    const assay_seen *seen =
        assay_run_find(f->run, f->prompt, (int)event->step, event->point, event->layer);
    if (!seen)
        return ASSAY_OK;
    int64_t n = assay_buffer_count(event->buffer);
    ck_assert_int_eq(seen->dims[0] * seen->dims[1], n);
    double *values = calloc((size_t)n, sizeof *values);
    EXPECT_OK(assay_run_read(values, f->run, seen));
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)event->buffer->data)[i] = (int32_t)values[i];
    free(values);
    return ASSAY_OK;
}

static void expect_ids(const double *got, const double *want, int64_t n_rows, int64_t width,
                       const char *name)
{
    for (int64_t t = 0; t < n_rows; t++)
        for (int64_t i = 0; i < width; i++) {
            bool there = false;
            for (int64_t j = 0; j < width; j++)
                there = there || got[t * width + j] == want[t * width + i];
            ck_assert_msg(there, "%s: row %d chose otherwise", name, (int)t);
        }
}

static void expect_point(const watched *got, const assay_run *run, const assay_seen *seen,
                         const char *what)
{
    char name[ASSAY_POINT_NAME_BYTES];
    double *want = calloc((size_t)got->n, sizeof *want);
    int64_t n = assay_seen_count(seen), rows = got->dims[0], width = got->n / rows;
    assay_point_format(name, got->point, got->layer);
    ck_assert_msg(n == got->n, "%s: %d values, engine has %d", name, (int)n, (int)got->n);
    EXPECT_OK(assay_run_read(want, run, seen));
    if (is_id_point(got->point)) {
        if (got->point == ASSAY_POINT_MOE_TOPK)
            expect_ids(got->values, want, rows, width, name);
    } else {
        double whole = watch_error(got->values, want, n);
        double row = watch_row_error(got->values, want, rows, width);
        ck_assert_msg(whole <= 1e-5, "%s %s: relative L2 %.3g", what, name, whole);
        ck_assert_msg(row <= 2e-5, "%s %s: worst row %.3g", what, name, row);
    }
    free(want);
}

static int compare_step(const watch *seen_here, const assay_run *run, int prompt, int step,
                        const char *what)
{
    int n = 0;
    for (int i = 0; i < assay_run_n_seen(run, prompt, step); i++) {
        const assay_seen *seen = assay_run_seen_at(run, prompt, step, i);
        const watched *got = watch_find(seen_here, step, seen->point, seen->layer);
        if (seen->hand_over || seen->partial || seen->rank >= 0 || !got)
            continue;
        expect_point(got, run, seen, what);
        n++;
    }
    return n;
}

static void run_prompt(assay_model *model, const assay_run *run, int prompt, assay_path path,
                       const char *what)
{
    const assay_run_prompt *p = assay_run_prompt_at(run, prompt);
    watch seen = {0};
    follow followed = {run, prompt};
    assay_engine *engine;
    assay_engine_options options = assay_engine_options_default();
    options.path = path;
    options.n_threads = 2;
    options.tap = watch_tap;
    options.tap_user = &seen;
    if (!strcmp(p->name, "long")) {
        options.inject = follow_selection;
        options.inject_user = &followed;
    }
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    int n_points = 0;
    for (int step = 0; step < p->n_steps; step++) {
        const assay_run_step *s = assay_run_step_at(run, prompt, step);
        int32_t positions[512];
        ck_assert_int_lt(s->n_tokens, 512);
        for (int64_t i = 0; i < s->n_tokens; i++)
            positions[i] = (int32_t)(s->first_position + i);
        assay_batch batch = {s->n_tokens, s->tokens, positions, NULL};
        EXPECT_OK(assay_engine_forward(engine, &batch, NULL));
        n_points += compare_step(&seen, run, prompt, step, what);
        const watched *logits = watch_find(&seen, step, ASSAY_POINT_LOGITS, -1);
        ck_assert_ptr_nonnull(logits);
        if (step < p->n_greedy) {
            const double *last = logits->values + logits->n - logits->dims[1];
            int64_t best = 0;
            for (int64_t i = 0; i < logits->dims[1]; i++)
                best = last[i] > last[best] ? i : best;
            ck_assert_int_eq(best, p->greedy[step]);
        }
    }
    ck_assert_int_gt(n_points, 20);
    ck_assert_int_eq(assay_engine_n_buffer_faults(engine), 0);
    assay_engine_free(engine);
    watch_clear(&seen);
}

static void run_reference(const char *model_path, const char *reference_path, assay_path path)
{
    char here[4096], there[4096];
    snprintf(here, sizeof here, "%s", model_path);
    snprintf(there, sizeof there, "%s", reference_path);
    const char *const files[] = {there};
    assay_run *run;
    assay_run_options options = assay_run_options_default();
    EXPECT_OK(assay_run_open(&run, files, 1, &options));
    assay_model *model = open_model(here, 1e-6);
    for (int i = 0; i < assay_run_n_prompts(run); i++) {
        char what[512];
        snprintf(what, sizeof what, "%s %s", strrchr(here, '/') + 1,
                 assay_run_prompt_at(run, i)->name);
        run_prompt(model, run, i, path, what);
    }
    assay_model_close(model);
    assay_run_close(run);
}

START_TEST(forward_equals_transformers_on_the_shipped_model)
{
    run_reference(data_shipped(SHIPPED), data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"),
                  ASSAY_PATH_EXPANDED);
    run_reference(data_shipped(SHIPPED), data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"),
                  ASSAY_PATH_LATENT);
}
END_TEST

static void run_large(const char *name)
{
    char model[128], reference[128];
    snprintf(model, sizeof model, "models/%s.gguf", name);
    snprintf(reference, sizeof reference, "references/%s.hf-fp32.h5", name);
    if (!data_large(model))
        return; /* the larger data set is not here */
    run_reference(data_large(model), data_large(reference), ASSAY_PATH_EXPANDED);
    run_reference(data_large(model), data_large(reference), ASSAY_PATH_LATENT);
}

START_TEST(forward_equals_transformers_on_glm5_q4_k_m_long_prompt_too)
{
    run_large("glm5-tiny-Q4_K_M");
}
END_TEST

START_TEST(forward_equals_transformers_on_glm5_bf16)
{
    run_large("glm5-tiny-bf16");
}
END_TEST

START_TEST(forward_equals_transformers_on_dsv3)
{
    run_large("dsv3-tiny-bf16");
}
END_TEST

START_TEST(forward_equals_transformers_on_dsv2lite)
{
    run_large("dsv2lite-tiny-bf16");
}
END_TEST

START_TEST(forward_equals_transformers_on_llama)
{
    run_large("llama-tiny-bf16");
}
END_TEST

/* ---- against itself ---- */

static void seeded_prompt(int32_t *ids, int64_t n)
{
    uint32_t x = 12345;
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)(x >> 8) % 1000;
    }
}

/* b's rows in the order of `at`'s; how many there are. */
static int64_t gather_rows(double *got, double *want, const watched *at, const watch *b)
{
    int64_t n = 0, width = at->n / at->dims[0], other_width;
    for (int64_t t = 0; t < at->dims[0]; t++) {
        const double *other =
            watch_row(b, &other_width, at->point, at->layer, at->sequences[t], at->positions[t]);
        if (!other)
            continue;
        ck_assert_int_eq(width, other_width);
        memcpy(got + n * width, at->values + t * width, (size_t)width * sizeof *got);
        memcpy(want + n * width, other, (size_t)width * sizeof *want);
        n++;
    }
    return n;
}

/* Every point that both runs show, row by row by position: within `bound` as a whole, twice that in
 * the worst row. */
static int expect_same_rows(const watch *a, const watch *b, double bound, const char *what)
{
    int n = 0;
    for (int i = 0; i < a->n; i++) {
        const watched *at = &a->all[i];
        if (at->point == ASSAY_POINT_PROBS || at->point == ASSAY_POINT_INDEX_SCORES ||
            at->point == ASSAY_POINT_INDEX_TOPK) /* as wide as the step has keys */
            continue;
        double *got = calloc((size_t)at->n, sizeof *got),
               *want = calloc((size_t)at->n, sizeof *want);
        int64_t rows = gather_rows(got, want, at, b), width = at->n / at->dims[0];
        char name[ASSAY_POINT_NAME_BYTES];
        assay_point_format(name, at->point, at->layer);
        double whole = watch_error(got, want, rows * width);
        double row = watch_row_error(got, want, rows, width);
        ck_assert_msg(whole <= bound, "%s: %s differs by %.3g", what, name, whole);
        ck_assert_msg(row <= 2 * bound, "%s: a row of %s differs by %.3g", what, name, row);
        n += (int)rows;
        free(got);
        free(want);
    }
    return n;
}

static void run_chunks(assay_model *model, assay_path path, const int32_t *ids, int64_t n,
                       int64_t chunk, watch *seen)
{
    assay_engine *engine = new_engine(model, path, seen);
    int32_t next;
    EXPECT_OK(assay_engine_generate(&next, engine, ids, n, 1, chunk, NULL, NULL));
    ck_assert_int_eq(assay_engine_n_buffer_faults(engine), 0);
    assay_engine_free(engine);
}

START_TEST(forward_latent_equals_expanded_and_chunks_equal_one_prefill)
{
    static const int64_t lengths[] = {8, 40, 160}; /* the last: top_k + 32 */
    static const int64_t chunks[] = {1, 3, 7};
    assay_model *model = open_model(data_shipped(SHIPPED), NAN);
    int32_t ids[160];
    seeded_prompt(ids, 160);
    for (int l = 0; l < 3; l++) {
        watch expanded = {0}, latent = {0};
        run_chunks(model, ASSAY_PATH_EXPANDED, ids, lengths[l], 0, &expanded);
        run_chunks(model, ASSAY_PATH_LATENT, ids, lengths[l], 0, &latent);
        ck_assert_int_gt(expect_same_rows(&expanded, &latent, 1e-5, "latent and expanded"), 100);
        for (int c = 0; c < 3; c++) {
            watch chunked = {0};
            run_chunks(model, c % 2 ? ASSAY_PATH_EXPANDED : ASSAY_PATH_LATENT, ids, lengths[l],
                       chunks[c], &chunked);
            ck_assert_int_gt(expect_same_rows(&expanded, &chunked, 1e-5, "whole and chunked"), 100);
            watch_clear(&chunked);
        }
        watch_clear(&expanded);
        watch_clear(&latent);
    }
    assay_model_close(model);
}
END_TEST

START_TEST(forward_continues_counting)
{
    static const int32_t prompt[] = {0};
    (void)prompt;
    char path[4096];
    snprintf(path, sizeof path, "%s", data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"));
    const char *const files[] = {path};
    assay_run *run;
    assay_run_options options = assay_run_options_default();
    EXPECT_OK(assay_run_open(&run, files, 1, &options));
    assay_model *model = open_model(data_shipped(SHIPPED), NAN);
    for (int i = 0; i < assay_run_n_prompts(run); i++) {
        const assay_run_prompt *p = assay_run_prompt_at(run, i);
        if (!p->n_greedy)
            continue;
        for (int path_of = 0; path_of < 2; path_of++) {
            assay_engine *engine = new_engine(model, (assay_path)path_of, NULL);
            int32_t out[64];
            EXPECT_OK(assay_engine_generate(out, engine, p->tokens, p->n_tokens, p->n_greedy, 3,
                                            NULL, NULL));
            for (int64_t j = 0; j < p->n_greedy; j++)
                ck_assert_int_eq(out[j], p->greedy[j]);
            assay_engine_free(engine);
        }
    }
    assay_model_close(model);
    assay_run_close(run);
}
END_TEST

/* Rows of three sequences of unequal lengths and padding in one call, then mixed prefill and
 * decode. */
START_TEST(forward_rows_do_not_depend_on_their_batch)
{
    static const int32_t sequences[] = {2, 0, -1, 2, 1, 0, 2, 0, -1, 0, 0};
    assay_model *model = open_model(data_shipped(SHIPPED), NAN);
    int32_t ids[32], tokens[11], positions[11];
    int next[3] = {0, 0, 0};
    seeded_prompt(ids, 32);
    for (int i = 0; i < 11; i++) {
        int s = sequences[i];
        tokens[i] = s < 0 ? -7 : ids[s * 8 + next[s]];
        positions[i] = s < 0 ? 99 : next[s]++;
    }
    for (int path = 0; path < 2; path++) {
        watch together = {0}, alone = {0};
        assay_engine_options options = assay_engine_options_default();
        options.path = (assay_path)path;
        options.max_sequences = 3;
        options.tap = watch_tap;
        options.tap_user = &together;
        assay_engine *engine;
        EXPECT_OK(assay_engine_new(&engine, model, &options));
        assay_batch first = {7, tokens, positions, sequences};
        assay_batch second = {4, tokens + 7, positions + 7, sequences + 7};
        EXPECT_OK(assay_engine_forward(engine, &first, NULL));
        EXPECT_OK(assay_engine_forward(engine, &second, NULL));
        ck_assert_int_eq(assay_engine_n_buffer_faults(engine), 0);
        assay_engine_free(engine);
        for (int s = 0; s < 3; s++) {
            options.tap_user = &alone;
            int32_t at[8], of[8];
            for (int i = 0; i < next[s]; i++) {
                at[i] = i;
                of[i] = s;
            }
            EXPECT_OK(assay_engine_new(&engine, model, &options));
            assay_batch own = {next[s], ids + s * 8, at, of};
            EXPECT_OK(assay_engine_forward(engine, &own, NULL));
            assay_engine_free(engine);
        }
        ck_assert_int_gt(expect_same_rows(&alone, &together, 1e-5, "alone and in a batch"), 100);
        watch_clear(&together);
        watch_clear(&alone);
    }
    assay_model_close(model);
}
END_TEST

static float *logits_of(assay_model *model, int n_threads, assay_dtype dtype)
{
    int32_t ids[40], positions[40];
    seeded_prompt(ids, 40);
    for (int i = 0; i < 40; i++)
        positions[i] = i;
    assay_engine_options options = assay_engine_options_default();
    options.n_threads = n_threads;
    options.dtype = dtype;
    assay_engine *engine;
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    assay_batch batch = {40, ids, positions, NULL};
    float *logits = calloc(40, (size_t)assay_model_hparams(model)->n_vocab * sizeof *logits);
    EXPECT_OK(assay_engine_forward(engine, &batch, logits));
    assay_engine_free(engine);
    return logits;
}

START_TEST(forward_repeats_bit_for_bit)
{
    assay_model *model = open_model(data_shipped(SHIPPED), NAN);
    size_t bytes = 40 * (size_t)assay_model_hparams(model)->n_vocab * sizeof(float);
    float *a = logits_of(model, 2, ASSAY_DTYPE_F32), *b = logits_of(model, 2, ASSAY_DTYPE_F32);
    ck_assert_int_eq(memcmp(a, b, bytes), 0);
    free(a);
    free(b);
    assay_model_close(model);
}
END_TEST

START_TEST(forward_in_bf16_is_near_and_every_value_is_a_bf16)
{
    assay_model *model = open_model(data_shipped(SHIPPED), NAN);
    int64_t n = 40 * assay_model_hparams(model)->n_vocab;
    float *a = logits_of(model, 2, ASSAY_DTYPE_BF16), *b = logits_of(model, 2, ASSAY_DTYPE_F32);
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        ck_assert(assay_bf16_to_f32(assay_f32_to_bf16(a[i])) == a[i]);
        difference += (a[i] - b[i]) * (double)(a[i] - b[i]);
        size += b[i] * (double)b[i];
    }
    double error = sqrt(difference / size);
    ck_assert_msg(error > 1e-4 && error < 0.05, "bf16 differs by %.3g", error);
    free(a);
    free(b);
    assay_model_close(model);
}
END_TEST

START_TEST(forward_refuses_rows_that_do_not_continue_the_cache)
{
    assay_model *model = open_model(data_shipped(SHIPPED), NAN);
    assay_engine *engine = new_engine(model, ASSAY_PATH_EXPANDED, NULL);
    int32_t token = 5, position = 1, bad = 1 << 20, sequence = 1;
    EXPECT_FAILS(ASSAY_USAGE,
                 assay_engine_forward(engine, &(assay_batch){1, &token, &position, NULL}, NULL));
    EXPECT_SAYS("continues at 0");
    position = 0;
    EXPECT_FAILS(ASSAY_USAGE,
                 assay_engine_forward(engine, &(assay_batch){1, &bad, &position, NULL}, NULL));
    EXPECT_SAYS("outside the vocabulary");
    EXPECT_FAILS(ASSAY_USAGE, assay_engine_forward(
                                  engine, &(assay_batch){1, &token, &position, &sequence}, NULL));
    EXPECT_SAYS("sequence 1");
    EXPECT_OK(assay_engine_forward(engine, &(assay_batch){1, &token, &position, NULL}, NULL));
    assay_engine_free(engine);
    assay_model_close(model);
}
END_TEST

/* ---- planted hand-over faults: facts of the ledger, no arithmetic ---- */

START_TEST(forward_ledger_names_an_output_that_nobody_reads)
{
    assay_model *model = open_model(data_shipped(SHIPPED), NAN);
    assay_seam_setting setting = {ASSAY_SEAM_ATTN_OUT_BUFFER, 1, -1, -1, -1, -1, 1, 0, {0}};
    assay_seams seams = {&setting, 1};
    assay_engine_options options = assay_engine_options_default();
    options.seams = &seams;
    assay_engine *engine;
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    int32_t ids[8], next;
    seeded_prompt(ids, 8);
    EXPECT_OK(assay_engine_generate(&next, engine, ids, 8, 1, 0, NULL, NULL));
    ck_assert_int_eq(assay_engine_n_buffer_faults(engine), 2);
    const assay_buffer_fault *unread = assay_engine_buffer_fault_at(engine, 0);
    const assay_buffer_fault *read = assay_engine_buffer_fault_at(engine, 1);
    ck_assert_int_eq(read->unread, false);
    ck_assert_int_eq(read->point, ASSAY_POINT_OUT_ATTN);
    ck_assert_int_eq(read->layer, 1);
    ck_assert_int_eq(unread->unread, true);
    ck_assert_int_eq(unread->point, ASSAY_POINT_KERNEL_OUT);
    ck_assert_uint_ne(unread->written_owner, read->read_owner);
    ck_assert_int_eq(unread->layer, 1);
    assay_engine_free(engine);
    assay_model_close(model);
}
END_TEST

EXPECT_MAIN("forward", forward_equals_transformers_on_the_shipped_model,
            forward_equals_transformers_on_glm5_q4_k_m_long_prompt_too,
            forward_equals_transformers_on_glm5_bf16, forward_equals_transformers_on_dsv3,
            forward_equals_transformers_on_dsv2lite, forward_equals_transformers_on_llama,
            forward_latent_equals_expanded_and_chunks_equal_one_prefill, forward_continues_counting,
            forward_rows_do_not_depend_on_their_batch, forward_repeats_bit_for_bit,
            forward_in_bf16_is_near_and_every_value_is_a_bf16,
            forward_refuses_rows_that_do_not_continue_the_cache,
            forward_ledger_names_an_output_that_nobody_reads)
