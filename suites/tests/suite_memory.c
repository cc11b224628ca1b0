/*
 * Without memory: the allocation of number n fails, for a sample of n. The tool then says so and
 * ends with 128, or it did not need that memory and shows what it always shows.
 */
#include <stdio.h>
#include <stdlib.h>

#include "child.h"
#include "data.h"
#include "expect.h"

/* Every step-th n by hand: ASSAY_MEMORY_STEP=1. */
static long step_or(long usual)
{
    const char *asked = getenv("ASSAY_MEMORY_STEP");
    return asked ? atol(asked) : usual;
}

static void sweep(const char *const *words, long first, long last, long step)
{
#ifdef __SANITIZE_ADDRESS__
    (void)words, (void)first, (void)last, (void)step;
    return; /* the sanitizer brings its own malloc and must be loaded first */
#endif
    static child_end healthy, end;
    ck_assert(child_run(&healthy, words, &(child_options){0}));
    ck_assert_msg(healthy.exit == 0, "exit %d: %s", healthy.exit, healthy.errors);
    child_without_times(healthy.output);
    int n_failed = 0;
    for (long n = first; n <= last; n += step) {
        ck_assert(child_run(&end, words, &(child_options){.fail_at = n}));
        ck_assert_msg(end.signal == 0, "n %ld: signal %d: %s", n, end.signal, end.errors);
        child_without_times(end.output);
        if (end.exit == 128) {
            ck_assert_msg(strstr(end.errors, "memory") || strstr(end.errors, "HDF5: ") ||
                              strstr(end.errors, "cannot be read"),
                          "n %ld: '%s'", n, end.errors);
            n_failed++;
            continue;
        }
        ck_assert_msg(end.exit == 0, "n %ld: exit %d: %s", n, end.exit, end.errors);
        ck_assert_msg(!strcmp(end.output, healthy.output), "n %ld: other output: %s", n,
                      end.output);
    }
    ck_assert_int_ge(n_failed, 1);
}

START_TEST(memory_inspect_says_what_it_lacks)
{
    char model[4096];
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    const char *const words[] = {"inspect", model, NULL};
    sweep(words, 1, 60, step_or(3));
    sweep(words, 61, 2600, step_or(151));
}
END_TEST

START_TEST(memory_diagnose_says_what_it_lacks)
{
    char model[4096], candidate[4096];
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(candidate, sizeof candidate, "%s", data_shipped("glm5-tiny-Q4_K_M.hf-bf16.h5"));
    const char *const words[] = {"diagnose", candidate, "--model", model, "--quiet", NULL};
    sweep(words, 5, 20000, step_or(3999));
}
END_TEST

EXPECT_MAIN("memory", memory_inspect_says_what_it_lacks, memory_diagnose_says_what_it_lacks)
