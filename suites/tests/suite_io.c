/*
 * Input and output that fail: call number n of each main command returns EIO, for a sample of n.
 * The command then says what it could not read or write and ends with 128 (or 125: it did not get
 * to judge), or it did not need that call and shows what it always shows. Nothing half-written is
 * left.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "data.h"
#include "expect.h"

typedef struct command {
    const char *name;
    const char *words[14]; /* @ is the folder for what is written */
    int healthy_exit;
    const char *whole; /* the file of the folder that may be there after a failure; NULL: none */
} command;

static char model[4096], candidate[4096], folder[4096];
static char shown[sizeof((child_end *)0)->output]; /* by the healthy command */

/* Every step-th n by hand: ASSAY_IO_STEP=1. */
static long step_or(long usual)
{
    const char *asked = getenv("ASSAY_IO_STEP");
    return asked ? atol(asked) : usual;
}

static void make_folder(const char *name, long n)
{
    char unique[128];
    snprintf(unique, sizeof unique, "%s%ld", name, n);
    snprintf(folder, sizeof folder, "%s", data_scratch(unique));
    ck_assert_int_eq(mkdir(folder, 0777), 0);
}

static bool run(child_end *end, const command *c, long fail_at)
{
    static char paths[14][8192];
    const char *words[15] = {0};
    for (int i = 0; i < 14 && c->words[i]; i++) {
        const char *word = !strcmp(c->words[i], "MODEL")       ? model
                           : !strcmp(c->words[i], "CANDIDATE") ? candidate
                                                               : c->words[i];
        snprintf(paths[i], sizeof paths[i], "%s%s", *word == '@' ? folder : "",
                 *word == '@' ? word + 1 : word);
        words[i] = paths[i];
    }
    return child_run(end, words, &(child_options){.fail_io_at = fail_at});
}

/* Number of calls that the healthy command makes. */
static long count_calls(const command *c)
{
    child_end end;
    char path[4200], text[32] = "";
    snprintf(path, sizeof path, "%s", data_scratch("calls"));
    setenv("ASSAY_FAIL_COUNT", path, 1);
    ck_assert(run(&end, c, -1));
    unsetenv("ASSAY_FAIL_COUNT");
    ck_assert_msg(end.exit == c->healthy_exit, "%s: exit %d: %s", c->name, end.exit, end.errors);
    snprintf(shown, sizeof shown, "%s", end.output);
    child_without_times(shown);
    FILE *file = fopen(path, "rb");
    ck_assert(file && fgets(text, sizeof text, file));
    fclose(file);
    return atol(text);
}

static void check_end(const command *c, const child_end *end, long n)
{
    ck_assert_msg(end->signal == 0, "%s, call %ld: signal %d: %s", c->name, n, end->signal,
                  end->errors);
    if (end->exit == c->healthy_exit) {
        char now[sizeof shown];
        snprintf(now, sizeof now, "%s", end->output);
        child_without_times(now);
        ck_assert_msg(!strcmp(now, shown), "%s, call %ld shows: %s\nexpected: %s", c->name, n, now,
                      shown);
        return;
    }
    ck_assert_msg(end->exit == 128 || end->exit == 125, "%s, call %ld: exit %d: %s", c->name, n,
                  end->exit, end->errors);
    ck_assert_msg(strlen(end->errors) > 20, "%s, call %ld: '%s'", c->name, n, end->errors);
    char path[4300];
    snprintf(path, sizeof path, "%s/%s", folder, c->whole ? c->whole : "-");
    int n_left = child_count_files(folder), is_whole = c->whole && access(path, F_OK) == 0;
    ck_assert_msg(n_left == is_whole, "%s, call %ld: %d files left: %s", c->name, n, n_left,
                  end->errors);
}

static void sweep(const command *c, long usual_step)
{
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(candidate, sizeof candidate, "%s", data_shipped("glm5-tiny-Q4_K_M.hf-bf16.h5"));
    make_folder(c->name, 0);
    long n_calls = count_calls(c), n_failed = 0;
    ck_assert_int_gt(n_calls, 3);
    for (long n = 1; n <= n_calls; n += n < 8 || n > n_calls - 12 ? 1 : step_or(usual_step)) {
        child_end end;
        make_folder(c->name, n);
        ck_assert(run(&end, c, n));
        check_end(c, &end, n);
        n_failed += end.exit != c->healthy_exit;
    }
    ck_assert_msg(n_failed > 2, "%s: %ld of %ld failed", c->name, n_failed, n_calls);
}

START_TEST(io_inspect_says_what_failed)
{
    sweep(&(command){"inspect", {"inspect", "MODEL"}, 0, NULL}, 1);
}
END_TEST

START_TEST(io_capture_says_what_failed_and_leaves_none_or_all)
{
    sweep(&(command){"run",
                     {"run", "MODEL", "--prompt", "Count", "-n", "2", "--capture", "@/run.h5",
                      "--quiet"},
                     0,
                     "run.h5"},
          61);
}
END_TEST

START_TEST(io_reference_says_what_failed_and_leaves_none_or_all)
{
    sweep(&(command){"reference",
                     {"reference", "MODEL", "--prompt", "Count", "--layers", "0-1", "-o",
                      "@/ref.h5", "--quiet"},
                     0,
                     "ref.h5"},
          97);
}
END_TEST

START_TEST(io_forge_says_what_failed_and_leaves_none_or_all)
{
    sweep(&(command){"forge",
                     {"forge", "--like", "glm5-tiny", "--output", "@/forged.gguf", "--quiet"},
                     0,
                     "forged.gguf"},
          41);
}
END_TEST

START_TEST(io_diagnose_says_what_failed)
{
    sweep(&(command){"diagnose", {"diagnose", "CANDIDATE", "--model", "MODEL", "--quiet"}, 0, NULL},
          397);
}
END_TEST

EXPECT_MAIN("io", io_inspect_says_what_failed, io_capture_says_what_failed_and_leaves_none_or_all,
            io_reference_says_what_failed_and_leaves_none_or_all,
            io_forge_says_what_failed_and_leaves_none_or_all, io_diagnose_says_what_failed)
