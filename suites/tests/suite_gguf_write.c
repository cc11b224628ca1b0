#include "engine/gguf_write.h"

#include <stdio.h>
#include <sys/stat.h>

#include "data.h"
#include "expect.h"

static const int64_t wide[2] = {64, 3}, narrow[1] = {5};

static assay_gguf_writer *described(void)
{
    static const uint32_t heads[2] = {4, 8};
    assay_gguf_writer *w = NULL;
    EXPECT_OK(assay_gguf_writer_new(&w));
    EXPECT_OK(assay_gguf_put_str(w, "general.architecture", "llama"));
    EXPECT_OK(assay_gguf_put_u32(w, "a.u32", 7));
    EXPECT_OK(assay_gguf_put_f32(w, "a.f32", 0.5f));
    EXPECT_OK(assay_gguf_put_bool(w, "a.bool", true));
    EXPECT_OK(assay_gguf_put_array(w, "a.heads", ASSAY_GGUF_U32, 2, heads));
    EXPECT_OK(assay_gguf_put_str_array(w, "a.words", 2));
    EXPECT_OK(assay_gguf_put_element(w, "one", 3));
    EXPECT_OK(assay_gguf_put_element(w, "", 0));
    EXPECT_OK(assay_gguf_put_tensor(w, "t.0", 0, 1, narrow));
    EXPECT_OK(assay_gguf_put_tensor(w, "t.1", 8, 2, wide));
    EXPECT_OK(assay_gguf_put_tensor(w, "t.2", 0, 0, NULL));
    EXPECT_OK(assay_gguf_put_tensor(w, "t.3", 1, 1, narrow));
    return w;
}

/* Byte i of tensor t. */
static uint8_t pattern(int64_t t, uint64_t i)
{
    return (uint8_t)(17 * t + (int64_t)i % 50 + 1);
}

static void fill(assay_gguf_writer *w)
{
    for (int64_t t = 3; t >= 0; t--)
        for (uint64_t i = assay_gguf_writer_tensor_bytes(w, t); i-- > 0;) {
            uint8_t byte = pattern(t, i);
            EXPECT_OK(assay_gguf_writer_data(w, t, i, &byte, 1));
        }
}

static void expect_content(const char *path, int n_files, bool filled)
{
    assay_gguf *file = NULL;
    EXPECT_OK(assay_gguf_open(&file, path));
    ck_assert_int_eq(assay_gguf_n_files(file), n_files);
    ck_assert_int_eq(assay_gguf_n_tensors(file), 4);
    uint32_t u = 0, heads[2];
    float f = 0;
    bool b = false;
    assay_gguf_string words[2];
    EXPECT_OK(assay_gguf_u32(&u, file, "a.u32"));
    EXPECT_OK(assay_gguf_f32(&f, file, "a.f32"));
    EXPECT_OK(assay_gguf_bool(&b, file, "a.bool"));
    EXPECT_OK(assay_gguf_u32_or_array(heads, file, "a.heads", 2));
    EXPECT_OK(assay_gguf_str_array(words, assay_gguf_find_key(file, "a.words")));
    ck_assert(u == 7 && f == 0.5f && b && heads[0] == 4 && heads[1] == 8);
    ck_assert(words[0].n == 3 && memcmp(words[0].bytes, "one", 3) == 0 && words[1].n == 0);
    for (int64_t t = 0; t < 4; t++) {
        const assay_gguf_tensor_info *info = assay_gguf_tensor_at(file, t);
        for (uint64_t i = 0; i < info->n_bytes; i++)
            ck_assert_uint_eq(((const uint8_t *)info->data)[i], filled ? pattern(t, i) : 0);
    }
    assay_gguf_close(file);
}

START_TEST(gguf_write_makes_what_the_reader_reads)
{
    char path[256];
    for (int n_files = 1; n_files <= 4; n_files++) {
        snprintf(path, sizeof path, "%s", data_scratch("w.gguf"));
        assay_gguf_writer *w = described();
        EXPECT_OK(assay_gguf_writer_start(w, path, n_files));
        fill(w);
        snprintf(path, sizeof path, "%s", assay_gguf_writer_path(w));
        EXPECT_OK(assay_gguf_writer_close(w));
        expect_content(path, n_files, true);
    }
}
END_TEST

START_TEST(gguf_write_without_data_makes_a_skeleton_of_holes)
{
    static const int64_t large[2] = {1 << 20, 1 << 10};
    char path[256];
    snprintf(path, sizeof path, "%s", data_scratch("hole.gguf"));
    assay_gguf_writer *w = described();
    EXPECT_OK(assay_gguf_put_tensor(w, "t.4", 0, 2, large));
    EXPECT_OK(assay_gguf_writer_start(w, path, 1));
    ck_assert_uint_gt(assay_gguf_writer_bytes(w), 1ull << 32);
    EXPECT_OK(assay_gguf_writer_close(w));
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_gt(st.st_size, 1ll << 32);
    ck_assert_int_lt(st.st_blocks * 512, 1 << 20);
}
END_TEST

START_TEST(gguf_write_refuses_what_no_file_can_hold)
{
    static const int64_t zero[1] = {0}, odd[1] = {33};
    assay_gguf_writer *w = described();
    EXPECT_FAILS(ASSAY_BAD_SHAPE, assay_gguf_put_tensor(w, "x", 8, 1, odd));
    EXPECT_FAILS(ASSAY_BAD_SHAPE, assay_gguf_put_tensor(w, "x", 0, 1, zero));
    EXPECT_FAILS(ASSAY_UNSUPPORTED, assay_gguf_put_tensor(w, "x", 4, 1, narrow));
    EXPECT_FAILS(ASSAY_USAGE, assay_gguf_writer_start(w, data_scratch("w.gguf"), 5));
    EXPECT_FAILS(ASSAY_USAGE, assay_gguf_writer_start(w, data_scratch("w.gguf"), 0));
    assay_gguf_writer_free(w);
    w = described();
    EXPECT_FAILS(ASSAY_IO, assay_gguf_writer_start(w, "/nonexistent/x.gguf", 1));
    EXPECT_SAYS("/nonexistent/x.gguf");
    assay_gguf_writer_free(w);
}
END_TEST

EXPECT_MAIN("gguf_write", gguf_write_makes_what_the_reader_reads,
            gguf_write_without_data_makes_a_skeleton_of_holes,
            gguf_write_refuses_what_no_file_can_hold)
