/*
 * Without memory: an allocation of each main command fails, for a sample of the chains of callers
 * that allocate. The command then says so and ends with 128 (or 125: it did not get to judge), or
 * it did not need that memory and shows what it always shows; whatever it had is freed.
 */
#include "expect.h"
#include "main_commands.h"

/* Every step-th chain by hand: ASSAY_MEMORY_STEP=1, and ASSAY_MEMORY_FROM to go on somewhere. */
static void sweep(const char *name)
{
#ifdef __SANITIZE_ADDRESS__
    (void)name;
    return; /* the sanitizer brings its own malloc and must be loaded first */
#endif
    const main_command *c = main_command_find(name);
    const child_options shim = {.fail_at = -1};
    long n_chains = main_command_count(c, &shim), n_failed = 0;
    long step = main_command_number("ASSAY_MEMORY_STEP", n_chains / 10 + 1);
    ck_assert_int_gt(n_chains, 20);
    for (long n = main_command_number("ASSAY_MEMORY_FROM", 1); n <= n_chains; n += step)
        n_failed += main_command_under(c, n, &shim);
    ck_assert_msg(n_failed >= 1, "%s: none of %ld failed", c->name, n_chains);
}

START_TEST(memory_inspect_says_what_it_lacks_and_frees_the_rest)
{
    sweep("inspect");
}
END_TEST

START_TEST(memory_capture_says_what_it_lacks_and_frees_the_rest)
{
    sweep("capture");
}
END_TEST

START_TEST(memory_reference_says_what_it_lacks_and_frees_the_rest)
{
    sweep("reference");
}
END_TEST

START_TEST(memory_forge_says_what_it_lacks_and_frees_the_rest)
{
    sweep("forge");
}
END_TEST

START_TEST(memory_audit_says_what_it_lacks_and_frees_the_rest)
{
    sweep("audit");
}
END_TEST

START_TEST(memory_compare_says_what_it_lacks_and_frees_the_rest)
{
    sweep("compare");
}
END_TEST

START_TEST(memory_diagnose_says_what_it_lacks_and_frees_the_rest)
{
    sweep("diagnose");
}
END_TEST

START_TEST(memory_findings_says_what_it_lacks_and_frees_the_rest)
{
    sweep("findings");
}
END_TEST

START_TEST(memory_check_says_what_it_lacks_and_frees_the_rest)
{
    sweep("check");
}
END_TEST

START_TEST(memory_report_says_what_it_lacks_and_frees_the_rest)
{
    sweep("report");
}
END_TEST

START_TEST(memory_import_says_what_it_lacks_and_frees_the_rest)
{
    sweep("import");
}
END_TEST

/* A library that lacks memory hands back an error of its own: it passes for no other, and nothing
 * goes on without what the library was asked for. Only a matcher is as good without its JIT. */
START_TEST(memory_that_libraries_lack_is_no_other_error)
{
#ifndef __SANITIZE_ADDRESS__
    static const struct {
        const char *command, *library;
        bool needs_all;
    } used[] = {{"check", "libyaml", true},
                {"check", "libpcre2", false},
                {"findings", "libpcre2", false},
                {"import", "libyaml", true},
                {"import", "libpcre2", true}};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
        const main_command *c = main_command_find(used[i].command);
        const child_options shim = {.fail_at = -1, .fail_from = used[i].library};
        long n_chains = main_command_count(c, &shim), n_failed = 0;
        for (long n = 1; n <= n_chains; n++)
            n_failed += main_command_under(c, n, &shim);
        ck_assert_msg(n_failed >= 1 && (n_failed == n_chains || !used[i].needs_all),
                      "%s, %s: %ld of %ld failed", c->name, used[i].library, n_failed, n_chains);
    }
#endif
}
END_TEST

/* A report's first allocations read the result, a check's last quarter writes it. */
START_TEST(memory_that_json_lacks_is_not_blamed_on_the_file)
{
#ifndef __SANITIZE_ADDRESS__
    const main_command *c = main_command_find("report");
    const child_options shim = {.fail_at = -1};
    int n_failed = 0;
    ck_assert_int_gt(main_command_count(c, &shim), 20);
    for (long n = 1; n <= 20; n++)
        n_failed += main_command_under(c, n, &shim);
    ck_assert_int_gt(n_failed, 10);
    c = main_command_find("check");
    long n_chains = main_command_count(c, &shim);
    n_failed = 0;
    for (long n = n_chains - n_chains / 4; n <= n_chains; n += 5)
        n_failed += main_command_under(c, n, &shim);
    ck_assert_int_gt(n_failed, 5);
#endif
}
END_TEST

EXPECT_MAIN("memory", memory_inspect_says_what_it_lacks_and_frees_the_rest,
            memory_capture_says_what_it_lacks_and_frees_the_rest,
            memory_reference_says_what_it_lacks_and_frees_the_rest,
            memory_forge_says_what_it_lacks_and_frees_the_rest,
            memory_audit_says_what_it_lacks_and_frees_the_rest,
            memory_compare_says_what_it_lacks_and_frees_the_rest,
            memory_diagnose_says_what_it_lacks_and_frees_the_rest,
            memory_findings_says_what_it_lacks_and_frees_the_rest,
            memory_check_says_what_it_lacks_and_frees_the_rest,
            memory_report_says_what_it_lacks_and_frees_the_rest,
            memory_import_says_what_it_lacks_and_frees_the_rest,
            memory_that_libraries_lack_is_no_other_error,
            memory_that_json_lacks_is_not_blamed_on_the_file)
