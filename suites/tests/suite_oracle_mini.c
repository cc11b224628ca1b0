/*
 * The mini model's golden numbers, on both paths and in both forms of the file, and what wrong
 * variants of the rotation and of the indexer give.
 */
#include "references/oracle/oracle.h"

#include "data.h"
#include "expect.h"
#include "forge_mini.h"

typedef struct mini {
    assay_gguf *file;
    assay_oracle *oracle;
    assay_pass *pass;
} mini;

/* The layer's input is put in place of the embedding. */
static void put_inputs(mini *m, int step, int first, int n)
{
    double x[4 * 8];
    for (int i = 0; i < n * 8; i++)
        x[i] = mini_input(first + i / 8, i % 8);
    EXPECT_OK(assay_pass_put(m->pass, step, ASSAY_POINT_EMBED, -1, x, n * 8));
}

static mini mini_open(bool old_form, bool latent, const assay_knobs *knobs, int n_steps)
{
    static const int32_t tokens[4] = {0, 1, 2, 3};
    const char *path = data_scratch(old_form ? "old.gguf" : "new.gguf");
    forge_plain forged = {0};
    mini m;
    int step, n = 4 / n_steps;
    forge_mini(&forged, old_form ? MINI_DEEPSEEK2_OLD : MINI_GLM_DSA, 2);
    forge_plain_write(&forged, path);
    EXPECT_OK(assay_gguf_open(&m.file, path));
    EXPECT_OK(assay_oracle_open(&m.oracle, m.file, 0));
    assay_pass_options options = {.latent = latent, .knobs = knobs};
    EXPECT_OK(assay_pass_new(&m.pass, m.oracle, &options));
    for (int i = 0; i < n_steps; i++) {
        EXPECT_OK(assay_pass_add_step(&step, m.pass, tokens + n * i, n, n * i));
        put_inputs(&m, step, n * i, n);
    }
    return m;
}

static void mini_close(mini *m)
{
    assay_pass_free(m->pass);
    assay_oracle_close(m->oracle);
    assay_gguf_close(m->file);
}

static assay_knobs right_knobs(void)
{
    mini m = mini_open(false, false, NULL, 1);
    assay_knobs k = *assay_oracle_knobs(m.oracle);
    mini_close(&m);
    return k;
}

/* n values of the point from `at` on */
static void expect_values(mini *m, assay_point point, int64_t at, const double *want, int n)
{
    const double *got;
    EXPECT_OK(assay_pass_value(&got, m->pass, 0, point, 0));
    for (int i = 0; i < n; i++)
        EXPECT_NEAR(got[at + i], want[i], 6e-10);
}

static const double y_dense[4][8] = {{0.449180570, -2.698565472, -0.308069615, 0.683989831,
                                      -2.463756212, -0.073260355, 2.335598761, -0.932378857},
                                     {0.285621726, -1.894120335, -0.382618143, 0.423891564,
                                      -1.755850498, -0.244348306, 1.712724914, -0.159396501},
                                     {0.747233351, 1.510183799, -1.134163057, 0.548749012,
                                      1.311699460, -1.332647397, -0.929428646, 2.691205817},
                                     {-0.769689845, 0.209884991, -0.336834548, -0.586699887,
                                      0.392874949, -0.153844589, -0.289817793, 2.052516904}};

static const double y_sparse[2][8] = {{0.119592477, 2.266751923, -1.078937220, -0.037160572,
                                       2.109998873, -1.235690270, -1.702157004, 3.711111946},
                                      {-0.594055549, 1.060480871, -0.420028063, -0.488390057,
                                       1.166146364, -0.314362571, -0.880341802, 2.392128336}};

START_TEST(mini_model_gives_the_golden_numbers_before_attention)
{
    const double norm[8] = {-1.188175561, -0.210406089, 0.891131670, -1.881277971,
                            -0.742609725, 0.519826808,  1.906031628, -1.423335307};
    const double q_a[6] = {-0.276974202, 1.353014169, -0.625516102,
                           0.457376091,  1.247826484, -0.339846384};
    const double latent[6] = {-0.844270643, -1.727729553, -0.352752814,
                              1.335613263,  -2.062552713, -0.197401409};
    const double k_rope[4] = {-1.752617472, 0.986662768, 0.756733410, 1.861495277};
    const double q_nope[4] = {-0.723616141, -1.722919187, 0.368858150, 0.994356720};
    const double q_rope[4] = {0.190756766, 0.231676177, 1.435701145, -0.340227147};
    const double absorbed[6] = {0.781774130,  -1.017846915, 1.618849747,
                                -1.220969501, -0.013660625, 1.052604245};
    for (int old = 0; old < 2; old++) {
        mini m = mini_open(old, true, NULL, 1);
        expect_values(&m, ASSAY_POINT_IN_NORM, 3 * 8, norm, 8);
        expect_values(&m, ASSAY_POINT_Q_A_NORM, 3 * 6, q_a, 6);
        expect_values(&m, ASSAY_POINT_KV_LATENT, 3 * 6, latent, 6);
        expect_values(&m, ASSAY_POINT_K_ROPE, 3 * 4, k_rope, 4);
        expect_values(&m, ASSAY_POINT_Q, 3 * 16, q_nope, 4);
        expect_values(&m, ASSAY_POINT_Q_ROPE, 3 * 8, q_rope, 4);
        expect_values(&m, ASSAY_POINT_Q_LATENT, 3 * 12, absorbed, 6);
        mini_close(&m);
    }
}
END_TEST

START_TEST(mini_model_attends_densely_as_the_golden_numbers_say)
{
    assay_knobs k = right_knobs();
    k.dense = true;
    for (int latent = 0; latent < 2; latent++) {
        mini m = mini_open(true, latent, NULL, 1);
        expect_values(&m, ASSAY_POINT_PROJ, 0, y_dense[0], 32);
        mini_close(&m);
        m = mini_open(false, latent, &k, 1);
        expect_values(&m, ASSAY_POINT_PROJ, 0, y_dense[0], 32);
        mini_close(&m);
    }
}
END_TEST

START_TEST(mini_model_attends_to_the_selected_keys)
{
    for (int latent = 0; latent < 2; latent++) {
        mini m = mini_open(false, latent, NULL, 1);
        expect_values(&m, ASSAY_POINT_PROJ, 0, y_dense[0], 16); /* two keys seen: all selected */
        expect_values(&m, ASSAY_POINT_PROJ, 16, y_sparse[0], 16);
        mini_close(&m);
    }
}
END_TEST

START_TEST(mini_model_decodes_token_by_token_to_the_same_numbers)
{
    for (int latent = 0; latent < 2; latent++) {
        mini m = mini_open(false, latent, NULL, 4);
        const double *got, *want[4] = {y_dense[0], y_dense[1], y_sparse[0], y_sparse[1]};
        for (int s = 3; s >= 0; s--) { /* in any order of asking */
            EXPECT_OK(assay_pass_value(&got, m.pass, s, ASSAY_POINT_PROJ, 0));
            for (int i = 0; i < 8; i++)
                EXPECT_NEAR(got[i], want[s][i], 6e-10);
        }
        mini_close(&m);
    }
}
END_TEST

/* Scores of row t = 3 and what is selected there. */
static void expect_row_3(const assay_knobs *k, const double want[4], int first, int second)
{
    mini m = mini_open(false, false, k, 1);
    const double *ids;
    expect_values(&m, ASSAY_POINT_INDEX_SCORES, 3 * 4, want, 4);
    EXPECT_OK(assay_pass_value(&ids, m.pass, 0, ASSAY_POINT_INDEX_TOPK, 0));
    ck_assert(ids[6] == first && ids[7] == second);
    mini_close(&m);
}

START_TEST(mini_model_scores_and_selects_keys)
{
    const double ik[8] = {-0.540790830, 1.480257780, 0.007073011, 1.570943312,
                          -1.307909103, 0.618050731, 2.135486906, -2.649195547};
    const double iw[2] = {-0.596408436, 0.945280296};
    const double rows[3][3] = {{-1.175547200, -HUGE_VAL, -HUGE_VAL},
                               {-2.273950202, 0.794822024, -HUGE_VAL},
                               {-0.889390595, 0.969012227, -0.067817988}};
    const double row_3[4] = {0.225008575, -0.383730983, 1.838186830, -0.892137851};
    const double selected[8] = {0, -1, 1, 0, 1, 2, 2, 0};
    mini m = mini_open(false, false, NULL, 1);
    const double *scores, *ids;
    expect_values(&m, ASSAY_POINT_INDEX_K, 3 * 8, ik, 8);
    expect_values(&m, ASSAY_POINT_INDEX_WEIGHTS, 3 * 2, iw, 2);
    EXPECT_OK(assay_pass_value(&scores, m.pass, 0, ASSAY_POINT_INDEX_SCORES, 0));
    for (int t = 0; t < 3; t++)
        for (int j = 0; j < 3; j++)
            ck_assert(j > t ? scores[4 * t + j] == -HUGE_VAL
                            : fabs(scores[4 * t + j] - rows[t][j]) < 6e-10);
    EXPECT_OK(assay_pass_value(&ids, m.pass, 0, ASSAY_POINT_INDEX_TOPK, 0));
    for (int i = 0; i < 8; i++)
        ck_assert(ids[i] == selected[i]);
    mini_close(&m);
    assay_knobs k = right_knobs();
    expect_row_3(&k, row_3, 2, 0);
}
END_TEST

START_TEST(mini_model_with_a_wrong_indexer_gives_the_wrong_golden_numbers)
{
    const double half_split[4] = {-0.291197891, 0.270534621, 0.950470946, -0.892137851};
    const double no_relu[4] = {0.225008575, -1.836072622, 3.075923733, -0.964949759};
    assay_knobs k = right_knobs();
    k.index_rope.pairing = ASSAY_PAIR_HALF_SPLIT;
    expect_row_3(&k, half_split, 2, 1);
    k = right_knobs();
    k.index_relu = false;
    expect_row_3(&k, no_relu, 2, 0);
}
END_TEST

START_TEST(mini_model_paths_are_equal_to_rounding)
{
    const double *a, *b;
    mini m = mini_open(false, false, NULL, 1), n = mini_open(false, true, NULL, 1);
    EXPECT_OK(assay_pass_value(&a, m.pass, 0, ASSAY_POINT_KERNEL_OUT, 0));
    EXPECT_OK(assay_pass_value(&b, n.pass, 0, ASSAY_POINT_KERNEL_OUT, 0));
    for (int i = 0; i < 4 * 2 * 3; i++)
        EXPECT_NEAR(a[i], b[i], 1e-14);
    mini_close(&m);
    mini_close(&n);
}
END_TEST

/* Exchanged and transposed halves differ from the right ones, alike on both paths. */
START_TEST(mini_model_views_of_kv_b_agree_between_the_paths)
{
    static const assay_kv_b_view views[] = {ASSAY_KV_B_HALVES_EXCHANGED, ASSAY_KV_B_KEY_TRANSPOSED,
                                            ASSAY_KV_B_VALUE_TRANSPOSED};
    for (size_t v = 0; v < sizeof views / sizeof *views; v++)
        for (int old = 0; old < 2; old++) {
            const double *a, *b;
            assay_knobs k = right_knobs();
            k.dense = true;
            k.kv_b = views[v];
            mini m = mini_open(old, false, &k, 1), n = mini_open(old, true, &k, 1);
            EXPECT_OK(assay_pass_value(&a, m.pass, 0, ASSAY_POINT_PROJ, 0));
            EXPECT_OK(assay_pass_value(&b, n.pass, 0, ASSAY_POINT_PROJ, 0));
            double off = 0;
            for (int i = 0; i < 32; i++) {
                EXPECT_NEAR(a[i], b[i], 1e-13);
                off += fabs(a[i] - y_dense[i / 8][i % 8]);
            }
            ck_assert(off > 0.1);
            mini_close(&m);
            mini_close(&n);
        }
}
END_TEST

EXPECT_MAIN("oracle_mini", mini_model_gives_the_golden_numbers_before_attention,
            mini_model_attends_densely_as_the_golden_numbers_say,
            mini_model_attends_to_the_selected_keys,
            mini_model_decodes_token_by_token_to_the_same_numbers,
            mini_model_scores_and_selects_keys,
            mini_model_with_a_wrong_indexer_gives_the_wrong_golden_numbers,
            mini_model_paths_are_equal_to_rounding,
            mini_model_views_of_kv_b_agree_between_the_paths)
