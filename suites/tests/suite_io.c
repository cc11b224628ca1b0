/*
 * Input and output that fail: call number n of each main command returns EIO, for a sample of n.
 * The command then says what it could not read or write and ends with 128 (or 125: it did not get
 * to judge), or it did not need that call and shows what it always shows. Nothing half-written is
 * left.
 */
#include "expect.h"
#include "main_commands.h"

/* Every step-th n by hand: ASSAY_IO_STEP=1, and ASSAY_IO_FROM to go on somewhere. */
static void sweep(const char *name)
{
    const main_command *c = main_command_find(name);
    const child_options shim = {.fail_io_at = -1};
    long n_calls = main_command_count(c, &shim), n_failed = 0;
    long step = main_command_number("ASSAY_IO_STEP", n_calls / 12 + 1);
    ck_assert_int_gt(n_calls, 3);
    for (long n = main_command_number("ASSAY_IO_FROM", 1); n <= n_calls;
         n = child_next_call(n, n_calls, step))
        n_failed += main_command_under(c, n, &shim);
    ck_assert_msg(n_failed > 2, "%s: %ld of %ld failed", c->name, n_failed, n_calls);
}

START_TEST(io_inspect_says_what_failed_and_leaves_none_or_all)
{
    sweep("inspect");
}
END_TEST

START_TEST(io_capture_says_what_failed_and_leaves_none_or_all)
{
    sweep("capture");
}
END_TEST

START_TEST(io_reference_says_what_failed_and_leaves_none_or_all)
{
    sweep("reference");
}
END_TEST

START_TEST(io_forge_says_what_failed_and_leaves_none_or_all)
{
    sweep("forge");
}
END_TEST

START_TEST(io_audit_says_what_failed_and_leaves_none_or_all)
{
    sweep("audit");
}
END_TEST

START_TEST(io_compare_says_what_failed_and_leaves_none_or_all)
{
    sweep("compare");
}
END_TEST

START_TEST(io_diagnose_says_what_failed_and_leaves_none_or_all)
{
    sweep("diagnose");
}
END_TEST

START_TEST(io_findings_says_what_failed_and_leaves_none_or_all)
{
    sweep("findings");
}
END_TEST

START_TEST(io_check_says_what_failed_and_leaves_none_or_all)
{
    sweep("check");
}
END_TEST

START_TEST(io_report_says_what_failed_and_leaves_none_or_all)
{
    sweep("report");
}
END_TEST

START_TEST(io_import_says_what_failed_and_leaves_none_or_all)
{
    sweep("import");
}
END_TEST

/* The first calls of an import read the members of groups. */
START_TEST(io_a_group_that_cannot_be_read_to_its_end_is_named)
{
    const main_command *c = main_command_find("import");
    const child_options shim = {.fail_io_at = -1};
    ck_assert_int_gt(main_command_count(c, &shim), 64);
    for (long n = 1; n <= 64; n++)
        main_command_under(c, n, &shim);
}
END_TEST

EXPECT_MAIN("io", io_inspect_says_what_failed_and_leaves_none_or_all,
            io_capture_says_what_failed_and_leaves_none_or_all,
            io_reference_says_what_failed_and_leaves_none_or_all,
            io_forge_says_what_failed_and_leaves_none_or_all,
            io_audit_says_what_failed_and_leaves_none_or_all,
            io_compare_says_what_failed_and_leaves_none_or_all,
            io_diagnose_says_what_failed_and_leaves_none_or_all,
            io_findings_says_what_failed_and_leaves_none_or_all,
            io_check_says_what_failed_and_leaves_none_or_all,
            io_report_says_what_failed_and_leaves_none_or_all,
            io_import_says_what_failed_and_leaves_none_or_all,
            io_a_group_that_cannot_be_read_to_its_end_is_named)
