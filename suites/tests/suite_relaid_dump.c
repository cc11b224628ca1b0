/* Dumps whose values lie otherwise than the name map says, in a shape that fits. */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "diagnosed.h"
#include "expect.h"

#define N_HEAD 8

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

/* The prefill of one prompt, with the projection to keys and values of these layers turned. */
static void make_dump(const char *path, int first_layer, int last_layer)
{
    static const char step[] = "/count/step0000";
    copy_file(path, data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"));
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    ck_assert(file >= 0);
    H5Ldelete(file, "/text", H5P_DEFAULT);
    for (int s = 1; s <= 16; s++) {
        char name[64];
        snprintf(name, sizeof name, "/count/step%04d", s);
        H5Ldelete(file, name, H5P_DEFAULT);
    }
    for (int layer = first_layer; layer <= last_layer; layer++) {
        char name[256];
        snprintf(name, sizeof name, "%s/model.layers.%d.self_attn.kv_b_proj", step, layer);
        turn_heads(file, name);
    }
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

static void diagnose(int first_layer, int last_layer)
{
    char path[600], model[600];
    snprintf(path, sizeof path, "%s", data_scratch("relaid.h5"));
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    make_dump(path, first_layer, last_layer);
    EXPECT_OK(diagnosed(&result, path, model));
}

START_TEST(a_layout_that_the_map_has_wrong_is_a_note)
{
    diagnose(0, 3);
    ck_assert_msg(result.n_findings == 0, "%s", diagnosed_text(&result));
    ck_assert(is_noted());
    assay_result_clear(&result);
}
END_TEST

/* What one layer alone does is no layout of the dump. */
START_TEST(one_layer_in_another_order_is_a_finding)
{
    diagnose(2, 2);
    ck_assert(!is_noted());
    ck_assert_int_gt(result.n_findings, 0);
    ck_assert_msg(strstr(diagnosed_text(&result), "blk.2.attn.kv_b") != NULL, "%s",
                  diagnosed_text(&result));
    assay_result_clear(&result);
}
END_TEST

EXPECT_MAIN("relaid_dump", a_layout_that_the_map_has_wrong_is_a_note,
            one_layer_in_another_order_is_a_finding)
