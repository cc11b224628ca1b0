/* Captures and dumps of which some rows were kept: judged on these rows. */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "diagnosed.h"
#include "engine/model.h"
#include "expect.h"
#include "references/compare.h"
#include "references/import.h"

enum { N = 24, N_NEW = 3 };

static int32_t tokens[N];
static char model[600], full[600], kept[600];
static assay_result result;

static void start(void)
{
    for (int i = 0; i < N; i++)
        tokens[i] = 3 + 37 * i % 500;
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(full, sizeof full, "%s", data_scratch("full.h5"));
    snprintf(kept, sizeof kept, "%s", data_scratch("rows.h5"));
}

/* A run at a tier, with one plant or none. */
static void capture(const char *path, const char *tier, const char *plant)
{
    assay_plant p;
    assay_model *m;
    assay_seam_setting settings[4];
    int n = 0;
    EXPECT_OK(assay_model_open(&m, model, NULL));
    if (plant) {
        EXPECT_OK(assay_plant_parse(&p, plant));
        EXPECT_OK(assay_plant_make(settings, &n, 4, &p, assay_model_hparams(m)));
    }
    assay_model_close(m);
    capture_tier(tier);
    EXPECT_OK(capture_planted(path, model, tokens, N, N_NEW, ASSAY_DTYPE_F32, settings, n));
    capture_tier(NULL);
}

static bool is_noted(const char *text)
{
    for (int i = 0; i < result.notes.n; i++)
        if (strstr(result.notes.items[i], text))
            return true;
    return false;
}

static assay_run *open_run(const char *path)
{
    assay_run *run;
    EXPECT_OK(assay_run_open(&run, &path, 1, NULL));
    return run;
}

/* The first two and the last two of the prefill: two steps in its place. */
START_TEST(kept_rows_are_those_of_the_whole_capture)
{
    static const int64_t at[][2] = {{0, 2}, {2, 22}, {24, 1}, {25, 1}};
    start();
    capture(full, NULL, NULL);
    capture(kept, "rows", NULL);
    assay_run *a = open_run(kept), *b = open_run(full);
    ck_assert_int_eq(assay_run_prompt_at(a, 0)->n_steps, 4);
    int n = 0;
    for (int step = 0; step < 4; step++) {
        const assay_run_step *s = assay_run_step_at(a, 0, step);
        ck_assert_int_eq(s->first_position, at[step][0]);
        ck_assert_int_eq(s->n_tokens, at[step][1]);
        for (int i = 0; i < assay_run_n_seen(a, 0, step); i++) {
            const assay_seen *x = assay_run_seen_at(a, 0, step, i);
            const assay_seen *y = assay_run_find(b, 0, step < 2 ? 0 : step - 1, x->point, x->layer);
            if (!x->has_values || assay_point_at(x->point)->axes[0] != 'T' || step > 1)
                continue;
            ck_assert_int_eq(x->dims[0], 2);
            int64_t width = 1;
            for (int d = 1; d < x->n_dims; d++)
                width *= x->dims[d];
            double *mine = malloc((size_t)(2 * width) * sizeof *mine);
            double *all = malloc((size_t)(N * width) * sizeof *all);
            EXPECT_OK(assay_run_read(mine, a, x));
            EXPECT_OK(assay_run_read(all, b, y));
            ck_assert_msg(
                !memcmp(mine, all + (step ? N - 2 : 0) * width, (size_t)(2 * width) * sizeof *mine),
                "%s, step %d", x->source, step);
            free(mine);
            free(all);
            n++;
        }
    }
    ck_assert_int_gt(n, 250);
    assay_run_close(a);
    assay_run_close(b);
}
END_TEST

START_TEST(rows_of_a_right_run_are_judged_and_right)
{
    start();
    capture(kept, "rows", NULL);
    EXPECT_OK(diagnosed(&result, kept, model));
    ck_assert_msg(result.n_findings == 0, "%s", diagnosed_text(&result));
    ck_assert_int_gt(result.n_judged, 500);
    ck_assert(is_noted("shown as 2 steps, of positions 0-1, 2-23"));
    ck_assert(is_noted("attention reads rows that were not kept"));
    assay_result_clear(&result);
}
END_TEST

/* By one row alone: {class, point, plant}. */
START_TEST(faults_are_named_from_rows)
{
    static const char *const rows[][3] = {
        {"FUSED-ORDER", "attn.q_a", "file-order:layer=3"},
        {"ROPE-PHASE", "attn.q_rope", "rope-base:layer=2"},
        {"KV-SCALE", "attn.kernel_out", "value-scale:layer=2"}, /* attention of the first rows */
        {"BUFFER", "attn.out", "phantom-output:layer=1"},
        {"EXPERT-MAP", "moe.expert.gate", "expert-shift:layer=3"}};
    start();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        capture(kept, "rows", rows[i][2]);
        EXPECT_OK(diagnosed(&result, kept, model));
        ck_assert_msg(result.n_findings == 1, "%s: %s", rows[i][2], diagnosed_text(&result));
        ck_assert_msg(diagnosed_find(&result, rows[i][0], rows[i][1]) != NULL, "%s: %s", rows[i][2],
                      diagnosed_text(&result));
        assay_result_clear(&result);
    }
}
END_TEST

/* Row N - 1 of one op's output, halved. */
static assay_status halve_last(void *user, const assay_tap_event *event)
{
    (void)user;
    const assay_buffer *b = event->buffer;
    if (event->point != ASSAY_POINT_FFN_NORM || event->layer != 2 || b->dims[0] != N)
        return ASSAY_OK;
    for (int64_t i = 0; i < b->dims[1]; i++)
        ((float *)b->data)[(N - 1) * b->dims[1] + i] *= 0.5f;
    return ASSAY_OK;
}

START_TEST(a_fault_of_the_last_row_alone_is_found)
{
    start();
    capture_tier("rows");
    EXPECT_OK(capture_injected(kept, model, tokens, N, N_NEW, ASSAY_DTYPE_F32, NULL, 0, halve_last,
                               NULL));
    capture_tier(NULL);
    EXPECT_OK(diagnosed(&result, kept, model));
    ck_assert_msg(result.n_findings == 1, "%s", diagnosed_text(&result));
    ck_assert_str_eq(result.findings[0].point, "blk.2.ffn.in_norm");
    assay_result_clear(&result);
}
END_TEST

static bool compares(const char *candidate, const char *reference, int *n_judged, const char **why)
{
    static char text[600];
    assay_run *a = open_run(candidate), *b = open_run(reference);
    assay_comparison *c;
    bool passed = true;
    EXPECT_OK(assay_compare_runs(&c, a, b, NULL));
    *n_judged = assay_comparison_n_judged(c);
    *why = text;
    for (int i = 0; i < assay_comparison_n(c); i++) {
        const assay_compared *item = assay_comparison_at(c, i);
        if (passed && !item->passed)
            assay_point_format(text, item->point, item->layer);
        passed = passed && item->passed;
    }
    assay_comparison_free(c);
    assay_run_close(a);
    assay_run_close(b);
    return passed;
}

START_TEST(rows_are_compared_with_a_whole_capture)
{
    int n;
    const char *where;
    start();
    capture(full, NULL, NULL);
    capture(kept, "rows", NULL);
    ck_assert(compares(kept, full, &n, &where));
    ck_assert_int_gt(n, 140);
    ck_assert(compares(full, kept, &n, &where));
    ck_assert_int_gt(n, 140);
    capture(kept, "rows", "file-order:layer=3");
    ck_assert(!compares(kept, full, &n, &where));
    ck_assert_str_eq(where, "blk.3.attn.q_a");
}
END_TEST

/* Rows 0, 1 and the last two along the axis of the prompt's tokens, as assay_torch.py at tier rows
 * leaves them. */
typedef struct cutter {
    hid_t to;
    hsize_t n_tokens;
    int n;
} cutter;

static herr_t cut_member(hid_t from, const char *name, const H5L_info_t *info, void *user)
{
    cutter *c = user;
    hsize_t dims[8];
    (void)info;
    hid_t set = H5Dopen2(from, name, H5P_DEFAULT), space = H5Dget_space(set);
    int n_dims = H5Sget_simple_extent_dims(space, dims, NULL);
    int axis = 0;
    while (axis < n_dims && dims[axis] != c->n_tokens)
        axis++;
    if (strcmp(name, "input_tokens") != 0 && axis < n_dims) {
        H5Ldelete(c->to, name, H5P_DEFAULT);
        hsize_t all = dims[axis], behind = 1, before = 1, n = 4;
        for (int d = 0; d < n_dims; d++)
            *(d < axis ? &before : &behind) *= d == axis ? 1 : dims[d];
        int32_t rows[] = {0, 1, (int32_t)all - 2, (int32_t)all - 1};
        float *x = malloc(before * all * behind * sizeof *x), *y = malloc(before * 4 * behind * 4);
        H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, x);
        for (hsize_t b = 0; b < before; b++)
            for (int r = 0; r < 4; r++)
                memcpy(y + (b * 4 + (hsize_t)r) * behind, x + (b * all + (hsize_t)rows[r]) * behind,
                       behind * sizeof *x);
        dims[axis] = 4;
        hid_t type = H5Dget_type(set), narrow = H5Screate_simple(n_dims, dims, NULL);
        hid_t made = H5Dcreate2(c->to, name, type, narrow, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        ck_assert(H5Dwrite(made, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, y) >= 0);
        hid_t list = H5Screate_simple(1, &n, NULL);
        hid_t a = H5Acreate2(made, "rows", H5T_STD_I32LE, list, H5P_DEFAULT, H5P_DEFAULT);
        H5Awrite(a, H5T_NATIVE_INT32, rows);
        H5Aclose(a);
        H5Sclose(list);
        H5Dclose(made);
        H5Sclose(narrow);
        H5Tclose(type);
        free(x);
        free(y);
        c->n++;
    }
    H5Sclose(space);
    H5Dclose(set);
    return 0;
}

static void copy_file(const char *to, const char *from)
{
    char bytes[1 << 16];
    FILE *a = fopen(from, "rb"), *b = fopen(to, "wb");
    ck_assert(a && b);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, a)) > 0;)
        ck_assert(fwrite(bytes, 1, n, b) == n);
    fclose(a);
    ck_assert(fclose(b) == 0);
}

/* The prefill of one prompt. */
static void cut_dump(const char *to, const char *from)
{
    copy_file(to, from);
    hid_t a = H5Fopen(from, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t b = H5Fopen(to, H5F_ACC_RDWR, H5P_DEFAULT);
    cutter c = {.to = H5Gopen2(b, "/count/step0000", H5P_DEFAULT), .n_tokens = 8};
    hid_t group = H5Gopen2(a, "/count/step0000", H5P_DEFAULT);
    ck_assert(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, cut_member, &c) >= 0);
    ck_assert_int_gt(c.n, 60);
    H5Gclose(group);
    H5Gclose(c.to);
    H5Fclose(b);
    H5Fclose(a);
}

START_TEST(rows_of_another_engines_dump_are_judged)
{
    const char *path = kept;
    char again[600];
    assay_import_result counts;
    assay_run *run;
    start();
    cut_dump(kept, data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"));
    EXPECT_OK(diagnosed_as(&result, kept, model, "transformers"));
    ck_assert_msg(result.n_findings == 0, "%s", diagnosed_text(&result));
    ck_assert_int_gt(result.n_judged, 100);
    ck_assert(is_noted("some rows alone were kept of step 0"));
    int64_t n_judged = result.n_judged;
    assay_result_clear(&result);
    /* and from the capture that an import makes of it */
    snprintf(again, sizeof again, "%s", data_scratch("again.h5"));
    EXPECT_OK(assay_run_open(&run, &path, 1,
                             &(assay_run_options){.step = -1, .profile = "transformers"}));
    EXPECT_OK(assay_import_run(&counts, run, again, NULL));
    assay_run_close(run);
    EXPECT_OK(diagnosed(&result, again, model));
    ck_assert_msg(result.n_findings == 0, "%s", diagnosed_text(&result));
    ck_assert_int_eq(result.n_judged, n_judged);
    assay_result_clear(&result);
}
END_TEST

EXPECT_MAIN("rows", kept_rows_are_those_of_the_whole_capture,
            rows_of_a_right_run_are_judged_and_right, faults_are_named_from_rows,
            a_fault_of_the_last_row_alone_is_found, rows_are_compared_with_a_whole_capture,
            rows_of_another_engines_dump_are_judged)
