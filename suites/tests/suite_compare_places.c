#include "references/compare.h"

#include <dlfcn.h>
#include <hdf5.h>
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>

#include "data.h"
#include "diagnosed.h"
#include "expect.h"
#include "forge_packed.h"

/* The library may be one that is safe for threads, so nothing would be seen of two in it at once.
 */
static atomic_int n_inside, n_overlaps, n_reads, n_chunks;

static void enter(atomic_int *count)
{
    (*count)++;
    n_overlaps += n_inside++ > 0;
    sched_yield();
}

/* In front of the library's own. */
herr_t H5Dread(hid_t set, hid_t type, hid_t memory, hid_t file, hid_t plist, void *out)
{
    herr_t (*theirs)(hid_t, hid_t, hid_t, hid_t, hid_t, void *);
    *(void **)(void *)&theirs = dlsym(RTLD_NEXT, "H5Dread");
    enter(&n_reads);
    herr_t e = theirs(set, type, memory, file, plist, out);
    n_inside--;
    return e;
}

herr_t H5Dread_chunk(hid_t set, hid_t plist, const hsize_t *at, uint32_t *left_out, void *out)
{
    herr_t (*theirs)(hid_t, hid_t, const hsize_t *, uint32_t *, void *);
    *(void **)(void *)&theirs = dlsym(RTLD_NEXT, "H5Dread_chunk");
    enter(&n_chunks);
    herr_t e = theirs(set, plist, at, left_out, out);
    n_inside--;
    return e;
}

static assay_run *open_run(const char *path)
{
    assay_run *run = NULL;
    assay_run_options options = assay_run_options_default();
    EXPECT_OK(assay_run_open(&run, &path, 1, &options));
    return run;
}

/* A prompt of 160 tokens, noisy from the embedding on or not. */
static void capture(const char *path, bool is_noisy)
{
    static int32_t tokens[160];
    const assay_seam_setting noise = {.seam = ASSAY_SEAM_ROW_NOISE,
                                      .layer = -1,
                                      .head = -1,
                                      .rank = -1,
                                      .step = -1,
                                      .sequence = -1,
                                      .value = 1e-4,
                                      .n_ints = 3,
                                      .ints = {ASSAY_POINT_EMBED, -1, 1}};
    for (int i = 0; i < 160; i++)
        tokens[i] = 8 + (i * 37 + 11) % 1000;
    EXPECT_OK(capture_planted(path, data_shipped("glm5-tiny-Q4_K_M.gguf"), tokens, 160, 2,
                              ASSAY_DTYPE_F32, &noise, is_noisy));
}

static void capture_two(char paths[2][600])
{
    for (int i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "%s", data_scratch(i ? "off.h5" : "right.h5"));
        capture(paths[i], i);
    }
}

static assay_comparison *compared(const char *got, const char *ref, const char *twin, int threads)
{
    assay_comparison *c;
    assay_run *runs[3] = {open_run(got), open_run(ref), twin ? open_run(twin) : NULL};
    omp_set_num_threads(threads);
    EXPECT_OK(assay_compare_runs(&c, runs[0], runs[1], runs[2]));
    for (int i = 0; i < 3; i++)
        assay_run_close(runs[i]);
    return c;
}

/* Frees the second. */
static void expect_same(const assay_comparison *a, assay_comparison *b)
{
    ck_assert_int_eq(assay_comparison_n(a), assay_comparison_n(b));
    for (int i = 0; i < assay_comparison_n(a); i++) {
        const assay_compared *x = assay_comparison_at(a, i), *y = assay_comparison_at(b, i);
        ck_assert_mem_eq(&x->metrics, &y->metrics, sizeof x->metrics);
        ck_assert_str_eq(x->why, y->why);
    }
    assay_comparison_free(b);
}

/* Captures of ours, whose values are compared where they lie, many places at once. */
START_TEST(compare_of_captures_does_not_depend_on_threads)
{
    char paths[2][600];
    capture_two(paths);
    assay_comparison *one = compared(paths[1], paths[0], NULL, 1);
    for (int threads = 3; threads <= 5; threads += 2)
        expect_same(one, compared(paths[1], paths[0], NULL, threads));
    assay_comparison_free(one);
}
END_TEST

START_TEST(compare_of_packed_captures_is_that_of_the_plain_ones_with_any_threads)
{
    char paths[2][600];
    capture_two(paths);
    assay_comparison *plain = compared(paths[1], paths[0], NULL, 1);
    for (int i = 0; i < 2; i++)
        forge_packed(paths[i], H5T_NATIVE_FLOAT);
    for (int threads = 1; threads <= 5; threads += 2)
        expect_same(plain, compared(paths[1], paths[0], NULL, threads));
    ck_assert(n_chunks > 1000 && n_overlaps == 0);
    assay_comparison_free(plain);
}
END_TEST

/* HDF5 is one thread's, though neither candidate nor reference is read by way of it. */
START_TEST(compare_with_a_twin_that_is_converted_does_not_depend_on_threads)
{
    char paths[2][600];
    capture_two(paths);
    char twin[600];
    snprintf(twin, sizeof twin, "%s", data_scratch("twin.h5"));
    capture(twin, false);
    assay_comparison *one = compared(paths[1], paths[0], twin, 1);
    forge_packed(twin, H5T_IEEE_F32BE);
    expect_same(one, compared(paths[1], paths[0], twin, 5));
    ck_assert(n_reads > 100 && n_overlaps == 0);
    assay_comparison_free(one);
}
END_TEST

EXPECT_MAIN("compare_places", compare_of_captures_does_not_depend_on_threads,
            compare_of_packed_captures_is_that_of_the_plain_ones_with_any_threads,
            compare_with_a_twin_that_is_converted_does_not_depend_on_threads)
