/* What a capture asks of HDF5 and of the system while it is written. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"
#include "probes/capture.h"
#include "probes/hdf5_write.h"

/* In place of the C library's: what was asked for, and what it answers. */
static struct {
    int n;
    off64_t from[8];
    unsigned flags;
    int error; /* 0: none */
} asked;

int sync_file_range(int fd, off64_t from, off64_t n, unsigned flags)
{
    ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
    ck_assert_int_eq(n, 0);
    ck_assert_int_lt(asked.n, 8);
    asked.from[asked.n++] = from;
    asked.flags |= flags;
    errno = asked.error;
    return asked.error ? -1 : 0;
}

enum { ROWS = 1024, COLS = 5120 }; /* 20 MiB a value */

static assay_status write_values(const char *path, int n)
{
    const assay_capture_about about = {.producer = "assay", .n_ranks = 1};
    const int32_t tokens[1] = {0};
    assay_capture *c;
    float *x = calloc((size_t)ROWS * COLS, sizeof *x);
    ck_assert_ptr_nonnull(x);
    assay_buffer b = assay_buffer_view(x, ASSAY_DTYPE_F32, 2, (int64_t[]){ROWS, COLS});
    EXPECT_OK(assay_capture_create(&c, path, &about, NULL));
    EXPECT_OK(assay_capture_prompt(c, "p", NULL, tokens, 1));
    EXPECT_OK(assay_capture_step(c, true, 0, tokens, 1));
    assay_status s = ASSAY_OK;
    for (int i = 0; i < n && s == ASSAY_OK; i++) {
        char name[32];
        snprintf(name, sizeof name, "blk.%d.attn.in_norm", i);
        s = assay_capture_value(c, name, NULL, &b, ASSAY_DTYPE_F32, -1);
    }
    free(x);
    if (s == ASSAY_OK)
        s = assay_capture_finish(c);
    else
        assay_capture_abandon(c);
    return s;
}

START_TEST(hdf5_write_values_go_to_the_disk_before_the_end)
{
    EXPECT_OK(write_values(data_scratch("large.h5"), 3));
    ck_assert_int_eq(asked.n, 3);
    ck_assert_int_eq(asked.from[0], 0);
    for (int i = 1; i < asked.n; i++)
        ck_assert_int_ge(asked.from[i], asked.from[i - 1] + (16 << 20));
    ck_assert_uint_eq(asked.flags, SYNC_FILE_RANGE_WRITE); /* and nothing that waits */
}
END_TEST

START_TEST(hdf5_write_says_when_values_do_not_get_to_the_disk)
{
    const char *path = data_scratch("broken.h5");
    const int errors[] = {EIO, ENOSPC, EDQUOT};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        asked.error = errors[i];
        EXPECT_FAILS(ASSAY_IO, write_values(path, 2));
        EXPECT_SAYS("broken.h5");
        EXPECT_SAYS(strerror(errors[i]));
    }
    ck_assert_int_eq(asked.n, 3);
}
END_TEST

START_TEST(hdf5_write_does_without_where_the_system_cannot_begin_early)
{
    asked.error = ENOSYS;
    EXPECT_OK(write_values(data_scratch("elsewhere.h5"), 2));
    ck_assert_int_eq(asked.n, 2);
}
END_TEST

/* Members "first" ... "end - 1" of the group. */
static void put_small(hid_t file, const char *group, int first, int end)
{
    char path[64];
    assay_h5_kit kit = {.spaces = {0}};
    if (first == 0)
        EXPECT_OK(assay_h5_make_group(file, group));
    for (int i = first; i < end; i++) {
        hid_t set;
        const int64_t one = 1;
        int64_t at;
        snprintf(path, sizeof path, "%s/%d", group, i);
        EXPECT_OK(assay_h5_place_dataset(&set, &at, &kit, file, path, H5T_NATIVE_FLOAT, 1, &one));
        ck_assert_int_gt(at, 0);
        EXPECT_OK(assay_h5_add_text(&kit, set, path, "axes", "TD"));
        EXPECT_OK(assay_h5_close_dataset(set, file, path));
    }
    assay_h5_kit_clear(&kit);
}

static void copy(const char *to, const char *from)
{
    char buffer[4096];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    ck_assert(in && out);
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, in)) > 0;)
        ck_assert_uint_eq(fwrite(buffer, 1, n, out), n);
    ck_assert(fclose(in) == 0 && fclose(out) == 0);
}

static int members(const char *path, const char *group)
{
    assay_h5_names names;
    hid_t file;
    EXPECT_OK(assay_h5_open(&file, path));
    EXPECT_OK(assay_h5_list(&names, file, group));
    int n = names.n;
    assay_h5_names_clear(&names);
    H5Fclose(file);
    return n;
}

/* What a reader finds of a writer who was killed is what it flushed last. */
START_TEST(hdf5_write_between_flushes_the_file_stays_what_it_was)
{
    enum { FEW = 20, MANY = 12000 }; /* 10 MB of objects */
    char path[4096], left[4096];
    snprintf(path, sizeof path, "%s", data_scratch("writing.h5"));
    snprintf(left, sizeof left, "%s", data_scratch("left.h5"));
    hid_t file = assay_h5_create(path);
    ck_assert(file >= 0);
    put_small(file, "/a", 0, FEW);
    ck_assert(assay_h5_flush(file));
    put_small(file, "/a", FEW, MANY);
    put_small(file, "/b", 0, FEW);
    copy(left, path);
    ck_assert_int_eq(members(left, "/"), 1);
    ck_assert_int_eq(members(left, "/a"), FEW);
    ck_assert(assay_h5_flush(file));
    copy(left, path);
    ck_assert_int_eq(members(left, "/"), 2);
    ck_assert_int_eq(members(left, "/a"), MANY);
    H5Fclose(file);
}
END_TEST

START_TEST(hdf5_write_forgets_what_is_flushed)
{
    hid_t file = assay_h5_create(data_scratch("forgets.h5"));
    int n_before, n_after;
    put_small(file, "/a", 0, 500);
    ck_assert(H5Fget_mdc_size(file, NULL, NULL, NULL, &n_before) >= 0);
    ck_assert_int_ge(n_before, 500);
    ck_assert(assay_h5_flush(file));
    ck_assert(H5Fget_mdc_size(file, NULL, NULL, NULL, &n_after) >= 0);
    ck_assert_int_le(n_after, 20);
    H5Fclose(file);
}
END_TEST

/* With a kit and without: short and long, few and many. */
START_TEST(hdf5_write_adds_attributes_as_it_puts_them)
{
    hid_t file = assay_h5_create(data_scratch("attributes.h5"));
    assay_h5_kit kit = {.spaces = {0}};
    const char *texts[] = {"", "f32", "sixteen letters.", "seventeen letters"};
    int64_t numbers[12];
    for (int i = 0; i < 12; i++)
        numbers[i] = i - 6;
    for (int turn = 0; turn < 2; turn++) {
        char group[8];
        hid_t g;
        snprintf(group, sizeof group, "/%d", turn);
        EXPECT_OK(assay_h5_make_group(file, group));
        EXPECT_OK(assay_h5_open_group(&g, file, group));
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            char name[8], *read;
            bool found;
            snprintf(name, sizeof name, "t%zu", i);
            EXPECT_OK(assay_h5_add_text(&kit, g, group, name, texts[i]));
            EXPECT_OK(assay_h5_attr_text(&read, &found, file, group, name));
            ck_assert_str_eq(read, texts[i]);
            free(read);
        }
        for (int n = 1; n <= 12; n++) {
            char name[8];
            int64_t *read, n_read;
            bool found;
            snprintf(name, sizeof name, "n%d", n);
            EXPECT_OK(assay_h5_add_numbers(&kit, g, group, name, H5T_NATIVE_INT64, numbers, n));
            EXPECT_OK(assay_h5_attr_ints(&read, &n_read, &found, file, group, name));
            ck_assert_int_eq(n_read, n);
            ck_assert_mem_eq(read, numbers, (size_t)n * sizeof *read);
            free(read);
        }
        assay_h5_close(g);
    }
    assay_h5_kit_clear(&kit);
    ck_assert_int_eq(H5Fget_obj_count(file, H5F_OBJ_ALL), 1);
    H5Fclose(file);
}
END_TEST

EXPECT_MAIN("hdf5_write", hdf5_write_values_go_to_the_disk_before_the_end,
            hdf5_write_says_when_values_do_not_get_to_the_disk,
            hdf5_write_does_without_where_the_system_cannot_begin_early,
            hdf5_write_between_flushes_the_file_stays_what_it_was,
            hdf5_write_forgets_what_is_flushed, hdf5_write_adds_attributes_as_it_puts_them)
