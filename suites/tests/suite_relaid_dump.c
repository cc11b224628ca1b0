/* Dumps whose values lie otherwise than the name map says, in a shape that fits. */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "diagnosed.h"
#include "expect.h"

#define N_HEAD 8
#define D_NOPE 64
#define D_VALUE 64

/* [T, H, B] -> [T, B, H], in place. */
static void turn_heads(hid_t file, const char *path)
{
    hsize_t dims[4];
    hid_t set = H5Dopen2(file, path, H5P_DEFAULT), space = H5Dget_space(set);
    int n_dims = H5Sget_simple_extent_dims(space, dims, NULL);
    hsize_t n = (hsize_t)H5Sget_simple_extent_npoints(space), width = dims[n_dims - 1];
    hsize_t inner = width / N_HEAD;
    float *x = malloc(2 * n * sizeof *x), *y = x + n;
    ck_assert(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    for (hsize_t row = 0; row < n; row += width)
        for (hsize_t h = 0; h < N_HEAD; h++)
            for (hsize_t i = 0; i < inner; i++)
                y[row + i * N_HEAD + h] = x[row + h * inner + i];
    ck_assert(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, y) >= 0);
    free(x);
    H5Sclose(space);
    H5Dclose(set);
}

/* Keys and values [H, T, .] as an engine takes them from the rows of kv_b as they are now. */
static void take_from(hid_t file, const char *rows, const char *part, hsize_t first, hsize_t n)
{
    hsize_t dims[4];
    hid_t set = H5Dopen2(file, part, H5P_DEFAULT), space = H5Dget_space(set);
    hid_t source = H5Dopen2(file, rows, H5P_DEFAULT), all = H5Dget_space(source);
    ck_assert_int_eq(H5Sget_simple_extent_dims(space, dims, NULL), 4);
    hsize_t n_part = (hsize_t)H5Sget_simple_extent_npoints(space), n_tokens = dims[2];
    hsize_t n_all = (hsize_t)H5Sget_simple_extent_npoints(all), inner = n_all / n_tokens / N_HEAD;
    float *x = malloc((n_part + n_all) * sizeof *x), *y = x + n_part;
    ck_assert(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    ck_assert(H5Dread(source, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, y) >= 0);
    for (hsize_t h = 0; h < N_HEAD; h++)
        for (hsize_t t = 0; t < n_tokens; t++)
            memcpy(x + (h * n_tokens + t) * dims[3], y + (t * N_HEAD + h) * inner + first,
                   n * sizeof *x);
    ck_assert(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    free(x);
    H5Sclose(all);
    H5Dclose(source);
    H5Sclose(space);
    H5Dclose(set);
}

static void take_keys_and_values(hid_t file, const char *step, int layer)
{
    char rows[256], part[256];
    snprintf(rows, sizeof rows, "%s/model.layers.%d.self_attn.kv_b_proj", step, layer);
    snprintf(part, sizeof part, "%s/model.layers.%d.self_attn.key", step, layer);
    take_from(file, rows, part, 0, D_NOPE);
    snprintf(part, sizeof part, "%s/model.layers.%d.self_attn.value", step, layer);
    take_from(file, rows, part, D_NOPE, D_VALUE);
}

static void copy_file(const char *to, const char *from)
{
    char bytes[65536];
    FILE *f = fopen(from, "rb"), *g = fopen(to, "wb");
    ck_assert(f && g);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, f)) > 0;)
        ck_assert(fwrite(bytes, 1, n, g) == n);
    fclose(f);
    ck_assert(fclose(g) == 0);
}

/* The projection to keys and values of these layers, in all steps. */
static void make_dump(const char *path, int first_layer, int last_layer, bool is_used)
{
    static const char *const prompts[] = {"count", "text"};
    copy_file(path, data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"));
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    ck_assert(file >= 0);
    int n = 0;
    for (int p = 0; p < 2; p++)
        for (int layer = first_layer; layer <= last_layer; layer++)
            for (int step = 0;; step++) {
                char name[256], group[64];
                snprintf(group, sizeof group, "/%s/step%04d", prompts[p], step);
                if (H5Lexists(file, group, H5P_DEFAULT) <= 0)
                    break;
                snprintf(name, sizeof name, "%s/model.layers.%d.self_attn.kv_b_proj", group, layer);
                if (H5Lexists(file, name, H5P_DEFAULT) > 0) {
                    turn_heads(file, name);
                    if (is_used)
                        take_keys_and_values(file, group, layer);
                    n++;
                }
            }
    ck_assert_int_gt(n, last_layer - first_layer);
    H5Fclose(file);
}

static assay_result result;

static bool is_noted(void)
{
    for (int i = 0; i < result.notes.n; i++)
        if (strstr(result.notes.items[i], "the layout of attn.kv_b is heads innermost, not as"))
            return true;
    return false;
}

static void diagnose(int first_layer, int last_layer, bool is_used)
{
    char path[600], model[600];
    snprintf(path, sizeof path, "%s", data_scratch("relaid.h5"));
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    make_dump(path, first_layer, last_layer, is_used);
    EXPECT_OK(diagnosed(&result, path, model));
}

START_TEST(a_layout_that_the_map_has_wrong_is_a_note)
{
    diagnose(0, 3, false);
    ck_assert_msg(result.n_findings == 0, "%s", diagnosed_text(&result));
    ck_assert(is_noted());
    assay_result_clear(&result);
}
END_TEST

/* What one layer alone does is no layout of the dump. */
START_TEST(one_layer_in_another_order_is_a_finding)
{
    diagnose(2, 2, false);
    ck_assert(!is_noted());
    ck_assert_int_gt(result.n_findings, 0);
    ck_assert_msg(strstr(diagnosed_text(&result), "blk.2.attn.kv_b") != NULL, "%s",
                  diagnosed_text(&result));
    assay_result_clear(&result);
}
END_TEST

/* An engine that really has it so, and goes on with it. */
START_TEST(an_order_that_the_engine_computes_with_is_a_finding)
{
    diagnose(0, 3, true);
    ck_assert(!is_noted());
    ck_assert_int_gt(result.n_findings, 0);
    ck_assert_msg(strstr(diagnosed_text(&result), "blk.0.attn.kv_b") != NULL, "%s",
                  diagnosed_text(&result));
    assay_result_clear(&result);
}
END_TEST

EXPECT_MAIN("relaid_dump", a_layout_that_the_map_has_wrong_is_a_note,
            one_layer_in_another_order_is_a_finding,
            an_order_that_the_engine_computes_with_is_a_finding)
