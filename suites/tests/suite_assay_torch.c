/* tools/python/assay_torch.py, with stand-ins for torch (standin.py). Skipped without h5py. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"
#include "probes/capture.h"
#include "references/run.h"

static bool has_python(void)
{
    return system("python3 -c 'import h5py, numpy' >/dev/null 2>&1") == 0;
}

static void standin(const char *arguments)
{
    const char *dir = getenv("ASSAY_SOURCE_DIR");
    char command[16384];
    snprintf(command, sizeof command,
             "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python3 '%s/suites/tests/standin.py' %s",
             dir ? dir : ".", arguments);
    ck_assert_msg(system(command) == 0, "%s", command);
}

static const int32_t tokens[40] = {0};

/* Values of every stored kind, a NaN, infinities, and more rows than one sketch group. */
static void write_numbers(const char *path, const char *tier)
{
    const assay_capture_about about = {.producer = "assay", .dtype = "f32"};
    float x[40 * 9];
    uint16_t h[40 * 9];
    int32_t ids[40];
    double wide[5];
    for (int i = 0; i < 40 * 9; i++) {
        x[i] = (float)sin(i) * expf((float)(i % 13));
        h[i] = assay_f32_to_bf16(x[i]);
    }
    for (int i = 0; i < 40; i++)
        ids[i] = i * 7 % 11 - 1;
    for (int i = 0; i < 5; i++)
        wide[i] = 1e200 / (i + 1);
    x[3] = NAN;
    x[100] = INFINITY;
    x[101] = -INFINITY;
    x[7] = -0.0f;
    uint32_t poison = assay_poison_f32(77);
    memcpy(&x[9], &poison, 4);
    assay_capture *c;
    EXPECT_OK(assay_capture_create(&c, path, &about, &(assay_capture_options){.tier = tier}));
    EXPECT_OK(assay_capture_prompt(c, "p", NULL, tokens, 40));
    EXPECT_OK(assay_capture_step(c, true, 0, tokens, 40));
    assay_buffer b = assay_buffer_view(x, ASSAY_DTYPE_F32, 2, (int64_t[]){40, 9});
    EXPECT_OK(assay_capture_value(c, "embed", NULL, &b, ASSAY_DTYPE_F32, -1));
    b = assay_buffer_view(h, ASSAY_DTYPE_BF16, 3, (int64_t[]){40, 3, 3});
    EXPECT_OK(assay_capture_value(c, "blk.0.attn.q", NULL, &b, ASSAY_DTYPE_BF16, -1));
    b = assay_buffer_view(h, ASSAY_DTYPE_F16, 3, (int64_t[]){40, 3, 3});
    EXPECT_OK(assay_capture_value(c, "blk.1.attn.q", NULL, &b, ASSAY_DTYPE_F16, -1));
    b = assay_buffer_view(ids, ASSAY_DTYPE_I32, 2, (int64_t[]){40, 1});
    EXPECT_OK(assay_capture_value(c, "blk.1.moe.topk", NULL, &b, ASSAY_DTYPE_I32, -1));
    EXPECT_OK(assay_capture_step(c, false, 40, tokens, 1));
    b = assay_buffer_view(wide, ASSAY_DTYPE_F64, 2, (int64_t[]){1, 5});
    EXPECT_OK(assay_capture_value(c, "embed", NULL, &b, ASSAY_DTYPE_F64, -1));
    EXPECT_OK(assay_capture_finish(c));
}

START_TEST(assay_torch_numbers_equal_the_recorders)
{
    if (!has_python())
        return;
    char full[4096], sketch[4096], arguments[8400];
    snprintf(full, sizeof full, "%s", data_scratch("full.h5"));
    snprintf(sketch, sizeof sketch, "%s", data_scratch("sketch.h5"));
    write_numbers(full, "full");
    write_numbers(sketch, "sketch");
    snprintf(arguments, sizeof arguments, "numbers '%s' '%s'", full, sketch);
    standin(arguments);
}
END_TEST

static double *values(int64_t *n, const assay_run *run, const assay_seen *seen)
{
    *n = assay_seen_count(seen);
    double *x = malloc((size_t)*n * sizeof *x + 1);
    EXPECT_OK(assay_run_read(x, run, seen));
    return x;
}

START_TEST(assay_torch_capture_shows_what_the_modules_put_out)
{
    if (!has_python())
        return;
    char dump[4096], out[4096], arguments[8400];
    snprintf(dump, sizeof dump, "%s", data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"));
    snprintf(out, sizeof out, "%s", data_scratch("replayed.h5"));
    snprintf(arguments, sizeof arguments, "replay '%s' count '%s'", dump, out);
    standin(arguments);
    const char *a = dump, *b = out;
    assay_run *want, *got;
    assay_run_options options = assay_run_options_default();
    options.prompt = "count";
    EXPECT_OK(assay_run_open(&want, &a, 1, &options));
    EXPECT_OK(assay_run_open(&got, &b, 1, NULL));
    ck_assert(assay_run_about(got)->is_complete);
    ck_assert_str_eq(assay_run_about(got)->profile->name, assay_run_about(want)->profile->name);
    ck_assert_str_eq(assay_run_about(got)->architecture, "glm-dsa");
    ck_assert_msg(assay_run_about(got)->n_unmapped == 0, "%s", assay_run_unmapped_at(got, 0));
    int n_steps = assay_run_prompt_at(want, 0)->n_steps, n = 0;
    ck_assert_int_eq(assay_run_prompt_at(got, 0)->n_steps, n_steps);
    for (int s = 0; s < n_steps; s++) {
        ck_assert_int_eq(assay_run_step_at(got, 0, s)->first_position,
                         assay_run_step_at(want, 0, s)->first_position);
        ck_assert_int_eq(assay_run_step_at(got, 0, s)->tokens[0],
                         assay_run_step_at(want, 0, s)->tokens[0]);
        ck_assert_int_eq(assay_run_n_seen(got, 0, s), assay_run_n_seen(want, 0, s));
        for (int i = 0; i < assay_run_n_seen(want, 0, s); i++) {
            const assay_seen *x = assay_run_seen_at(want, 0, s, i);
            const assay_seen *y = assay_run_seen_at(got, 0, s, i);
            int64_t n_x, n_y;
            ck_assert_str_eq(x->source, y->source);
            double *u = values(&n_x, want, x), *v = values(&n_y, got, y);
            ck_assert_int_eq(n_x, n_y);
            ck_assert_msg(!memcmp(u, v, (size_t)n_x * sizeof *u), "step %d: %s", s, x->source);
            free(u);
            free(v);
            n++;
        }
    }
    ck_assert_int_gt(n, 100);
    assay_run_close(want);
    assay_run_close(got);
}
END_TEST

START_TEST(assay_torch_leaves_no_file_when_the_block_fails)
{
    if (!has_python())
        return;
    char arguments[4200];
    snprintf(arguments, sizeof arguments, "cut '%s'", data_scratch("cut.h5"));
    standin(arguments);
}
END_TEST

START_TEST(assay_torch_puts_reference_values_in)
{
    if (!has_python())
        return;
    char arguments[4200];
    snprintf(arguments, sizeof arguments, "force '%s' count",
             data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"));
    standin(arguments);
}
END_TEST

START_TEST(assay_torch_is_installed_in_workers_of_serving_engines)
{
    if (!has_python())
        return;
    char arguments[4200];
    snprintf(arguments, sizeof arguments, "workers '%s'", data_scratch("worker.h5"));
    standin(arguments);
}
END_TEST

START_TEST(assay_torch_reads_selectors_and_sizes)
{
    if (has_python())
        standin("points");
}
END_TEST

EXPECT_MAIN("assay_torch", assay_torch_numbers_equal_the_recorders,
            assay_torch_capture_shows_what_the_modules_put_out,
            assay_torch_leaves_no_file_when_the_block_fails, assay_torch_puts_reference_values_in,
            assay_torch_is_installed_in_workers_of_serving_engines,
            assay_torch_reads_selectors_and_sizes)
