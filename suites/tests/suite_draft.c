/*
 * The layers that predict further tokens: text as without them, drafts as the oracle has them,
 * acceptance counted by place, rejected drafts leave nothing behind.
 */
#include <stdio.h>
#include <unistd.h>

#include "data.h"
#include "engine/draft.h"
#include "expect.h"
#include "forge_watch.h"
#include "reports/diagnose.h"
#include "suites/forge_model.h"
#include "suites/requests.h"

enum { N_PROMPT = 9, N_NEW = 12 };

typedef struct forged {
    char path[100];
    assay_model *model;
} forged;

static forged forge(const char *like, int n_nextn)
{
    forged f;
    assay_forge_result made;
    char name[32];
    snprintf(name, sizeof name, "draft-%d.gguf", n_nextn);
    snprintf(f.path, sizeof f.path, "%s", data_scratch(name));
    const assay_forge_options how = {.like = like, .type = "f32", .n_layer = 2, .n_nextn = n_nextn};
    EXPECT_OK(assay_forge_model(&made, f.path, &how, NULL, NULL));
    EXPECT_OK(assay_model_open(&f.model, f.path, NULL));
    return f;
}

static void close_forged(forged *f)
{
    assay_model_close(f->model);
    unlink(f->path);
}

static void fill(int32_t *ids, int n)
{
    for (int i = 0; i < n; i++)
        ids[i] = 11 + 29 * i;
}

static assay_engine *open_engine(const forged *f, assay_engine_options e, bool draft)
{
    assay_engine *engine;
    e.draft = draft;
    e.max_positions = N_PROMPT + N_NEW + 8;
    EXPECT_OK(assay_engine_new(&engine, f->model, &e));
    return engine;
}

static void expect_same_text(const forged *f, assay_engine_options e, int64_t chunk)
{
    int32_t prompt[N_PROMPT], plain[N_NEW], drafted[N_NEW];
    assay_draft_report report;
    fill(prompt, N_PROMPT);
    assay_engine *engine = open_engine(f, e, false);
    EXPECT_OK(assay_engine_generate(plain, engine, prompt, N_PROMPT, N_NEW, chunk, NULL, NULL));
    EXPECT_FAILS(ASSAY_USAGE, assay_engine_generate_drafted(drafted, &report, engine, prompt,
                                                            N_PROMPT, N_NEW, chunk));
    assay_engine_free(engine);
    engine = open_engine(f, e, true);
    EXPECT_OK(
        assay_engine_generate_drafted(drafted, &report, engine, prompt, N_PROMPT, N_NEW, chunk));
    ck_assert_int_eq(assay_engine_n_buffer_faults(engine), 0);
    assay_engine_free(engine);
    ck_assert_mem_eq(plain, drafted, sizeof plain);
    ck_assert_int_eq(report.n_positions, assay_model_hparams(f->model)->n_layer_nextn);
    int64_t accepted = 0;
    for (int i = 0; i < report.n_positions; i++) {
        ck_assert_int_le(report.n_accepted[i], report.n_drafted[i]);
        ck_assert_int_le(report.n_drafted[i], report.n_steps);
        accepted += report.n_accepted[i];
    }
    ck_assert_int_eq(report.n_steps + accepted,
                     N_NEW - 1); /* each step gives one id and its drafts */
}

START_TEST(draft_text_is_that_of_plain_decoding)
{
    for (int n = 1; n <= 2; n++) {
        forged f = forge("glm5-tiny", n);
        for (int path = 0; path < 2; path++) {
            assay_engine_options e = assay_engine_options_default();
            e.path = (assay_path)path;
            expect_same_text(&f, e, 0);
            e.page_size = 4;
            e.key_split = path ? 3 : 0;
            expect_same_text(&f, e, 4);
        }
        close_forged(&f);
    }
}
END_TEST

START_TEST(draft_needs_the_layer)
{
    forged f = forge("glm5-tiny", 0);
    assay_engine *engine;
    assay_engine_options e = assay_engine_options_default();
    e.draft = true;
    EXPECT_FAILS(ASSAY_USAGE, assay_engine_new(&engine, f.model, &e));
    EXPECT_SAYS("predict further tokens");
    close_forged(&f);
}
END_TEST

/* A captured run with drafts, diagnosed. */
static void diagnose_drafted(assay_result *result, const forged *f, const char *plant_text,
                             int latent, int64_t chunk)
{
    char path[200];
    int32_t prompt[N_PROMPT];
    assay_plant plant;
    assay_seam_setting settings[2];
    int n_settings = 0;
    assay_oracle *oracle;
    assay_run *run;
    fill(prompt, N_PROMPT);
    if (plant_text) {
        EXPECT_OK(assay_plant_parse(&plant, plant_text));
        EXPECT_OK(
            assay_plant_make(settings, &n_settings, 2, &plant, assay_model_hparams(f->model)));
    }
    assay_seams seams = {settings, n_settings};
    assay_requests r = {.engine = assay_engine_options_default(),
                        .first = prompt,
                        .n = N_PROMPT,
                        .chunk = chunk,
                        .n_new = 5};
    r.engine.draft = true;
    r.engine.path = latent ? ASSAY_PATH_LATENT : ASSAY_PATH_EXPANDED;
    r.engine.seams = &seams;
    snprintf(path, sizeof path, "%s.h5", f->path);
    EXPECT_OK(assay_requests_capture(path, f->model, &r));
    const char *paths[] = {path};
    EXPECT_OK(assay_run_open(&run, paths, 1, NULL));
    EXPECT_OK(assay_oracle_open(&oracle, assay_model_gguf(f->model), 0));
    EXPECT_OK(assay_result_init(result, "diagnose"));
    int layer = assay_model_hparams(f->model)->n_layer;
    const assay_seen *seen = assay_run_find(run, 0, 0, ASSAY_POINT_NEXTN_LOGITS, layer);
    ck_assert_ptr_nonnull(seen);
    ck_assert(seen->has_values);
    assay_diagnose_options how = {.forced = {.last_layer = -1}};
    EXPECT_OK(assay_diagnose(result, run, oracle, &how));
    assay_run_close(run);
    assay_oracle_close(oracle);
    unlink(path);
}

START_TEST(draft_logits_are_the_oracles)
{
    for (int n = 1; n <= 2; n++) {
        forged f = forge("glm5-tiny", n);
        for (int latent = 0; latent < 2; latent++) {
            assay_result result;
            diagnose_drafted(&result, &f, NULL, latent, latent ? 4 : 0);
            ck_assert_msg(result.n_findings == 0, "%d layers: %s at %s", n,
                          result.n_findings ? result.findings[0].fault_class : "",
                          result.n_findings ? result.findings[0].point : "");
            assay_result_clear(&result);
        }
        close_forged(&f);
    }
}
END_TEST

/* Public cases by their number in the list that the classes come from. */
START_TEST(draft_cases_are_named_by_class_and_home)
{
    static const struct {
        const char *number, *plant, *point;
    } cases[] = {
        {"C101", "draft-raw:layer=3", "blk.3.nextn.in"},    /* ROCm/ATOM #1764: the second draft */
        {"C102", "draft-embed-lost", "blk.2.nextn.in"},     /* vllm #33299 */
        {"C103", "draft-halves:layer=2", "blk.2.nextn.in"}, /* mlx-lm #1469 */
    };
    forged f = forge("glm5-tiny", 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assay_result result;
        diagnose_drafted(&result, &f, cases[i].plant, (int)i % 2, 0);
        ck_assert_msg(result.n_findings == 1, "%s: %d findings", cases[i].number,
                      result.n_findings);
        ck_assert_str_eq(result.findings[0].fault_class, "DRAFT");
        ck_assert_str_eq(result.findings[0].point, cases[i].point);
        assay_result_clear(&result);
    }
    close_forged(&f);
}
END_TEST

EXPECT_MAIN("draft", draft_needs_the_layer, draft_text_is_that_of_plain_decoding,
            draft_logits_are_the_oracles, draft_cases_are_named_by_class_and_home)
