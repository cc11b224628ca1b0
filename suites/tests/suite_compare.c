#include "references/compare.h"

#include <hdf5.h>
#include <omp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data.h"
#include "diagnosed.h"
#include "expect.h"
#include "references/agreement.h"
#include "references/tolerance.h"
#include "suites/compare_rate.h"

static const char fp32[] = "glm5-tiny-Q4_K_M.hf-fp32.h5", bf16[] = "glm5-tiny-Q4_K_M.hf-bf16.h5";

static assay_run *open_run(const char *path)
{
    assay_run *run = NULL;
    assay_run_options options = assay_run_options_default();
    EXPECT_OK(assay_run_open(&run, &path, 1, &options));
    return run;
}

/* A copy of a shipped file that a test may change. */
static const char *copy_of(const char *name, const char *copy)
{
    const char *to = data_scratch(copy);
    FILE *in = fopen(data_shipped(name), "rb"), *out = fopen(to, "wb");
    char bytes[65536];
    ck_assert(in && out);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;)
        ck_assert_uint_eq(fwrite(bytes, 1, n, out), n);
    fclose(in);
    fclose(out);
    chmod(to, 0600);
    return to;
}

/* The short prompt of a file: most tests need no more. */
static const char *only_count(const char *path)
{
    static char out[4][4096];
    static int n;
    char *text = out[n++ % 4];
    snprintf(text, 4096, "%s:count", path);
    return text;
}

/* Everything that a test asks of a comparison. */
typedef struct outcome {
    assay_status status;
    int n_failed;
    int64_t n_points, n_judged;
    bool open;
    char first[ASSAY_POINT_NAME_BYTES];
    assay_compared item; /* the first failure */
    assay_agreement agreement;
    char notes[4096];
} outcome;

static int64_t place(const assay_compared *x)
{
    int64_t layer = x->layer >= 0 ? x->layer : x->point == ASSAY_POINT_EMBED ? -1 : 1000;
    return layer * ASSAY_POINT_COUNT + x->point;
}

static outcome compare(const char *candidate, const char *reference, const char *twin)
{
    outcome o = {0};
    assay_comparison *c = NULL;
    char paths[3][4096] = {"", "", ""};
    snprintf(paths[0], sizeof paths[0], "%s", candidate);
    snprintf(paths[1], sizeof paths[1], "%s", reference);
    snprintf(paths[2], sizeof paths[2], "%s", twin ? twin : "");
    assay_run *runs[3] = {open_run(paths[0]), open_run(paths[1]), twin ? open_run(paths[2]) : NULL};
    o.status = assay_compare_runs(&c, runs[0], runs[1], runs[2]);
    for (int i = 0; c && i < assay_comparison_n(c); i++) {
        const assay_compared *x = assay_comparison_at(c, i);
        ck_assert(x->passed || x->why[0]);
        if (x->passed)
            continue;
        if (!o.n_failed++ || place(x) < place(&o.item)) {
            o.item = *x;
            assay_point_format(o.first, x->point, x->layer);
        }
    }
    if (c) {
        o.n_points = assay_comparison_n_points(c);
        o.n_judged = assay_comparison_n_judged(c);
        o.open = assay_comparison_open_reason(c) != NULL;
        o.agreement = *assay_comparison_agreement(c);
        for (int i = 0; i < assay_comparison_n_notes(c); i++) {
            size_t n = strlen(o.notes);
            snprintf(o.notes + n, sizeof o.notes - n, "%s\n", assay_comparison_note_at(c, i));
        }
    }
    assay_comparison_free(c);
    for (int i = 0; i < 3; i++)
        assay_run_close(runs[i]);
    return o;
}

static void expect_pass(const outcome *o)
{
    ck_assert_msg(o->status == ASSAY_OK, "%s", assay_error_text());
    ck_assert_msg(!o->n_failed, "%s: %s", o->first, o->item.why);
    ck_assert(!o->open && o->n_judged > 0);
    ck_assert_int_eq(o->n_judged, o->n_points);
}

START_TEST(compare_of_a_run_with_itself_is_exact)
{
    outcome o = compare(data_shipped(fp32), data_shipped(fp32), NULL);
    expect_pass(&o);
    ck_assert_int_eq(o.agreement.n_top1_equal, o.agreement.n_rows);
    EXPECT_NEAR(o.agreement.kl_max, 0, 0);
    EXPECT_NEAR(o.agreement.top5_overlap, 1, 1e-12);
    ck_assert_ptr_nonnull(strstr(o.notes, "same model: unproven"));
}
END_TEST

START_TEST(compare_passes_a_healthy_bf16_run)
{
    outcome o = compare(data_shipped(bf16), data_shipped(fp32), NULL);
    expect_pass(&o);
    o = compare(data_shipped(bf16), data_shipped(fp32), data_shipped(bf16));
    expect_pass(&o);
    ck_assert(o.agreement.kl_mean > 0 && o.agreement.kl_mean < 0.05);
}
END_TEST

START_TEST(compare_ignores_a_twin_that_rounds_otherwise)
{
    outcome o =
        compare(only_count(data_shipped(fp32)), only_count(data_shipped(fp32)), data_shipped(bf16));
    expect_pass(&o);
    ck_assert_ptr_nonnull(strstr(o.notes, "sets no bound"));
}
END_TEST

static double *read_all(hid_t file, const char *path, hid_t *set, int64_t *n)
{
    *set = H5Dopen2(file, path, H5P_DEFAULT);
    ck_assert_msg(*set >= 0, "%s", path);
    hid_t space = H5Dget_space(*set);
    *n = H5Sget_simple_extent_npoints(space);
    H5Sclose(space);
    double *x = malloc((size_t)*n * sizeof *x);
    ck_assert(H5Dread(*set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    return x;
}

static void write_all(hid_t set, double *x)
{
    ck_assert(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    H5Dclose(set);
    free(x);
}

enum change { SCALE, SET, SHIFT };

/* Changes elements [from, from + count) of a dataset (count -1: all) of a copy of the reference. */
static const char *changed(const char *copy, const char *dataset, enum change how, int64_t from,
                           int64_t count, double value)
{
    const char *path = copy_of(fp32, copy);
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), set;
    int64_t n;
    double *x = read_all(file, dataset, &set, &n);
    for (int64_t i = from; i < n && (count < 0 || i < from + count); i++)
        x[i] = how == SCALE ? x[i] * value : how == SET ? value : x[i] + value;
    write_all(set, x);
    H5Fclose(file);
    return path;
}

START_TEST(compare_names_the_one_value_that_is_off)
{
    static const struct {
        const char *dataset;
        enum change how;
        int64_t from;
        double value;
        const char *point;
        int64_t row, col;
    } rows[] = {
        {"count/step0000/model.layers.1.mlp.shared_experts", SET, 3 * 256 + 17, NAN,
         "blk.1.moe.shared", 3, 17},
        {"count/step0000/model.layers.1.mlp.shared_experts", SET, 3 * 256 + 17, INFINITY,
         "blk.1.moe.shared", 3, 17},
        {"count/step0000/model.layers.2", SHIFT, 5 * 256 + 200, 50, "blk.2.out", 5, 200},
        {"count/step0000/model.norm", SHIFT, 7 * 256, 50, "final_norm", 7, 0},
        {"count/step0003/logits", SHIFT, 7, 100, "logits", 0, 7},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        outcome o =
            compare(changed("off.h5", rows[i].dataset, rows[i].how, rows[i].from, 1, rows[i].value),
                    data_shipped(fp32), NULL);
        ck_assert_int_eq(o.status, ASSAY_OK);
        ck_assert_int_eq(o.n_failed, 1);
        ck_assert_str_eq(o.first, rows[i].point);
        ck_assert_int_eq(o.item.bad_at[0], rows[i].row);
        ck_assert_int_eq(o.item.bad_at[1], rows[i].col);
    }
}
END_TEST

START_TEST(compare_fails_nan_in_the_reference_too)
{
    const char *bad = changed("nan.h5", "count/step0000/model.layers.0", SET, 256, 1, NAN);
    outcome o = compare(only_count(data_shipped(fp32)), only_count(bad), NULL);
    ck_assert_str_eq(o.first, "blk.0.out");
    o = compare(only_count(bad), only_count(bad), NULL);
    ck_assert_str_eq(o.first, "blk.0.out");
    ck_assert_int_eq(o.item.bad_at[0], 1);
}
END_TEST

START_TEST(compare_judges_rows_not_the_whole)
{
    /* One quiet row of 40 is zero: the whole hardly moves. */
    outcome o = compare(
        changed("row.h5", "text/step0000/model.layers.2.mlp.shared_experts", SET, 7 * 256, 256, 0),
        data_shipped(fp32), NULL);
    ck_assert_int_eq(o.n_failed, 1);
    ck_assert_str_eq(o.first, "blk.2.moe.shared");
    ck_assert_int_eq(o.item.bad_at[0], 7);
    EXPECT_NEAR(o.item.metrics.row_rel_max, 1, 1e-9);
}
END_TEST

START_TEST(compare_ends_where_a_token_differs)
{
    outcome o = compare(changed("token.h5", "text/step0000/input_tokens", SHIFT, 10, 1, 1),
                        data_shipped(fp32), NULL);
    expect_pass(&o);
    ck_assert_ptr_nonnull(strstr(o.notes, "prompt 'text': the token at position 10 differs"));
    /* What lies behind it is not compared. */
    const char *path = changed("token.h5", "text/step0000/input_tokens", SHIFT, 10, 1, 1);
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), set;
    int64_t n;
    double *x = read_all(file, "text/step0000/model.norm", &set, &n);
    for (int64_t i = 10 * 256; i < n; i++)
        x[i] = 1;
    write_all(set, x);
    H5Fclose(file);
    o = compare(path, data_shipped(fp32), NULL);
    expect_pass(&o);
}
END_TEST

static void drop(hid_t file, const char *path)
{
    ck_assert_msg(H5Ldelete(file, path, H5P_DEFAULT) >= 0, "%s", path);
}

START_TEST(compare_of_different_prompts_cannot_judge)
{
    const char *path = copy_of(fp32, "prompts.h5");
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), set;
    static const char *const names[] = {"count/step0000/input_tokens", "text/step0000/input_tokens",
                                        "count/tokens", "text/tokens"};
    for (int i = 0; i < 4; i++) {
        int64_t n;
        double *x = read_all(file, names[i], &set, &n);
        x[0] = x[0] > 1 ? x[0] - 1 : x[0] + 1;
        write_all(set, x);
    }
    H5Fclose(file);
    outcome o = compare(path, data_shipped(fp32), NULL);
    ck_assert_int_eq(o.status, ASSAY_CANNOT_JUDGE);
    EXPECT_SAYS("nothing to compare");
}
END_TEST

/* Points that are captured elsewhere but missing from a step. */
START_TEST(compare_with_a_hole_is_never_a_pass)
{
    static const char *const holes[] = {"count/step0000/logits",
                                        "count/step0000/model.layers.3",
                                        "count/step0000/model.norm",
                                        "count/step0000/model.layers.0.self_attn.kv_b_proj",
                                        "count/step0005/model.layers.2.mlp",
                                        "count/step0000/model.layers.2.mlp.shared_experts.up_proj"};
    for (size_t i = 0; i < sizeof holes / sizeof *holes; i++) {
        const char *path = copy_of(fp32, "hole.h5");
        hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
        drop(file, holes[i]);
        H5Fclose(file);
        outcome o = compare(only_count(path), only_count(data_shipped(fp32)), NULL);
        ck_assert_int_eq(o.status, ASSAY_OK);
        ck_assert_msg(o.open, "%s", holes[i]);
        ck_assert_int_eq(o.n_failed, 0);
    }
}
END_TEST

START_TEST(compare_of_a_cut_file_is_an_error)
{
    struct stat about;
    const char *path = copy_of(fp32, "cut.h5");
    ck_assert_int_eq(stat(path, &about), 0);
    uint64_t state = 12345;
    for (int i = 0; i < 8; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        path = copy_of(fp32, "cut.h5");
        ck_assert_int_eq(truncate(path, (off_t)((state >> 20) % (uint64_t)about.st_size)), 0);
        assay_run *run = NULL;
        assay_run_options options = assay_run_options_default();
        assay_status s = assay_run_open(&run, &path, 1, &options);
        if (s == ASSAY_OK) {
            assay_run *reference = open_run(data_shipped(fp32));
            assay_comparison *c = NULL;
            s = assay_compare_runs(&c, run, reference, NULL);
            ck_assert(s != ASSAY_OK || assay_comparison_open_reason(c));
            assay_comparison_free(c);
            assay_run_close(reference);
        }
        assay_run_close(run);
    }
}
END_TEST

START_TEST(compare_finds_a_scale_below_the_rounding_floor)
{
    /* +1 % on the routing weights of a bf16 run: half of what its median row may be off. */
    const char *path = copy_of(bf16, "gain.h5");
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), set;
    for (int layer = 1; layer <= 3; layer++) {
        char name[128];
        int64_t n;
        snprintf(name, sizeof name, "count/step0000/model.layers.%d.mlp.gate.out1", layer);
        double *x = read_all(file, name, &set, &n);
        for (int64_t i = 0; i < n; i++)
            x[i] *= 1.01;
        write_all(set, x);
    }
    H5Fclose(file);
    outcome o = compare(only_count(path), only_count(data_shipped(fp32)), NULL);
    ck_assert_int_eq(o.status, ASSAY_OK);
    ck_assert_msg(o.n_failed == 1, "%d failed", o.n_failed);
    ck_assert_int_eq(o.item.point, ASSAY_POINT_MOE_WEIGHTS);
    ck_assert_ptr_nonnull(strstr(o.item.why, "gain 1.0"));
}
END_TEST

/* The planted faults of the larger set, each at its first place. */
START_TEST(compare_fails_planted_faults_at_the_right_first_point)
{
    static const struct {
        const char *name, *point;
    } rows[] = {{"phantom_all", "blk.0.attn.proj"},
                {"fused_swap", "blk.0.attn.q_a"},
                {"headswap", "blk.0.attn.proj"},
                {"neox", "blk.0.attn.q_rope"},
                {"noshared", "blk.1.moe.shared"},
                {"two", "blk.1.attn.proj"},
                {"nan", "blk.2.moe.out"}};
    if (!data_large("candidates/none.h5"))
        return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[64];
        snprintf(name, sizeof name, "candidates/%s.h5", rows[i].name);
        outcome o =
            compare(data_large(name), data_large("references/glm5-tiny-bf16.hf-fp32.h5"), NULL);
        ck_assert_int_eq(o.status, ASSAY_OK);
        ck_assert_str_eq(o.first, rows[i].point);
        if (!strcmp(rows[i].name, "nan")) {
            ck_assert_int_eq(o.item.bad_at[0], 3);
            ck_assert_int_eq(o.item.bad_at[1], 17);
            ck_assert(isnan(o.item.bad_got) && isfinite(o.item.bad_expected));
        }
    }
}
END_TEST

START_TEST(compare_passes_healthy_runs_of_every_model)
{
    static const struct {
        const char *candidate, *reference, *twin;
    } rows[] = {
        {"candidates/none.h5", "references/glm5-tiny-bf16.hf-fp32.h5", NULL},
        {"references/glm5-tiny-Q4_K_M.hf-bf16.h5", "references/glm5-tiny-Q4_K_M.hf-fp32.h5", NULL},
        {"references/glm5-tiny-Q4_K_M.hf-bf16.h5", "references/glm5-tiny-Q4_K_M.hf-fp32.h5",
         "references/glm5-tiny-Q4_K_M.hf-bf16.h5"},
        {"references/dsv3-tiny-bf16.hf-bf16.h5", "references/dsv3-tiny-bf16.hf-fp32.h5", NULL},
        {"references/dsv3-tiny-bf16.hf-bf16.h5", "references/dsv3-tiny-bf16.hf-fp32.h5",
         "references/dsv3-tiny-bf16.hf-bf16.h5"},
        {"references/llama-tiny-bf16.hf-bf16.h5", "references/llama-tiny-bf16.hf-fp32.h5", NULL},
        {"foreign/glm5-tiny-Q4_K_M.llama_cpp.h5", "references/glm5-tiny-Q4_K_M.hf-fp32.h5", NULL},
        {"references/glm5-tiny-Q4_K_M.hf-bf16.h5:count", "foreign/glm5-tiny-Q4_K_M.llama_cpp.h5",
         NULL},
        {"references/dsv2lite-tiny-bf16.hf-fp32.h5", "references/dsv2lite-tiny-bf16.hf-fp32.h5",
         NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows && data_large(rows[0].candidate); i++) {
        char candidate[4096], file[128];
        snprintf(file, sizeof file, "%.*s", (int)strcspn(rows[i].candidate, ":"),
                 rows[i].candidate);
        snprintf(candidate, sizeof candidate, "%s%s", data_large(file),
                 rows[i].candidate + strlen(file));
        outcome o = compare(candidate, data_large(rows[i].reference),
                            rows[i].twin ? data_large(rows[i].twin) : NULL);
        expect_pass(&o);
    }
}
END_TEST

/* Two ranks of a real tensor-parallel run: healthy, and with two slices of q exchanged. */
START_TEST(compare_puts_ranks_together)
{
    static const char *const names[] = {"none", "q_swap"};
    for (int i = 0; i < 2 && data_large("candidates/none.h5"); i++) {
        char paths[2][4096], file[64];
        const char *list[2] = {paths[0], paths[1]};
        for (int rank = 0; rank < 2; rank++) {
            snprintf(file, sizeof file, "ranks/tp_%s.rank%dof2.h5", names[i], rank);
            snprintf(paths[rank], sizeof paths[rank], "%s", data_large(file));
        }
        assay_run *run = NULL, *reference;
        assay_run_options options = assay_run_options_default();
        EXPECT_OK(assay_run_open(&run, list, 2, &options));
        reference = open_run(data_large("references/glm5-tiny-bf16.hf-fp32.h5"));
        assay_comparison *c;
        EXPECT_OK(assay_compare_runs(&c, run, reference, NULL));
        const assay_compared *first = NULL;
        for (int k = 0; k < assay_comparison_n(c); k++) {
            const assay_compared *x = assay_comparison_at(c, k);
            if (!x->passed && (!first || place(x) < place(first)))
                first = x;
        }
        ck_assert_int_eq(first != NULL, i);
        ck_assert(!first || (first->point == ASSAY_POINT_Q && first->layer == 1));
        assay_comparison_free(c);
        assay_run_close(run);
        assay_run_close(reference);
    }
}
END_TEST

START_TEST(compare_with_another_architecture_cannot_judge)
{
    if (!data_large("candidates/none.h5"))
        return;
    outcome o = compare(data_large("references/dsv3-tiny-bf16.hf-fp32.h5"),
                        data_large("references/glm5-tiny-bf16.hf-fp32.h5"), NULL);
    ck_assert_int_eq(o.status, ASSAY_CANNOT_JUDGE);
    EXPECT_SAYS("other model");
}
END_TEST

START_TEST(tolerance_has_one_row_for_every_point_of_numbers)
{
    for (int p = 0; p < ASSAY_POINT_COUNT; p++) {
        const assay_point_info *info = assay_point_at((assay_point)p);
        int n = 0;
        for (int i = 0; i < assay_tolerance_count(); i++) {
            char list[512];
            snprintf(list, sizeof list, " %s ", assay_tolerance_at(i)->points);
            char name[80];
            snprintf(name, sizeof name, " %s ", info->name);
            n += strstr(list, name) != NULL;
        }
        ck_assert_msg(n == !info->is_ids, "%s stands in %d rows", info->name, n);
        assay_tolerance f32 = assay_tolerance_of((assay_point)p, 2, 4, ASSAY_DTYPE_F32, false),
                        half = assay_tolerance_of((assay_point)p, 2, 4, ASSAY_DTYPE_BF16, false),
                        q8 = assay_tolerance_of((assay_point)p, 2, 4, ASSAY_DTYPE_BF16, true);
        ck_assert(info->is_ids || (f32.row_median > 0 && f32.row_median < 1e-4 &&
                                   half.row_median > f32.row_median && q8.row_max > half.row_max));
    }
}
END_TEST

/* The same numbers from one thread and from three, to the last bit. */
START_TEST(compare_does_not_depend_on_threads)
{
    assay_comparison *c[2] = {NULL, NULL};
    assay_run *a = open_run(data_shipped(bf16)), *b = open_run(data_shipped(fp32));
    for (int i = 0; i < 2; i++) {
        omp_set_num_threads(i ? 3 : 1);
        EXPECT_OK(assay_compare_runs(&c[i], a, b, NULL));
    }
    ck_assert_int_eq(assay_comparison_n(c[0]), assay_comparison_n(c[1]));
    for (int i = 0; i < assay_comparison_n(c[0]); i++) {
        const assay_compared *x = assay_comparison_at(c[0], i), *y = assay_comparison_at(c[1], i);
        ck_assert_mem_eq(&x->metrics, &y->metrics, sizeof x->metrics);
        ck_assert_str_eq(x->why, y->why);
    }
    for (int i = 0; i < 2; i++)
        assay_comparison_free(c[i]);
    assay_run_close(a);
    assay_run_close(b);
}
END_TEST

START_TEST(compare_rate_is_taken_beside_a_plain_loop)
{
    assay_compare_rate rate;
    EXPECT_OK(assay_compare_rate_measure(&rate, data_shipped(bf16), data_shipped(bf16), 1));
    ck_assert(rate.ratio > 0 && rate.lowest == rate.ratio && rate.highest == rate.ratio);
    ck_assert(rate.cpu_ratio > 0 && rate.n_bytes > 1000000);
    ck_assert_int_eq(assay_compare_rate_measure(&rate, data_scratch("none"), data_shipped(bf16), 1),
                     ASSAY_IO);
}
END_TEST

EXPECT_MAIN("compare", compare_of_a_run_with_itself_is_exact, compare_passes_a_healthy_bf16_run,
            compare_ignores_a_twin_that_rounds_otherwise, compare_names_the_one_value_that_is_off,
            compare_fails_nan_in_the_reference_too, compare_judges_rows_not_the_whole,
            compare_ends_where_a_token_differs, compare_of_different_prompts_cannot_judge,
            compare_with_a_hole_is_never_a_pass, compare_of_a_cut_file_is_an_error,
            compare_finds_a_scale_below_the_rounding_floor,
            compare_fails_planted_faults_at_the_right_first_point,
            compare_passes_healthy_runs_of_every_model, compare_puts_ranks_together,
            compare_with_another_architecture_cannot_judge, compare_does_not_depend_on_threads,
            compare_rate_is_taken_beside_a_plain_loop,
            tolerance_has_one_row_for_every_point_of_numbers)
