/* Rows of names.def, and the module tree of vLLM: a transformers dump is written down again as vLLM
 * would show it (fused projections, streams as pairs, two ranks) and must come out the same. */
#include "references/names.h"

#include <stdio.h>

#include "data.h"
#include "expect.h"
#include "probes/hdf5_write.h"
#include "references/run.h"

START_TEST(names_rows_have_layouts_that_can_be_read)
{
    for (int i = 0; i < assay_name_count(); i++) {
        const assay_name_row *row = assay_name_at(i);
        if (row->reason) {
            ck_assert_msg(row->reason[0], "%s: left out without a reason", row->name);
            continue;
        }
        assay_status s = assay_layout_check(&row->layout);
        ck_assert_msg(s == ASSAY_OK, "%s: %s", row->name, assay_error_text());
        bool has_layer = strstr(row->name, "{}") != NULL;
        ck_assert_msg(has_layer == assay_point_at(row->point)->per_layer, "%s", row->name);
    }
}
END_TEST

START_TEST(names_match_whole_names_with_their_layer)
{
    int layer;
    ck_assert(assay_name_matches("model.layers.{}.mlp", "model.layers.12.mlp", &layer));
    ck_assert_int_eq(layer, 12);
    ck_assert(!assay_name_matches("model.layers.{}.mlp", "model.layers.12.mlp.gate", &layer));
    ck_assert(!assay_name_matches("model.layers.{}.mlp", "model.layers..mlp", &layer));
    ck_assert(!assay_name_matches("model.layers.{}.mlp", "model.layers.1234567.mlp", &layer));
    ck_assert(assay_name_matches("q-{}#1", "q-3#1", &layer));
    ck_assert(!assay_name_matches("q-{}#1", "q-3#2", &layer));
    ck_assert(assay_name_matches("model.norm", "model.norm", &layer));
    ck_assert_int_eq(layer, -1);
    ck_assert_str_eq(assay_name_nearest(ASSAY_FAMILY_HF_MLA, "model.layers.3.self_atn.q_a_proj"),
                     "model.layers.{}.self_attn.q_a_proj");
}
END_TEST

static assay_run *source;

static float *values_of(assay_point point, int layer)
{
    const assay_seen *seen = assay_run_find(source, 0, 0, point, layer);
    ck_assert_ptr_nonnull(seen);
    int64_t n = assay_seen_count(seen);
    double *x = malloc((size_t)n * sizeof *x);
    float *y = malloc((size_t)n * sizeof *y);
    EXPECT_OK(assay_run_read(x, source, seen));
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)x[i];
    free(x);
    return y;
}

enum { T = 8, D = 256, H = 8, RANKS = 2 };

/* Columns of [T, width] that rank r of RANKS holds. */
static void put_columns(hid_t file, const char *name, const float *x, int width, int rank)
{
    int first = rank < 0 ? 0 : width / RANKS * rank, n = rank < 0 ? width : width / RANKS;
    float *part = malloc((size_t)(T * n) * sizeof *part);
    for (int t = 0; t < T; t++)
        memcpy(part + t * n, x + t * width + first, (size_t)n * sizeof *part);
    char path[256];
    snprintf(path, sizeof path, "/count/step0000/%s", name);
    EXPECT_OK(assay_h5_put_dataset(file, path, H5T_NATIVE_FLOAT, 2, (int64_t[]){T, n}, part));
    free(part);
}

/* Two values beside each other in one projection; each is shared out over ranks alone. */
static void put_fused(hid_t file, const char *name, const float *a, int wa, const float *b, int wb,
                      int rank)
{
    int na = rank < 0 ? wa : wa / RANKS, nb = rank < 0 ? wb : wb / RANKS;
    int fa = rank < 0 ? 0 : na * rank, fb = rank < 0 ? 0 : nb * rank;
    float *x = malloc((size_t)(T * (na + nb)) * sizeof *x);
    for (int t = 0; t < T; t++) {
        memcpy(x + t * (na + nb), a + t * wa + fa, (size_t)na * sizeof *x);
        memcpy(x + t * (na + nb) + na, b + t * wb + fb, (size_t)nb * sizeof *x);
    }
    put_columns(file, name, x, na + nb, -1);
    free(x);
}

static void put_point(hid_t file, const char *format, int layer, assay_point point, int width,
                      int rank)
{
    char name[200];
    snprintf(name, sizeof name, format, layer);
    float *x = values_of(point, layer);
    put_columns(file, name, x, width, rank);
    free(x);
}

static void put_two(hid_t file, const char *format, int layer, assay_point a, int wa, assay_point b,
                    int wb, int rank)
{
    char name[200];
    snprintf(name, sizeof name, format, layer);
    float *x = values_of(a, layer), *y = values_of(b, layer);
    put_fused(file, name, x, wa, y, wb, rank);
    free(x);
    free(y);
}

static void put_rotary(hid_t file, int layer, int rank)
{
    char path[200];
    float *q = values_of(ASSAY_POINT_Q_ROPE, layer), *k = values_of(ASSAY_POINT_K_ROPE, layer);
    float part[T * H / RANKS * 32];
    for (int t = 0; t < T; t++)
        memcpy(part + t * H / RANKS * 32, q + (t * H + H / RANKS * rank) * 32,
               H / RANKS * 32 * sizeof *part);
    snprintf(path, sizeof path, "/count/step0000/model.layers.%d.self_attn.rotary_emb", layer);
    EXPECT_OK(
        assay_h5_put_dataset(file, path, H5T_NATIVE_FLOAT, 3, (int64_t[]){T, H / RANKS, 32}, part));
    strcat(path, ".out1");
    EXPECT_OK(assay_h5_put_dataset(file, path, H5T_NATIVE_FLOAT, 3, (int64_t[]){T, 1, 32}, k));
    free(q);
    free(k);
}

/* The layer's output as hidden + residual. */
static void put_stream(hid_t file, int layer, assay_point hidden)
{
    char name[200];
    float *out = values_of(ASSAY_POINT_OUT, layer), *x = values_of(hidden, layer);
    for (int i = 0; i < T * D; i++)
        out[i] -= x[i];
    snprintf(name, sizeof name, "model.layers.%d", layer);
    put_columns(file, name, x, D, -1);
    strcat(name, ".out1");
    put_columns(file, name, out, D, -1);
    free(out);
    free(x);
}

/* The experts' module gives (shared, routed), or their sum. */
static bool experts_add_shared;

static void put_layer(hid_t f, int l, int rank)
{
    const char *m = "model.layers.%d.";
    char name[8][200];
    static const char *const tails[] = {"self_attn.fused_qkv_a_proj",
                                        "self_attn.mla_attn",
                                        "self_attn.indexer.wk_weights_proj",
                                        "mlp.gate_up_proj",
                                        "mlp.shared_experts.gate_up_proj",
                                        "mlp.experts",
                                        "mlp.experts.out1",
                                        "self_attn.q_b_proj"};
    for (int i = 0; i < 8; i++)
        snprintf(name[i], sizeof name[i], "%s%s", m, tails[i]);
    put_point(f, "model.layers.%d.input_layernorm", l, ASSAY_POINT_IN_NORM, D, -1);
    put_two(f, name[0], l, ASSAY_POINT_Q_A, 256, ASSAY_POINT_KV_A, 288, -1);
    put_point(f, "model.layers.%d.self_attn.q_a_layernorm", l, ASSAY_POINT_Q_A_NORM, 256, -1);
    put_point(f, "model.layers.%d.self_attn.kv_a_layernorm", l, ASSAY_POINT_KV_LATENT, 256, -1);
    put_point(f, name[7], l, ASSAY_POINT_Q, H * 96, rank);
    put_point(f, "model.layers.%d.self_attn.kv_b_proj", l, ASSAY_POINT_KV_B, H * 128, rank);
    put_rotary(f, l, rank);
    put_point(f, name[1], l, ASSAY_POINT_KERNEL_OUT, H * 64, rank);
    put_point(f, "model.layers.%d.self_attn", l, ASSAY_POINT_PROJ, D, -1);
    put_two(f, name[2], l, ASSAY_POINT_INDEX_K_PROJ, 64, ASSAY_POINT_INDEX_WEIGHTS, 4, -1);
    put_point(f, "model.layers.%d.self_attn.indexer.k_norm", l, ASSAY_POINT_INDEX_K_NORM, 64, -1);
    put_point(f, "model.layers.%d.post_attention_layernorm", l, ASSAY_POINT_FFN_NORM, D, -1);
    if (l == 0) {
        put_two(f, name[3], l, ASSAY_POINT_FFN_GATE, 512, ASSAY_POINT_FFN_UP, 512, rank);
        put_point(f, "model.layers.%d.mlp", l, ASSAY_POINT_FFN_OUT, D, -1);
        put_stream(f, l, ASSAY_POINT_FFN_OUT);
        return;
    }
    put_point(f, "model.layers.%d.mlp.gate", l, ASSAY_POINT_MOE_LOGITS, 8, -1);
    put_two(f, name[4], l, ASSAY_POINT_SHARED_GATE, 256, ASSAY_POINT_SHARED_UP, 256, rank);
    put_point(f, name[5], l, experts_add_shared ? ASSAY_POINT_MOE_OUT : ASSAY_POINT_SHARED, D, -1);
    if (!experts_add_shared)
        put_point(f, name[6], l, ASSAY_POINT_MOE_ROUTED, D, -1);
    put_point(f, "model.layers.%d.mlp", l, ASSAY_POINT_MOE_OUT, D, -1);
    put_stream(f, l, ASSAY_POINT_MOE_OUT);
}

static void write_vllm(const char *path, int rank)
{
    assay_h5_quiet();
    hid_t f = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    int32_t ranks = RANKS, number = rank;
    EXPECT_OK(assay_h5_put_text(f, "/", "producer", "vllm"));
    EXPECT_OK(assay_h5_put_numbers(f, "/", "ranks", H5T_NATIVE_INT32, &ranks, 1));
    EXPECT_OK(assay_h5_put_numbers(f, "/", "rank", H5T_NATIVE_INT32, &number, 1));
    EXPECT_OK(assay_h5_make_group(f, "/count"));
    EXPECT_OK(assay_h5_make_group(f, "/count/step0000"));
    EXPECT_OK(assay_h5_put_dataset(f, "/count/step0000/input_tokens", H5T_NATIVE_INT32, 1,
                                   (int64_t[]){T}, assay_run_step_at(source, 0, 0)->tokens));
    put_point(f, "model.embed_tokens", -1, ASSAY_POINT_EMBED, D, -1);
    for (int l = 0; l < 4; l++)
        put_layer(f, l, rank);
    put_point(f, "model.norm", -1, ASSAY_POINT_FINAL_NORM, D, -1);
    put_point(f, "logits_processor", -1, ASSAY_POINT_LOGITS, 1024, -1);
    H5Fclose(f);
}

static void expect_points_of_vllm(int n_expected)
{
    const char *reference = data_large("references/glm5-tiny-bf16.hf-fp32.h5");
    if (!reference)
        return;
    assay_run_options options = assay_run_options_default();
    options.prompt = "count";
    EXPECT_OK(assay_run_open(&source, &reference, 1, &options));
    char paths[RANKS][4096];
    const char *both[RANKS];
    for (int r = 0; r < RANKS; r++) {
        snprintf(paths[r], sizeof paths[r], "%s", data_scratch(r ? "vllm1.h5" : "vllm0.h5"));
        both[r] = paths[r];
        write_vllm(paths[r], r);
    }
    assay_run *run;
    EXPECT_OK(assay_run_open(&run, both, RANKS, NULL));
    ck_assert_str_eq(assay_run_about(run)->profile->name, "vllm");
    ck_assert_msg(assay_run_about(run)->n_unmapped == 0, "%s", assay_run_unmapped_at(run, 0));
    int n = 0;
    for (int i = 0; i < assay_run_n_seen(run, 0, 0); i++) {
        const assay_seen *got = assay_run_seen_at(run, 0, 0, i);
        if (got->rank >= 0)
            continue;
        assay_point point =
            got->point == ASSAY_POINT_OUT_ATTN ? ASSAY_POINT_KERNEL_OUT : got->point;
        float *want = values_of(point, got->layer);
        int64_t count = 1;
        for (int d = 0; d < got->n_dims; d++)
            count *= got->dims[d];
        double *x = malloc((size_t)count * sizeof *x);
        EXPECT_OK(assay_run_read(x, run, got));
        char name[ASSAY_POINT_NAME_BYTES];
        assay_point_format(name, got->point, got->layer);
        for (int64_t k = 0; k < count; k++)
            ck_assert_msg(fabs(x[k] - want[k]) <= 4e-6 * (1 + fabs(want[k])), "%s at %lld: %g, %g",
                          name, (long long)k, x[k], want[k]);
        free(x);
        free(want);
        n++;
    }
    ck_assert_int_eq(n, n_expected);
    for (int l = 1; l < 4; l++)
        ck_assert(experts_add_shared == !assay_run_find(run, 0, 0, ASSAY_POINT_MOE_ROUTED, l));
    assay_run_close(run);
    assay_run_close(source);
}

START_TEST(names_of_vllm_with_two_ranks_give_the_same_points)
{
    experts_add_shared = false;
    expect_points_of_vllm(3 + 19 + 3 * 22);
    experts_add_shared = true; /* the sum twice, instead of its two parts */
    expect_points_of_vllm(3 + 19 + 3 * 21);
}
END_TEST

EXPECT_MAIN("names", names_rows_have_layouts_that_can_be_read,
            names_match_whole_names_with_their_layer,
            names_of_vllm_with_two_ranks_give_the_same_points)
