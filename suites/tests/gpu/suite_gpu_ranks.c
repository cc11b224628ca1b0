/*
 * Ranks on devices against one rank: logits of a prefill and of decode steps, both paths. Where
 * there are fewer devices than ranks they share one, and sums go over the host.
 */
#include "data.h"
#include "engine/comm.h"
#include "expect_gpu.h"

#define BOUND 2e-5
#define N_PROMPT 24 /* more rows than decode: the other way through experts */
#define N_DECODE 4
#define MODEL "glm5-tiny-Q4_K_M.gguf"

static const int32_t prompt[N_PROMPT] = {3,   17, 5,   250, 33, 8,   91, 64, 120, 7,   300, 12,
                                         500, 41, 611, 77,  2,  190, 18, 66, 402, 801, 9,   54};

typedef struct job {
    assay_model *model;
    assay_path path;
    bool use_graph, whole_experts;
    float *logits[8]; /* of each rank: [1 + N_DECODE, vocabulary], the last row of each step */
    int64_t n_captures;
} job;

static assay_status step(float *last, assay_engine *engine, const int32_t *tokens, int32_t first,
                         int n, int n_vocab)
{
    int32_t positions[N_PROMPT];
    float *logits = calloc((size_t)n * (size_t)n_vocab, sizeof *logits);
    for (int i = 0; i < n; i++)
        positions[i] = first + i;
    assay_batch batch = {n, tokens, positions, NULL};
    assay_status s = assay_engine_forward(engine, &batch, logits);
    memcpy(last, logits + (size_t)(n - 1) * (size_t)n_vocab, (size_t)n_vocab * sizeof *last);
    free(logits);
    return s;
}

static assay_status run_rank(void *user, assay_comm *comm)
{
    job *j = user;
    int n_vocab = assay_model_hparams(j->model)->n_vocab;
    assay_engine *engine;
    assay_engine_options o = assay_engine_options_default();
    assay_device_counts counts;
    float *out = j->logits[comm ? comm->rank : 0];
    o.backend = ASSAY_BACKEND_CUDA;
    o.path = j->path;
    o.comm = comm;
    o.use_graph = j->use_graph;
    o.whole_experts = j->whole_experts;
    o.max_positions = N_PROMPT + N_DECODE;
    ASSAY_TRY(assay_engine_new(&engine, j->model, &o));
    assay_status s = step(out, engine, prompt, 0, N_PROMPT, n_vocab);
    for (int i = 0; i < N_DECODE && s == ASSAY_OK; i++)
        s = step(out + (size_t)(i + 1) * (size_t)n_vocab, engine, &prompt[i], N_PROMPT + i, 1,
                 n_vocab);
    if (s == ASSAY_OK)
        s = assay_device_counts_of(&counts, engine);
    if (s == ASSAY_OK && (!comm || comm->rank == 0))
        j->n_captures = counts.n_captures;
    assay_engine_free(engine);
    return s;
}

static void make(job *j, int n)
{
    size_t room = (size_t)(1 + N_DECODE) * (size_t)assay_model_hparams(j->model)->n_vocab;
    for (int r = 0; r < n; r++)
        j->logits[r] = calloc(room, sizeof **j->logits);
    if (n > 1)
        EXPECT_OK(assay_ranks_run(n, run_rank, j));
    else
        EXPECT_OK(run_rank(j, NULL));
}

static void unmake(job *j, int n)
{
    for (int r = 0; r < n; r++)
        free(j->logits[r]);
}

static double distance(const float *got, const float *want, int64_t n)
{
    double square = 0, error = 0;
    for (int64_t i = 0; i < n; i++) {
        square += (double)want[i] * want[i];
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
    }
    return sqrt(error / square);
}

static void expect_equal(assay_model *model, assay_path path, int n_ranks, bool use_graph,
                         bool whole_experts)
{
    int64_t n_vocab = assay_model_hparams(model)->n_vocab;
    job one = {.model = model, .path = path},
        many = {model, path, use_graph, whole_experts, {0}, 0};
    double worst = 0;
    make(&one, 1);
    make(&many, n_ranks);
    for (int r = 0; r < n_ranks; r++)
        for (int i = 0; i <= N_DECODE; i++) {
            double d = distance(many.logits[r] + i * n_vocab, one.logits[0] + i * n_vocab, n_vocab);
            ck_assert_msg(d <= BOUND, "%d ranks, rank %d, step %d: %.3g", n_ranks, r, i, d);
            worst = d > worst ? d : worst;
        }
    for (int r = 1; r < n_ranks; r++)
        ck_assert_msg(!memcmp(many.logits[r], many.logits[0],
                              (size_t)((1 + N_DECODE) * n_vocab) * sizeof(float)),
                      "ranks 0 and %d have other bits", r);
    printf("# %d ranks on %d devices, %s path%s%s: worst %.2e, %lld graphs\n", n_ranks,
           assay_device_count(NULL), path == ASSAY_PATH_LATENT ? "latent" : "expanded",
           whole_experts ? ", whole experts" : "", use_graph ? ", graphs" : "", worst,
           (long long)many.n_captures);
    if (use_graph && assay_device_count(NULL) >= n_ranks)
        ck_assert_int_gt(many.n_captures, 0);
    unmake(&one, 1);
    unmake(&many, n_ranks);
}

START_TEST(gpu_ranks_give_what_one_rank_gives)
{
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, data_shipped(MODEL), NULL));
    for (int n = 2; n <= 4; n *= 2)
        for (int path = 0; path < 2; path++)
            for (int how = 0; how < 4; how++)
                expect_equal(model, (assay_path)path, n, how % 2, how / 2);
    assay_model_close(model);
}
END_TEST

EXPECT_GPU_MAIN("gpu_ranks", gpu_ranks_give_what_one_rank_gives)
