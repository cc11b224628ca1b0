/*
 * Bundles: planted faults of many classes, each kept in a small file and shown again where the
 * model is not.
 */
#include "data.h"
#include "diagnosed.h"
#include "expect.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/model.h"
#include "probes/hdf5_write.h"
#include "reports/repro.h"

#define MOST_BYTES (2 << 20)

static const int32_t tokens[] = {3, 17, 5, 250, 33, 8, 91, 64, 120, 7, 300, 45};
static char model[600], folder[600];

static void start(const char *name)
{
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(folder, sizeof folder, "%s", data_scratch(name));
}

/* One fault, captured and diagnosed with bundles. */
static void diagnose_plant(assay_result *result, const char *text, int n_new)
{
    char capture[700];
    assay_plant plant;
    assay_model *m;
    assay_seam_setting settings[4];
    int n = 0;
    snprintf(capture, sizeof capture, "%s.h5", folder);
    EXPECT_OK(assay_plant_parse(&plant, text));
    EXPECT_OK(assay_model_open(&m, model, NULL));
    EXPECT_OK(assay_plant_make(settings, &n, 4, &plant, assay_model_hparams(m)));
    assay_model_close(m);
    EXPECT_OK(capture_planted(capture, model, tokens, sizeof tokens / sizeof *tokens, n_new,
                              ASSAY_DTYPE_F32, settings, n));
    EXPECT_OK(diagnosed_bundled(result, capture, model, folder));
    ck_assert_msg(result->n_findings > 0, "%s: nothing found", text);
}

static void expect_same(const assay_finding *f)
{
    assay_result again;
    struct stat about;
    ck_assert_msg(f->bundle != NULL, "%s at %s has no bundle", f->fault_class, f->point);
    ck_assert_int_eq(stat(f->bundle, &about), 0);
    ck_assert_msg(about.st_size < MOST_BYTES, "%s: %lld bytes", f->bundle,
                  (long long)about.st_size);
    ck_assert(assay_repro_is_bundle(f->bundle));
    EXPECT_OK(assay_result_init(&again, "repro"));
    EXPECT_OK(assay_repro_replay(&again, f->bundle));
    ck_assert_msg(again.n_findings == 1, "%s: %s", f->bundle, diagnosed_text(&again));
    ck_assert_str_eq(again.findings[0].fault_class, f->fault_class);
    ck_assert_str_eq(again.findings[0].kind, f->kind);
    ck_assert_str_eq(again.findings[0].point, f->point);
    EXPECT_NEAR(again.findings[0].error_rel, f->error_rel, 1e-6 * f->error_rel);
    ck_assert_int_eq(assay_result_exit(&again), 1);
    assay_result_clear(&again);
}

/* A plant of each class that one run on one rank can show. */
static const char *const plants[] = {
    "rows-zero:layer=2",     "phantom-output:layer=1",  "file-order:layer=3",
    "other-layer:layer=2",   "nibbles:layer=2",         "format-range:layer=2",
    "rope-pairing:layer=1",  "rope-base:layer=2",       "softmax-scale:layer=1",
    "mask-shift:layer=2",    "value-scale:layer=2",     "weight-transposed:layer=1",
    "nan:layer=2",           "bias-in-weights:layer=2", "expert-shift:layer=3",
    "index-no-relu:layer=2", "shared-twice:layer=2",    "norm-eps:layer=2",
    "activation:layer=2",    "kv-read-layer:layer=2"};

START_TEST(every_class_is_found_again_from_its_bundle)
{
    assay_result result;
    for (size_t k = 0; k < sizeof plants / sizeof *plants; k++) {
        char name[64];
        snprintf(name, sizeof name, "plant%zu", k);
        start(name);
        diagnose_plant(&result, plants[k], 1);
        for (int i = 0; i < result.n_findings; i++)
            expect_same(&result.findings[i]);
        assay_result_clear(&result);
    }
}
END_TEST

START_TEST(a_clean_run_has_no_bundle)
{
    char capture[700];
    assay_result result;
    start("clean");
    snprintf(capture, sizeof capture, "%s.h5", folder);
    EXPECT_OK(capture_planted(capture, model, tokens, 12, 1, ASSAY_DTYPE_F32, NULL, 0));
    EXPECT_OK(diagnosed_bundled(&result, capture, model, folder));
    ck_assert_int_eq(result.n_findings, 0);
    ck_assert_int_ne(access(folder, F_OK), 0);
    assay_result_clear(&result);
}
END_TEST

/* A weight that the judge asks for and the bundle lacks must not be taken as zeros. */
START_TEST(a_bundle_without_a_weight_is_refused)
{
    assay_result result, again;
    start("lacking");
    diagnose_plant(&result, "other-layer:layer=2", 1);
    const char *bundle = result.findings[0].bundle;
    ck_assert(bundle != NULL);
    hid_t file = H5Fopen(bundle, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t set = H5Dopen2(file, "/model/ranges", H5P_DEFAULT), space = H5Dget_space(set);
    hsize_t dims[2];
    H5Sget_simple_extent_dims(space, dims, NULL);
    ck_assert_int_gt((int)dims[0], 0);
    H5Sclose(space);
    int64_t *ranges = calloc(2 * dims[0], sizeof *ranges);
    H5Dread(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, ranges);
    for (hsize_t i = 0; i < dims[0]; i++)
        ranges[2 * i + 1] = 0;
    H5Dwrite(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, ranges);
    free(ranges);
    H5Dclose(set);
    H5Fclose(file);
    EXPECT_OK(assay_result_init(&again, "repro"));
    EXPECT_FAILS(ASSAY_MISSING, assay_repro_replay(&again, bundle));
    EXPECT_SAYS("not in the bundle");
    assay_result_clear(&again);
    assay_result_clear(&result);
}
END_TEST

/* Offsets of a stranger's file are bounded before anything is written. */
START_TEST(a_bundle_with_a_range_outside_its_model_is_refused)
{
    assay_result result, again;
    int64_t wild[2] = {INT64_MAX - 4, 8};
    hsize_t one[2] = {1, 2}, at[2] = {0, 0};
    start("wild");
    diagnose_plant(&result, "norm-eps:layer=2", 1);
    const char *bundle = result.findings[0].bundle;
    ck_assert(bundle != NULL);
    hid_t file = H5Fopen(bundle, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t set = H5Dopen2(file, "/model/ranges", H5P_DEFAULT), space = H5Dget_space(set);
    hid_t memory = H5Screate_simple(2, one, NULL);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, one, NULL);
    ck_assert_int_ge(H5Dwrite(set, H5T_NATIVE_INT64, memory, space, H5P_DEFAULT, wild), 0);
    H5Sclose(memory);
    H5Sclose(space);
    H5Dclose(set);
    H5Fclose(file);
    EXPECT_OK(assay_result_init(&again, "repro"));
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_repro_replay(&again, bundle));
    EXPECT_SAYS("/model/ranges");
    assay_result_clear(&again);
    assay_result_clear(&result);
}
END_TEST

START_TEST(a_capture_is_no_bundle)
{
    ck_assert(!assay_repro_is_bundle(data_shipped("glm5-tiny-bf16.two.h5")));
    ck_assert(!assay_repro_is_bundle(data_shipped("glm5-tiny-Q4_K_M.gguf")));
    ck_assert(!assay_repro_is_bundle("/no/such/file"));
    assay_result result;
    EXPECT_OK(assay_result_init(&result, "repro"));
    EXPECT_FAILS(ASSAY_BAD_FILE,
                 assay_repro_replay(&result, data_shipped("glm5-tiny-bf16.two.h5")));
    assay_result_clear(&result);
}
END_TEST

EXPECT_MAIN("repro", every_class_is_found_again_from_its_bundle, a_clean_run_has_no_bundle,
            a_bundle_without_a_weight_is_refused,
            a_bundle_with_a_range_outside_its_model_is_refused, a_capture_is_no_bundle)
