/*
 * Replay has the bits of the eager step, with recorders at every point and without; planted faults
 * of graphs and streams change what they should change. Recorders on the device give the host's
 * numbers.
 */
#include "data.h"
#include "expect_gpu.h"
#include "probes/recorder_device.h"

#define N_PROMPT 12
#define N_STEPS 6
#define N_SEQUENCES 3
#define MODEL "glm5-tiny-Q4_K_M.gguf"

typedef struct setting {
    bool use_graph, moves;
    const assay_seams *seams;
    assay_recorder_device *recorder;
    assay_tap_fn *tap;
    void *tap_user;
    assay_path path;
    int n_steps; /* of decoding; 0: N_STEPS, -1: none */
} setting;

static void forward(assay_engine *engine, const int32_t *positions, const int32_t *sequences, int n,
                    int n_vocab, float *logits)
{
    int32_t tokens[64];
    for (int i = 0; i < n; i++)
        tokens[i] = (positions[i] * 7919 + sequences[i] * 104729 + 11) % n_vocab;
    assay_batch batch = {n, tokens, positions, sequences};
    EXPECT_OK(assay_engine_forward(engine, &batch, logits));
}

/* Three requests of unequal lengths, then decode steps of all three; logits of every decode row. */
static float *run(assay_model *model, const setting *s)
{
    assay_engine *engine;
    assay_engine_options o = assay_engine_options_default();
    int n_vocab = assay_model_hparams(model)->n_vocab;
    float *logits = calloc((size_t)N_STEPS * N_SEQUENCES * (size_t)n_vocab, sizeof *logits);
    int32_t positions[64], sequences[64], lengths[N_SEQUENCES];
    o.backend = ASSAY_BACKEND_CUDA;
    o.path = s->path;
    o.max_positions = 64;
    o.max_sequences = N_SEQUENCES;
    o.use_graph = s->use_graph;
    o.seams = s->seams;
    o.tap = s->tap;
    o.tap_user = s->tap_user;
    o.device_tap = s->recorder ? assay_recorder_device_tap : NULL;
    o.device_tap_user = s->recorder;
    EXPECT_OK(assay_engine_new(&engine, model, &o));
    for (int q = 0; q < N_SEQUENCES; q++) {
        lengths[q] = N_PROMPT - 3 * q;
        for (int i = 0; i < lengths[q]; i++) {
            positions[i] = i;
            sequences[i] = q;
        }
        forward(engine, positions, sequences, lengths[q], n_vocab, NULL);
    }
    for (int i = 0; i < N_STEPS && s->n_steps >= 0; i++) {
        for (int q = 0; q < N_SEQUENCES; q++) {
            positions[q] = lengths[q]++;
            sequences[q] = q;
        }
        if (s->moves && i == N_STEPS - 2)
            EXPECT_OK(assay_device_move_cache(engine));
        forward(engine, positions, sequences, N_SEQUENCES, n_vocab,
                logits + (size_t)i * N_SEQUENCES * (size_t)n_vocab);
    }
    assay_device_counts counts;
    EXPECT_OK(assay_device_counts_of(&counts, engine));
    if (s->use_graph && s->n_steps >= 0)
        ck_assert_int_ge(counts.n_replays, N_STEPS - 2);
    assay_engine_free(engine);
    return logits;
}

static bool same(assay_model *model, const float *a, const float *b)
{
    return !memcmp(a, b,
                   (size_t)N_STEPS * N_SEQUENCES * (size_t)assay_model_hparams(model)->n_vocab *
                       sizeof *a);
}

START_TEST(gpu_replay_equals_eager_bit_for_bit_with_probes_on_and_off)
{
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, data_shipped(MODEL), NULL));
    for (int path = 0; path < 2; path++) {
        setting s = {.path = (assay_path)path};
        float *eager = run(model, &s);
        for (int probes = 0; probes < 5; probes++) {
            assay_recorder_device *recorder = NULL;
            setting g = {.path = (assay_path)path, .use_graph = true, .moves = true};
            if (probes)
                EXPECT_OK(assay_recorder_device_new(&recorder, (assay_device_tier)(probes - 1), 4));
            g.recorder = recorder;
            float *replay = run(model, &g);
            ck_assert_msg(same(model, eager, replay), "path %d, probes %d: bits differ", path,
                          probes);
            free(replay);
            assay_recorder_device_free(recorder);
        }
        free(eager);
    }
    assay_model_close(model);
}
END_TEST

static void expect_planted(assay_model *model, assay_seam seam, double value, bool use_graph,
                           const char *what)
{
    assay_seam_setting bent = {seam, -1, -1, -1, -1, -1, value, 0, {0}};
    assay_seams seams = {&bent, 1};
    setting healthy = {0}, planted = {.use_graph = use_graph, .seams = &seams};
    float *right = run(model, &healthy), *wrong = run(model, &planted);
    ck_assert_msg(!same(model, right, wrong), "%s changes nothing", what);
    free(right);
    free(wrong);
}

START_TEST(gpu_planted_faults_of_graphs_and_streams_change_the_run)
{
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, data_shipped(MODEL), NULL));
    expect_planted(model, ASSAY_SEAM_GRAPH_METADATA, 1, true, "a stale graph");
    expect_planted(model, ASSAY_SEAM_PAD_ROWS, 1, true, "padding in a live request");
    expect_planted(model, ASSAY_SEAM_STREAM_WAIT, 0, true, "a missing wait, replayed");
    expect_planted(model, ASSAY_SEAM_STREAM_WAIT, 0, false, "a missing wait");
    assay_model_close(model);
}
END_TEST

/* Host statistics of the values that the tap shows, to compare with the device's. */
typedef struct host_stats {
    int n;
    assay_stats stats[1024];
    assay_point points[1024];
    int layers[1024];
    float sketch[1024][ASSAY_SKETCH_N];
    int64_t step;
} host_stats;

static assay_status keep(void *user, const assay_tap_event *event)
{
    host_stats *h = user;
    if (event->step != h->step)
        h->n = 0;
    h->step = event->step;
    if (assay_point_at(event->point)->axes[0] != 'T')
        return ASSAY_OK;
    ck_assert_int_lt(h->n, 1024);
    assay_stats_of(&h->stats[h->n], event->buffer);
    ck_assert_int_le(event->buffer->dims[0], ASSAY_SKETCH_ROWS);
    assay_sketch_of(h->sketch[h->n], event->buffer);
    h->points[h->n] = event->point;
    h->layers[h->n++] = event->layer;
    return ASSAY_OK;
}

static void expect_same_stats(const assay_device_recorded *got, const assay_stats *want,
                              const float *sketch)
{
    char name[ASSAY_POINT_NAME_BYTES];
    assay_point_format(name, got->point, got->layer);
    const assay_stats *g = &got->stats;
    ck_assert_msg(g->n == want->n && g->n_nan == want->n_nan && g->n_pos_inf == want->n_pos_inf &&
                      g->n_neg_inf == want->n_neg_inf && g->n_zero == want->n_zero &&
                      g->n_poison == want->n_poison,
                  "%s: counts differ (%lld elements, expected %lld)", name, (long long)g->n,
                  (long long)want->n);
    ck_assert_msg(g->checksum == want->checksum, "%s: checksums differ", name);
    ck_assert_msg(g->min == want->min && g->max == want->max, "%s: extremes differ", name);
    ck_assert_msg(fabs(g->l2 - want->l2) <= 1e-12 * want->l2, "%s: l2 %.17g, expected %.17g", name,
                  g->l2, want->l2);
    ck_assert_msg(fabs(g->mean - want->mean) <= 1e-12 * (fabs(want->mean) + want->l2),
                  "%s: mean %.17g, expected %.17g", name, g->mean, want->mean);
    for (int i = 0; i < ASSAY_SKETCH_N; i++)
        ck_assert_msg(fabsf(got->sketch[i] - sketch[i]) <= 1e-6f * (float)(want->l2 + 1e-30),
                      "%s: number %d of the sketch is %.9g, expected %.9g", name, i, got->sketch[i],
                      sketch[i]);
}

START_TEST(gpu_recorders_give_the_host_s_numbers_eager_and_replayed)
{
    assay_model *model;
    host_stats *host = calloc(1, sizeof *host);
    EXPECT_OK(assay_model_open(&model, data_shipped(MODEL), NULL));
    for (int use_graph = 0; use_graph < 2; use_graph++) {
        const assay_device_recorded *got;
        int n;
        assay_recorder_device *recorder;
        EXPECT_OK(assay_recorder_device_new(&recorder, ASSAY_DEVICE_SKETCH, 4));
        setting s = {.use_graph = use_graph, .recorder = recorder, .tap = keep, .tap_user = host};
        free(run(model, &s));
        EXPECT_OK(assay_recorder_device_read(&got, &n, recorder, 0));
        ck_assert_int_eq(n, host->n);
        ck_assert_int_gt(n, 100);
        for (int i = 0; i < n; i++) {
            ck_assert_int_eq(got[i].point, host->points[i]);
            ck_assert_int_eq(got[i].layer, host->layers[i]);
            expect_same_stats(&got[i], &host->stats[i], host->sketch[i]);
        }
        assay_recorder_device_free(recorder);
    }
    free(host);
    assay_model_close(model);
}
END_TEST

/* Values that the tap shows in the last step. */
typedef struct host_values {
    int n;
    uint32_t *values[1024];
    int64_t rows[1024], widths[1024], step;
} host_values;

static assay_status keep_values(void *user, const assay_tap_event *event)
{
    host_values *h = user;
    const assay_buffer *b = event->buffer;
    for (int i = 0; event->step != h->step && i < h->n; i++)
        free(h->values[i]);
    if (event->step != h->step)
        h->n = 0;
    h->step = event->step;
    if (assay_point_at(event->point)->axes[0] != 'T')
        return ASSAY_OK;
    ck_assert_int_lt(h->n, 1024);
    size_t bytes = (size_t)assay_buffer_count(b) * sizeof(uint32_t);
    h->rows[h->n] = b->dims[0];
    h->widths[h->n] = assay_buffer_count(b) / b->dims[0];
    h->values[h->n] = malloc(bytes);
    memcpy(h->values[h->n++], b->data, bytes);
    return ASSAY_OK;
}

/* What is kept of one value: all rows, or two at either end. */
static void expect_kept(const assay_device_recorded *got, const uint32_t *want, int64_t rows,
                        int64_t width, bool all)
{
    char name[ASSAY_POINT_NAME_BYTES];
    int64_t kept = all || rows < 4 ? rows : 4;
    assay_point_format(name, got->point, got->layer);
    ck_assert_msg(got->n_rows == rows && got->width == width && got->n_kept == kept,
                  "%s: %lld of %lld rows of %lld", name, (long long)got->n_kept,
                  (long long)got->n_rows, (long long)got->width);
    for (int64_t i = 0; i < kept; i++) {
        int64_t r = kept < rows && i >= 2 ? rows - 4 + i : i;
        ck_assert_msg(!memcmp((const uint32_t *)got->values + i * width, want + r * width,
                              (size_t)width * sizeof *want),
                      "%s: row %lld", name, (long long)r);
    }
}

/* Of the last decode step, 3 rows; or of the last prompt, 6 rows, which is no graph. */
static void expect_rows(assay_model *model, bool use_graph, bool all, bool of_prompt)
{
    const assay_device_recorded *got;
    int n;
    host_values *host = calloc(1, sizeof *host);
    assay_recorder_device *recorder;
    EXPECT_OK(assay_recorder_device_new(&recorder, all ? ASSAY_DEVICE_FULL : ASSAY_DEVICE_ROWS, 4));
    setting s = {.use_graph = use_graph,
                 .recorder = recorder,
                 .tap = keep_values,
                 .tap_user = host,
                 .n_steps = of_prompt ? -1 : 0};
    free(run(model, &s));
    EXPECT_OK(assay_recorder_device_read(&got, &n, recorder, 0));
    ck_assert_int_eq(n, host->n);
    ck_assert_int_gt(n, 100);
    for (int i = 0; i < n; i++)
        expect_kept(&got[i], host->values[i], host->rows[i], host->widths[i], all);
    for (int i = 0; i < host->n; i++)
        free(host->values[i]);
    free(host);
    assay_recorder_device_free(recorder);
}

START_TEST(gpu_recorders_keep_rows_and_all_values_eager_and_replayed)
{
    assay_model *model;
    EXPECT_OK(assay_model_open(&model, data_shipped(MODEL), NULL));
    for (int i = 0; i < 8; i++)
        expect_rows(model, i % 2, i / 2 % 2, i / 4);
    assay_model_close(model);
}
END_TEST

EXPECT_GPU_MAIN("gpu_graph", gpu_replay_equals_eager_bit_for_bit_with_probes_on_and_off,
                gpu_planted_faults_of_graphs_and_streams_change_the_run,
                gpu_recorders_give_the_host_s_numbers_eager_and_replayed,
                gpu_recorders_keep_rows_and_all_values_eager_and_replayed)
