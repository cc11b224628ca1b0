/* Every kind of shard fault at 2, 4 and 8 ranks: planted, captured per rank, named with its ranks.
 */
#include <stdio.h>

#include "data.h"
#include "diagnosed.h"
#include "engine/comm.h"
#include "engine/engine.h"
#include "expect.h"
#include "probes/capture.h"

#define N_TOKENS 8
#define MOST_RANKS 8
#define ALL (-1)
#define LAST (-2)
#define BUT_FIRST (-3)
#define FIRST_TWO (-4)

typedef struct planted {
    const char *about, *plants[2]; /* %d: the last rank */
    const char *fault_class;
    int ranks; /* that must be named: one, or ALL ... */
    bool whole_experts;
} planted;

static const planted faults[] = {
    {"rank 0's slice everywhere", {"rank-slice:layer=1"}, "RANK-SLICE", BUT_FIRST, false},
    {"ranks exchanged",
     {"rank-slice:layer=1,rank=0,value=1", "rank-slice:layer=1,rank=1,value=0"},
     "RANK-SLICE",
     FIRST_TWO,
     false},
    {"one rank with another's slice", {"rank-slice-gate:layer=0,rank=1"}, "RANK-SLICE", 1, false},
    {"columns of rank 0 everywhere", {"rank-slice-output:layer=1"}, "RANK-SLICE", BUT_FIRST, false},
    {"another rank's columns", {"rank-slice-output:layer=2,rank=%d"}, "RANK-SLICE", LAST, false},
    {"slice late by a block", {"rank-shifted:layer=0,rank=0,value=32"}, "RANK-SLICE", 0, false},
    {"heads late by a part", {"rank-shifted-head:layer=1,rank=0"}, "RANK-SLICE", 0, false},
    {"last rank truncated", {"rank-short:layer=0,rank=%d"}, "RANK-SLICE", LAST, false},
    {"parts exchanged on all ranks", {"file-order:layer=1"}, "FUSED-ORDER", ALL, false},
    {"parts exchanged on one rank", {"file-order:layer=1,rank=1"}, "FUSED-ORDER", 1, false},
    {"gate and up exchanged on one rank",
     {"gate-up-order:layer=0,rank=1"},
     "FUSED-ORDER",
     1,
     false},
    {"gate and up interleaved on one rank",
     {"gate-up-riffle:layer=0,rank=1"},
     "FUSED-ORDER",
     1,
     false},
    {"key and value rows of one rank", {"kv-b-halves:layer=1,rank=1"}, "FUSED-ORDER", 1, false},
    {"no reduction", {"reduce-missing:layer=1"}, "REDUCE-COUNT", ALL, false},
    {"no reduction on one rank", {"reduce-missing:layer=1,rank=1"}, "REDUCE-COUNT", 1, false},
    {"reduced twice", {"reduce-twice:layer=1"}, "REDUCE-COUNT", ALL, false},
    {"feed-forward reduced twice", {"reduce-twice-ffn:layer=0"}, "REDUCE-COUNT", ALL, false},
    {"late reduction", {"reduce-late:layer=1,rank=%d"}, "RACE", LAST, false},
    {"experts of a rank shifted", {"expert-shift:layer=1,rank=1"}, "EXPERT-MAP", 1, false},
    {"expert offset twice", {"expert-offset:layer=1,rank=1"}, "EXPERT-MAP", 1, true},
};

typedef struct job {
    assay_model *model;
    assay_seams seams;
    bool whole_experts;
    char paths[MOST_RANKS][4096];
} job;

static assay_status run_rank(void *user, assay_comm *comm)
{
    job *j = user;
    int32_t tokens[N_TOKENS], id;
    assay_engine *engine = NULL;
    assay_capture *c = NULL;
    assay_status s;
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (5 + 113 * i) % 900;
    const assay_capture_about about = {.producer = "assay",
                                       .producer_version = ASSAY_VERSION,
                                       .architecture = assay_model_hparams(j->model)->architecture,
                                       .dtype = "f32",
                                       .path = "expanded",
                                       .backend = "cpu",
                                       .mode = "eager",
                                       .n_ranks = comm->n_ranks,
                                       .rank = comm->rank};
    assay_engine_options options = assay_engine_options_default();
    ASSAY_GO(assay_capture_create(&c, j->paths[comm->rank], &about, NULL));
    ASSAY_GO(assay_capture_prompt(c, "default", NULL, tokens, N_TOKENS));
    options.comm = comm;
    options.n_threads = 1;
    options.max_positions = N_TOKENS + 1;
    options.whole_experts = j->whole_experts;
    options.seams = j->seams.n ? &j->seams : NULL;
    options.tap = assay_capture_tap;
    options.tap_user = c;
    ASSAY_GO(assay_engine_new(&engine, j->model, &options));
    ASSAY_GO(assay_engine_generate(&id, engine, tokens, N_TOKENS, 1, 0, NULL, NULL));
    s = assay_capture_finish(c);
    c = NULL;
out:
    assay_capture_abandon(c);
    assay_engine_free(engine);
    return s;
}

static void diagnose_ranks(assay_result *result, job *j, int n_ranks, const assay_gguf *file,
                           assay_oracle *oracle)
{
    const char *paths[MOST_RANKS];
    assay_run *run;
    for (int r = 0; r < n_ranks; r++) {
        char name[64];
        snprintf(name, sizeof name, "s.rank%dof%d.h5", r, n_ranks);
        snprintf(j->paths[r], sizeof j->paths[r], "%s", data_scratch(name));
        paths[r] = j->paths[r];
    }
    EXPECT_OK(assay_ranks_run(n_ranks, run_rank, j));
    EXPECT_OK(assay_result_init(result, "diagnose"));
    EXPECT_OK(assay_run_open(&run, paths, n_ranks, NULL));
    assay_diagnose_options options = {.file = file, .forced = {.last_layer = -1}};
    EXPECT_OK(assay_diagnose(result, run, oracle, &options));
    assay_run_close(run);
}

static bool must_be_named(const planted *fault, int rank, int n_ranks)
{
    switch (fault->ranks) {
    case ALL:
        return true;
    case LAST:
        return rank == n_ranks - 1;
    case BUT_FIRST:
        return rank > 0;
    case FIRST_TWO:
        return rank < 2;
    default:
        return rank == fault->ranks;
    }
}

/* The first finding has the class, and exactly the ranks. */
static bool is_named(const assay_result *result, const planted *fault, int n_ranks)
{
    const assay_finding *f = &result->findings[0];
    int n = 0;
    if (result->n_findings == 0 || strcmp(f->fault_class, fault->fault_class) != 0)
        return false;
    for (int r = 0; r < n_ranks; r++)
        n += must_be_named(fault, r, n_ranks);
    for (int i = 0; i < f->ranks.n; i++)
        if (!must_be_named(fault, (int)f->ranks.items[i], n_ranks))
            return false;
    return f->ranks.n == n;
}

static bool try_fault(job *j, const planted *fault, int n_ranks, const assay_gguf *file,
                      assay_oracle *oracle)
{
    assay_seam_setting settings[2];
    assay_result result;
    int n = 0;
    for (int i = 0; i < 2 && fault->plants[i]; i++) {
        char text[128], *at;
        assay_plant plant;
        snprintf(text, sizeof text, "%s", fault->plants[i]);
        if ((at = strstr(text, "%d")) != NULL)
            snprintf(at, 3, "%d", n_ranks - 1);
        EXPECT_OK(assay_plant_parse(&plant, text));
        EXPECT_OK(assay_plant_make(settings, &n, 2, &plant, assay_model_hparams(j->model)));
    }
    if (fault->whole_experts) /* the rank's own first id, once more */
        settings[0].value = assay_model_hparams(j->model)->n_expert / n_ranks;
    j->seams = (assay_seams){settings, n};
    j->whole_experts = fault->whole_experts;
    diagnose_ranks(&result, j, n_ranks, file, oracle);
    bool right = is_named(&result, fault, n_ranks);
    if (!right) {
        printf("%d ranks, %s: wanted %s, found %s ranks", n_ranks, fault->about, fault->fault_class,
               diagnosed_text(&result));
        for (int i = 0; result.n_findings && i < result.findings[0].ranks.n; i++)
            printf(" %d", (int)result.findings[0].ranks.items[i]);
        printf("\n");
    }
    assay_result_clear(&result);
    return right;
}

START_TEST(shard_faults_are_named_with_their_ranks)
{
    const int n_kinds = sizeof faults / sizeof *faults;
    char path[4096];
    job *j = calloc(1, sizeof *j);
    assay_gguf *file;
    assay_oracle *oracle;
    int n = 0, right = 0;
    snprintf(path, sizeof path, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    EXPECT_OK(assay_model_open(&j->model, path, NULL));
    EXPECT_OK(assay_gguf_open(&file, path));
    EXPECT_OK(assay_oracle_open(&oracle, file, 0));
    for (int n_ranks = 2; n_ranks <= MOST_RANKS; n_ranks *= 2)
        for (int i = 0; i < n_kinds; i++) {
            n++;
            right += try_fault(j, &faults[i], n_ranks, file, oracle);
        }
    printf("class and ranks right: %d of %d\n", right, n);
    ck_assert_msg(100 * right >= 95 * n, "class and ranks right: %d of %d", right, n);
    assay_oracle_close(oracle);
    assay_gguf_close(file);
    assay_model_close(j->model);
    free(j);
}
END_TEST

START_TEST(shard_faults_are_not_found_where_there_are_none)
{
    char path[4096];
    job *j = calloc(1, sizeof *j);
    assay_gguf *file;
    assay_oracle *oracle;
    snprintf(path, sizeof path, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    EXPECT_OK(assay_model_open(&j->model, path, NULL));
    EXPECT_OK(assay_gguf_open(&file, path));
    EXPECT_OK(assay_oracle_open(&oracle, file, 0));
    for (int i = 0; i < 6; i++) {
        assay_result result;
        j->whole_experts = i % 2;
        diagnose_ranks(&result, j, 2 << i / 2, file, oracle);
        ck_assert_msg(result.n_findings == 0, "%d ranks: %s", 2 << i / 2, diagnosed_text(&result));
        ck_assert_int_gt(result.n_judged, 50);
        assay_result_clear(&result);
    }
    assay_oracle_close(oracle);
    assay_gguf_close(file);
    assay_model_close(j->model);
    free(j);
}
END_TEST

EXPECT_MAIN("shard_faults", shard_faults_are_named_with_their_ranks,
            shard_faults_are_not_found_where_there_are_none)
