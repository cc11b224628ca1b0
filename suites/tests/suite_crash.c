/* Crash safety of what the tool writes: killed at any moment, no room, no permission. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "data.h"
#include "expect.h"
#include "forge_result.h"
#include "references/run.h"
#include "reports/render.h"

/* More rounds by hand: ASSAY_CRASH_ROUNDS=200. */
static int n_rounds(void)
{
    const char *asked = getenv("ASSAY_CRASH_ROUNDS");
    return asked ? atoi(asked) : 4;
}

/* Parts of a run, spread evenly however many there are: multiples of the golden ratio. */
static double moment(int round)
{
    return fmod(0.53 + round * 0.6180339887498949, 1);
}

static char model[4096], folder[4096], capture[4200];
static int n_left, n_refused; /* under the temporary name */

static void make_folder(const char *name)
{
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(folder, sizeof folder, "%s", data_scratch(name));
    snprintf(capture, sizeof capture, "%s/run.h5", folder);
    ck_assert_int_eq(mkdir(folder, 0777), 0);
}

static const char *const *run_words(void)
{
    static const char *words[16];
    const char *const all[] = {
        "run",   model,     "--prompt", "Count from 6 to 10:", "-n", "8", "--capture",
        capture, "--quiet", NULL};
    memcpy(words, all, sizeof all);
    return words;
}

/* What says that it is complete holds all that an unharmed run has captured. */
static void check_whole(const char *path, const char *unharmed)
{
    const char *const words[] = {"compare", path, unharmed, "--quiet", NULL};
    child_end end;
    ck_assert(child_run(&end, words, &(child_options){0}));
    ck_assert_msg(end.exit == 0, "exit %d: %s%s", end.exit, end.output, end.errors);
}

/* What a kill left. A file under the name is a whole capture; one under the temporary name is
 * refused, or says that it is incomplete, or is whole and was not renamed any more. */
static void check_left(const char *unharmed)
{
    char partial[4300];
    const char *path = partial;
    assay_run *run;
    if (access(capture, F_OK) == 0)
        check_whole(capture, unharmed);
    snprintf(partial, sizeof partial, "%s.partial", capture);
    if (access(partial, F_OK) != 0)
        return;
    assay_status s = assay_run_open(&run, &path, 1, NULL);
    ck_assert_msg(s == ASSAY_OK || s == ASSAY_BAD_FILE, "%s", assay_error_text());
    n_left++;
    if (s != ASSAY_OK) {
        n_refused++;
        return;
    }
    bool is_complete = assay_run_about(run)->is_complete;
    assay_run_close(run);
    if (is_complete)
        check_whole(partial, unharmed);
}

START_TEST(crash_a_killed_capture_never_passes_for_whole)
{
    make_folder("killed");
    char unharmed[4300];
    child_end end;
    ck_assert(child_run(&end, run_words(), &(child_options){0}));
    ck_assert_msg(end.exit == 0, "exit %d: %s", end.exit, end.errors);
    snprintf(unharmed, sizeof unharmed, "%s/unharmed.h5", folder);
    ck_assert_int_eq(rename(capture, unharmed), 0);
    double whole = end.ms;
    int n_killed = 0;
    for (int i = 0; i < n_rounds(); i++) {
        unlink(capture);
        ck_assert(child_run(&end, run_words(),
                            &(child_options){.kill_after_ms = whole * moment(i) + 0.1}));
        n_killed += end.was_killed;
        whole = end.was_killed ? whole : fmin(whole, end.ms); /* it was slower at first */
        ck_assert_msg(end.was_killed || end.exit == 0, "exit %d: %s", end.exit, end.errors);
        check_left(unharmed);
    }
    printf("%d of %d captures were killed before their end\n", n_killed, n_rounds());
    ck_assert_int_ge(n_killed, 1);
}
END_TEST

START_TEST(crash_a_capture_killed_at_a_call_is_whole_or_says_not)
{
    make_folder("called");
    char unharmed[4300];
    static child_end end;
    ck_assert(child_run(&end, run_words(), &(child_options){.fail_io_at = -1}));
    ck_assert_msg(end.exit == 0, "exit %d: %s", end.exit, end.errors);
    snprintf(unharmed, sizeof unharmed, "%s/unharmed.h5", folder);
    ck_assert_int_eq(rename(capture, unharmed), 0);
    long n_calls = end.n_counted, step = n_calls / (5 * n_rounds()) + 1, n_killed = 0;
    ck_assert_int_gt(n_calls, 100);
    for (long n = 1; n <= n_calls; n = child_next_call(n, n_calls, step)) {
        unlink(capture);
        ck_assert(
            child_run(&end, run_words(), &(child_options){.fail_io_at = n, .kills_at_io = true}));
        ck_assert_msg(end.was_killed, "%ld of %ld: exit %d: %s", n, n_calls, end.exit, end.errors);
        n_killed++;
        check_left(unharmed);
    }
    printf("at %ld of %ld calls a capture was killed, and of %d files %d were refused\n", n_killed,
           n_calls, n_left, n_refused);
    ck_assert_int_le(n_refused * 4, n_left);
}
END_TEST

START_TEST(crash_a_capture_without_room_says_so_and_leaves_nothing)
{
    make_folder("full");
    child_end end;
    for (long room = 1 << 10; room <= 1 << 18; room <<= 4) {
        ck_assert(child_run(&end, run_words(), &(child_options){.file_bytes = room}));
        ck_assert_msg(end.exit == 128, "%ld bytes: exit %d, signal %d: %s", room, end.exit,
                      end.signal, end.errors);
        ck_assert_msg(strstr(end.errors, "run.h5"), "'%s'", end.errors);
        ck_assert_int_eq(child_count_files(folder), 0);
    }
}
END_TEST

START_TEST(crash_a_folder_without_permission_is_named)
{
    make_folder("closed");
    chmod(folder, 0555);
    chmod(data_scratch("."), 0755);
    child_end end;
    ck_assert(child_run(&end, run_words(), &(child_options){.as_nobody = true}));
    ck_assert_msg(end.exit == 128, "exit %d: %s", end.exit, end.errors);
    ck_assert_int_eq(child_count_files(folder), 0);
}
END_TEST

/* A result to report about, and the words that do it. */
static const char *const *report_words(void)
{
    static const char *words[8];
    static char result_path[4200];
    snprintf(result_path, sizeof result_path, "%s", data_scratch("result.json"));
    assay_result result;
    forge_result_two(&result);
    char *text = forge_rendered("json", &result, 100);
    FILE *file = fopen(result_path, "wb");
    ck_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
    free(text);
    assay_result_clear(&result);
    const char *const all[] = {"report", result_path, "--report", folder, "--quiet", NULL};
    memcpy(words, all, sizeof all);
    return words;
}

/* Bytes of a file under the folder; -1: absent. Forms hold a time or none, but always one length.
 */
static long size_of(const char *name)
{
    char path[4400];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return stat(path, &st) ? -1 : (long)st.st_size;
}

START_TEST(crash_killed_reports_are_whole_or_absent)
{
    make_folder("reports");
    child_end end;
    const char *const *words = report_words();
    ck_assert(child_run(&end, words, &(child_options){0}));
    ck_assert_msg(end.exit == 1, "exit %d: %s", end.exit, end.errors);
    long whole[32];
    double ms = end.ms;
    int n_forms = assay_renderer_count(), n_killed = 0;
    for (int i = 0; i < n_forms; i++) {
        whole[i] = size_of(assay_renderer_at(i)->file_name);
        ck_assert_msg(whole[i] > 0, "%s", assay_renderer_at(i)->file_name);
    }
    for (int round = 0; round < 2 * n_rounds(); round++) {
        char again[64];
        snprintf(again, sizeof again, "reports%d", round);
        make_folder(again);
        ck_assert(
            child_run(&end, words, &(child_options){.kill_after_ms = ms * moment(round) + 0.1}));
        n_killed += end.was_killed;
        ms = end.was_killed ? ms : fmin(ms, end.ms);
        for (int i = 0; i < n_forms; i++) {
            long n = size_of(assay_renderer_at(i)->file_name);
            ck_assert_msg(n == -1 || n == whole[i], "%s: %ld bytes, whole %ld",
                          assay_renderer_at(i)->file_name, n, whole[i]);
        }
    }
    printf("%d of %d reports were killed before their end\n", n_killed, 2 * n_rounds());
}
END_TEST

START_TEST(crash_reports_without_room_say_so_and_leave_no_half)
{
    make_folder("narrow");
    child_end end;
    const char *const *words = report_words();
    ck_assert(child_run(&end, words, &(child_options){0}));
    ck_assert_msg(end.exit == 1, "exit %d: %s", end.exit, end.errors);
    int n_forms = child_count_files(folder);
    ck_assert_int_eq(n_forms, assay_renderer_count());
    long whole = size_of("index.html"); /* the largest: the last byte of it has no room */
    const long rooms[] = {512, 2048, 8192, whole - 1};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        char name[32];
        snprintf(name, sizeof name, "narrow%zu", i);
        make_folder(name);
        words = report_words();
        ck_assert(child_run(&end, words, &(child_options){.file_bytes = rooms[i]}));
        ck_assert_msg(end.exit == 128, "exit %d, signal %d: %s", end.exit, end.signal, end.errors);
        ck_assert_msg(strstr(end.errors, folder), "'%s'", end.errors);
        ck_assert_int_eq(child_count_files(folder), 0);
    }
}
END_TEST

EXPECT_MAIN("crash", crash_a_killed_capture_never_passes_for_whole,
            crash_a_capture_killed_at_a_call_is_whole_or_says_not,
            crash_a_capture_without_room_says_so_and_leaves_nothing,
            crash_a_folder_without_permission_is_named, crash_killed_reports_are_whole_or_absent,
            crash_reports_without_room_say_so_and_leave_no_half)
