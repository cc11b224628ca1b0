/*
 * Public faults of serving engines, each planted by its mechanism and named: class and home. The
 * numbers are those of the list of cases that the fault classes come from; what stands beside them
 * is the project and its report.
 */
#include <stdio.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"
#include "reports/diagnose.h"
#include "suites/requests.h"

#define ATTENTION "attn.probs attn.kernel_out attn.o_latent attn.lse"
#define CACHE ATTENTION " attn.index.scores"

typedef struct public_case {
    const char *number, *report, *plant, *fault_class, *home;
    int latent, chunk, requests; /* besides what the plant itself asks for */
} public_case;

static const public_case cases[] = {
    {"C012", "sglang #26133", "leak-amax:layer=1", "LEAK", "attn_resid", 0, 0, 0},
    {"C013", "flashinfer #3057", "leak-next-scale:layer=1", "LEAK", "ffn.in_norm", 0, 0, 0},
    {"C015", "llama.cpp #2313", "leak-row-end:layer=1", "LEAK", "attn.proj", 0, 0, 0},
    {"C038", "local-inference-lab/vllm #17", "merge-stride:layer=1", "MERGE", ATTENTION, 0, 0, 0},
    {"C039", "vllm #18807", "merge-stride:layer=1", "MERGE", ATTENTION, 1, 5, 0},
    {"C040", "vllm #15492", "merge-empty-inf:layer=1", "MERGE", ATTENTION, 0, 0, 0},
    {"C041", "ROCm/aiter #3606", "merge-one-lse:layer=1", "MERGE", ATTENTION, 0, 0, 0},
    {"C043", "transformers #30414", "keys-beyond:layer=1", "VALID-SET", ATTENTION, 0, 0, 0},
    {"C044", "vllm #14253", "mask-short:layer=1,sequence=1", "VALID-SET", ATTENTION, 0, 0,
     ASSAY_REQUESTS_BATCH},
    {"C045", "transformers #47651", "empty-row-nan:layer=1", "VALID-SET", ATTENTION, 0, 0, 0},
    {"C047", "sglang #19107", "kv-slot:layer=1", "KV-ADDR", CACHE, 0, 0, 0},
    {"C050", "vllm-ascend #15900", "kv-read-layer:layer=1", "KV-ADDR", CACHE, 1, 0, 0},
    {"C051", "local-inference-lab/vllm #480", "prefix-evicted", "STATE-STALE", CACHE, 0, 0, 0},
    {"C052", "openvino.genai #3722", "prefix-hash", "STATE-STALE", CACHE, 1, 0, 0},
    {"C056", "sglang #20705", "cache-scale-lost:layer=1", "KV-SCALE", CACHE, 0, 0, 0},
    {"C057", "vllm #55559", "cache-scale-lost:layer=1", "KV-SCALE", CACHE, 1, 0, 0},
    {"C058", "InfiniTensor/InfiniLM #553", "cache-scale-zero:layer=1", "KV-SCALE", CACHE, 0, 0, 0},
    {"C063", "sglang #39193", "cache-scale-exponent:layer=1", "DTYPE-READ", CACHE, 0, 0, 0},
    {"C071", "sglang #28685", "tile-rest:layer=1", "KERNEL-CASE", "attn.proj", 0, 0, 0},
    {"C072", "llama.cpp #15038", "kv-b-stride-0:layer=1", "ADDR-ARITH",
     "attn.kv_b attn.q_latent attn.kernel_out", 0, 0, 0},
    {"C074", "flashinfer #3130", "slot-wraps:layer=1", "ADDR-ARITH", CACHE, 1, 0, 0},
    {"C075", "vllm #53907", "row-wraps:layer=1", "ADDR-ARITH", "attn.proj", 0, 0, 0},
};

enum { N_CASES = sizeof cases / sizeof *cases, N_TOKENS = 11 };

static bool is_listed(const char *list, const char *point)
{
    const char *name = strchr(point + 4, '.'); /* "blk.1.attn.q": behind the layer */
    size_t n = name ? strlen(++name) : 0;
    for (const char *at = list; name && (at = strstr(at, name)) != NULL; at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

/* Every finding has the class, at its home. */
static bool is_right(char *said, size_t room, const public_case *c, const assay_result *result)
{
    bool right = result->n_findings > 0;
    size_t n = (size_t)snprintf(said, room, "\n%s (%s, %s): %s expected, found", c->number,
                                c->report, c->plant, c->fault_class);
    for (int i = 0; i < result->n_findings; i++) {
        const assay_finding *f = &result->findings[i];
        right = right && !strcmp(f->fault_class, c->fault_class) && is_listed(c->home, f->point);
        if (n < room - 200)
            n += (size_t)snprintf(said + n, room - n, " %s at %s (%s; error %.3g, floor %.3g)",
                                  f->fault_class, f->point, f->kind, f->error_rel, f->floor);
    }
    if (result->n_findings == 0)
        snprintf(said + n, room - n, " nothing");
    return right;
}

static void plant_and_diagnose(assay_result *result, const public_case *c, assay_model *model,
                               assay_oracle *oracle)
{
    char path[200];
    int32_t first[N_TOKENS], second[N_TOKENS];
    assay_plant plant;
    assay_seam_setting settings[2];
    int n_settings = 0;
    assay_run *run;
    assay_requests r = {.chunk = c->chunk, .run = {.requests = c->requests}};
    for (int i = 0; i < N_TOKENS; i++) {
        first[i] = 40 + 37 * i;
        second[i] = 900 - 41 * i;
    }
    snprintf(path, sizeof path, "%s", data_scratch("case.h5"));
    EXPECT_OK(assay_plant_parse(&plant, c->plant));
    EXPECT_OK(assay_plant_make(settings, &n_settings, 2, &plant, assay_model_hparams(model)));
    assay_seams seams = {settings, n_settings};
    r.engine = assay_engine_options_default();
    r.engine.path = c->latent ? ASSAY_PATH_LATENT : ASSAY_PATH_EXPANDED;
    r.engine.n_threads = 1;
    r.engine.seams = &seams;
    assay_plant_shape(&r.engine, &plant, 1);
    if (r.run.requests == ASSAY_REQUESTS_ONE)
        r.run.requests = assay_fault_kind_find(plant.kind, NULL)->run.requests;
    r.first = first;
    r.second = second;
    r.n = N_TOKENS;
    r.n_new = 2;
    r.selector = "layer=0-1";
    EXPECT_OK(assay_requests_capture(path, model, &r));
    const char *paths[] = {path};
    EXPECT_OK(assay_run_open(&run, paths, 1, NULL));
    EXPECT_OK(assay_result_init(result, "diagnose"));
    assay_diagnose_options how = {.forced = {.last_layer = -1}};
    EXPECT_OK(assay_diagnose(result, run, oracle, &how));
    assay_run_close(run);
    unlink(path);
}

/* Every second case, so that two processes share them. */
static void run_half(int half)
{
    assay_model *model;
    assay_oracle *oracle;
    char said[6000] = "", one[1200];
    size_t n = 0;
    const char *only = getenv("ASSAY_CASE"); /* one case, by its number */
    EXPECT_OK(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    EXPECT_OK(assay_oracle_open(&oracle, assay_model_gguf(model), 0));
    for (int i = half; i < N_CASES; i += 2) {
        assay_result result;
        if (only && strcmp(only, cases[i].number))
            continue;
        plant_and_diagnose(&result, &cases[i], model, oracle);
        if (!is_right(one, sizeof one, &cases[i], &result) && n < sizeof said - sizeof one)
            n += (size_t)snprintf(said + n, sizeof said - n, "%s", one);
        assay_result_clear(&result);
    }
    assay_oracle_close(oracle);
    assay_model_close(model);
    ck_assert_msg(n == 0, "%s", said);
}

START_TEST(cases_of_public_engines_are_named_by_class_and_home_first_half)
{
    run_half(0);
}
END_TEST

START_TEST(cases_of_public_engines_are_named_by_class_and_home_second_half)
{
    run_half(1);
}
END_TEST

START_TEST(cases_are_at_least_twenty_of_nine_classes)
{
    int n_classes = 0;
    ck_assert_int_ge(N_CASES, 20);
    for (int i = 0; i < N_CASES; i++) {
        bool seen = false;
        ck_assert_ptr_nonnull(assay_fault_find(cases[i].fault_class));
        for (int k = 0; k < i; k++) {
            ck_assert_str_ne(cases[k].number, cases[i].number);
            seen = seen || !strcmp(cases[k].fault_class, cases[i].fault_class);
        }
        n_classes += !seen;
    }
    ck_assert_int_ge(n_classes, 9);
}
END_TEST

EXPECT_MAIN("cases", cases_are_at_least_twenty_of_nine_classes,
            cases_of_public_engines_are_named_by_class_and_home_first_half,
            cases_of_public_engines_are_named_by_class_and_home_second_half)
