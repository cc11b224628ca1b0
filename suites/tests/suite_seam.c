/*
 * Seams: a setting changes the run first at the op that consults it, and nowhere else; no setting
 * changes nothing.
 */
#include <stdio.h>

#include "data.h"
#include "expect.h"
#include "forge_watch.h"
#include "seam_cases.h"

enum { N_TOKENS = 12 };

static void run(watch *seen, assay_model *model, const assay_seams *seams, assay_path path)
{
    assay_engine *engine;
    assay_engine_options options = assay_engine_options_default();
    int32_t ids[N_TOKENS + 1], positions[N_TOKENS + 1];
    for (int i = 0; i <= N_TOKENS; i++) {
        ids[i] = 17 + 37 * i;
        positions[i] = i;
    }
    options.path = path;
    options.seams = seams;
    options.max_sequences = 2;
    options.n_threads = 1;
    options.tap = watch_tap;
    options.tap_user = seen;
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    EXPECT_OK(assay_engine_forward(engine, &(assay_batch){N_TOKENS, ids, positions, NULL}, NULL));
    EXPECT_OK(assay_engine_forward(
        engine, &(assay_batch){1, ids + N_TOKENS, positions + N_TOKENS, NULL}, NULL));
    assay_engine_free(engine);
}

static const watched *first_difference(const watch *a, const watch *b)
{
    ck_assert_int_eq(a->n, b->n);
    for (int i = 0; i < a->n; i++)
        if (a->all[i].n != b->all[i].n ||
            memcmp(a->all[i].values, b->all[i].values, (size_t)a->all[i].n * sizeof(double)))
            return &b->all[i];
    return NULL;
}

static void expect_home(assay_model *model, const watch *healthy, const seam_case *c)
{
    char found[ASSAY_POINT_NAME_BYTES] = "nothing", want[ASSAY_POINT_NAME_BYTES];
    watch bent = {0};
    assay_seam_setting setting = {c->seam, c->layer, -1, -1, -1, -1, c->value, c->n_ints, {0}};
    memcpy(setting.ints, c->ints, sizeof c->ints);
    assay_seams seams = {&setting, 1};
    run(&bent, model, &seams, c->path);
    const watched *at = first_difference(healthy, &bent);
    assay_point_format(want, c->home, c->layer);
    if (at)
        assay_point_format(found, at->point, at->layer);
    ck_assert_msg(at && at->point == c->home && at->layer == c->layer && at->step == 0,
                  "seam %s, value %g: first differs at %s, expected %s", assay_seam_name(c->seam),
                  c->value, found, want);
    watch_clear(&bent);
}

static void run_cases(const char *model_name, assay_path path)
{
    assay_model *model;
    watch healthy = {0};
    const char *file = model_name ? data_large(model_name) : data_shipped("glm5-tiny-Q4_K_M.gguf");
    if (!file)
        return; /* the larger data set is not here */
    EXPECT_OK(assay_model_open(&model, file, NULL));
    run(&healthy, model, NULL, path);
    int n = 0;
    for (int i = 0; i < N_SEAM_CASES; i++)
        if (seam_cases[i].path == path &&
            (!model_name ? !seam_cases[i].model
                         : seam_cases[i].model && !strcmp(seam_cases[i].model, model_name))) {
            expect_home(model, &healthy, &seam_cases[i]);
            n++;
        }
    ck_assert_int_gt(n, 0);
    watch_clear(&healthy);
    assay_model_close(model);
}

START_TEST(seam_changes_the_run_first_where_the_op_consults_it)
{
    run_cases(NULL, ASSAY_PATH_EXPANDED);
    run_cases(NULL, ASSAY_PATH_LATENT);
}
END_TEST

START_TEST(seam_changes_llama_and_deepseek_where_the_op_consults_it)
{
    run_cases("models/llama-tiny-bf16.gguf", ASSAY_PATH_EXPANDED);
    run_cases("models/dsv3-tiny-bf16.gguf", ASSAY_PATH_EXPANDED);
}
END_TEST

START_TEST(seam_setting_for_another_place_changes_nothing)
{
    assay_model *model;
    watch healthy = {0}, other = {0};
    assay_seam_setting settings[] = {
        {ASSAY_SEAM_NORM_EPS, 77, -1, -1, -1, -1, 1e-2, 0, {0}},
        {ASSAY_SEAM_HEAD_GAIN, -1, 99, -1, -1, -1, 2, 0, {0}},
        {ASSAY_SEAM_SOFTMAX_SCALE, -1, -1, 5, -1, -1, 2, 0, {0}},
        {ASSAY_SEAM_ROUTER_SCALE, -1, -1, -1, 9, -1, 2, 0, {0}},
    };
    assay_seams seams = {settings, 4};
    EXPECT_OK(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    run(&healthy, model, NULL, ASSAY_PATH_EXPANDED);
    run(&other, model, &seams, ASSAY_PATH_EXPANDED);
    ck_assert_ptr_null(first_difference(&healthy, &other));
    watch_clear(&healthy);
    watch_clear(&other);
    assay_model_close(model);
}
END_TEST

START_TEST(seam_every_row_has_a_case_here)
{
    for (int seam = 0; seam < ASSAY_SEAM_COUNT; seam++) {
        bool there = false;
        for (int i = 0; i < N_SEAM_CASES; i++)
            there = there || (int)seam_cases[i].seam == seam;
        bool elsewhere =
            seam == ASSAY_SEAM_PADDING_FILL || seam == ASSAY_SEAM_EMPTY_ROW ||
            seam == ASSAY_SEAM_SELECT_IGNORED || seam == ASSAY_SEAM_ROUTER_GROUP_MASK ||
            seam == ASSAY_SEAM_KV_PAGE || seam == ASSAY_SEAM_KV_CODEC || seam == ASSAY_SEAM_MERGE ||
            seam == ASSAY_SEAM_PREFIX_UNCHECKED || seam == ASSAY_SEAM_PREFIX_HASH_BITS ||
            seam == ASSAY_SEAM_PREFIX_EVICTED || seam == ASSAY_SEAM_KV_BLANK ||
            seam == ASSAY_SEAM_KV_ROW_SCALE || /* suite_kvcache, suite_cases */
            seam == ASSAY_SEAM_NEXTN_INPUT ||  /* suite_draft */
            (seam >= ASSAY_SEAM_RANK_SLICE && seam <= ASSAY_SEAM_RANK_BIAS) ||
            seam >= ASSAY_SEAM_STREAM_WAIT; /* of devices: gpu/suite_gpu_graph.c */
        ck_assert_msg(there || elsewhere, "seam %s has no case", assay_seam_name((assay_seam)seam));
        ck_assert_int_gt(strlen(assay_seam_meaning((assay_seam)seam)), 10);
    }
}
END_TEST

/* What an engine with one setting says when it is made. */
static assay_status made_with(assay_model *model, assay_backend backend, assay_seam_setting setting)
{
    assay_engine *engine = NULL;
    assay_seams seams = {&setting, 1};
    assay_engine_options options = assay_engine_options_default();
    options.backend = backend;
    options.seams = &seams;
    options.max_positions = 16;
    assay_status s = assay_engine_new(&engine, model, &options);
    if (s == ASSAY_OK)
        assay_engine_free(engine);
    return s;
}

/* On a device by the third column of seam.def, whether there is one here or not. */
START_TEST(seam_is_refused_where_no_op_consults_it)
{
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    int n_refused[2] = {0};
    for (int seam = 0; seam < ASSAY_SEAM_COUNT; seam++)
        for (int device = 0; device < 2; device++) {
            assay_seam_setting setting = {(assay_seam)seam, 1, -1, -1, -1, -1, 1, 0, {0}};
            bool is_on = assay_seam_is_on((assay_seam)seam, device);
            assay_status s =
                made_with(model, device ? ASSAY_BACKEND_CUDA : ASSAY_BACKEND_CPU, setting);
            ck_assert_msg((s == ASSAY_UNSUPPORTED) == !is_on, "seam %s on the %s: %s",
                          assay_seam_name((assay_seam)seam), device ? "device" : "host",
                          s == ASSAY_OK ? "taken" : assay_error_text());
            n_refused[device] += s == ASSAY_UNSUPPORTED;
        }
    ck_assert_int_eq(n_refused[0], 5); /* those of graphs, streams and buckets */
    ck_assert_int_gt(n_refused[1], 20);
    assay_model_close(model);
}
END_TEST

START_TEST(seam_of_one_head_sequence_step_or_other_mode_is_refused_on_a_device)
{
    const assay_seam_setting settings[] = {
        {ASSAY_SEAM_SOFTMAX_SCALE, 1, 2, -1, -1, -1, 1.05, 0, {0}},
        {ASSAY_SEAM_NORM_EPS, 1, -1, -1, 3, -1, 1e-2, 0, {0}},
        {ASSAY_SEAM_ROPE_BASE, 1, -1, -1, -1, 0, 5e5, 0, {0}},
        {ASSAY_SEAM_ATTN_OUT_BUFFER, 1, -1, -1, -1, -1, 3, 0, {0}},
    };
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        ck_assert_int_eq(made_with(model, ASSAY_BACKEND_CUDA, settings[i]), ASSAY_UNSUPPORTED);
        EXPECT_OK(made_with(model, ASSAY_BACKEND_CPU, settings[i]));
    }
    assay_model_close(model);
}
END_TEST

/* Rows of one sequence with padding behind it, under seams; the last live row's logits. */
static float *padded_logits(assay_model *model, const assay_seam_setting *settings, int n)
{
    assay_seams seams = {settings, n};
    assay_engine_options options = assay_engine_options_default();
    int32_t ids[8] = {5, 6, 7, 8, 9, 9, 9, 9}, positions[8] = {0, 1, 2, 3, 4, 0, 0, 0};
    int32_t sequences[8] = {0, 0, 0, 0, 0, -1, -1, -1};
    int64_t vocab = assay_model_hparams(model)->n_vocab;
    float *logits = calloc((size_t)(8 * vocab), sizeof *logits);
    assay_engine *engine;
    options.seams = &seams;
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    EXPECT_OK(assay_engine_forward(engine, &(assay_batch){8, ids, positions, sequences}, logits));
    assay_engine_free(engine);
    memmove(logits, logits + 4 * vocab, (size_t)vocab * sizeof *logits);
    return logits;
}

START_TEST(seam_padding_reaches_live_rows_only_through_a_shared_scale)
{
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    assay_seam_setting settings[] = {
        {ASSAY_SEAM_PADDING_FILL, -1, -1, -1, -1, -1, 1e4, 0, {0}},
        {ASSAY_SEAM_SHARED_SCALE, 1, -1, -1, -1, -1, 1, 1, {ASSAY_POINT_ATTN_RESID}},
        {ASSAY_SEAM_SHARED_SCALE, 1, -1, -1, -1, -1, 2, 1, {ASSAY_POINT_ATTN_RESID}},
    };
    size_t bytes = (size_t)assay_model_hparams(model)->n_vocab * sizeof(float);
    float *right = padded_logits(model, NULL, 0), *filled = padded_logits(model, settings, 1);
    ck_assert_mem_eq(right, filled, bytes);
    float *live = padded_logits(model, settings + 2, 1);
    settings[1].value = 2;
    float *live_filled = padded_logits(model, settings, 2);
    ck_assert_mem_eq(live, live_filled,
                     bytes); /* a scale over live rows does not see the padding */
    settings[1].value = 1;
    float *leaking = padded_logits(model, settings, 2);
    ck_assert_int_ne(memcmp(live, leaking, bytes), 0);
    free(right);
    free(filled);
    free(live);
    free(live_filled);
    free(leaking);
    assay_model_close(model);
}
END_TEST

START_TEST(seam_row_without_keys_is_zero_unless_bent)
{
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    assay_seam_setting settings[] = {
        {ASSAY_SEAM_MASK_SHIFT, SEAM_LAYER, -1, -1, -1, -1, -1, 0, {0}},
        {ASSAY_SEAM_EMPTY_ROW, SEAM_LAYER, -1, -1, -1, -1, 1, 0, {0}},
    };
    for (int bent = 0; bent < 2; bent++) {
        watch seen = {0};
        assay_seams seams = {settings, 1 + bent};
        run(&seen, model, &seams, ASSAY_PATH_EXPANDED);
        const watched *out = watch_find(&seen, 0, ASSAY_POINT_KERNEL_OUT, SEAM_LAYER);
        ck_assert(bent ? isnan(out->values[0]) : out->values[0] == 0);
        watch_clear(&seen);
    }
    assay_model_close(model);
}
END_TEST

EXPECT_MAIN("seam", seam_changes_the_run_first_where_the_op_consults_it,
            seam_changes_llama_and_deepseek_where_the_op_consults_it,
            seam_setting_for_another_place_changes_nothing,
            seam_padding_reaches_live_rows_only_through_a_shared_scale,
            seam_row_without_keys_is_zero_unless_bent, seam_is_refused_where_no_op_consults_it,
            seam_of_one_head_sequence_step_or_other_mode_is_refused_on_a_device,
            seam_every_row_has_a_case_here)
