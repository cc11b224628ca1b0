/*
 * Seams on the device: every setting that a device takes changes the run first at the op that
 * consults it, and makes there what it makes on the host.
 */
#include "data.h"
#include "engine/comm.h"
#include "expect_gpu.h"
#include "forge_watch.h"
#include "seam_cases.h"

#define N_TOKENS 12
#define BOUND                                                                                      \
    5e-5 /* of a value, relative: two ways of rounding, from inputs that differ by as much */

static void run(watch *seen, assay_model *model, assay_backend backend, const assay_seams *seams,
                assay_path path)
{
    assay_engine *engine;
    assay_engine_options options = assay_engine_options_default();
    int32_t ids[N_TOKENS], positions[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) {
        ids[i] = 17 + 37 * i;
        positions[i] = i;
    }
    options.backend = backend;
    options.path = path;
    options.seams = seams;
    options.max_positions = 32;
    options.tap = watch_tap;
    options.tap_user = seen;
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    EXPECT_OK(assay_engine_forward(engine, &(assay_batch){N_TOKENS, ids, positions, NULL}, NULL));
    assay_engine_free(engine);
}

/* What a device shows is in the order of its own streams: the home must differ, and none of the
 * values that come before it in any order, those of the layers in front. */
static const watched *first_difference(const watch *a, const watch *b)
{
    ck_assert_int_eq(a->n, b->n);
    for (int i = 0; i < a->n; i++)
        if (memcmp(a->all[i].values, b->all[i].values, (size_t)a->all[i].n * sizeof(double)))
            return &b->all[i];
    return NULL;
}

static bool is_on_device(const seam_case *c)
{
    return assay_seam_is_on(c->seam, true) &&
           !(c->seam == ASSAY_SEAM_ATTN_OUT_BUFFER && c->value > 2);
}

static void expect_as_on_the_host(assay_model *model, const watch *healthy, const seam_case *c)
{
    char found[ASSAY_POINT_NAME_BYTES] = "nothing", want[ASSAY_POINT_NAME_BYTES];
    watch device = {0}, host = {0};
    assay_seam_setting setting = {c->seam, c->layer, -1, -1, -1, -1, c->value, c->n_ints, {0}};
    memcpy(setting.ints, c->ints, sizeof c->ints);
    assay_seams seams = {&setting, 1};
    run(&device, model, ASSAY_BACKEND_CUDA, &seams, c->path);
    run(&host, model, ASSAY_BACKEND_CPU, &seams, c->path);
    const watched *at = first_difference(healthy, &device);
    assay_point_format(want, c->home, c->layer);
    if (at)
        assay_point_format(found, at->point, at->layer);
    ck_assert_msg(at && at->point == c->home && at->layer == c->layer,
                  "seam %s, value %g: first differs at %s, expected %s", assay_seam_name(c->seam),
                  c->value, found, want);
    const watched *on_host = watch_find(&host, 0, c->home, c->layer);
    ck_assert(on_host && on_host->n == at->n);
    bool poisoned = c->seam == ASSAY_SEAM_ATTN_OUT_BUFFER && c->value == 2;
    double error = poisoned ? 0 : watch_error(at->values, on_host->values, at->n);
    ck_assert_msg(error <= BOUND, "seam %s, value %g: %s differs from the host's by %.3g",
                  assay_seam_name(c->seam), c->value, want, error);
    watch_clear(&device);
    watch_clear(&host);
}

static int run_cases(const char *model_name, assay_path path)
{
    assay_model *model;
    watch healthy = {0};
    const char *file = model_name ? data_large(model_name) : data_shipped("glm5-tiny-Q4_K_M.gguf");
    int n = 0;
    if (!file)
        return 0; /* the larger data set is not here */
    EXPECT_OK(assay_model_open(&model, file, NULL));
    run(&healthy, model, ASSAY_BACKEND_CUDA, NULL, path);
    for (int i = 0; i < N_SEAM_CASES; i++)
        if (seam_cases[i].path == path && is_on_device(&seam_cases[i]) &&
            (!model_name ? !seam_cases[i].model
                         : seam_cases[i].model && !strcmp(seam_cases[i].model, model_name))) {
            expect_as_on_the_host(model, &healthy, &seam_cases[i]);
            n++;
        }
    watch_clear(&healthy);
    assay_model_close(model);
    return n;
}

START_TEST(gpu_seams_change_the_run_where_and_as_they_do_on_the_host)
{
    int n = run_cases(NULL, ASSAY_PATH_EXPANDED) + run_cases(NULL, ASSAY_PATH_LATENT);
    ck_assert_int_gt(n, 40);
    n += run_cases("models/llama-tiny-bf16.gguf", ASSAY_PATH_EXPANDED);
    n += run_cases("models/dsv3-tiny-bf16.gguf", ASSAY_PATH_EXPANDED);
    printf("# seams: %d settings act as on the host\n", n);
}
END_TEST

START_TEST(gpu_every_seam_of_devices_and_hosts_has_a_case)
{
    for (int seam = 0; seam < ASSAY_SEAM_COUNT; seam++) {
        bool there = !assay_seam_is_on((assay_seam)seam, true) ||
                     !assay_seam_is_on((assay_seam)seam, false); /* suite_gpu_graph.c */
        for (int i = 0; i < N_SEAM_CASES && !there; i++)
            there = (int)seam_cases[i].seam == seam && is_on_device(&seam_cases[i]);
        bool of_ranks = seam >= ASSAY_SEAM_RANK_SLICE && seam <= ASSAY_SEAM_RANK_BIAS;
        if (seam == ASSAY_SEAM_ROUTER_GROUP_MASK) /* shows only with scores below 0 */
            continue;
        ck_assert_msg(there || of_ranks, "seam %s has no case", assay_seam_name((assay_seam)seam));
    }
}
END_TEST

/* ---- ranks ---- */

typedef struct rank_job {
    assay_model *model;
    assay_backend backend;
    const assay_seams *seams;
    bool whole_experts;
    float *logits; /* of rank 0, last row */
} rank_job;

static assay_status run_rank(void *user, assay_comm *comm)
{
    rank_job *j = user;
    assay_engine *engine;
    assay_engine_options o = assay_engine_options_default();
    size_t vocab = (size_t)assay_model_hparams(j->model)->n_vocab;
    int32_t ids[N_TOKENS], positions[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) {
        ids[i] = 17 + 37 * i;
        positions[i] = i;
    }
    o.backend = j->backend;
    o.comm = comm;
    o.seams = j->seams;
    o.whole_experts = j->whole_experts;
    o.max_positions = 32;
    ASSAY_TRY(assay_engine_new(&engine, j->model, &o));
    float *logits = calloc(N_TOKENS * vocab, sizeof *logits);
    assay_status s =
        assay_engine_forward(engine, &(assay_batch){N_TOKENS, ids, positions, NULL}, logits);
    if (comm->rank == 0)
        memcpy(j->logits, logits + (N_TOKENS - 1) * vocab, vocab * sizeof *logits);
    free(logits);
    assay_engine_free(engine);
    return s;
}

static float *logits_of(assay_model *model, assay_backend backend, const assay_seams *seams)
{
    bool whole = seams && seams->settings[0].seam == ASSAY_SEAM_RANK_EXPERT_OFFSET;
    rank_job j = {model, backend, seams, whole, NULL};
    j.logits = calloc((size_t)assay_model_hparams(model)->n_vocab, sizeof *j.logits);
    EXPECT_OK(assay_ranks_run(2, run_rank, &j));
    return j.logits;
}

static double distance(const float *a, const float *b, int64_t n)
{
    double error = 0, square = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        square += (double)b[i] * b[i];
    }
    return sqrt(error / square);
}

#define R(id) ASSAY_ROLE_##id
#define P(id) ASSAY_POINT_##id

START_TEST(gpu_seams_of_ranks_change_the_run_as_they_do_on_the_host)
{
    static const assay_seam_setting settings[] = {
        {ASSAY_SEAM_RANK_SLICE, 1, -1, 1, -1, -1, 0, 1, {R(ATTN_Q_B)}},
        {ASSAY_SEAM_RANK_SLICE, 1, -1, 1, -1, -1, 0, 1, {R(ATTN_KV_B)}},
        {ASSAY_SEAM_RANK_SLICE, 1, -1, 1, -1, -1, 0, 1, {R(GATE_EXPS)}},
        {ASSAY_SEAM_RANK_SLICE_SHIFT, 1, -1, 0, -1, -1, 3, 1, {R(UP_SHEXP)}},
        {ASSAY_SEAM_RANK_VIEW, 1, -1, 1, -1, -1, 2, 1, {R(ATTN_NORM)}},
        {ASSAY_SEAM_RANK_EXPERT_OFFSET, 1, -1, 1, -1, -1, -1, 0, {0}},
        {ASSAY_SEAM_REDUCE_TIMES, 1, -1, -1, -1, -1, 0, 1, {P(MOE_OUT)}},
        {ASSAY_SEAM_REDUCE_TIMES, 1, -1, -1, -1, -1, 2, 1, {P(PROJ)}},
        {ASSAY_SEAM_REDUCE_LATE, 1, -1, -1, -1, -1, 1, 2, {P(PROJ), 3}},
        {ASSAY_SEAM_EPILOGUE, 1, -1, -1, -1, -1, 0.5, 2, {R(ATTN_OUTPUT), 1}},
    };
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, data_shipped("glm5-tiny-Q4_K_M.gguf"), NULL));
    int64_t vocab = assay_model_hparams(model)->n_vocab;
    float *healthy = logits_of(model, ASSAY_BACKEND_CUDA, NULL);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        assay_seams seams = {&settings[i], 1};
        float *device = logits_of(model, ASSAY_BACKEND_CUDA, &seams);
        float *host = logits_of(model, ASSAY_BACKEND_CPU, &seams);
        double to_host = distance(device, host, vocab), to_right = distance(device, healthy, vocab);
        ck_assert_msg(to_host <= BOUND && to_right > 10 * BOUND,
                      "seam %s, %d: from the host's %.3g, from the healthy run %.3g",
                      assay_seam_name(settings[i].seam), settings[i].ints[0], to_host, to_right);
        free(device);
        free(host);
    }
    free(healthy);
    assay_model_close(model);
}
END_TEST

EXPECT_GPU_MAIN("gpu_seam", gpu_seams_change_the_run_where_and_as_they_do_on_the_host,
                gpu_every_seam_of_devices_and_hosts_has_a_case,
                gpu_seams_of_ranks_change_the_run_as_they_do_on_the_host)
