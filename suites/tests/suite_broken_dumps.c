/* Dumps of other engines that something happened to: each ends in words or in the right finding,
 * and nowhere else in a false one. */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data.h"
#include "diagnosed.h"
#include "expect.h"

#define STEP "/count/step0000/"
#define DECODE "/count/step0001"

typedef struct values {
    int n_dims;
    hsize_t dims[4], n;
    float *x;
} values;

static values read_values(hid_t file, const char *path)
{
    values v = {.n = 1};
    hid_t set = H5Dopen2(file, path, H5P_DEFAULT), space = H5Dget_space(set);
    v.n_dims = H5Sget_simple_extent_dims(space, v.dims, NULL);
    for (int d = 0; d < v.n_dims; d++)
        v.n *= v.dims[d];
    v.x = malloc(v.n * sizeof *v.x);
    ck_assert(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, v.x) >= 0);
    H5Sclose(space);
    H5Dclose(set);
    return v;
}

/* In place of the dataset; frees v. */
static void put_values(hid_t file, const char *path, values v, hid_t type)
{
    H5Ldelete(file, path, H5P_DEFAULT);
    hid_t space = H5Screate_simple(v.n_dims, v.dims, NULL);
    hid_t set = H5Dcreate2(file, path, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, v.x) >= 0);
    H5Dclose(set);
    H5Sclose(space);
    free(v.x);
}

static void wrong_dtype(hid_t file)
{
    const char *path = STEP "model.layers.1.mlp";
    hsize_t n = 8;
    H5Ldelete(file, path, H5P_DEFAULT);
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &n, NULL);
    H5Tset_size(type, 12);
    hid_t set = H5Dcreate2(file, path, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                       "1.5         2.5         3.5         4.5         "
                       "5.5         6.5         7.5         8.5         ") >= 0);
    H5Dclose(set);
    H5Sclose(space);
    H5Tclose(type);
}

static void transposed_axis(hid_t file)
{
    const char *path = STEP "model.layers.2.mlp.shared_experts";
    values v = read_values(file, path), t = v;
    hsize_t rows = v.dims[1], cols = v.dims[2];
    t.x = malloc(v.n * sizeof *t.x);
    for (hsize_t r = 0; r < rows; r++)
        for (hsize_t c = 0; c < cols; c++)
            t.x[c * rows + r] = v.x[r * cols + c];
    t.dims[1] = cols;
    t.dims[2] = rows;
    free(v.x);
    put_values(file, path, t, H5T_NATIVE_FLOAT);
}

static void duplicated_step(hid_t file)
{
    H5Ldelete(file, "/count/step0002", H5P_DEFAULT);
    ck_assert(H5Ocopy(file, DECODE, file, "/count/step0002", H5P_DEFAULT, H5P_DEFAULT) >= 0);
}

static void renamed_module(hid_t file)
{
    ck_assert(H5Lmove(file, STEP "model.layers.1.self_attn.kv_a_layernorm", file,
                      STEP "model.layers.1.self_attn.kv_layer_norm", H5P_DEFAULT,
                      H5P_DEFAULT) >= 0);
}

/* The ids are those of another text. */
static void mixed_prompts(hid_t file)
{
    static const char *const paths[] = {"/count/tokens", STEP "input_tokens"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        int32_t ids[64];
        hid_t set = H5Dopen2(file, paths[i], H5P_DEFAULT);
        ck_assert(H5Dread(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, ids) >= 0);
        for (int k = 0; k < 64; k++)
            ids[k] = (ids[k] & 1023) ^ 5;
        ck_assert(H5Dwrite(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, ids) >= 0);
        H5Dclose(set);
    }
}

/* One rank of two. */
static void missing_rank(hid_t file)
{
    const int32_t rank = 0, ranks = 2;
    const struct {
        const char *name;
        const int32_t *value;
    } attributes[] = {{"rank", &rank}, {"ranks", &ranks}};
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        hid_t space = H5Screate(H5S_SCALAR);
        hid_t a =
            H5Acreate2(file, attributes[i].name, H5T_NATIVE_INT32, space, H5P_DEFAULT, H5P_DEFAULT);
        ck_assert(H5Awrite(a, H5T_NATIVE_INT32, attributes[i].value) >= 0);
        H5Aclose(a);
        H5Sclose(space);
    }
}

static void nan_padding(hid_t file)
{
    const char *path = STEP "model.layers.3.mlp";
    values v = read_values(file, path);
    hsize_t rows = v.dims[1], cols = v.dims[2];
    v.dims[1] = rows + 4;
    v.n = (rows + 4) * cols;
    v.x = realloc(v.x, v.n * sizeof *v.x);
    for (hsize_t i = rows * cols; i < v.n; i++)
        v.x[i] = NAN;
    put_values(file, path, v, H5T_NATIVE_FLOAT);
}

static void float16_overflow(hid_t file)
{
    const char *path = STEP "model.layers.2.mlp";
    values v = read_values(file, path);
    for (hsize_t i = 0; i < v.n; i += 37)
        v.x[i] = v.x[i] < 0 ? -INFINITY : INFINITY;
    put_values(file, path, v, H5T_NATIVE_FLOAT);
}

static void empty_group(hid_t file)
{
    hid_t a = H5Gcreate2(file, "/empty", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t b = H5Gcreate2(file, "/empty/step0000", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(b);
    H5Gclose(a);
}

static void nothing(hid_t file)
{
    (void)file;
}

/* What is to be said: an error, a line of what is left out (or a note), or a finding. */
static const struct {
    const char *name;
    void (*damage)(hid_t file);
    double keep;         /* share of the file's bytes; 0: all */
    const char *error;   /* NULL: it is judged */
    const char *line;    /* among unmapped names and notes; NULL: none */
    const char *classes; /* NULL: no finding */
    const char *point;
} rows[] = {
    {"healthy", nothing, 0, NULL, NULL, NULL, NULL},
    {"cut file", nothing, 0.6, "broken.h5", NULL, NULL, NULL},
    {"wrong dtype", wrong_dtype, 0, NULL, "model.layers.1.mlp: not real numbers", NULL, NULL},
    {"transposed axis", transposed_axis, 0, NULL, "model.layers.2.mlp.shared_experts: shape", NULL,
     NULL},
    {"missing rank", missing_rank, 0, NULL, "rank", NULL, NULL},
    {"duplicated step", duplicated_step, 0, NULL, "step 2 is at position 8, which an earlier step",
     NULL, NULL},
    {"renamed module", renamed_module, 0, NULL,
     "kv_layer_norm: unknown name (nearest: model.layers.{}.self_attn.indexer.k_norm)", NULL, NULL},
    {"mixed prompts", mixed_prompts, 0, NULL, NULL, "VOCAB", "embed"},
    {"NaN padding", nan_padding, 0, NULL, "model.layers.3.mlp: shape", NULL, NULL},
    {"float16 overflow", float16_overflow, 0, NULL, NULL, "RANGE", "moe.out"},
    {"empty group", empty_group, 0, NULL, "prompt 'empty' has no step that can be judged", NULL,
     NULL},
};

static void copy_file(const char *to, const char *from, double keep)
{
    struct stat st;
    ck_assert(stat(from, &st) == 0);
    size_t n = (size_t)(keep > 0 ? keep * (double)st.st_size : (double)st.st_size);
    char *bytes = malloc(n);
    FILE *f = fopen(from, "rb"), *g = fopen(to, "wb");
    ck_assert(f && g && fread(bytes, 1, n, f) == n && fwrite(bytes, 1, n, g) == n);
    fclose(f);
    ck_assert(fclose(g) == 0);
    free(bytes);
}

static bool is_said(const char *line, const char *path)
{
    assay_run *run;
    bool said = false;
    EXPECT_OK(assay_run_open(&run, &path, 1, NULL));
    for (int i = 0; i < assay_run_about(run)->n_unmapped; i++)
        said = said || strstr(assay_run_unmapped_at(run, i), line);
    for (int i = 0; i < assay_run_n_notes(run); i++)
        said = said || strstr(assay_run_note_at(run, i), line);
    assay_run_close(run);
    return said;
}

START_TEST(every_broken_dump_ends_in_words_or_in_the_right_finding)
{
    char source[4096], model[4096], path[4096];
    snprintf(source, sizeof source, "%s", data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"));
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(path, sizeof path, "%s", data_scratch("broken.h5"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        copy_file(path, source, rows[i].keep);
        if (rows[i].keep == 0) {
            hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
            ck_assert(file >= 0);
            rows[i].damage(file);
            H5Fclose(file);
        }
        assay_result result;
        assay_status s = diagnosed(&result, path, model);
        if (rows[i].error) {
            ck_assert_msg(s != ASSAY_OK, "%s: judged", rows[i].name);
            ck_assert_msg(strstr(assay_error_text(), rows[i].error) != NULL, "%s: %s", rows[i].name,
                          assay_error_text());
            continue;
        }
        ck_assert_msg(s == ASSAY_OK, "%s: %s", rows[i].name, assay_error_text());
        for (int k = 0; k < result.n_findings; k++)
            ck_assert_msg(rows[i].classes &&
                              !strcmp(result.findings[k].fault_class, rows[i].classes),
                          "%s: %s", rows[i].name, diagnosed_text(&result));
        if (rows[i].classes)
            ck_assert_msg(diagnosed_find(&result, rows[i].classes, rows[i].point) != NULL, "%s: %s",
                          rows[i].name, diagnosed_text(&result));
        assay_result_clear(&result);
        if (rows[i].line)
            ck_assert_msg(is_said(rows[i].line, path), "%s", rows[i].name);
    }
}
END_TEST

/* Nothing in the dump shows how many heads there are; the model given to diagnose does. */
START_TEST(sizes_that_a_dump_does_not_show_come_from_the_model)
{
    static const char *const kept[] = {"model.layers.1.self_attn.q_a_layernorm",
                                       "model.layers.1.self_attn.q_b_proj", "input_tokens"};
    char path[4096], command[16384], line[512] = "";
    const char *build = getenv("ASSAY_BUILD_DIR");
    snprintf(path, sizeof path, "%s", data_scratch("few.h5"));
    hid_t from = H5Fopen(data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t to = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t a = H5Gcreate2(to, "/count", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t b = H5Gcreate2(to, "/count/step0000", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        char name[256];
        snprintf(name, sizeof name, STEP "%s", kept[i]);
        ck_assert(H5Ocopy(from, name, to, name, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    }
    H5Gclose(a);
    H5Gclose(b);
    H5Fclose(from);
    H5Fclose(to);
    snprintf(command, sizeof command, "'%s/assay' diagnose '%s' --model '%s' 2>&1", build, path,
             data_shipped("glm5-tiny-Q4_K_M.gguf"));
    FILE *f = popen(command, "r");
    ck_assert(f && fgets(line, sizeof line, f));
    ck_assert_int_eq(pclose(f), 0);
    ck_assert_msg(strstr(line, "2 of 2 points judged") != NULL, "%s", line);
}
END_TEST

EXPECT_MAIN("broken_dumps", sizes_that_a_dump_does_not_show_come_from_the_model,
            every_broken_dump_ends_in_words_or_in_the_right_finding)
