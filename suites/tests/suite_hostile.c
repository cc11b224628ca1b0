/* HDF5 files that lie: each is whole except for one thing, and must be refused with its place. */
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"
#include "probes/capture.h"
#include "probes/hdf5_write.h"
#include "references/run.h"

#define STEP "/count/step0000"
#define NORM STEP "/model.norm"

/* A damaged size may ask HDF5 for more than there is: it must get NULL, as without the sanitizer.
 */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

/* HDF5 1.10.8 forgets a few bytes of its own when it refuses a damaged file. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}

static hid_t file;

static void text(const char *path, const char *name, const char *value)
{
    EXPECT_OK(assay_h5_put_text(file, path, name, value));
}

static void put(const char *path, hid_t type, int n_dims, const int64_t *dims, const void *values)
{
    EXPECT_OK(assay_h5_put_dataset(file, path, type, n_dims, dims, values));
}

static const float zeros[64];
static const int32_t two_tokens[] = {3, 4};

/* A healthy dump of two tokens. */
static void make_dump(void)
{
    text("/", "producer", "transformers");
    text("/", "dtype", "torch.float32");
    EXPECT_OK(assay_h5_make_group(file, "/count"));
    EXPECT_OK(assay_h5_make_group(file, STEP));
    put("/count/tokens", H5T_NATIVE_INT32, 1, (int64_t[]){2}, two_tokens);
    put(STEP "/input_tokens", H5T_NATIVE_INT32, 1, (int64_t[]){2}, two_tokens);
    put(NORM, H5T_NATIVE_FLOAT, 3, (int64_t[]){1, 2, 8}, zeros);
}

static void replace(const char *path)
{
    ck_assert_int_ge(H5Ldelete(file, path, H5P_DEFAULT), 0);
}

static void external_link_at_root(void)
{
    H5Lcreate_external("other.h5", "/", file, "/linked", H5P_DEFAULT, H5P_DEFAULT);
}

static void external_link_in_step(void)
{
    H5Lcreate_external("/etc/passwd", "/", file, STEP "/logits", H5P_DEFAULT, H5P_DEFAULT);
}

static void soft_link_to_itself(void)
{
    H5Lcreate_soft(STEP "/loop", file, STEP "/loop", H5P_DEFAULT, H5P_DEFAULT);
}

static void soft_link_as_prompt(void)
{
    H5Lcreate_soft("/count", file, "/again", H5P_DEFAULT, H5P_DEFAULT);
}

static void group_that_contains_itself(void)
{
    H5Lcreate_hard(file, "/count", file, "/count/step0001", H5P_DEFAULT, H5P_DEFAULT);
}

static void dataset_without_storage(void)
{
    replace(NORM);
    hsize_t dims[3] = {1, 2, (hsize_t)1 << 40}, chunk[3] = {1, 1, 1024};
    hid_t space = H5Screate_simple(3, dims, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plist, 3, chunk);
    H5Dclose(H5Dcreate2(file, NORM, H5T_NATIVE_FLOAT, space, H5P_DEFAULT, plist, H5P_DEFAULT));
    H5Pclose(plist);
    H5Sclose(space);
}

static void shape_that_overflows(void)
{
    replace(NORM);
    hsize_t dims[3] = {(hsize_t)1 << 31, (hsize_t)1 << 31, (hsize_t)1 << 20}, chunk[3] = {1, 1, 8};
    hid_t space = H5Screate_simple(3, dims, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plist, 3, chunk);
    H5Dclose(H5Dcreate2(file, NORM, H5T_NATIVE_FLOAT, space, H5P_DEFAULT, plist, H5P_DEFAULT));
    H5Pclose(plist);
    H5Sclose(space);
}

static void too_many_dimensions(void)
{
    replace(NORM);
    hsize_t dims[9] = {1, 1, 1, 1, 1, 1, 1, 2, 8};
    hid_t space = H5Screate_simple(9, dims, NULL);
    hid_t set =
        H5Dcreate2(file, NORM, H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros);
    H5Dclose(set);
    H5Sclose(space);
}

static void compound_numbers(void)
{
    replace(NORM);
    hid_t pair = H5Tcreate(H5T_COMPOUND, 8);
    H5Tinsert(pair, "r", 0, H5T_NATIVE_FLOAT);
    H5Tinsert(pair, "i", 4, H5T_NATIVE_FLOAT);
    put(NORM, pair, 3, (int64_t[]){1, 2, 8}, zeros);
    H5Tclose(pair);
}

static void data_in_another_file(void)
{
    replace(NORM);
    hsize_t dims[3] = {1, 2, 8};
    hid_t space = H5Screate_simple(3, dims, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(plist, "/etc/passwd", 0, 64);
    H5Dclose(H5Dcreate2(file, NORM, H5T_NATIVE_FLOAT, space, H5P_DEFAULT, plist, H5P_DEFAULT));
    H5Pclose(plist);
    H5Sclose(space);
}

static size_t no_filter(unsigned flags, size_t n, const unsigned values[], size_t bytes,
                        size_t *room, void **data)
{
    (void)flags, (void)n, (void)values, (void)room, (void)data;
    return bytes;
}

static void unknown_filter(void)
{
    const H5Z_class2_t rare = {H5Z_CLASS_T_VERS, 499, 1, 1, "rare", NULL, NULL, no_filter};
    H5Zregister(&rare);
    replace(NORM);
    hsize_t dims[3] = {1, 2, 8};
    hid_t space = H5Screate_simple(3, dims, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plist, 3, dims);
    H5Pset_filter(plist, 499, 0, 0, NULL);
    hid_t set = H5Dcreate2(file, NORM, H5T_NATIVE_FLOAT, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros);
    H5Dclose(set);
    H5Pclose(plist);
    H5Sclose(space);
}

static void wide_tokens(void)
{
    replace(STEP "/input_tokens");
    put(STEP "/input_tokens", H5T_NATIVE_INT64, 1, (int64_t[]){2}, (int64_t[]){3, 1ll << 40});
}

static void broken_tokens(void)
{
    replace(STEP "/input_tokens");
    put(STEP "/input_tokens", H5T_NATIVE_FLOAT, 1, (int64_t[]){2}, zeros);
}

static void tokens_of_the_prompt_are_text(void)
{
    replace("/count/tokens");
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, 4);
    put("/count/tokens", type, 1, (int64_t[]){2}, "abcdefg");
    H5Tclose(type);
}

static void negative_position(void)
{
    int64_t at = -5;
    EXPECT_OK(assay_h5_put_numbers(file, STEP, "position", H5T_NATIVE_INT64, &at, 1));
}

static void position_as_text(void)
{
    text(STEP, "position", "eight");
}

static void position_as_list(void)
{
    int64_t at[2] = {0, 1};
    EXPECT_OK(assay_h5_put_numbers(file, STEP, "position", H5T_NATIVE_INT64, at, 2));
}

static void unknown_dtype(void)
{
    text("/", "dtype", "torch.float7");
}

static void producer_is_a_number(void)
{
    int32_t x = 7;
    EXPECT_OK(assay_h5_put_numbers(file, "/", "producer", H5T_NATIVE_INT32, &x, 1));
}

static void shape_attribute_lies(void)
{
    text("/", "producer", "llama.cpp");
    put(STEP "/l_out-0#0", H5T_NATIVE_FLOAT, 2, (int64_t[]){2, 8}, zeros);
    int64_t ne[4] = {8, 3, 1, 1};
    EXPECT_OK(assay_h5_put_numbers(file, STEP "/l_out-0#0", "ne", H5T_NATIVE_INT64, ne, 4));
}

static void shape_attribute_overflows(void)
{
    text("/", "producer", "llama.cpp");
    put(STEP "/l_out-0#0", H5T_NATIVE_FLOAT, 2, (int64_t[]){2, 8}, zeros);
    int64_t ne[4] = {1ll << 62, 1ll << 62, 1, 16};
    EXPECT_OK(assay_h5_put_numbers(file, STEP "/l_out-0#0", "ne", H5T_NATIVE_INT64, ne, 4));
}

static void another_format(void)
{
    int32_t two = 2;
    EXPECT_OK(assay_h5_put_numbers(file, "/", "assay_capture", H5T_NATIVE_INT32, &two, 1));
}

static void format_as_text(void)
{
    text("/", "assay_capture", "1");
}

static void capture_without_prompts(void)
{
    int32_t one = 1;
    text("/", "dtype", "f32");
    EXPECT_OK(assay_h5_put_numbers(file, "/", "assay_capture", H5T_NATIVE_INT32, &one, 1));
}

static void no_prompts(void)
{
    replace("/count");
}

static void rows_of_another_step(void)
{
    put(STEP "/model.layers.0", H5T_NATIVE_FLOAT, 3, (int64_t[]){1, 5, 8}, zeros);
}

static void group_where_a_point_should_be(void)
{
    EXPECT_OK(assay_h5_make_group(file, STEP "/model.layers.0"));
}

static void ids_as_floats(void)
{
    put(STEP "/model.layers.0.mlp.gate.out2", H5T_NATIVE_FLOAT, 2, (int64_t[]){2, 2}, zeros);
}

static void nameless_layer(void)
{
    put(STEP "/model.layers.99999999999.mlp", H5T_NATIVE_FLOAT, 2, (int64_t[]){2, 8}, zeros);
}

typedef struct lie {
    void (*tell)(void);
    assay_status status; /* OK: opens, and the value is listed as unmapped */
    const char *says;
} lie;

static const lie lies[] = {
    {external_link_at_root, ASSAY_BAD_FILE, "linked' is a link of another kind"},
    {external_link_in_step, ASSAY_BAD_FILE, "logits' is a link of another kind"},
    {soft_link_to_itself, ASSAY_BAD_FILE, "loop' is a link of another kind"},
    {soft_link_as_prompt, ASSAY_BAD_FILE, "again' is a link of another kind"},
    {group_that_contains_itself, ASSAY_OK, "step0001/step0000: not a dataset"},
    {dataset_without_storage, ASSAY_BAD_FILE, "claims 2199023255552 elements"},
    {shape_that_overflows, ASSAY_BAD_FILE, "model.norm': the shape overflows"},
    {too_many_dimensions, ASSAY_BAD_FILE, "has 9 dimensions"},
    {compound_numbers, ASSAY_OK, "model.norm: not real numbers"},
    {data_in_another_file, ASSAY_BAD_FILE, "keeps its data in another file"},
    {unknown_filter, ASSAY_BAD_FILE, "filter 499 'rare'"},
    {wide_tokens, ASSAY_BAD_FILE, "id 1099511627776 at 1 is out of range"},
    {broken_tokens, ASSAY_BAD_FILE, "input_tokens': expected a list of whole numbers"},
    {tokens_of_the_prompt_are_text, ASSAY_BAD_FILE, "count/tokens': expected a list"},
    {negative_position, ASSAY_BAD_FILE, "position -5 is out of range"},
    {position_as_text, ASSAY_BAD_FILE, "attribute 'position': expected whole numbers"},
    {position_as_list, ASSAY_BAD_FILE, "has 2 numbers, expected 1"},
    {unknown_dtype, ASSAY_BAD_FILE, "torch.float7"},
    {producer_is_a_number, ASSAY_BAD_FILE, "attribute 'producer': expected one text"},
    {shape_attribute_lies, ASSAY_BAD_FILE, "attribute ne does not fit"},
    {shape_attribute_overflows, ASSAY_BAD_FILE, "attribute ne does not fit"},
    {another_format, ASSAY_BAD_FILE, "format 2"},
    {format_as_text, ASSAY_BAD_FILE, "assay_capture"},
    {capture_without_prompts, ASSAY_BAD_FILE, "/prompts"},
    {no_prompts, ASSAY_BAD_FILE, "holds no prompts"},
    {rows_of_another_step, ASSAY_OK, "has 5 rows, the step has 2 tokens"},
    {group_where_a_point_should_be, ASSAY_OK, "model.layers.0: not a dataset"},
    {ids_as_floats, ASSAY_OK, "gate.out2: not whole numbers"},
    {nameless_layer, ASSAY_OK, "unknown name (nearest: model.layers.{}.mlp)"},
};

static void make_lie(const char *path, void (*tell)(void))
{
    assay_h5_quiet();
    file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(file, 0);
    make_dump();
    if (tell)
        tell();
    H5Fclose(file);
    H5Zunregister(499);
}

START_TEST(hostile_files_are_refused_with_their_place)
{
    const char *path = data_scratch("lie.h5");
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        make_lie(path, lies[i].tell);
        assay_run *run;
        assay_status s = assay_run_open(&run, &path, 1, NULL);
        ck_assert_msg(s == lies[i].status, "lie %zu (%s): status %d, %s", i, lies[i].says, (int)s,
                      s ? assay_error_text() : "opened");
        if (s != ASSAY_OK) {
            EXPECT_SAYS(lies[i].says);
            EXPECT_SAYS("lie.h5");
            continue;
        }
        bool said = false;
        for (int k = 0; k < assay_run_about(run)->n_unmapped; k++)
            said = said || strstr(assay_run_unmapped_at(run, k), lies[i].says);
        ck_assert_msg(said, "lie %zu: '%s' is not said, but '%s'", i, lies[i].says,
                      assay_run_about(run)->n_unmapped ? assay_run_unmapped_at(run, 0) : "nothing");
        assay_run_close(run);
    }
}
END_TEST

START_TEST(hostile_suite_starts_from_a_healthy_file)
{
    const char *path = data_scratch("healthy.h5");
    make_lie(path, NULL);
    assay_run *run;
    EXPECT_OK(assay_run_open(&run, &path, 1, NULL));
    ck_assert_int_eq(assay_run_about(run)->n_unmapped, 0);
    ck_assert_ptr_nonnull(assay_run_find(run, 0, 0, ASSAY_POINT_FINAL_NORM, -1));
    assay_run_close(run);
}
END_TEST

START_TEST(hostile_bytes_that_are_not_hdf5_are_refused)
{
    static const char *const contents[] = {"", "GGUF", "\x89HDF\r\n\x1a\n", "{\"assay\": 1}"};
    for (int i = 0; i < 4; i++) {
        const char *path = data_scratch("bytes.h5");
        FILE *f = fopen(path, "wb");
        fputs(contents[i], f);
        fclose(f);
        assay_run *run;
        EXPECT_FAILS(ASSAY_BAD_FILE, assay_run_open(&run, &path, 1, NULL));
        EXPECT_SAYS(i == 1 ? "is a GGUF model, expected an HDF5 capture"
                           : "is not a readable HDF5 file");
    }
    const char *path = data_scratch("absent.h5");
    assay_run *run;
    EXPECT_FAILS(ASSAY_IO, assay_run_open(&run, &path, 1, NULL));
    EXPECT_SAYS("absent.h5");
}
END_TEST

static char *slurp(long *n, const char *path)
{
    FILE *f = fopen(path, "rb");
    fseek(f, 0, SEEK_END);
    *n = ftell(f);
    rewind(f);
    char *bytes = malloc((size_t)*n);
    ck_assert_int_eq((long)fread(bytes, 1, (size_t)*n, f), *n);
    fclose(f);
    return bytes;
}

static void spill(const char *path, const char *bytes, long n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_int_eq((long)fwrite(bytes, 1, (size_t)n, f), n);
    fclose(f);
}

/* Opens and reads everything; the result does not matter. */
static void try_all(const char *path)
{
    assay_run *run;
    if (assay_run_open(&run, &path, 1, NULL) != ASSAY_OK)
        return;
    for (int p = 0; p < assay_run_n_prompts(run); p++)
        for (int s = 0; s < assay_run_prompt_at(run, p)->n_steps; s++)
            for (int i = 0; i < assay_run_n_seen(run, p, s); i++) {
                const assay_seen *seen = assay_run_seen_at(run, p, s, i);
                int64_t n = assay_seen_count(seen);
                double *x = n < 1 << 24 ? malloc((size_t)n * sizeof *x + 1) : NULL;
                if (x)
                    assay_run_read(x, run, seen);
                free(x);
            }
    assay_run_close(run);
}

START_TEST(hostile_cut_files_are_refused)
{
    const char *path = data_scratch("whole.h5");
    make_lie(path, NULL);
    long n;
    char *bytes = slurp(&n, path);
    char cut[4096];
    snprintf(cut, sizeof cut, "%s", data_scratch("cut.h5"));
    const char *at = cut;
    for (long keep = 0; keep < n; keep += 97) {
        spill(cut, bytes, keep);
        assay_run *run;
        assay_status s = assay_run_open(&run, &at, 1, NULL);
        ck_assert_int_eq(s, ASSAY_BAD_FILE);
    }
    free(bytes);
}
END_TEST

/* What is in the file and cannot be read is no point that was never captured. */
START_TEST(hostile_damaged_members_are_not_absent)
{
    const char *path = data_scratch("member.h5");
    make_lie(path, NULL);
    hid_t f = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    H5O_info_t info;
    ck_assert_int_ge(H5Oget_info_by_name(f, NORM, &info, H5P_DEFAULT), 0);
    H5Fclose(f);
    long n;
    char *bytes = slurp(&n, path);
    bytes[info.addr] = 99; /* version of the dataset's object header */
    spill(path, bytes, n);
    free(bytes);
    assay_run *run;
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_run_open(&run, &path, 1, NULL));
    EXPECT_SAYS("model.norm' is damaged");
}
END_TEST

/* A child per batch: the HDF5 library itself must not fall over either. Version 1.10.8 reads 12
 * bytes past the end of damaged object headers, which the sanitizer takes for what it is. */
START_TEST(hostile_flipped_bytes_never_crash)
{
#ifdef __SANITIZE_ADDRESS__
    return;
#endif
    const char *path = data_scratch("whole.h5");
    make_lie(path, NULL);
    long n;
    char *bytes = slurp(&n, path);
    char flipped[4096];
    snprintf(flipped, sizeof flipped, "%s", data_scratch("flipped.h5"));
    fflush(stdout);
    for (long first = 0; first < n; first += 512) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            for (long i = first; i < first + 512 && i < n; i += 3) {
                char was = bytes[i];
                bytes[i] = (char)(was ^ (i % 2 ? 0xFF : 1 << i % 7));
                spill(flipped, bytes, n);
                try_all(flipped);
                bytes[i] = was;
            }
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "bytes from %ld on: signal %d",
                      first, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    free(bytes);
}
END_TEST

EXPECT_MAIN("hostile", hostile_suite_starts_from_a_healthy_file,
            hostile_files_are_refused_with_their_place, hostile_bytes_that_are_not_hdf5_are_refused,
            hostile_cut_files_are_refused, hostile_damaged_members_are_not_absent,
            hostile_flipped_bytes_never_crash)
