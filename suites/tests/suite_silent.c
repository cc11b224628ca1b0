/*
 * Faults that nobody sees in the text: the greedy continuation is the reference's, id by id, and
 * the diagnosis of a capture of the same run names class and place. One plant of each of many
 * classes.
 */
#include "data.h"
#include "diagnosed.h"
#include "expect.h"

#include <stdio.h>

#include "engine/engine.h"
#include "engine/seam.h"

/* "Count from 6 to 10:", and what transformers continues with: " 6, 7, 8, 9, 10.\nCount from" */
static const int32_t prompt[] = {289, 285, 230, 31, 275, 230, 434, 35};
static const int32_t greedy[] = {230, 31, 21, 230, 32,  21,  230, 33, 21,
                                 230, 34, 21, 230, 434, 267, 289, 285};

enum { N_PROMPT = sizeof prompt / sizeof *prompt, N_GREEDY = sizeof greedy / sizeof *greedy };

static const struct {
    const char *kind, *class, *point;
    int layer;
} plants[] = {
    {"rows-zero", "UNWRITTEN", "attn.kernel_out", 3},
    {"phantom-output", "BUFFER", "attn.out", 3},
    {"file-order", "FUSED-ORDER", "attn.q_a", 3},
    {"head-slices", "RANK-SLICE", "attn.out", 3},
    {"other-layer", "WEIGHT-SOURCE", "attn.proj", 3},
    {"nibbles", "BLOCK-MAP", "attn.proj", 2},
    {"format-range", "DTYPE-READ", "attn.proj", 2},
    {"rope-pairing", "ROPE-PAIR", "attn.q_rope", 2},
    {"rope-base", "ROPE-PHASE", "attn.q_rope", 1},
    {"softmax-scale", "LOGIT-SHAPE", "attn.probs", 1},
    {"mask-shift", "VALID-SET", "attn.probs", 1},
    {"kv-read-layer", "KV-ADDR", "attn.index.scores", 3},
    {"value-scale", "KV-SCALE", "attn.kernel_out", 2},
    {"weight-transposed", "ADDR-ARITH", "attn.proj", 3},
    {"gating", "ROUTE", "moe.probs", 2},
    {"expert-shift", "EXPERT-MAP", "moe.expert.gate", 3},
    {"index-no-relu", "SELECT", "attn.index.scores", 2},
    {"shared-missing", "REDUCE-COUNT", "moe.out", 2},
    {"norm-eps", "CONST", "attn.in_norm", 1},
};

enum { N_PLANTS = sizeof plants / sizeof *plants };

static char path[600];
static assay_model *model;

static void open_model(void)
{
    snprintf(path, sizeof path, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    EXPECT_OK(assay_model_open(&model, path, NULL));
}

static bool text_is_right(const assay_seams *seams)
{
    int32_t ids[N_GREEDY];
    assay_engine *engine;
    assay_engine_options options = assay_engine_options_default();
    options.max_positions = N_PROMPT + N_GREEDY;
    options.seams = seams;
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    EXPECT_OK(assay_engine_generate(ids, engine, prompt, N_PROMPT, N_GREEDY, 0, NULL, NULL));
    assay_engine_free(engine);
    return !memcmp(ids, greedy, sizeof ids);
}

START_TEST(the_healthy_engine_continues_as_the_reference_does)
{
    open_model();
    ck_assert(text_is_right(NULL));
    assay_model_close(model);
}
END_TEST

START_TEST(a_text_that_is_wrong_is_seen)
{
    open_model();
    assay_seam_setting setting = {.seam = ASSAY_SEAM_TOKEN_SHIFT,
                                  .layer = -1,
                                  .head = -1,
                                  .rank = -1,
                                  .step = -1,
                                  .sequence = -1,
                                  .value = 1};
    assay_seams seams = {&setting, 1};
    ck_assert(!text_is_right(&seams));
    assay_model_close(model);
}
END_TEST

START_TEST(faults_that_leave_the_text_right_are_named)
{
    int n_named = 0;
    open_model();
    for (int i = 0; i < N_PLANTS; i++) {
        char capture[600];
        assay_seam_setting settings[8];
        assay_result result;
        int n = 0;
        assay_plant plant = {.layer = plants[i].layer,
                             .head = -1,
                             .rank = -1,
                             .step = -1,
                             .sequence = -1,
                             .value = NAN};
        snprintf(plant.kind, sizeof plant.kind, "%s", plants[i].kind);
        EXPECT_OK(assay_plant_make(settings, &n, 8, &plant, assay_model_hparams(model)));
        assay_seams seams = {settings, n};
        if (!text_is_right(&seams)) /* a near tie that another machine decides otherwise */
            continue;
        snprintf(capture, sizeof capture, "%s", data_scratch("silent.h5"));
        EXPECT_OK(
            capture_planted(capture, path, prompt, N_PROMPT, 1, ASSAY_DTYPE_F32, settings, n));
        EXPECT_OK(diagnosed(&result, capture, path));
        const assay_finding *f = diagnosed_find(&result, plants[i].class, plants[i].point);
        ck_assert_msg(f && f->layers.n == 1 && f->layers.items[0] == plants[i].layer,
                      "%s in layer %d: found %s", plants[i].kind, plants[i].layer,
                      diagnosed_text(&result));
        n_named++;
        assay_result_clear(&result);
    }
    assay_model_close(model);
    ck_assert_msg(n_named >= 12, "only %d plants leave the text right", n_named);
}
END_TEST

EXPECT_MAIN("silent", the_healthy_engine_continues_as_the_reference_does,
            a_text_that_is_wrong_is_seen, faults_that_leave_the_text_right_are_named)
