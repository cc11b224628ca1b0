#include "data.h"
#include "expect.h"
#include "references/import.h"

static double *values(int64_t *n, const assay_run *run, const assay_seen *seen)
{
    *n = assay_seen_count(seen);
    double *x = malloc((size_t)*n * sizeof *x + 1);
    EXPECT_OK(assay_run_read(x, run, seen));
    return x;
}

/* Everything the run shows is in its capture, to float32's precision, under the same place. */
static void expect_same(const assay_run *a, const assay_run *b)
{
    ck_assert_int_eq(assay_run_n_prompts(a), assay_run_n_prompts(b));
    ck_assert_str_eq(assay_run_about(a)->profile->name, assay_run_about(b)->profile->name);
    ck_assert_str_eq(assay_run_about(a)->producer, assay_run_about(b)->producer);
    ck_assert_int_eq(assay_run_about(a)->dtype, assay_run_about(b)->dtype);
    for (int p = 0; p < assay_run_n_prompts(a); p++) {
        const assay_run_prompt *x = assay_run_prompt_at(a, p), *y = assay_run_prompt_at(b, p);
        ck_assert_str_eq(x->name, y->name);
        ck_assert_int_eq(x->n_greedy, y->n_greedy);
        ck_assert_int_eq(x->n_steps, y->n_steps);
        for (int s = 0; s < x->n_steps; s++) {
            ck_assert_int_eq(assay_run_step_at(a, p, s)->first_position,
                             assay_run_step_at(b, p, s)->first_position);
            ck_assert_int_eq(assay_run_n_seen(a, p, s), assay_run_n_seen(b, p, s));
            for (int i = 0; i < assay_run_n_seen(a, p, s); i++) {
                const assay_seen *u = assay_run_seen_at(a, p, s, i);
                const assay_seen *v = assay_run_seen_at(b, p, s, i);
                ck_assert_int_eq(u->point, v->point);
                ck_assert_int_eq(u->layer, v->layer);
                ck_assert_int_eq(u->hand_over, v->hand_over);
                ck_assert_int_eq(u->rank, v->rank);
                ck_assert_int_eq(u->origin, v->origin);
                int64_t n, m;
                double *xs = values(&n, a, u), *ys = values(&m, b, v);
                ck_assert_int_eq(n, m);
                for (int64_t k = 0; k < n; k++)
                    ck_assert((float)xs[k] == (float)ys[k] || (isnan(xs[k]) && isnan(ys[k])));
                free(xs);
                free(ys);
            }
        }
    }
}

START_TEST(import_keeps_every_value_of_a_dump)
{
    static const char *const files[] = {"candidates/two.h5", "candidates/nan.h5",
                                        "foreign/glm5-tiny-Q4_K_M.llama_cpp.h5",
                                        "references/llama-tiny-bf16.hf-fp32.h5"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = data_large(files[i]);
        if (!path)
            return;
        assay_run *dump, *capture;
        EXPECT_OK(assay_run_open(&dump, &path, 1, NULL));
        const char *out = data_scratch("imported.h5");
        assay_import_result done;
        EXPECT_OK(assay_import_run(&done, dump, out, NULL));
        ck_assert_int_gt(done.n_values, 50);
        EXPECT_OK(assay_run_open(&capture, &out, 1, NULL));
        expect_same(dump, capture);
        assay_run_close(dump);
        assay_run_close(capture);
    }
}
END_TEST

START_TEST(import_takes_selectors)
{
    const char *path = data_shipped("glm5-tiny-bf16.two.h5"), *out = data_scratch("part.h5");
    assay_run *dump, *capture;
    assay_import_result done;
    EXPECT_OK(assay_run_open(&dump, &path, 1, NULL));
    EXPECT_OK(assay_import_run(&done, dump, out,
                               &(assay_capture_options){.selector = "layer=1 point=attn.proj"}));
    assay_run_close(dump);
    EXPECT_OK(assay_run_open(&capture, &out, 1, NULL));
    ck_assert_ptr_nonnull(assay_run_find(capture, 0, 0, ASSAY_POINT_PROJ, 1));
    ck_assert_ptr_nonnull(assay_run_find_part(capture, 0, 0, ASSAY_POINT_PROJ, 1, -1, 1));
    ck_assert_ptr_null(assay_run_find(capture, 0, 0, ASSAY_POINT_PROJ, 0));
    assay_run_close(capture);
}
END_TEST

/* Each file, or the files of each run of ranks, of the larger set. */
START_TEST(every_module_of_every_dump_is_mapped_or_left_out_on_purpose)
{
    static const char *const files[][2] = {
        {"references/glm5-tiny-bf16.hf-fp32.h5"},
        {"references/glm5-tiny-Q4_K_M.hf-fp32.h5"},
        {"references/glm5-tiny-Q4_K_M.hf-bf16.h5"},
        {"references/dsv3-tiny-bf16.hf-fp32.h5"},
        {"references/dsv3-tiny-bf16.hf-bf16.h5"},
        {"references/dsv2lite-tiny-bf16.hf-fp32.h5"},
        {"references/llama-tiny-bf16.hf-fp32.h5"},
        {"references/llama-tiny-bf16.hf-bf16.h5"},
        {"candidates/none.h5"},
        {"candidates/phantom_all.h5"},
        {"candidates/fused_swap.h5"},
        {"candidates/headswap.h5"},
        {"candidates/neox.h5"},
        {"candidates/noshared.h5"},
        {"candidates/two.h5"},
        {"candidates/nan.h5"},
        {"foreign/glm5-tiny-Q4_K_M.llama_cpp.h5"},
        {"ranks/tp_none.rank0of2.h5", "ranks/tp_none.rank1of2.h5"},
        {"ranks/tp_q_swap.rank0of2.h5", "ranks/tp_q_swap.rank1of2.h5"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *paths[2] = {data_large(files[i][0]),
                                files[i][1] ? data_large(files[i][1]) : NULL};
        assay_run *run;
        if (!paths[0])
            return;
        EXPECT_OK(assay_run_open(&run, paths, paths[1] ? 2 : 1, NULL));
        ck_assert_msg(assay_run_about(run)->n_unmapped == 0, "%s: %s", files[i][0],
                      assay_run_unmapped_at(run, 0));
        ck_assert_int_gt(assay_run_n_seen(run, 0, 0), 40);
        assay_run_close(run);
    }
}
END_TEST

EXPECT_MAIN("import", every_module_of_every_dump_is_mapped_or_left_out_on_purpose,
            import_keeps_every_value_of_a_dump, import_takes_selectors)
