/*
 * Seams: a setting changes the run first at the op that consults it, and nowhere else; no setting
 * changes nothing.
 */
#include <stdio.h>

#include "data.h"
#include "engine/engine.h"
#include "engine/role.h"
#include "expect.h"
#include "forge_watch.h"

#define LAYER 1
#define POINT(id) ASSAY_POINT_##id
#define ROLE(id) ASSAY_ROLE_##id

typedef struct seam_case {
    assay_seam seam;
    double value;
    int n_ints, ints[4];
    assay_point home; /* first point that differs; ASSAY_POINT_COUNT: none does */
    int layer;        /* of the setting and of the home; -1: a global point */
    assay_path path;
    const char *model; /* NULL: the shipped one */
} seam_case;

#define S(id, value, ...)                                                                          \
    {                                                                                              \
        ASSAY_SEAM_##id, value, __VA_ARGS__                                                        \
    }
#define NONE                                                                                       \
    0,                                                                                             \
    {                                                                                              \
        0                                                                                          \
    }
#define EXPANDED ASSAY_PATH_EXPANDED, NULL
#define LATENT ASSAY_PATH_LATENT, NULL
#define LLAMA ASSAY_PATH_EXPANDED, "models/llama-tiny-bf16.gguf"
#define DSV3 ASSAY_PATH_EXPANDED, "models/dsv3-tiny-bf16.gguf"

static const seam_case cases[] = {
    S(ATTN_OUT_BUFFER, 1, NONE, POINT(OUT_ATTN), LAYER, EXPANDED),
    S(ATTN_OUT_BUFFER, 2, NONE, POINT(OUT_ATTN), LAYER, LATENT),
    S(ATTN_OUT_BUFFER, 3, NONE, POINT(OUT_ATTN), LAYER, EXPANDED),
    S(ATTN_OUT_BUFFER, 4, NONE, POINT(OUT_ATTN), LAYER, EXPANDED),
    S(ATTN_OUT_BUFFER, 5, 1, {3}, POINT(KERNEL_OUT), LAYER, EXPANDED),
    S(ATTN_OUT_BUFFER, 6, 1, {3}, POINT(KERNEL_OUT), LAYER, LATENT),
    S(ATTN_OUT_BUFFER, 7, 1, {4}, POINT(KERNEL_OUT), LAYER, EXPANDED),
    S(OUTPUT_BUFFER, 1, 1, {POINT(PROJ)}, POINT(PROJ), LAYER, EXPANDED),
    S(OUTPUT_BUFFER, 2, 1, {POINT(SHARED)}, POINT(SHARED), LAYER, EXPANDED),
    S(OUTPUT_BUFFER, 3, 1, {POINT(MOE_ROUTED)}, POINT(MOE_ROUTED), 2, EXPANDED),
    S(OUTPUT_BUFFER, 5, 2, {POINT(MOE_OUT), 4}, POINT(MOE_OUT), LAYER, EXPANDED),
    S(OUTPUT_BUFFER, 6, 2, {POINT(Q), 4}, POINT(Q), LAYER, EXPANDED),
    S(EPILOGUE, 0.5, 2, {ROLE(ATTN_OUTPUT), 1}, POINT(PROJ), LAYER, EXPANDED),
    S(EPILOGUE, 1, 2, {ROLE(ATTN_OUTPUT), 2}, POINT(PROJ), LAYER, EXPANDED),
    S(EPILOGUE, 1, 2, {ROLE(ATTN_OUTPUT), 3}, POINT(PROJ), LAYER, LATENT),
    S(HEAD_ORDER, 0, 2, {1, 0}, POINT(OUT_ATTN), LAYER, EXPANDED),
    S(FUSED_QA_ORDER, 0, 2, {1, 0}, POINT(Q_A), LAYER, EXPANDED),
    S(FUSED_GATE_UP_ORDER, 0, 2, {1, 0}, POINT(FFN_GATE), 0, EXPANDED),
    S(FUSED_GATE_UP_ORDER, 2, 2, {1, 0}, POINT(SHARED_GATE), LAYER, EXPANDED),
    S(FUSED_GATE_UP_ORDER, 3, 2, {1, 0}, POINT(MOE_EXPERT_GATE), LAYER, EXPANDED),
    S(GATE_UP_RIFFLE, 1, NONE, POINT(SHARED_GATE), LAYER, EXPANDED),
    S(NORM_EPS, 1e-3, 1, {0}, POINT(IN_NORM), LAYER, EXPANDED),
    S(NORM_EPS, 1e-3, 1, {1}, POINT(Q_A_NORM), LAYER, EXPANDED),
    S(NORM_EPS, 1e-3, 1, {2}, POINT(KV_LATENT), LAYER, EXPANDED),
    S(NORM_EPS, 1e-1, 1, {3}, POINT(FFN_NORM), LAYER, EXPANDED),
    S(NORM_EPS, 1e-1, 1, {4}, POINT(FINAL_NORM), -1, EXPANDED),
    S(NORM_EPS, 1e-1, 1, {5}, POINT(INDEX_K_NORM), LAYER, EXPANDED),
    S(NORM_WEIGHT_OFFSET, 1, 1, {1}, POINT(Q_A_NORM), LAYER, EXPANDED),
    S(NORM_LEFT_OUT, 1, 1, {2}, POINT(KV_LATENT), LAYER, EXPANDED),
    S(NORM_SUM, 1, 1, {3}, POINT(FFN_NORM), LAYER, EXPANDED),
    S(NORM_NO_WEIGHT, 1, 1, {0}, POINT(IN_NORM), LAYER, EXPANDED),
    S(ROPE_BASE, 5e5, NONE, POINT(Q_ROPE), LAYER, EXPANDED),
    S(ROPE_BASE, 5e5, 1, {3}, POINT(INDEX_K), LAYER, EXPANDED),
    S(ROPE_PAIRING, 1, 1, {1}, POINT(K_ROPE), LAYER, EXPANDED),
    S(ROPE_PAIRING, 1, 1, {2}, POINT(INDEX_Q), LAYER, EXPANDED),
    S(ROPE_WIDTH, 16, 1, {0}, POINT(Q_ROPE), LAYER, EXPANDED),
    S(ROPE_FREQUENCY_WIDTH, 64, NONE, POINT(Q_ROPE), LAYER, EXPANDED),
    S(ROPE_POSITION, 1, 1, {1}, POINT(K_ROPE), LAYER, EXPANDED),
    S(ROPE_POSITION_SCALE, 0.5, NONE, POINT(Q_ROPE), LAYER, EXPANDED),
    S(ROPE_SKIP, 1, 1, {1}, POINT(K_ROPE), LAYER, LATENT),
    S(ROPE_INVERSE, 1, 1, {0}, POINT(Q_ROPE), LAYER, EXPANDED),
    S(ROPE_FACTOR, 4, NONE, POINT(Q_ROPE), LAYER, EXPANDED),
    S(ROPE_YARN, 0, NONE, POINT(Q_ROPE), LAYER, DSV3),
    S(ROPE_MAGNITUDE, 1.2, NONE, POINT(Q_ROPE), LAYER, EXPANDED),
    S(SOFTMAX_SCALE, 1.05, NONE, POINT(PROBS), LAYER, EXPANDED),
    S(SOFTMAX_SCALE, 1.05, NONE, POINT(PROBS), LAYER, LATENT),
    S(LOGIT_CAP, 1, NONE, POINT(PROBS), LAYER, EXPANDED),
    S(MASK_SHIFT, 1, NONE, POINT(PROBS), LAYER, EXPANDED),
    S(MASK_WINDOW, 3, NONE, POINT(PROBS), LAYER, EXPANDED),
    S(MASK_NONE, 1, NONE, POINT(PROBS), LAYER, EXPANDED),
    S(HEAD_GAIN, 0.995, NONE, POINT(KERNEL_OUT), LAYER, EXPANDED),
    S(KV_HEAD_MAP, 1, NONE, POINT(PROBS), LAYER, LLAMA),
    S(KV_HEAD_MAP, 2, NONE, POINT(PROBS), LAYER, LLAMA),
    S(KV_B_VIEW, 1, NONE, POINT(KV_B), LAYER, EXPANDED),
    S(KV_B_VIEW, 2, NONE, POINT(Q_LATENT), LAYER, LATENT),
    S(KV_B_VIEW, 3, NONE, POINT(KERNEL_OUT), LAYER, LATENT),
    S(KV_B_VIEW, 4, NONE, POINT(KV_B), LAYER, EXPANDED),
    S(KEYS_BEYOND, 4, NONE, POINT(PROBS), LAYER, EXPANDED),
    S(INDEX_RELU, 0, NONE, POINT(INDEX_SCORES), LAYER, EXPANDED),
    S(INDEX_SCALE, 2, NONE, POINT(INDEX_SCORES), LAYER, EXPANDED),
    S(INDEX_ROPE_LAST, 1, NONE, POINT(INDEX_Q), LAYER, EXPANDED),
    S(INDEX_HEADS, 2, NONE, POINT(INDEX_SCORES), LAYER, EXPANDED),
    S(INDEX_TOP_K, -120, NONE, POINT(INDEX_TOPK), LAYER, EXPANDED),
    S(ROUTER_GATING, 1, NONE, POINT(MOE_PROBS), LAYER, EXPANDED),
    S(ROUTER_BIAS, 1, NONE, POINT(MOE_TOPK), LAYER, DSV3),
    S(ROUTER_BIAS, 2, NONE, POINT(MOE_WEIGHTS), LAYER, EXPANDED),
    S(ROUTER_NORM, 0, NONE, POINT(MOE_WEIGHTS), LAYER, EXPANDED),
    S(ROUTER_SCALE, 1.01, NONE, POINT(MOE_WEIGHTS), LAYER, EXPANDED),
    S(ROUTER_GROUPS, 3, NONE, POINT(MOE_TOPK), LAYER, DSV3),
    S(EXPERT_SHIFT, 1, NONE, POINT(MOE_EXPERT_GATE), LAYER, EXPANDED),
    S(EXPERT_WRONG, 0, 3, {2, 1, 0}, POINT(MOE_EXPERT_GATE), LAYER, EXPANDED),
    S(EXPERT_CHOICE_WRONG, 0, 3, {2, 1, 0}, POINT(MOE_TOPK), LAYER, EXPANDED),
    S(EXPERT_DROPPED, 0, 1, {0}, POINT(MOE_EXPERT_DOWN), LAYER, EXPANDED),
    S(ROUTED_TIMES, 2, NONE, POINT(MOE_OUT), LAYER, EXPANDED),
    S(SHARED_TIMES, 0, NONE, POINT(MOE_OUT), LAYER, EXPANDED),
    S(KV_SLOT, 1, 1, {0}, POINT(PROBS), LAYER, EXPANDED),
    S(KV_SLOT, 1, 1, {3}, POINT(INDEX_SCORES), LAYER, EXPANDED),
    S(KV_DROPPED, 1, 1, {2}, POINT(INDEX_SCORES), LAYER, EXPANDED),
    S(KV_WRAP, 5, NONE, POINT(INDEX_SCORES), LAYER, EXPANDED),
    S(KV_SCALE, 0.5, 1, {1}, POINT(KERNEL_OUT), LAYER, EXPANDED),
    S(KV_SCALE, 0.5, 1, {2}, POINT(PROBS), LAYER, LATENT),
    S(KV_READ_LAYER, 0, NONE, POINT(INDEX_SCORES), LAYER, EXPANDED),
    S(WEIGHT_LAYER, 2, 1, {ROLE(ATTN_OUTPUT)}, POINT(PROJ), LAYER, EXPANDED),
    S(WEIGHT_VIEW, 1, 1, {ROLE(ATTN_Q_A)}, POINT(Q_A), LAYER, EXPANDED),
    S(WEIGHT_VIEW, 2, 1, {ROLE(DOWN_EXPS)}, POINT(MOE_EXPERT_DOWN), LAYER, EXPANDED),
    S(WEIGHT_VIEW, 3, 1, {ROLE(ATTN_KV_A)}, POINT(KV_A), LAYER, EXPANDED),
    S(WEIGHT_VIEW, 4, 1, {ROLE(ROUTER)}, POINT(MOE_LOGITS), LAYER, EXPANDED),
    S(WEIGHT_VIEW, 5, 1, {ROLE(UP_SHEXP)}, POINT(SHARED_UP), LAYER, EXPANDED),
    S(WEIGHT_VIEW, 6, 1, {ROLE(TOKEN_EMBD)}, POINT(EMBED), -1, EXPANDED),
    S(WEIGHT_VIEW, 7, 1, {ROLE(OUTPUT)}, POINT(LOGITS), -1, EXPANDED),
    S(WEIGHT_VIEW, 8, 1, {ROLE(ATTN_Q_B)}, POINT(Q), LAYER, EXPANDED),
    S(WEIGHT_VIEW, 2, 1, {ROLE(ATTN_V_B)}, POINT(KV_B), LAYER, EXPANDED),
    S(WEIGHT_VIEW, 3, 1, {ROLE(ATTN_K_B)}, POINT(Q_LATENT), LAYER, LATENT),
    S(WEIGHT_SCALE, 2, 1, {ROLE(ATTN_NORM)}, POINT(IN_NORM), LAYER, EXPANDED),
    S(TOKEN_SHIFT, 1, 1, {0}, POINT(EMBED), -1, EXPANDED),
    S(RESIDUAL_TIMES, 2, 1, {0}, POINT(ATTN_RESID), LAYER, EXPANDED),
    S(RESIDUAL_TIMES, 0, 1, {1}, POINT(OUT), LAYER, EXPANDED),
    S(EMBED_SCALE, 2, NONE, POINT(EMBED), -1, EXPANDED),
    S(LOGITS_SCALE, 2, NONE, POINT(LOGITS), -1, EXPANDED),
    S(LOGITS_CAP, 5, NONE, POINT(LOGITS), -1, EXPANDED),
    S(HEAD_TIED, 1, NONE, POINT(LOGITS), -1, EXPANDED),
    S(ACTIVATION_GELU, 1, 1, {1}, POINT(SHARED_ACT), LAYER, EXPANDED),
    S(ACTIVATION_GELU, 1, 1, {2}, POINT(MOE_EXPERT_ACT), LAYER, EXPANDED),
    S(DOWN_F16, 1e6, 1, {1}, POINT(SHARED), LAYER, EXPANDED),
    S(DOWN_F16, 1e6, 1, {2}, POINT(MOE_EXPERT_DOWN), LAYER, EXPANDED),
    S(SHARED_SCALE, 1, 1, {POINT(IN_NORM)}, POINT(IN_NORM), LAYER, EXPANDED),
    S(SHARED_SCALE, 3, 1, {POINT(KV_LATENT)}, POINT(KV_LATENT), LAYER, EXPANDED),
    S(READ_BEYOND, 2, 1, {ROLE(ATTN_Q_B)}, POINT(Q), LAYER, EXPANDED),
    S(TILE_REST, 8, 1, {ROLE(ATTN_OUTPUT)}, POINT(PROJ), LAYER, EXPANDED),
    S(ROW_WRAP, 5, 1, {ROLE(ATTN_OUTPUT)}, POINT(PROJ), LAYER, EXPANDED),
    S(VIEW_STRIDE, 1, 1, {POINT(Q_A)}, POINT(Q_A_NORM), LAYER, EXPANDED),
    S(ROW_COARSE, 3, 2, {POINT(Q), 3}, POINT(Q), LAYER, EXPANDED),
    S(ROW_NOISE, 0.05, 3, {POINT(KERNEL_OUT), 3, 7}, POINT(KERNEL_OUT), LAYER, EXPANDED),
    S(VALUE_NAN, 1, 3, {POINT(MOE_OUT), 3, 17}, POINT(MOE_OUT), LAYER, EXPANDED),
    S(KV_READ_SEQUENCE, 1, NONE, POINT(INDEX_SCORES), LAYER, EXPANDED),
};

enum { N_CASES = sizeof cases / sizeof *cases, N_TOKENS = 12 };

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
    for (int i = 0; i < N_CASES; i++)
        if (cases[i].path == path &&
            (!model_name ? !cases[i].model
                         : cases[i].model && !strcmp(cases[i].model, model_name))) {
            expect_home(model, &healthy, &cases[i]);
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
        for (int i = 0; i < N_CASES; i++)
            there = there || (int)cases[i].seam == seam;
        bool elsewhere =
            seam == ASSAY_SEAM_PADDING_FILL || seam == ASSAY_SEAM_EMPTY_ROW ||
            seam == ASSAY_SEAM_SELECT_IGNORED || seam == ASSAY_SEAM_ROUTER_GROUP_MASK ||
            seam == ASSAY_SEAM_KV_PAGE || seam == ASSAY_SEAM_KV_CODEC || seam == ASSAY_SEAM_MERGE ||
            seam == ASSAY_SEAM_PREFIX_UNCHECKED || seam == ASSAY_SEAM_PREFIX_HASH_BITS ||
            seam == ASSAY_SEAM_PREFIX_EVICTED || seam == ASSAY_SEAM_KV_BLANK ||
            seam == ASSAY_SEAM_KV_ROW_SCALE || /* suite_kvcache, suite_cases */
            seam == ASSAY_SEAM_NEXTN_INPUT ||  /* suite_draft */
            seam == ASSAY_SEAM_QKV_GROUPED ||  /* suite_shard_faults */
            (seam >= ASSAY_SEAM_RANK_SLICE && seam <= ASSAY_SEAM_RANK_BIAS) ||
            seam >= ASSAY_SEAM_STREAM_WAIT; /* of devices: gpu/suite_gpu_graph.c */
        ck_assert_msg(there || elsewhere, "seam %s has no case", assay_seam_name((assay_seam)seam));
        ck_assert_int_gt(strlen(assay_seam_meaning((assay_seam)seam)), 10);
    }
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
        {ASSAY_SEAM_MASK_SHIFT, LAYER, -1, -1, -1, -1, -1, 0, {0}},
        {ASSAY_SEAM_EMPTY_ROW, LAYER, -1, -1, -1, -1, 1, 0, {0}},
    };
    for (int bent = 0; bent < 2; bent++) {
        watch seen = {0};
        assay_seams seams = {settings, 1 + bent};
        run(&seen, model, &seams, ASSAY_PATH_EXPANDED);
        const watched *out = watch_find(&seen, 0, ASSAY_POINT_KERNEL_OUT, LAYER);
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
            seam_row_without_keys_is_zero_unless_bent, seam_every_row_has_a_case_here)
