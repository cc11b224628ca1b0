#include "data.h"
#include "expect.h"
#include "probes/hdf5_chunks.h"

#include <omp.h>

enum { MOST = 40 * 23 * 7, SHUFFLE = 1, DEFLATE = 2, FLETCHER = 4 };

static float values[MOST];

typedef struct form {
    int n_dims;
    hsize_t dims[3], chunk[3];
} form;

static const form forms[] = {
    {1, {1000}, {1000}},         {1, {1001}, {7}},          {2, {40, 23}, {40, 23}},
    {2, {40, 23}, {16, 16}},     {2, {40, 23}, {1, 23}},    {2, {1, 23}, {1, 5}},
    {3, {40, 23, 7}, {9, 5, 3}}, {3, {3, 5, 7}, {3, 5, 7}}, {3, {8, 8, 8}, {4, 4, 4}},
};

static hid_t make(hid_t file, const form *f, int filters, hid_t type)
{
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plist, f->n_dims, f->chunk);
    if (filters & SHUFFLE)
        H5Pset_shuffle(plist);
    if (filters & DEFLATE)
        H5Pset_deflate(plist, 1);
    if (filters & FLETCHER)
        H5Pset_fletcher32(plist);
    hid_t space = H5Screate_simple(f->n_dims, f->dims, NULL);
    hid_t set = H5Dcreate2(file, "x", type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    H5Sclose(space);
    H5Pclose(plist);
    ck_assert(set >= 0);
    return set;
}

static hid_t scratch_file(void)
{
    for (int i = 0; i < MOST; i++)
        values[i] = (float)(i * i % 1013) / 7 - 20;
    hid_t file = H5Fcreate(data_scratch("chunks.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert(file >= 0);
    return file;
}

static hid_t reopen(hid_t set, hid_t file)
{
    hid_t again;
    H5Dclose(set);
    H5Fclose(file);
    EXPECT_OK(assay_h5_open(&again, data_scratch("chunks.h5")));
    return again;
}

static assay_status read_chunks(void *out, hid_t file)
{
    assay_h5_info info;
    EXPECT_OK(assay_h5_dataset(&info, file, "x"));
    return assay_h5_read_stored(out, file, "x", &info);
}

START_TEST(chunks_of_every_form_are_what_the_library_reads)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (int filters = 0; filters <= (SHUFFLE | DEFLATE); filters++)
            for (int threads = 1; threads <= 3; threads += 2) {
                float mine[MOST] = {0}, theirs[MOST] = {0};
                hid_t file = scratch_file(), set = make(file, &forms[i], filters, H5T_NATIVE_FLOAT);
                H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
                H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, theirs);
                file = reopen(set, file);
                omp_set_num_threads(threads);
                EXPECT_OK(read_chunks(mine, file));
                ck_assert_msg(!memcmp(mine, theirs, sizeof mine), "form %zu, filters %d", i,
                              filters);
                H5Fclose(file);
            }
}
END_TEST

START_TEST(chunks_of_other_widths_are_put_together_too)
{
    const hid_t types[] = {H5T_NATIVE_DOUBLE, H5T_NATIVE_UINT16, H5T_NATIVE_INT32};
    for (int i = 0; i < 3; i++) {
        unsigned char mine[8 * MOST] = {0}, theirs[8 * MOST] = {0};
        hid_t file = scratch_file(), set = make(file, &forms[3], SHUFFLE | DEFLATE, types[i]);
        for (int k = 0; k < MOST; k++)
            values[k] += 20;
        H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
        H5Dread(set, types[i], H5S_ALL, H5S_ALL, H5P_DEFAULT, theirs);
        file = reopen(set, file);
        EXPECT_OK(read_chunks(mine, file));
        ck_assert(!memcmp(mine, theirs, sizeof mine));
        H5Fclose(file);
    }
}
END_TEST

/* Other filters, and chunks that were never written and so have the fill value. */
START_TEST(chunks_of_other_kinds_are_read_by_the_library)
{
    for (int kind = 0; kind < 3; kind++) {
        float mine[MOST], theirs[MOST];
        hid_t file = scratch_file(),
              set = make(file, &forms[1], kind == 0 ? DEFLATE | FLETCHER : DEFLATE,
                         kind == 1 ? H5T_IEEE_F32BE : H5T_NATIVE_FLOAT);
        if (kind < 2) {
            H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
        } else { /* the first chunk alone */
            const hsize_t start = 0, count = 7;
            hid_t space = H5Dget_space(set), memory = H5Screate_simple(1, &count, NULL);
            H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL);
            H5Dwrite(set, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, values);
            H5Sclose(space);
            H5Sclose(memory);
        }
        H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, theirs);
        file = reopen(set, file);
        assay_h5_info info;
        EXPECT_OK(assay_h5_dataset(&info, file, "x"));
        ck_assert_msg(info.is_native == (kind != 1), "kind %d", kind); /* 1: has to be converted */
        if (info.is_native) {
            EXPECT_OK(read_chunks(mine, file));
            ck_assert(!memcmp(mine, theirs, 1001 * sizeof *mine));
        }
        H5Fclose(file);
    }
}
END_TEST

START_TEST(chunks_that_are_damaged_are_an_error)
{
    unsigned char junk[20000];
    for (size_t i = 0; i < sizeof junk; i++)
        junk[i] = (unsigned char)(i * 31);
    const struct {
        size_t n;
        int filters;
        uint32_t left_out;
    } bad[] = {
        {100, DEFLATE, 0},          /* no stream at all */
        {40, SHUFFLE, 0},           /* too short a chunk */
        {41, SHUFFLE | DEFLATE, 2}, /* kept as it is, and too short */
        {sizeof junk, SHUFFLE, 0},  /* too long */
        {sizeof junk, DEFLATE, 0},  /* longer than any chunk packs to */
    };
    for (size_t i = 0; i < 2 * (sizeof bad / sizeof *bad); i++) {
        const size_t k = i / 2;
        float mine[MOST];
        hid_t file = scratch_file(), set = make(file, &forms[3], bad[k].filters, H5T_NATIVE_FLOAT);
        const hsize_t at[2] = {16, 16};
        H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
        ck_assert(H5Dwrite_chunk(set, H5P_DEFAULT, bad[k].left_out, at, bad[k].n, junk) >= 0);
        file = reopen(set, file);
        omp_set_num_threads(i % 2 ? 3 : 1);
        EXPECT_FAILS(ASSAY_BAD_FILE, read_chunks(mine, file));
        EXPECT_SAYS(k >= 3 ? "'x': a chunk of 1024 bytes is packed in 20000"
                           : "'x': a chunk is damaged");
        H5Fclose(file);
    }
}
END_TEST

/* Of several bad chunks the first counts, whoever comes upon it. */
START_TEST(chunks_that_are_damaged_are_told_in_their_order)
{
    static const unsigned char junk[20000];
    for (int threads = 1; threads <= 7; threads += 3)
        for (int first = 0; first < 2; first++) {
            float mine[MOST];
            hid_t file = scratch_file(), set = make(file, &forms[3], DEFLATE, H5T_NATIVE_FLOAT);
            const hsize_t at[2][2] = {{0, 16}, {16, 16}};
            H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
            H5Dwrite_chunk(set, H5P_DEFAULT, 0, at[first], 100, junk);
            H5Dwrite_chunk(set, H5P_DEFAULT, 0, at[!first], sizeof junk, junk);
            file = reopen(set, file);
            omp_set_num_threads(threads);
            EXPECT_FAILS(ASSAY_BAD_FILE, read_chunks(mine, file));
            EXPECT_SAYS(first ? "is packed in 20000" : "is damaged");
            H5Fclose(file);
        }
}
END_TEST

/* The first key of a tree of chunks begins with the bytes that its chunk takes in the file. */
static void claim_chunk_bytes(const char *path, uint32_t claimed)
{
    static char bytes[1 << 20];
    FILE *file = fopen(path, "r+b");
    ck_assert(file != NULL);
    size_t n = fread(bytes, 1, sizeof bytes, file), n_found = 0;
    for (size_t i = 0; i + 28 < n; i++)
        if (memcmp(bytes + i, "TREE\1\0", 6) == 0) {
            ck_assert(fseek(file, (long)i + 24, SEEK_SET) == 0);
            ck_assert_uint_eq(fwrite(&claimed, sizeof claimed, 1, file), 1);
            n_found++;
        }
    ck_assert_uint_eq(n_found, 1);
    ck_assert(fclose(file) == 0);
}

START_TEST(chunks_that_claim_more_than_the_file_are_refused_before_memory_is_taken)
{
    assay_h5_info info;
    hid_t file = scratch_file(), set = make(file, &forms[0], SHUFFLE | DEFLATE, H5T_NATIVE_FLOAT);
    H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    H5Dclose(set);
    H5Fclose(file);
    claim_chunk_bytes(data_scratch("chunks.h5"), 0xffffff00u);
    EXPECT_OK(assay_h5_open(&file, data_scratch("chunks.h5")));
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_h5_dataset(&info, file, "x"));
    EXPECT_SAYS("stored bytes, and the whole file has");
    H5Fclose(file);
}
END_TEST

/* The filter's own number says how wide the bytes lie apart, not the type of the elements. */
START_TEST(chunks_shuffled_by_another_width_are_what_the_library_reads)
{
    static char bytes[1 << 20];
    float mine[MOST] = {0}, theirs[MOST] = {0};
    const uint32_t width = 2;
    hid_t file = scratch_file(), set = make(file, &forms[3], SHUFFLE | DEFLATE, H5T_NATIVE_FLOAT);
    H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    H5Dclose(set);
    H5Fclose(file);
    FILE *raw = fopen(data_scratch("chunks.h5"), "r+b");
    ck_assert(raw != NULL);
    size_t n = fread(bytes, 1, sizeof bytes, raw);
    const char *name = memmem(bytes, n, "shuffle", 8);
    ck_assert(name != NULL && fseek(raw, name + 8 - bytes, SEEK_SET) == 0);
    ck_assert_uint_eq(fwrite(&width, sizeof width, 1, raw), 1);
    ck_assert(fclose(raw) == 0);
    EXPECT_OK(assay_h5_open(&file, data_scratch("chunks.h5")));
    set = H5Dopen2(file, "x", H5P_DEFAULT);
    ck_assert(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, theirs) >= 0);
    ck_assert(theirs[1] != values[1]);
    H5Dclose(set);
    EXPECT_OK(read_chunks(mine, file));
    ck_assert_mem_eq(mine, theirs, sizeof mine);
    H5Fclose(file);
}
END_TEST

/* A filter that did not pay is left out of a chunk; its mask says so. */
START_TEST(chunks_that_were_kept_unpacked_are_read)
{
    float chunk[16 * 16], mine[MOST] = {0};
    for (int i = 0; i < 16 * 16; i++)
        chunk[i] = (float)i;
    hid_t file = scratch_file(), set = make(file, &forms[3], SHUFFLE | DEFLATE, H5T_NATIVE_FLOAT);
    const hsize_t at[2] = {0, 0};
    H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    ck_assert(H5Dwrite_chunk(set, H5P_DEFAULT, SHUFFLE | DEFLATE, at, sizeof chunk, chunk) >= 0);
    file = reopen(set, file);
    EXPECT_OK(read_chunks(mine, file));
    for (int r = 0; r < 40; r++)
        for (int c = 0; c < 23; c++)
            EXPECT_NEAR(mine[r * 23 + c], r < 16 && c < 16 ? chunk[r * 16 + c] : values[r * 23 + c],
                        0);
    H5Fclose(file);
}
END_TEST

EXPECT_MAIN("hdf5_chunks", chunks_of_every_form_are_what_the_library_reads,
            chunks_of_other_widths_are_put_together_too,
            chunks_of_other_kinds_are_read_by_the_library, chunks_that_are_damaged_are_an_error,
            chunks_that_are_damaged_are_told_in_their_order,
            chunks_shuffled_by_another_width_are_what_the_library_reads,
            chunks_that_claim_more_than_the_file_are_refused_before_memory_is_taken,
            chunks_that_were_kept_unpacked_are_read)
