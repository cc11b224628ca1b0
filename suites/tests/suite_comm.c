/*
 * Ranks: N of them give what one gives; what each of them shows adds up; a rank that fails or
 * disagrees ends the run.
 */
#include <pthread.h>
#include <stdio.h>

#include "data.h"
#include "engine/comm.h"
#include "engine/engine.h"
#include "engine/role.h"
#include "expect.h"
#include "forge_watch.h"

enum { N_TOKENS = 21, MOST_RANKS = 8 };

typedef struct job {
    assay_model *model;
    assay_path path;
    bool whole_experts;
    float *logits[MOST_RANKS]; /* [N_TOKENS, vocab] of each rank */
    watch seen[MOST_RANKS];
    int failing, differing; /* rank; -1: none */
    const assay_seams *seams;
} job;

static assay_status run_rank(void *user, assay_comm *comm)
{
    job *j = user;
    int rank = comm ? comm->rank : 0;
    int32_t ids[N_TOKENS], positions[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) {
        ids[i] = (11 + 97 * i) % 1000 + (rank == j->differing && i == 5);
        positions[i] = i;
    }
    if (rank == j->failing)
        return assay_fail(ASSAY_IO, "the disk is full");
    assay_engine *engine;
    assay_engine_options options = assay_engine_options_default();
    options.path = j->path;
    options.whole_experts = j->whole_experts;
    options.comm = comm;
    options.n_threads = 1;
    options.seams = j->seams;
    options.tap = watch_tap;
    options.tap_user = &j->seen[rank];
    ASSAY_TRY(assay_engine_new(&engine, j->model, &options));
    int vocab = assay_model_hparams(j->model)->n_vocab;
    j->logits[rank] = calloc(N_TOKENS, (size_t)vocab * sizeof(float));
    assay_batch prefill = {N_TOKENS - 1, ids, positions, NULL};
    assay_batch decode = {1, ids + N_TOKENS - 1, positions + N_TOKENS - 1, NULL};
    assay_status s = assay_engine_forward(engine, &prefill, j->logits[rank]);
    if (s == ASSAY_OK)
        s = assay_engine_forward(engine, &decode, j->logits[rank] + (N_TOKENS - 1) * vocab);
    if (s == ASSAY_OK && assay_engine_n_buffer_faults(engine))
        s = assay_fail(ASSAY_BAD_SHAPE, "%s", assay_engine_buffer_fault_at(engine, 0)->text);
    assay_engine_free(engine);
    return s;
}

static void clear(job *j)
{
    for (int r = 0; r < MOST_RANKS; r++) {
        free(j->logits[r]);
        watch_clear(&j->seen[r]);
    }
}

static job *new_job(assay_model *model)
{
    job *j = calloc(1, sizeof *j);
    j->model = model;
    j->failing = j->differing = -1;
    return j;
}

static double logits_error(const job *a, const float *b)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < N_TOKENS * (int64_t)assay_model_hparams(a->model)->n_vocab; i++) {
        difference += (a->logits[0][i] - b[i]) * (double)(a->logits[0][i] - b[i]);
        size += a->logits[0][i] * (double)a->logits[0][i];
    }
    return sqrt(difference / size);
}

/* Sums of the partial values of all ranks at a point, against the whole of one rank. */
static void expect_parts_add_up(const job *one, const job *many, int n_ranks, assay_point point,
                                int layer)
{
    const watched *whole = watch_find(&one->seen[0], 0, point, layer);
    double sum[20 * 256];
    int n_seen = 0;
    if (!whole)
        return;
    ck_assert_int_le(whole->n, 20 * 256);
    memset(sum, 0, sizeof sum);
    for (int r = 0; r < n_ranks; r++)
        for (int i = 0; i < many->seen[r].n; i++) {
            const watched *at = &many->seen[r].all[i];
            if (at->point != point || at->layer != layer || at->step != 0 || !at->partial)
                continue;
            ck_assert_int_eq(at->n, whole->n);
            for (int64_t k = 0; k < at->n; k++)
                sum[k] += at->values[k];
            n_seen++;
        }
    ck_assert_int_eq(n_seen, n_ranks);
    ck_assert(watch_error(sum, whole->values, whole->n) <= 1e-5);
}

static void compare_ranks(assay_model *model, assay_path path, int n_ranks, bool whole_experts)
{
    job *one = new_job(model), *many = new_job(model);
    one->path = many->path = path;
    many->whole_experts = whole_experts;
    EXPECT_OK(run_rank(one, NULL));
    EXPECT_OK(assay_ranks_run(n_ranks, run_rank, many));
    for (int r = 0; r < n_ranks; r++) {
        double error = logits_error(one, many->logits[r]);
        ck_assert_msg(error <= 1e-5, "%d ranks, rank %d: logits differ by %.3g", n_ranks, r, error);
        ck_assert_mem_eq(many->logits[0], many->logits[r],
                         N_TOKENS * (size_t)assay_model_hparams(model)->n_vocab * sizeof(float));
    }
    static const assay_point reduced[] = {ASSAY_POINT_PROJ, ASSAY_POINT_FFN_OUT,
                                          ASSAY_POINT_MOE_OUT, ASSAY_POINT_SHARED,
                                          ASSAY_POINT_MOE_ROUTED};
    for (int layer = 0; layer < assay_model_hparams(model)->n_layer; layer++)
        for (size_t i = 0; i < sizeof reduced / sizeof *reduced; i++)
            expect_parts_add_up(one, many, n_ranks, reduced[i], layer);
    clear(one);
    clear(many);
    free(one);
    free(many);
}

static void compare_model(const char *file, const char *name)
{
    assay_model *model;
    if (!file)
        return; /* the larger data set is not here */
    (void)name;
    EXPECT_OK(assay_model_open(&model, file, NULL));
    const assay_hparams *hp = assay_model_hparams(model);
    for (int n = 2; n <= MOST_RANKS && hp->n_head % n == 0; n *= 2)
        for (int path = 0; path < (hp->is_mla ? 2 : 1); path++) {
            compare_ranks(model, (assay_path)path, n, false);
            if (hp->n_expert && hp->n_expert % n == 0)
                compare_ranks(model, (assay_path)path, n, true);
        }
    assay_model_close(model);
}

START_TEST(ranks_give_the_logits_of_one_on_the_shipped_model)
{
    compare_model(data_shipped("glm5-tiny-Q4_K_M.gguf"), "shipped");
}
END_TEST

START_TEST(ranks_give_the_logits_of_one_on_deepseek_and_llama)
{
    static const char *const names[] = {"models/dsv3-tiny-bf16.gguf",
                                        "models/dsv2lite-tiny-bf16.gguf",
                                        "models/llama-tiny-bf16.gguf"};
    for (int i = 0; i < 3; i++)
        compare_model(data_large(names[i]), names[i]);
}
END_TEST

START_TEST(ranks_refuse_a_split_that_does_not_divide)
{
    job *j = new_job(NULL);
    EXPECT_OK(assay_model_open(&j->model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    EXPECT_FAILS(ASSAY_BAD_SHAPE, assay_ranks_run(3, run_rank, j));
    EXPECT_SAYS("8 heads do not divide over 3 ranks");
    assay_model_close(j->model);
    clear(j);
    free(j);
}
END_TEST

START_TEST(ranks_end_together_when_one_fails)
{
    job *j = new_job(NULL);
    EXPECT_OK(assay_model_open(&j->model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    j->failing = 2;
    EXPECT_FAILS(ASSAY_IO, assay_ranks_run(4, run_rank, j));
    EXPECT_SAYS("rank 2: the disk is full");
    assay_model_close(j->model);
    clear(j);
    free(j);
}
END_TEST

START_TEST(ranks_end_when_they_do_not_have_the_same_prompt)
{
    job *j = new_job(NULL);
    EXPECT_OK(assay_model_open(&j->model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    j->differing = 1;
    EXPECT_FAILS(ASSAY_PEER, assay_ranks_run(2, run_rank, j));
    EXPECT_SAYS("ranks 0 and 1 do not agree about the rows of the step");
    assay_model_close(j->model);
    clear(j);
    free(j);
}
END_TEST

typedef struct bent_rank {
    assay_seam seam;
    int rank;
    double value;
    int n_ints, ints[2];
    assay_point home;
    bool whole_experts;
} bent_rank;

static const bent_rank bents[] = {
    {ASSAY_SEAM_RANK_SLICE, 1, 0, 1, {ASSAY_ROLE_ATTN_Q_B}, ASSAY_POINT_Q, false},
    {ASSAY_SEAM_RANK_SLICE, -1, 0, 1, {ASSAY_ROLE_ATTN_OUTPUT}, ASSAY_POINT_PROJ, false},
    {ASSAY_SEAM_RANK_SLICE_SHIFT, 0, 8, 1, {ASSAY_ROLE_GATE_SHEXP}, ASSAY_POINT_SHARED_GATE, false},
    {ASSAY_SEAM_RANK_SLICE_SHORT, 1, 8, 1, {ASSAY_ROLE_UP_SHEXP}, ASSAY_POINT_SHARED_UP, false},
    {ASSAY_SEAM_RANK_SLICE_SHORT, 1, 8, 1, {ASSAY_ROLE_DOWN_SHEXP}, ASSAY_POINT_SHARED, false},
    {ASSAY_SEAM_RANK_EXPERT_OFFSET, 1, 4, 0, {0}, ASSAY_POINT_MOE_EXPERT_GATE, true},
    {ASSAY_SEAM_REDUCE_TIMES, -1, 0, 1, {ASSAY_POINT_PROJ}, ASSAY_POINT_PROJ, false},
    {ASSAY_SEAM_REDUCE_TIMES, -1, 2, 1, {ASSAY_POINT_MOE_OUT}, ASSAY_POINT_MOE_OUT, false},
    {ASSAY_SEAM_REDUCE_LATE, 1, 1, 2, {ASSAY_POINT_PROJ, 4}, ASSAY_POINT_PROJ, false},
};

/* First point, over all ranks, that differs from the healthy run of as many ranks. */
static const watched *first_difference(const job *a, const job *b, int n_ranks)
{
    for (int i = 0; i < a->seen[0].n; i++)
        for (int r = 0; r < n_ranks; r++) {
            const watched *x = &a->seen[r].all[i], *y = &b->seen[r].all[i];
            if (memcmp(x->values, y->values, (size_t)x->n * sizeof *x->values))
                return y;
        }
    return NULL;
}

START_TEST(ranks_differ_first_where_a_seam_bends_one)
{
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    for (size_t i = 0; i < sizeof bents / sizeof *bents; i++) {
        const bent_rank *b = &bents[i];
        job *healthy = new_job(model), *bent = new_job(model);
        assay_seam_setting setting = {b->seam, 1, -1, b->rank, -1, -1, b->value, b->n_ints, {0}};
        memcpy(setting.ints, b->ints, sizeof b->ints);
        assay_seams seams = {&setting, 1};
        healthy->whole_experts = bent->whole_experts = b->whole_experts;
        bent->seams = &seams;
        EXPECT_OK(assay_ranks_run(2, run_rank, healthy));
        EXPECT_OK(assay_ranks_run(2, run_rank, bent));
        const watched *at = first_difference(healthy, bent, 2);
        char found[ASSAY_POINT_NAME_BYTES] = "nothing";
        if (at)
            assay_point_format(found, at->point, at->layer);
        ck_assert_msg(at && at->point == b->home && at->layer == 1, "seam %s: first differs at %s",
                      assay_seam_name(b->seam), found);
        clear(healthy);
        clear(bent);
        free(healthy);
        free(bent);
    }
    assay_model_close(model);
}
END_TEST

static assay_status run_without_logits(void *user, assay_comm *comm)
{
    assay_engine_options options = assay_engine_options_default();
    int32_t ids[2] = {5, 6}, positions[2] = {0, 1};
    assay_engine *engine;
    float *logits = calloc(2, (size_t)assay_model_hparams(user)->n_vocab * sizeof *logits);
    options.comm = comm;
    assay_status s = assay_engine_new(&engine, user, &options);
    if (s == ASSAY_OK) {
        s = assay_engine_forward(engine, &(assay_batch){2, ids, positions, NULL},
                                 comm->rank == 0 ? logits : NULL);
        assay_engine_free(engine);
    }
    free(logits);
    return s;
}

START_TEST(ranks_end_when_only_one_of_them_makes_logits)
{
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    EXPECT_FAILS(ASSAY_PEER, assay_ranks_run(2, run_without_logits, model));
    EXPECT_SAYS("whether it makes logits");
    assay_model_close(model);
}
END_TEST

EXPECT_MAIN("comm", ranks_give_the_logits_of_one_on_the_shipped_model,
            ranks_give_the_logits_of_one_on_deepseek_and_llama,
            ranks_refuse_a_split_that_does_not_divide, ranks_end_together_when_one_fails,
            ranks_end_when_they_do_not_have_the_same_prompt,
            ranks_end_when_only_one_of_them_makes_logits, ranks_differ_first_where_a_seam_bends_one)
