#include "suites/checklist.h"

#include <stdio.h>

#include "data.h"
#include "expect.h"
#include "forge_result.h"

static const char *written(const char *text)
{
    const char *path = data_scratch("list.yaml");
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static assay_checklist *read_list(const char *text)
{
    assay_checklist *list = NULL;
    EXPECT_OK(assay_checklist_read(&list, written(text)));
    return list;
}

START_TEST(checklist_refuses_what_is_wrong_with_line_and_column)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "line 1, column 1: the file is empty"},
        {"- a\n", "line 1, column 1: a checklist must be a mapping, found a list"},
        {"about: x\n", "key 'checklist' (its name) is missing"},
        {"checklist: a\nchekcs: [file]\n", "line 2, column 1: unknown key 'chekcs'"},
        {"checklist: a\nranks: two\n", "line 2, column 8: 'ranks' must be a number"},
        {"checklist: a\nranks: -1\n", "line 2, column 8: 'ranks' must be a number from 0"},
        {"checklist: a\nranks: 1.5\n", "line 2, column 8: 'ranks' must be a whole number"},
        {"checklist: a\nranks: \"2\"\n", "line 2, column 8: 'ranks' must be a number"},
        {"checklist: a\nranks: [2]\n", "must be a number, found a list"},
        {"checklist: a\nmax_kl: .nan\n", "line 2, column 9: 'max_kl' must be a number"},
        {"checklist: a\nchecks: file\n", "line 2, column 9: 'checks' must be a list"},
        {"checklist: a\nchecks: []\n", "line 2, column 9: 'checks' is empty"},
        {"checklist: a\nchecks: [file, flie]\n", "line 2, column 16: there is no row 'flie'"},
        {"checklist: a\nbackend: tpu\n", "line 2, column 10: 'backend' is cpu or cuda"},
        {"checklist: a\npath: [x]\n", "line 2, column 7: 'path' must be a text"},
        {"checklist: a\nprofile: nobody\n", "line 2, column 10: there is no profile 'nobody'"},
        {"checklist: a\nchecklist: b\n", "line 2, column 1: key 'checklist' stands twice"},
        {"checklist: a\nmodel: no/such.gguf\n", "line 2, column 8: 'model': file"},
        {"checklist: a\nmodels:\n  - model: no/such.gguf\n", "line 3, column 12: 'model': file"},
        {"checklist: a\nmodels:\n  - speed: 3\n", "line 3, column 5: unknown key 'speed'"},
        {"checklist: a\nmodels: x\n", "line 2, column 9: 'models' must be a list"},
        {"checklist: a\nexpect:\n  - prompt: x\n", "line 3, column 5: an entry of 'expect' needs"},
        {"checklist: a\naccept:\n  - class: BUFER\n", "line 3, column 12: there is no fault class"},
        {"checklist: a\naccept:\n  - class: BUFFER\n    reason: x\n    owner: y\n",
         "line 3, column 5: an entry of 'accept' needs 'reason', 'owner' and 'expires'"},
        {"checklist: a\naccept:\n  - class: BUFFER\n    check: file\n", "needs either 'class' or"},
        {"checklist: a\naccept:\n  - class: BUFFER\n    expires: soon\n",
         "line 4, column 14: 'expires' must be a day"},
        {"checklist: a\naccept:\n  - class: BUFFER\n    expires: 2027-13-01\n", "must be a day"},
        {"checklist: &x a\nabout: *x\n", "line 2, column 8: aliases are not allowed"},
        {"checklist: a\n---\nchecklist: b\n", "line 2, column 1: a second document"},
        {"checklist: [a\n", "line 2, column 1"},
        {"checklist: \"a\\0b\"\n", "holds a NUL"},
        {"checklist:\n", "'checklist' is empty"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assay_checklist *list = NULL;
        EXPECT_FAILS(ASSAY_BAD_FILE, assay_checklist_read(&list, written(rows[i].text)));
        EXPECT_SAYS(rows[i].says);
        EXPECT_SAYS("list.yaml': line");
    }
    assay_checklist *list = NULL;
    EXPECT_FAILS(ASSAY_IO, assay_checklist_read(&list, "/nowhere/list.yaml"));
}
END_TEST

START_TEST(checklist_fills_models_from_the_defaults)
{
    char text[2048];
    snprintf(text, sizeof text,
             "checklist: a\nabout: b\nchecks: [file]\nranks: 2\nbackend: cpu\n"
             "models:\n  - model: %s\n    ranks: 4\n  - model: %s\n    checks: [config, weights]\n",
             data_shipped("glm5-tiny-Q4_K_M.gguf"), data_shipped("glm5-tiny-Q4_K_M.gguf"));
    assay_checklist *list = read_list(text);
    ck_assert_int_eq(list->n_runs, 2);
    ck_assert_int_eq(list->runs[0].ranks, 4);
    ck_assert_int_eq(list->runs[1].ranks, 2);
    ck_assert_int_eq(list->runs[0].checks.n, 1);
    ck_assert_int_eq(list->runs[1].checks.n, 2);
    ck_assert_str_eq(list->runs[1].backend, "cpu");
    assay_checklist_free(list);
}
END_TEST

START_TEST(checklists_that_are_shipped_can_be_read)
{
    static const char *const names[] = {"ci", "bringup", "serve"};
    for (int i = 0; i < 3; i++) {
        char path[512];
        const char *dir = getenv("ASSAY_SOURCE_DIR");
        assay_checklist *list = NULL;
        snprintf(path, sizeof path, "%s/suites/checklists/%s.yaml", dir ? dir : ".", names[i]);
        EXPECT_OK(assay_checklist_read(&list, path));
        ck_assert_str_eq(list->name, names[i]);
        assay_checklist_free(list);
    }
}
END_TEST

static const char accepting[] = "checklist: a\naccept:\n  - class: BUFFER\n    point: blk.1.*\n"
                                "    reason: known\n    owner: J. Doe\n    expires: 2027-01-31\n";

START_TEST(acceptance_turns_a_finding_into_a_note_until_its_last_day)
{
    assay_result result;
    assay_checklist *list = read_list(accepting);
    forge_result_two(&result);
    EXPECT_OK(assay_checklist_accept(&result, list, "2027-01-31"));
    ck_assert_int_eq(result.n_findings, 1);
    ck_assert_str_eq(result.findings[0].fault_class, "FUSED-ORDER");
    ck_assert_ptr_nonnull(strstr(result.notes.items[result.notes.n - 1], "J. Doe"));
    ck_assert_int_eq(result.n_checks, 0);
    assay_result_clear(&result);
    forge_result_two(&result);
    EXPECT_OK(assay_checklist_accept(&result, list, "2027-02-01"));
    ck_assert_int_eq(result.n_findings, 2);
    ck_assert_int_eq(result.n_checks, 1);
    ck_assert_int_eq(result.checks[0].verdict, ASSAY_VERDICT_FAIL);
    ck_assert_ptr_nonnull(strstr(result.checks[0].summary, "line 3, column 5"));
    ck_assert_ptr_nonnull(strstr(result.checks[0].summary, "expired on 2027-01-31"));
    assay_result_clear(&result);
    assay_checklist_free(list);
}
END_TEST

/* The row that failed for accepted findings alone; with another one left, it stays failed. */
START_TEST(acceptance_of_all_findings_of_a_row_accepts_the_row)
{
    static const char both[] = "  - class: FUSED-ORDER\n    reason: known\n    owner: me\n"
                               "    expires: 2027-01-31\n";
    char text[1024];
    for (int all = 0; all < 2; all++) {
        assay_result result;
        assay_check_row *row;
        snprintf(text, sizeof text, "%s%s", accepting, all ? both : "");
        assay_checklist *list = read_list(text);
        forge_result_two(&result);
        EXPECT_OK(assay_result_add_check(&row, &result, "ops"));
        row->verdict = ASSAY_VERDICT_FAIL;
        EXPECT_OK(assay_result_add_check(&row, &result, "smoke"));
        row->verdict = ASSAY_VERDICT_FAIL;
        for (int i = 0; i < 2; i++)
            EXPECT_OK(assay_finding_set(&result.findings[i].check, "ops"));
        EXPECT_OK(assay_checklist_accept(&result, list, "2027-01-31"));
        ck_assert_int_eq(result.n_findings, 1 - all);
        ck_assert_int_eq(result.checks[0].verdict, all ? ASSAY_VERDICT_SKIP : ASSAY_VERDICT_FAIL);
        ck_assert_int_eq(result.checks[1].verdict, ASSAY_VERDICT_FAIL);
        ck_assert(!all || strstr(result.checks[0].summary, "accepted until 2027-01-31"));
        assay_result_clear(&result);
        assay_checklist_free(list);
    }
}
END_TEST

START_TEST(acceptance_of_another_place_accepts_nothing)
{
    assay_result result;
    assay_checklist *list =
        read_list("checklist: a\naccept:\n  - class: FUSED-ORDER\n    point: blk.3.attn.q_a\n"
                  "    reason: known\n    owner: me\n    expires: 2099-01-01\n");
    forge_result_two(&result); /* the finding is also at blk.3.attn.kv_a */
    EXPECT_OK(assay_checklist_accept(&result, list, NULL));
    ck_assert_int_eq(result.n_findings, 2);
    ck_assert_ptr_nonnull(strstr(result.notes.items[result.notes.n - 1], "was not seen"));
    assay_result_clear(&result);
    assay_checklist_free(list);
}
END_TEST

static assay_result check(const char *text)
{
    assay_result result;
    assay_checklist *list = read_list(text);
    assay_check_options options = assay_check_options_default();
    char model[4096];
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    options.model_path = model;
    EXPECT_OK(assay_result_init(&result, "check"));
    EXPECT_OK(assay_checklist_check(&result, list, &options, "2026-12-01"));
    assay_checklist_free(list);
    return result;
}

static assay_verdict verdict_of(const assay_result *result, const char *name)
{
    for (int i = 0; i < result->n_checks; i++)
        if (!strcmp(result->checks[i].name, name))
            return result->checks[i].verdict;
    ck_abort_msg("no row '%s'", name);
    return ASSAY_VERDICT_FAIL;
}

START_TEST(checklist_runs_the_rows_it_names_and_no_other)
{
    assay_result result = check("checklist: a\nchecks: [file, config]\n");
    ck_assert_int_eq(result.n_checks, 2);
    ck_assert_int_eq(assay_result_exit(&result), 0);
    assay_result_clear(&result);
}
END_TEST

START_TEST(checklist_fails_a_required_row_that_was_skipped)
{
    assay_result result = check("checklist: a\nchecks: [file, reference]\nrequire: [reference]\n");
    ck_assert_int_eq(verdict_of(&result, "reference"), ASSAY_VERDICT_SKIP);
    ck_assert_int_eq(verdict_of(&result, "require"), ASSAY_VERDICT_FAIL);
    ck_assert_int_eq(assay_result_exit(&result), 1);
    assay_result_clear(&result);
    result = check("checklist: a\nchecks: [file]\nrequire: [config]\n");
    ck_assert_int_eq(assay_result_exit(&result), 1);
    assay_result_clear(&result);
}
END_TEST

START_TEST(checklist_bound_without_a_measure_is_open)
{
    assay_result result = check("checklist: a\nchecks: [file]\nmax_kl: 0.5\nmin_top1: 0.9\n");
    ck_assert_int_eq(verdict_of(&result, "max_kl"), ASSAY_VERDICT_INCONCLUSIVE);
    ck_assert_int_eq(verdict_of(&result, "min_top1"), ASSAY_VERDICT_INCONCLUSIVE);
    ck_assert_int_eq(assay_result_exit(&result), 125);
    assay_result_clear(&result);
}
END_TEST

START_TEST(checklist_expects_a_continuation)
{
    assay_result result =
        check("checklist: a\nchecks: [smoke]\nexpect:\n"
              "  - prompt: \"Count from 6 to 10:\"\n    text: \" 6, 7, 8, 9, 10.\"\n");
    ck_assert_int_eq(verdict_of(&result, "smoke"), ASSAY_VERDICT_PASS);
    assay_result_clear(&result);
    static const char wrong[] = "checklist: a\nchecks: [smoke, file]\nexpect:\n"
                                "  - prompt: \"Count from 6 to 10:\"\n    text: \" 6, 7, 9\"\n";
    result = check(wrong);
    ck_assert_int_eq(verdict_of(&result, "smoke"), ASSAY_VERDICT_FAIL);
    ck_assert_int_eq(assay_result_exit(&result), 1);
    assay_result_clear(&result);
    char text[1024];
    snprintf(text, sizeof text,
             "%saccept:\n  - check: smoke\n    reason: x\n    owner: y\n    expires: 2026-12-01\n",
             wrong);
    result = check(text);
    ck_assert_int_eq(verdict_of(&result, "smoke"), ASSAY_VERDICT_SKIP);
    ck_assert_int_eq(assay_result_exit(&result), 0);
    assay_result_clear(&result);
}
END_TEST

START_TEST(checklist_of_two_models_names_them_in_the_rows)
{
    char text[2048];
    snprintf(text, sizeof text, "checklist: a\nchecks: [file]\nmodels:\n  - model: %s\n  - {}\n",
             data_shipped("glm5-tiny-Q4_K_M.gguf"));
    assay_result result = check(text);
    ck_assert_int_eq(result.n_checks, 2);
    ck_assert_str_eq(result.checks[1].name, "glm5-tiny-Q4_K_M.gguf: file");
    ck_assert_int_eq(assay_result_exit(&result), 0);
    assay_result_clear(&result);
}
END_TEST

EXPECT_MAIN("checklist", checklist_refuses_what_is_wrong_with_line_and_column,
            checklist_fills_models_from_the_defaults, checklists_that_are_shipped_can_be_read,
            acceptance_turns_a_finding_into_a_note_until_its_last_day,
            acceptance_of_all_findings_of_a_row_accepts_the_row,
            acceptance_of_another_place_accepts_nothing,
            checklist_runs_the_rows_it_names_and_no_other,
            checklist_fails_a_required_row_that_was_skipped,
            checklist_bound_without_a_measure_is_open, checklist_expects_a_continuation,
            checklist_of_two_models_names_them_in_the_rows)
