/* Dumps as folders of .npy files, .npz archives and .safetensors files, built byte by byte. */
#include "references/folder.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"
#include "references/run.h"

static size_t npy(unsigned char *out, const char *descr, const char *order, const char *shape,
                  const void *data, size_t n)
{
    char header[256];
    int length =
        snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n",
                 descr, order, shape);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (unsigned char)length;
    out[9] = 0;
    memcpy(out + 10, header, (size_t)length);
    memcpy(out + 10 + length, data, n);
    return 10 + (size_t)length + n;
}

static void spill(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void put_npy(const char *folder, const char *name, const char *descr, const char *shape,
                    const void *data, size_t n)
{
    unsigned char bytes[4096];
    char path[4200];
    snprintf(path, sizeof path, "%.4000s/%.100s.npy", folder, name);
    spill(path, bytes, npy(bytes, descr, "False", shape, data, n));
}

static const float x[6] = {1, 2, 3, 4, 5, 6};
static const int64_t tokens[2] = {7, 8};

static assay_run *open_run(const char *path)
{
    assay_run *run;
    EXPECT_OK(assay_run_open(&run, &path, 1, NULL));
    return run;
}

static void expect_norm(const assay_run *run)
{
    ck_assert_msg(assay_run_about(run)->n_unmapped == 0, "%s", assay_run_unmapped_at(run, 0));
    const assay_seen *seen = assay_run_find(run, 0, 0, ASSAY_POINT_FINAL_NORM, -1);
    ck_assert_ptr_nonnull(seen);
    ck_assert_int_eq(seen->dims[0] * 10 + seen->dims[1], 23);
    double y[6];
    EXPECT_OK(assay_run_read(y, run, seen));
    for (int i = 0; i < 6; i++)
        ck_assert_double_eq(y[i], x[i]);
    ck_assert_int_eq(assay_run_step_at(run, 0, 0)->tokens[1], 8);
}

START_TEST(folder_of_npy_files_is_a_dump)
{
    char folder[4096], step[4200];
    snprintf(folder, sizeof folder, "%s", data_scratch("dump"));
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    put_npy(folder, "model.norm", "<f4", "(1, 2, 3)", x, sizeof x);
    put_npy(folder, "input_tokens", "<i8", "(2,)", tokens, sizeof tokens);
    assay_run *run = open_run(folder);
    expect_norm(run);
    ck_assert_str_eq(assay_run_prompt_at(run, 0)->name, "default");
    assay_run_close(run);
    /* the same below <prompt>/step0000, in bfloat16 */
    snprintf(folder, sizeof folder, "%s", data_scratch("prompts"));
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    snprintf(step, sizeof step, "%s/count", folder);
    ck_assert_int_eq(mkdir(step, 0700), 0);
    snprintf(step, sizeof step, "%s/count/step0000", folder);
    ck_assert_int_eq(mkdir(step, 0700), 0);
    uint16_t half[6];
    for (int i = 0; i < 6; i++)
        half[i] = assay_f32_to_bf16(x[i]);
    put_npy(step, "model.norm", "|V2", "(2, 3)", half, sizeof half);
    put_npy(step, "input_tokens", "<i8", "(2,)", tokens, sizeof tokens);
    run = open_run(folder);
    expect_norm(run);
    ck_assert_str_eq(assay_run_prompt_at(run, 0)->name, "count");
    ck_assert_int_eq(assay_run_about(run)->dtype, ASSAY_DTYPE_BF16);
    assay_run_close(run);
}
END_TEST

static size_t little(unsigned char *out, uint64_t value, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = (unsigned char)(value >> (8 * i));
    return (size_t)n;
}

/* A zip archive with stored entries, as np.savez writes it; method 8 lies that it is packed. */
static void write_npz(const char *path, int method)
{
    unsigned char file[8192], array[2][2048];
    static const char *const names[] = {"step0000/model.norm.npy", "step0000/input_tokens.npy"};
    size_t sizes[2] = {npy(array[0], "<f4", "False", "(2, 3)", x, sizeof x),
                       npy(array[1], "<i8", "False", "(2,)", tokens, sizeof tokens)};
    size_t at = 0, starts[2];
    for (int i = 0; i < 2; i++) {
        starts[i] = at;
        memset(file + at, 0, 30);
        memcpy(file + at, "PK\3\4", 4);
        little(file + at + 18, sizes[i], 4);
        little(file + at + 22, sizes[i], 4);
        little(file + at + 26, strlen(names[i]), 2);
        at += 30;
        memcpy(file + at, names[i], strlen(names[i]));
        at += strlen(names[i]);
        memcpy(file + at, array[i], sizes[i]);
        at += sizes[i];
    }
    size_t list = at;
    for (int i = 0; i < 2; i++) {
        memset(file + at, 0, 46);
        memcpy(file + at, "PK\1\2", 4);
        little(file + at + 10, (uint64_t)method, 2);
        little(file + at + 20, sizes[i], 4);
        little(file + at + 28, strlen(names[i]), 2);
        little(file + at + 42, starts[i], 4);
        at += 46;
        memcpy(file + at, names[i], strlen(names[i]));
        at += strlen(names[i]);
    }
    memset(file + at, 0, 22);
    memcpy(file + at, "PK\5\6", 4);
    little(file + at + 10, 2, 2);
    little(file + at + 16, list, 4);
    spill(path, file, at + 22);
}

START_TEST(folder_reads_npz_archives)
{
    const char *path = data_scratch("dump.npz");
    write_npz(path, 0);
    assay_run *run = open_run(path);
    expect_norm(run);
    assay_run_close(run);
    write_npz(path, 8);
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_run_open(&run, &path, 1, NULL));
    EXPECT_SAYS("np.savez");
}
END_TEST

START_TEST(folder_reads_safetensors_files)
{
    const char *path = data_scratch("dump.safetensors");
    const char *header = "{\"step0000/model.norm\":{\"dtype\":\"F32\",\"shape\":[2,3],"
                         "\"data_offsets\":[0,24]},\"step0000/input_tokens\":{\"dtype\":\"I64\","
                         "\"shape\":[2],\"data_offsets\":[24,40]}}";
    unsigned char bytes[1024];
    size_t n = strlen(header);
    little(bytes, n, 8);
    memcpy(bytes + 8, header, n);
    memcpy(bytes + 8 + n, x, sizeof x);
    memcpy(bytes + 8 + n + sizeof x, tokens, sizeof tokens);
    spill(path, bytes, 8 + n + sizeof x + sizeof tokens);
    assay_run *run = open_run(path);
    expect_norm(run);
    assay_run_close(run);
}
END_TEST

static const struct {
    const char *descr, *order, *shape, *says;
    size_t n;
} wrong[] = {
    {"|O", "False", "(2, 3)", "number format", 24},
    {">f4", "False", "(2, 3)", "number format", 24},
    {"<f4", "True", "(2, 3)", "Fortran order", 24},
    {"<f4", "False", "(2, 4)", "8 elements of 4 bytes, 24 bytes are there", 24},
    {"<f4", "False", "(2, 3)", "6 elements of 4 bytes, 20 bytes are there", 20},
    {"<f4", "False", "(4611686018427387904, 4)", "shape", 24},
    {"<f4", "False", "(4611686018427387904,)", "elements of 4 bytes", 24},
    {"<f4", "False", "(-2, -3)", "shape", 24},
    {"<f4", "False", "(1,1,1,1,1,1,6)", "shape", 24},
    {"<f4", "False", "2", "shape", 24},
};

START_TEST(folder_refuses_arrays_that_lie)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char folder[4096], path[4200], name[32];
        snprintf(name, sizeof name, "wrong%zu", i);
        snprintf(folder, sizeof folder, "%s", data_scratch(name));
        ck_assert_int_eq(mkdir(folder, 0700), 0);
        snprintf(path, sizeof path, "%s/model.norm.npy", folder);
        unsigned char bytes[1024];
        spill(path, bytes,
              npy(bytes, wrong[i].descr, wrong[i].order, wrong[i].shape, x, wrong[i].n));
        const char *at = folder;
        assay_run *run;
        EXPECT_FAILS(ASSAY_BAD_FILE, assay_run_open(&run, &at, 1, NULL));
        EXPECT_SAYS(wrong[i].says);
        EXPECT_SAYS("model.norm.npy");
    }
}
END_TEST

START_TEST(folder_cut_archives_are_refused)
{
    const char *path = data_scratch("whole.npz"), *cut = data_scratch("cut.npz");
    write_npz(path, 0);
    unsigned char bytes[8192];
    FILE *f = fopen(path, "rb");
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    for (size_t keep = 0; keep < n; keep++) {
        spill(cut, bytes, keep);
        assay_run *run;
        EXPECT_FAILS(ASSAY_BAD_FILE, assay_run_open(&run, &cut, 1, NULL));
    }
    for (size_t i = 0; i < n; i++) { /* any byte changed: refused or read, never beyond the file */
        bytes[i] ^= 0xFF;
        spill(cut, bytes, n);
        assay_run *run;
        if (assay_run_open(&run, &cut, 1, NULL) == ASSAY_OK)
            assay_run_close(run);
        bytes[i] ^= 0xFF;
    }
}
END_TEST

START_TEST(folder_that_is_empty_holds_no_prompts)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", data_scratch("empty"));
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    const char *at = folder;
    assay_run *run;
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_run_open(&run, &at, 1, NULL));
    EXPECT_SAYS("holds no prompts");
}
END_TEST

EXPECT_MAIN("folder", folder_of_npy_files_is_a_dump, folder_reads_npz_archives,
            folder_reads_safetensors_files, folder_refuses_arrays_that_lie,
            folder_cut_archives_are_refused, folder_that_is_empty_holds_no_prompts)
