/*
 * The engine on the golden mini model, both paths, both forms of the file.
 */
#include "data.h"
#include "engine/engine.h"
#include "expect.h"
#include "forge_mini.h"
#include "forge_watch.h"

#define BOUND 3e-6 /* float32 on numbers of size 1 to 4 */

static assay_status inject_input(void *user, const assay_tap_event *event)
{
    (void)user;
    if (event->point != ASSAY_POINT_EMBED)
        return ASSAY_OK;
    for (int64_t t = 0; t < event->rows.n; t++)
        for (int i = 0; i < 8; i++)
            ((float *)event->buffer->data)[t * 8 + i] = mini_input(event->rows.positions[t], i);
    return ASSAY_OK;
}

static void run_mini(watch *seen, mini_kind kind, int top_k, assay_path path, int64_t chunk)
{
    forge_plain m = {0};
    const char *file = data_scratch("mini.gguf");
    assay_model *model;
    assay_engine *engine;
    forge_mini(&m, kind, top_k);
    forge_plain_write(&m, file);
    EXPECT_OK(assay_model_open(&model, file, NULL));
    assay_engine_options options = assay_engine_options_default();
    options.path = path;
    options.tap = watch_tap;
    options.tap_user = seen;
    options.inject = inject_input;
    EXPECT_OK(assay_engine_new(&engine, model, &options));
    int32_t prompt[4] = {1, 2, 3, 4}, next;
    EXPECT_OK(assay_engine_generate(&next, engine, prompt, 4, 1, chunk, NULL, NULL));
    assay_engine_free(engine);
    assay_model_close(model);
}

static void expect_row(const watch *seen, assay_point point, int t, int first, int n,
                       const double *want)
{
    int64_t width;
    const double *row = watch_row(seen, &width, point, 0, 0, t);
    ck_assert_ptr_nonnull(row);
    ck_assert_int_le(first + n, width);
    for (int i = 0; i < n; i++)
        EXPECT_NEAR(row[first + i], want[i], BOUND);
}

static const double in_norm[] = {-1.188175561, -0.210406089, 0.891131670, -1.881277971,
                                 -0.742609725, 0.519826808,  1.906031628, -1.423335307};
static const double q_a_norm[] = {-0.276974202, 1.353014169, -0.625516102,
                                  0.457376091,  1.247826484, -0.339846384};
static const double latent[] = {-0.844270643, -1.727729553, -0.352752814,
                                1.335613263,  -2.062552713, -0.197401409};
static const double k_rope[] = {-1.752617472, 0.986662768, 0.756733410, 1.861495277};
static const double q_nope[] = {-0.723616141, -1.722919187, 0.368858150, 0.994356720};
static const double q_rope[] = {0.190756766, 0.231676177, 1.435701145, -0.340227147};
static const double absorbed[] = {0.781774130,  -1.017846915, 1.618849747,
                                  -1.220969501, -0.013660625, 1.052604245};
static const double dense[4][8] = {{0.449180570, -2.698565472, -0.308069615, 0.683989831,
                                    -2.463756212, -0.073260355, 2.335598761, -0.932378857},
                                   {0.285621726, -1.894120335, -0.382618143, 0.423891564,
                                    -1.755850498, -0.244348306, 1.712724914, -0.159396501},
                                   {0.747233351, 1.510183799, -1.134163057, 0.548749012,
                                    1.311699460, -1.332647397, -0.929428646, 2.691205817},
                                   {-0.769689845, 0.209884991, -0.336834548, -0.586699887,
                                    0.392874949, -0.153844589, -0.289817793, 2.052516904}};
static const double sparse[2][8] = {{0.119592477, 2.266751923, -1.078937220, -0.037160572,
                                     2.109998873, -1.235690270, -1.702157004, 3.711111946},
                                    {-0.594055549, 1.060480871, -0.420028063, -0.488390057,
                                     1.166146364, -0.314362571, -0.880341802, 2.392128336}};

static void expect_dense(const watch *seen, assay_path path)
{
    expect_row(seen, ASSAY_POINT_IN_NORM, 3, 0, 8, in_norm);
    expect_row(seen, ASSAY_POINT_Q_A_NORM, 3, 0, 6, q_a_norm);
    expect_row(seen, ASSAY_POINT_KV_LATENT, 3, 0, 6, latent);
    expect_row(seen, ASSAY_POINT_K_ROPE, 3, 0, 4, k_rope);
    expect_row(seen, ASSAY_POINT_Q, 3, 0, 4, q_nope);
    expect_row(seen, ASSAY_POINT_Q_ROPE, 3, 0, 4, q_rope);
    if (path == ASSAY_PATH_LATENT)
        expect_row(seen, ASSAY_POINT_Q_LATENT, 3, 0, 6, absorbed);
    for (int t = 0; t < 4; t++)
        expect_row(seen, ASSAY_POINT_PROJ, t, 0, 8, dense[t]);
}

START_TEST(engine_gives_the_golden_dense_attention)
{
    static const mini_kind kinds[] = {MINI_DEEPSEEK2, MINI_DEEPSEEK2_OLD, MINI_GLM_DSA};
    for (int kind = 0; kind < 3; kind++)
        for (int path = 0; path < 2; path++)
            for (int chunk = 0; chunk < 4; chunk++) {
                watch seen = {0};
                run_mini(&seen, kinds[kind], 4, (assay_path)path, chunk);
                expect_dense(&seen, (assay_path)path);
                watch_clear(&seen);
            }
}
END_TEST

START_TEST(engine_gives_the_golden_selection_and_sparse_attention)
{
    static const double index_k[] = {-0.540790830, 1.480257780, 0.007073011, 1.570943312,
                                     -1.307909103, 0.618050731, 2.135486906, -2.649195547};
    static const double index_weights[] = {-0.596408436, 0.945280296};
    static const double scores[] = {0.225008575, -0.383730983, 1.838186830, -0.892137851};
    static const double select[4][2] = {{0, -1}, {1, 0}, {1, 2}, {2, 0}};
    for (int path = 0; path < 2; path++) {
        watch seen = {0};
        run_mini(&seen, MINI_GLM_DSA, 2, (assay_path)path, 0);
        expect_row(&seen, ASSAY_POINT_INDEX_K, 3, 0, 8, index_k);
        expect_row(&seen, ASSAY_POINT_INDEX_WEIGHTS, 3, 0, 2, index_weights);
        expect_row(&seen, ASSAY_POINT_INDEX_SCORES, 3, 0, 4, scores);
        for (int t = 0; t < 4; t++)
            expect_row(&seen, ASSAY_POINT_INDEX_TOPK, t, 0, 2, select[t]);
        expect_row(&seen, ASSAY_POINT_PROJ, 0, 0, 8, dense[0]);
        expect_row(&seen, ASSAY_POINT_PROJ, 1, 0, 8, dense[1]);
        expect_row(&seen, ASSAY_POINT_PROJ, 2, 0, 8, sparse[0]);
        expect_row(&seen, ASSAY_POINT_PROJ, 3, 0, 8, sparse[1]);
        watch_clear(&seen);
    }
}
END_TEST

/* The same weights with the indexer's pairs half-split, as DeepSeek V3.2 has them. */
START_TEST(engine_rotates_half_split_in_the_indexer_of_deepseek32)
{
    static const double scores[] = {-0.291197891, 0.270534621, 0.950470946, -0.892137851};
    static const double select[] = {2, 1};
    watch seen = {0};
    run_mini(&seen, MINI_DEEPSEEK32, 2, ASSAY_PATH_EXPANDED, 0);
    expect_row(&seen, ASSAY_POINT_INDEX_SCORES, 3, 0, 4, scores);
    expect_row(&seen, ASSAY_POINT_INDEX_TOPK, 3, 0, 2, select);
    watch_clear(&seen);
}
END_TEST

START_TEST(engine_with_enough_keys_selected_has_the_bits_of_dense_attention)
{
    watch with = {0}, without = {0};
    run_mini(&with, MINI_GLM_DSA, 4, ASSAY_PATH_EXPANDED, 0);
    run_mini(&without, MINI_DEEPSEEK2, 4, ASSAY_PATH_EXPANDED, 0);
    const watched *a = watch_find(&with, 0, ASSAY_POINT_LOGITS, -1);
    const watched *b = watch_find(&without, 0, ASSAY_POINT_LOGITS, -1);
    ck_assert_mem_eq(a->values, b->values, (size_t)a->n * sizeof *a->values);
    watch_clear(&with);
    watch_clear(&without);
}
END_TEST

EXPECT_MAIN("engine", engine_gives_the_golden_dense_attention,
            engine_gives_the_golden_selection_and_sparse_attention,
            engine_rotates_half_split_in_the_indexer_of_deepseek32,
            engine_with_enough_keys_selected_has_the_bits_of_dense_attention)
