#include "suites/record.h"

#include <stdio.h>
#include <unistd.h>

#include "data.h"
#include "expect.h"
#include "forge_result.h"
#include "probes/hdf5.h"

static char *text_at(hid_t file, const char *path, const char *name)
{
    char *text = NULL;
    bool found = false;
    EXPECT_OK(assay_h5_attr_text(&text, &found, file, path, name));
    ck_assert_msg(found, "%s of %s", name, path);
    return text;
}

static void expect_text(hid_t file, const char *path, const char *name, const char *wanted)
{
    char *text = text_at(file, path, name);
    ck_assert_str_eq(text, wanted);
    free(text);
}

START_TEST(record_says_who_let_what_pass_by_what)
{
    assay_result result;
    char path[4096], model[4096], sha256[65], abc[4096];
    snprintf(path, sizeof path, "%s", data_scratch("record.h5"));
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(abc, sizeof abc, "%s", data_scratch("abc"));
    FILE *out = fopen(abc, "wb");
    fputs("abc", out);
    fclose(out);
    const assay_record_input inputs[] = {
        {"model", model, NULL}, {"twin", NULL, NULL}, {"checklist", abc, NULL}};
    forge_result_hostile(&result);
    EXPECT_OK(assay_record_write(path, &result, "J. Doe", inputs, 3));
    hid_t file;
    EXPECT_OK(assay_h5_open(&file, path));
    expect_text(file, "/", "signed_by", "J. Doe");
    expect_text(file, "/", "verdict", "FAIL");
    expect_text(file, "/", "assay_version", ASSAY_VERSION);
    expect_text(file, "/inputs/0", "role", "model");
    EXPECT_OK(assay_record_sha256(sha256, model));
    expect_text(file, "/inputs/0", "sha256", sha256);
    /* FIPS 180-2, appendix B.1 */
    expect_text(file, "/inputs/1", "sha256",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    ck_assert_int_eq(assay_h5_kind(file, "/inputs/2"), 0);
    assay_h5_info info;
    EXPECT_OK(assay_h5_dataset(&info, file, "/result"));
    double *bytes = malloc((size_t)info.count * sizeof *bytes);
    char *json = malloc((size_t)info.count + 1);
    EXPECT_OK(assay_h5_read_f64(bytes, file, "/result", &info));
    for (int64_t i = 0; i < info.count; i++)
        json[i] = (char)(int)bytes[i];
    json[info.count] = '\0';
    json_t *read = json_loads(json, 0, NULL);
    ck_assert_str_eq(json_string_value(json_object_get(read, "verdict")), "FAIL");
    json_decref(read);
    free(bytes);
    free(json);
    H5Fclose(file);
    assay_result_clear(&result);
}
END_TEST

START_TEST(record_of_a_missing_input_leaves_nothing)
{
    assay_result result;
    char path[4096];
    const assay_record_input inputs[] = {{"model", "/nowhere/model.gguf", NULL}};
    snprintf(path, sizeof path, "%s", data_scratch("none.h5"));
    forge_result_clean(&result);
    EXPECT_FAILS(ASSAY_IO, assay_record_write(path, &result, "J. Doe", inputs, 1));
    EXPECT_SAYS("/nowhere/model.gguf");
    ck_assert_int_ne(access(path, F_OK), 0);
    EXPECT_FAILS(ASSAY_IO, assay_record_write("/nowhere/record.h5", &result, "J. Doe", NULL, 0));
    assay_result_clear(&result);
}
END_TEST

EXPECT_MAIN("record", record_says_who_let_what_pass_by_what,
            record_of_a_missing_input_leaves_nothing)
