/*
 * The list before serving, end to end on the shipped model.
 */
#include "data.h"
#include "expect.h"

#include <stdio.h>

#include "suites/check.h"

static assay_check_options shipped(void)
{
    static char model[512], reference[512], twin[512];
    assay_check_options o = assay_check_options_default();
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(reference, sizeof reference, "%s", data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"));
    snprintf(twin, sizeof twin, "%s", data_shipped("glm5-tiny-Q4_K_M.hf-bf16.h5"));
    o.model_path = model;
    o.reference_path = reference;
    o.twin_path = twin;
    o.reproduce = "assay check";
    return o;
}

static const assay_check_row *row(const assay_result *result, const char *name)
{
    for (int i = 0; i < result->n_checks; i++)
        if (!strcmp(result->checks[i].name, name))
            return &result->checks[i];
    ck_abort_msg("no row '%s'", name);
    return NULL;
}

static void expect_row(const assay_result *result, const char *name, assay_verdict verdict)
{
    const assay_check_row *r = row(result, name);
    ck_assert_msg(r->verdict == verdict, "row %s is %s: %s", name, assay_verdict_name(r->verdict),
                  r->summary);
    ck_assert_msg(r->summary && *r->summary, "row %s says nothing", name);
}

static const assay_finding *finding(const assay_result *result, const char *fault_class)
{
    for (int i = 0; i < result->n_findings; i++)
        if (!strcmp(result->findings[i].fault_class, fault_class))
            return &result->findings[i];
    ck_abort_msg("no finding of class %s among %d", fault_class, result->n_findings);
    return NULL;
}

static void expect_layers(const assay_finding *f, int n, int64_t first)
{
    ck_assert_msg(f->layers.n == n && f->layers.items[0] == first, "%s: %d layers from %d",
                  f->fault_class, f->layers.n, f->layers.n ? (int)f->layers.items[0] : -1);
}

/* Rows for several ranks and for graphs cannot apply. */
static assay_verdict verdict_on_one_cpu(const char *name)
{
    static const char *const skipped[] = {"shards", "ranks", "graph"};
    for (size_t i = 0; i < sizeof skipped / sizeof *skipped; i++)
        if (!strcmp(name, skipped[i]))
            return ASSAY_VERDICT_SKIP;
    return ASSAY_VERDICT_PASS;
}

static void run_check(assay_result *result, const assay_check_options *o)
{
    EXPECT_OK(assay_result_init(result, "check"));
    EXPECT_OK(assay_check_run(result, o));
}

/* The second lies behind the first. */
static void plant_founding_faults(assay_check_options *o)
{
    static assay_plant plants[2];
    EXPECT_OK(assay_plant_parse(&plants[0], "phantom-output:layer=1"));
    EXPECT_OK(assay_plant_parse(&plants[1], "file-order:layer=3"));
    o->plants = plants;
    o->n_plants = 2;
}

static void expect_founding_faults(const assay_result *result)
{
    ck_assert_int_eq(assay_result_exit(result), 1);
    ck_assert_int_eq(result->n_findings, 2);
    expect_layers(finding(result, "BUFFER"), 1, 1);
    ck_assert_str_eq(finding(result, "BUFFER")->point, "blk.1.attn.out");
    expect_layers(finding(result, "FUSED-ORDER"), 1, 3);
}

START_TEST(every_row_of_a_healthy_model_passes)
{
    assay_result result;
    assay_check_options o = shipped();
    run_check(&result, &o);
    ck_assert_int_eq(result.n_checks, assay_check_count());
    for (int i = 0; i < result.n_checks; i++)
        expect_row(&result, result.checks[i].name, verdict_on_one_cpu(result.checks[i].name));
    ck_assert_int_eq(result.n_findings, 0);
    ck_assert_int_eq(assay_result_exit(&result), 0);
    ck_assert_ptr_nonnull(strstr(row(&result, "smoke")->summary, " 6, 7, 8, 9, 10."));
    ck_assert(result.n_judged > 0);
    assay_result_clear(&result);
}
END_TEST

START_TEST(both_founding_faults_are_found_in_one_run)
{
    assay_result result;
    assay_check_options o = shipped();
    plant_founding_faults(&o);
    run_check(&result, &o);
    expect_founding_faults(&result);
    expect_row(&result, "file", ASSAY_VERDICT_PASS);
    expect_row(&result, "weights", ASSAY_VERDICT_PASS);
    expect_row(&result, "buffers", ASSAY_VERDICT_FAIL);
    expect_row(&result, "ops", ASSAY_VERDICT_FAIL);
    expect_row(&result, "reference", ASSAY_VERDICT_FAIL);
    expect_row(&result, "smoke", ASSAY_VERDICT_FAIL);
    assay_result_clear(&result);
}
END_TEST

static void expect_note(const assay_result *result, const char *words)
{
    for (int i = 0; i < result->notes.n; i++)
        if (strstr(result->notes.items[i], words))
            return;
    ck_abort_msg("no note says '%s'", words);
}

/* The rows that judge what was captured. */
static void judge_ops(assay_check_options *o)
{
    static const char *const rows[] = {"probe", "ops", "reference"};
    o->rows = rows;
    o->n_rows = sizeof rows / sizeof *rows;
}

START_TEST(a_healthy_run_beyond_the_budget_ends_after_its_sketches)
{
    assay_result result;
    assay_check_options o = shipped();
    o.budget_bytes = 1 << 20;
    judge_ops(&o);
    run_check(&result, &o);
    expect_note(&result, "none called for values");
    expect_row(&result, "ops", ASSAY_VERDICT_PASS);
    ck_assert_ptr_nonnull(strstr(row(&result, "ops")->summary, "by their sketches"));
    expect_row(&result, "reference", ASSAY_VERDICT_PASS);
    ck_assert_ptr_nonnull(strstr(row(&result, "reference")->summary, "top-1 64 of 64"));
    ck_assert_int_gt(result.n_judged, 400);
    ck_assert_int_lt(result.n_judged, result.n_points);
    ck_assert_int_eq(assay_result_exit(&result), 0);
    assay_result_clear(&result);
}
END_TEST

/* Values of their two layers alone are captured. */
START_TEST(both_founding_faults_are_found_in_two_stages)
{
    assay_result result;
    assay_check_options o = shipped();
    plant_founding_faults(&o);
    o.budget_bytes = 1 << 20;
    judge_ops(&o);
    run_check(&result, &o);
    expect_note(&result, "then values of layers 1, 3 were captured");
    expect_founding_faults(&result);
    expect_row(&result, "ops", ASSAY_VERDICT_FAIL);
    expect_row(&result, "reference", ASSAY_VERDICT_FAIL);
    assay_result_clear(&result);
}
END_TEST

/* Each part is captured and diagnosed alone; the fault is one. */
START_TEST(without_a_reference_a_run_beyond_the_budget_is_judged_in_parts)
{
    assay_result result;
    assay_plant plant;
    assay_check_options o = shipped();
    const char *rows[] = {"ops"};
    EXPECT_OK(assay_plant_parse(&plant, "file-order"));
    o.reference_path = o.twin_path = NULL;
    o.plants = &plant;
    o.n_plants = 1;
    o.rows = rows;
    o.n_rows = 1;
    o.budget_bytes = 1 << 20;
    run_check(&result, &o);
    expect_note(&result, "each time some layers were captured");
    expect_note(&result, "the budget was not kept: values of one layer take up to 10.7 MB");
    ck_assert_int_eq(result.n_findings, 1);
    expect_layers(finding(&result, "FUSED-ORDER"), 4, 0);
    ck_assert_int_eq(result.n_judged, result.n_points);
    assay_result_clear(&result);
}
END_TEST

START_TEST(ranks_beyond_the_budget_are_compared_at_their_end)
{
    assay_result result;
    assay_check_options o = shipped();
    o.n_ranks = 2;
    judge_ops(&o);
    o.budget_bytes = 4 << 20;
    run_check(&result, &o);
    expect_row(&result, "ops", ASSAY_VERDICT_PASS);
    expect_row(&result, "reference", ASSAY_VERDICT_PASS);
    ck_assert_ptr_nonnull(strstr(row(&result, "reference")->summary, "top-1 64 of 64"));
    assay_result_clear(&result);
}
END_TEST

START_TEST(a_fault_that_leaves_the_text_right_is_found)
{
    assay_result result;
    assay_plant plant;
    assay_check_options o = shipped();
    EXPECT_OK(assay_plant_parse(&plant, "routed-scale:layer=2,value=1.003"));
    o.plants = &plant;
    o.n_plants = 1;
    run_check(&result, &o);
    expect_row(&result, "smoke", ASSAY_VERDICT_PASS);
    ck_assert_int_eq(assay_result_exit(&result), 1);
    expect_layers(finding(&result, "ROUTE"), 1, 2);
    ck_assert_str_eq(finding(&result, "ROUTE")->point, "blk.2.moe.weights");
    assay_result_clear(&result);
}
END_TEST

START_TEST(rows_that_cannot_apply_say_why)
{
    assay_result result;
    assay_check_options o = shipped();
    o.reference_path = o.twin_path = NULL;
    run_check(&result, &o);
    expect_row(&result, "reference", ASSAY_VERDICT_SKIP);
    expect_row(&result, "smoke", ASSAY_VERDICT_SKIP);
    expect_row(&result, "path", ASSAY_VERDICT_PASS);
    expect_row(&result, "ops", ASSAY_VERDICT_PASS);
    ck_assert_int_eq(assay_result_exit(&result), 0);
    assay_result_clear(&result);
}
END_TEST

START_TEST(ranks_are_judged_when_asked_for_and_packed_blocks_cut_by_them_are_found)
{
    assay_result result;
    assay_check_options o = shipped();
    const char *rows[] = {"shards", "ranks"};
    o.n_ranks = 2;
    o.rows = rows;
    o.n_rows = 2;
    run_check(&result, &o);
    expect_row(&result, "ranks", ASSAY_VERDICT_PASS);
    expect_row(&result, "shards", ASSAY_VERDICT_FAIL); /* halves of a 256-wide q4_k row */
    ck_assert_str_eq(finding(&result, "RANK-SLICE")->point, "blk.1.ffn_down_shexp.weight");
    ck_assert_int_eq(assay_result_exit(&result), 1);
    assay_result_clear(&result);
}
END_TEST

START_TEST(a_file_that_cannot_be_read_fails_its_row_and_nothing_else_is_judged)
{
    assay_result result;
    assay_check_options o = shipped();
    const char *path = data_scratch("cut.gguf");
    FILE *file = fopen(path, "wb");
    ck_assert(file && fwrite("GGUF\3\0\0\0", 1, 8, file) == 8 && !fclose(file));
    o.model_path = path;
    EXPECT_OK(assay_result_init(&result, "check"));
    EXPECT_FAILS(ASSAY_BAD_FILE, assay_check_run(&result, &o));
    EXPECT_SAYS("cut.gguf");
    expect_row(&result, "file", ASSAY_VERDICT_FAIL);
    for (int i = 1; i < result.n_checks; i++)
        expect_row(&result, result.checks[i].name, ASSAY_VERDICT_SKIP);
    assay_result_clear(&result);
}
END_TEST

START_TEST(a_model_without_latent_attention_skips_the_path_row)
{
    assay_result result;
    assay_check_options o = assay_check_options_default();
    const char *model = data_large("models/llama-tiny-bf16.gguf");
    if (!model)
        return;
    o.model_path = model;
    run_check(&result, &o);
    expect_row(&result, "path", ASSAY_VERDICT_SKIP);
    expect_row(&result, "phase", ASSAY_VERDICT_PASS);
    expect_row(&result, "batch", ASSAY_VERDICT_PASS);
    expect_row(&result, "ops", ASSAY_VERDICT_PASS);
    assay_result_clear(&result);
}
END_TEST

EXPECT_MAIN("check", every_row_of_a_healthy_model_passes, both_founding_faults_are_found_in_one_run,
            a_healthy_run_beyond_the_budget_ends_after_its_sketches,
            both_founding_faults_are_found_in_two_stages,
            without_a_reference_a_run_beyond_the_budget_is_judged_in_parts,
            ranks_beyond_the_budget_are_compared_at_their_end,
            a_fault_that_leaves_the_text_right_is_found, rows_that_cannot_apply_say_why,
            ranks_are_judged_when_asked_for_and_packed_blocks_cut_by_them_are_found,
            a_file_that_cannot_be_read_fails_its_row_and_nothing_else_is_judged,
            a_model_without_latent_attention_skips_the_path_row)
