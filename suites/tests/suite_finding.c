#include "reports/finding.h"

#include <stdio.h>

#include "data.h"
#include "expect.h"
#include "forge_result.h"

static const char *written(const char *text)
{
    const char *path = data_scratch("result.json");
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    return path;
}

/* What reading a result with `from` replaced by `to` says. */
static void expect_refused(const char *from, const char *to, const char *says)
{
    assay_result result, read = {0};
    forge_result_two(&result);
    char *text = forge_rendered("json", &result, 0), *at = strstr(text, from), *changed = NULL;
    ck_assert_msg(at != NULL, "'%s' is not in the JSON", from);
    ck_assert(asprintf(&changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_result_from_json(&read, written(changed)));
    EXPECT_SAYS(says);
    free(changed);
    free(text);
    assay_result_clear(&result);
}

START_TEST(finding_lists_keep_numbers_sorted_and_texts_once)
{
    assay_numbers numbers = {0};
    assay_strings strings = {0};
    static const int64_t in[] = {5, 1, 9, 5, 0, 9, 3}, out[] = {0, 1, 3, 5, 9};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        EXPECT_OK(assay_numbers_add(&numbers, in[i]));
    ck_assert_int_eq(numbers.n, 5);
    for (int i = 0; i < numbers.n; i++)
        ck_assert_int_eq(numbers.items[i], out[i]);
    for (int i = 0; i < 100; i++)
        EXPECT_OK(assay_strings_add(&strings, "text %d", i));
    EXPECT_OK(assay_strings_add_once(&strings, "text 7"));
    ck_assert_int_eq(strings.n, 100);
    ck_assert_str_eq(strings.items[99], "text 99");
    assay_numbers_clear(&numbers);
    assay_strings_clear(&strings);
}
END_TEST

START_TEST(result_with_nothing_judged_is_never_a_pass)
{
    assay_result result;
    assay_check_row *row;
    EXPECT_OK(assay_result_init(&result, "check"));
    ck_assert_int_eq(assay_result_exit(&result), 125);
    EXPECT_OK(assay_result_add_check(&row, &result, "graph"));
    ck_assert_int_eq(assay_result_exit(&result), 125);
    row->verdict = ASSAY_VERDICT_SKIP;
    ck_assert_int_eq(assay_result_exit(&result), 125);
    EXPECT_OK(assay_result_add_check(&row, &result, "path"));
    row->verdict = ASSAY_VERDICT_PASS;
    ck_assert_int_eq(assay_result_exit(&result), 0);
    result.inconclusive = true;
    ck_assert_int_eq(assay_result_exit(&result), 125);
    EXPECT_OK(assay_result_add_check(&row, &result, "smoke"));
    row->verdict = ASSAY_VERDICT_FAIL;
    ck_assert_int_eq(assay_result_exit(&result), 1);
    assay_result_clear(&result);
}
END_TEST

START_TEST(result_with_a_finding_fails_whatever_else_passed)
{
    assay_result result;
    assay_finding finding;
    forge_result_clean(&result);
    ck_assert_int_eq(assay_result_verdict(&result), ASSAY_VERDICT_PASS);
    assay_finding_init(&finding);
    EXPECT_OK(assay_result_add_finding(&result, &finding));
    ck_assert_ptr_nonnull(finding.fitted);
    assay_finding_clear(&finding);
    ck_assert_int_eq(assay_result_verdict(&result), ASSAY_VERDICT_FAIL);
    ck_assert_int_eq(assay_result_exit(&result), 1);
    assay_result_clear(&result);
}
END_TEST

static void expect_round_trip(void (*forge)(assay_result *))
{
    assay_result result, read;
    forge(&result);
    json_object_set_new(result.extra, "rates", json_pack("{s:f}", "detection", 0.5));
    char *first = forge_rendered("json", &result, 0);
    EXPECT_OK(assay_result_from_json(&read, written(first)));
    char *second = forge_rendered("json", &read, 0);
    ck_assert_str_eq(first, second);
    ck_assert_ptr_nonnull(json_object_get(read.extra, "rates"));
    free(first);
    free(second);
    assay_result_clear(&result);
    assay_result_clear(&read);
}

START_TEST(result_survives_json_and_back)
{
    expect_round_trip(forge_result_two);
    expect_round_trip(forge_result_clean);
    expect_round_trip(forge_result_hostile);
}
END_TEST

START_TEST(result_json_has_the_members_of_the_contract)
{
    assay_result result;
    forge_result_two(&result);
    json_t *json = assay_result_to_json(&result);
    json_t *finding = json_array_get(json_object_get(json, "findings"), 1);
    ck_assert_str_eq(json_string_value(json_object_get(json, "verdict")), "FAIL");
    ck_assert_str_eq(json_string_value(json_object_get(finding, "class")), "FUSED-ORDER");
    ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(finding, "layers"), 0)), 3);
    EXPECT_NEAR(json_number_value(json_object_get(json_object_get(finding, "error"), "rel")), 1.41,
                0);
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(json, "coverage"), "judged")), 209);
    json_decref(json);
    assay_result_clear(&result);
}
END_TEST

START_TEST(result_reader_names_line_column_or_member)
{
    assay_result read = {0};
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_result_from_json(&read, written("{\n \"assay\": ,\n}")));
    EXPECT_SAYS("line 2, column 11");
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_result_from_json(&read, written("{\"a\":1,\"a\":2}")));
    EXPECT_SAYS("duplicate");
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_result_from_json(&read, written("{}")));
    EXPECT_SAYS("member command");
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_result_from_json(&read, written("[]")));
    EXPECT_FAILS(ASSAY_IO, assay_result_from_json(&read, "/nowhere/result.json"));
    expect_refused("\"kind\": \"parts exchanged\"", "\"kind\": 3",
                   "findings[1].kind: expected a string, found an integer");
    expect_refused("\"confidence\": 0.98", "\"confidence\": \"sure\"",
                   "findings[1].confidence: expected a number, found a string");
    expect_refused("\"points\": 212", "\"points\": -1", "coverage.points: expected a count");
    expect_refused("\"layers\": [", "\"layers\": [0.5,", "findings[0].layers");
    expect_refused("\"verdict\": \"FAIL\"", "\"verdict\": \"PASS\"",
                   "says PASS, its findings and checks say FAIL");
}
END_TEST

EXPECT_MAIN("finding", finding_lists_keep_numbers_sorted_and_texts_once,
            result_with_nothing_judged_is_never_a_pass,
            result_with_a_finding_fails_whatever_else_passed, result_survives_json_and_back,
            result_json_has_the_members_of_the_contract, result_reader_names_line_column_or_member)
