#include "references/reference.h"

#include <stdio.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"
#include "references/run.h"

static const int32_t tokens[8] = {17, 300, 301, 302, 5, 6, 7, 8};

typedef struct model {
    assay_gguf *file;
    assay_oracle *oracle;
} model;

static model model_open(void)
{
    model m;
    EXPECT_OK(assay_gguf_open(&m.file, data_shipped("glm5-tiny-Q4_K_M.gguf")));
    EXPECT_OK(assay_oracle_open(&m.oracle, m.file, 0));
    return m;
}

static void model_close(model *m)
{
    assay_oracle_close(m->oracle);
    assay_gguf_close(m->file);
}

static assay_reference_made make(model *m, const char *path, const assay_reference_options *o)
{
    assay_reference_made made = {0};
    EXPECT_OK(assay_reference_write(&made, path, m->oracle, tokens, 8, o));
    return made;
}

static assay_run *read_back(const char *path)
{
    assay_run *run;
    assay_run_options options = assay_run_options_default();
    EXPECT_OK(assay_run_open(&run, &path, 1, &options));
    ck_assert(assay_run_about(run)->is_reference && assay_run_about(run)->is_complete);
    return run;
}

START_TEST(reference_holds_what_the_oracle_computes)
{
    model m = model_open();
    const char *path = data_scratch("ref.h5");
    assay_reference_options o = {.last_layer = -1, .n_new = 3, .text = "a text"};
    assay_reference_made made = make(&m, path, &o);
    assay_run *run = read_back(path);
    ck_assert_int_eq(made.n_steps, 3);
    ck_assert_int_eq(assay_run_prompt_at(run, 0)->n_steps, 3);
    ck_assert_int_eq(assay_run_prompt_at(run, 0)->n_greedy, 3);
    ck_assert_mem_eq(assay_run_prompt_at(run, 0)->greedy, made.greedy, 3 * sizeof(int32_t));
    assay_pass *pass;
    int step;
    EXPECT_OK(assay_pass_new(&pass, m.oracle, NULL));
    EXPECT_OK(assay_pass_add_step(&step, pass, tokens, 8, 0));
    EXPECT_OK(assay_pass_add_step(&step, pass, made.greedy, 1, 8));
    int64_t n_values = 0;
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < assay_run_n_seen(run, 0, s); i++, n_values++) {
            const assay_seen *seen = assay_run_seen_at(run, 0, s, i);
            const double *want;
            int64_t n = assay_seen_count(seen);
            double *got = malloc((size_t)n * sizeof *got);
            EXPECT_OK(assay_run_read(got, run, seen));
            EXPECT_OK(assay_pass_value(&want, pass, s, seen->point, seen->layer));
            for (int64_t j = 0; j < n; j++)
                ck_assert(got[j] == want[j] || fabs(got[j] - want[j]) <= 1e-11);
            free(got);
        }
    ck_assert_int_gt(n_values, 2 * 120);
    assay_pass_free(pass);
    assay_run_close(run);
    free(made.greedy);
    model_close(&m);
}
END_TEST

START_TEST(reference_floors_grow_with_the_precision_lost)
{
    model m = model_open();
    const char *path = data_scratch("floors.h5");
    assay_reference_options o = {.last_layer = -1, .latent = true};
    assay_reference_made made = make(&m, path, &o);
    assay_run *run = read_back(path);
    ck_assert(made.logits_f32 > 1e-8 && made.logits_f32 < 5e-6);
    ck_assert(made.logits_bf16 > 1e-3 && made.logits_bf16 < 0.05);
    int n = 0;
    for (int i = 0; i < assay_run_n_seen(run, 0, 0); i++) {
        const assay_seen *seen = assay_run_seen_at(run, 0, 0, i);
        char name[ASSAY_POINT_NAME_BYTES];
        if (assay_point_at(seen->point)->is_ids || seen->layer < 1)
            continue;
        ck_assert_msg(seen->floor > 0 && seen->floor_bf16 > 100 * seen->floor, "%s: %g %g",
                      assay_point_format(name, seen->point, seen->layer), seen->floor,
                      seen->floor_bf16);
        n++;
    }
    ck_assert_int_gt(n, 80);
    assay_run_close(run);
    model_close(&m);
}
END_TEST

START_TEST(reference_keeps_only_the_layers_and_points_asked_for)
{
    model m = model_open();
    const char *path = data_scratch("part.h5");
    assay_reference_options o = {
        .first_layer = 1, .last_layer = 2, .selector = "point=attn.proj,out", .no_floor = true};
    assay_reference_made made = make(&m, path, &o);
    assay_run *run = read_back(path);
    ck_assert_int_eq(made.n_values, 4);
    ck_assert_int_eq(assay_run_n_seen(run, 0, 0), 4);
    for (int i = 0; i < 4; i++) {
        const assay_seen *seen = assay_run_seen_at(run, 0, 0, i);
        ck_assert(seen->layer == 1 || seen->layer == 2);
        ck_assert(seen->floor == 0 && seen->floor_bf16 == 0);
    }
    ck_assert(isnan(made.logits_f32));
    assay_run_close(run);
    model_close(&m);
}
END_TEST

START_TEST(reference_refuses_layers_that_are_not_there_and_leaves_no_file)
{
    model m = model_open();
    assay_reference_made made;
    const char *path = data_scratch("none.h5");
    assay_reference_options o = {.last_layer = 4};
    EXPECT_FAILS(ASSAY_USAGE, assay_reference_write(&made, path, m.oracle, tokens, 8, &o));
    o.last_layer = 1;
    o.n_new = 1;
    EXPECT_FAILS(ASSAY_USAGE, assay_reference_write(&made, path, m.oracle, tokens, 8, &o));
    const int32_t bad[1] = {5000};
    o.n_new = 0;
    EXPECT_FAILS(ASSAY_CANNOT_JUDGE, assay_reference_write(&made, path, m.oracle, bad, 1, &o));
    ck_assert_int_ne(access(path, F_OK), 0);
    model_close(&m);
}
END_TEST

EXPECT_MAIN("reference", reference_holds_what_the_oracle_computes,
            reference_floors_grow_with_the_precision_lost,
            reference_keeps_only_the_layers_and_points_asked_for,
            reference_refuses_layers_that_are_not_there_and_leaves_no_file)
