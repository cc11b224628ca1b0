/*
 * main() of a GPU suite: one process, no fork (CUDA does not survive it); without a device it is
 * skipped (125), unless ASSAY_REQUIRE_GPU=1 makes that a failure.
 */
#ifndef ASSAY_SUITES_TESTS_GPU_EXPECT_GPU_H
#define ASSAY_SUITES_TESTS_GPU_EXPECT_GPU_H

#include <stdio.h>

#include "engine/device.h"
#include "expect.h"

static inline int expect_gpu_absent(void)
{
    const char *why, *required = getenv("ASSAY_REQUIRE_GPU");
    if (assay_device_count(&why) > 0)
        return 0;
    fprintf(stderr, "%s\n", why);
    return required && !strcmp(required, "1") ? EXIT_FAILURE : 125;
}

#define EXPECT_GPU_MAIN(name, ...)                                                                 \
    int main(void)                                                                                 \
    {                                                                                              \
        int absent = expect_gpu_absent();                                                          \
        if (absent)                                                                                \
            return absent;                                                                         \
        const TTest *expect_tests_[] = {__VA_ARGS__};                                              \
        Suite *suite = suite_create(name);                                                         \
        TCase *tcase = tcase_create(name);                                                         \
        for (size_t i = 0; i < sizeof expect_tests_ / sizeof *expect_tests_; i++)                  \
            tcase_add_test(tcase, expect_tests_[i]);                                               \
        suite_add_tcase(suite, tcase);                                                             \
        SRunner *runner = srunner_create(suite);                                                   \
        srunner_set_fork_status(runner, CK_NOFORK);                                                \
        srunner_run_all(runner, CK_NORMAL);                                                        \
        int failed = srunner_ntests_failed(runner);                                                \
        srunner_free(runner);                                                                      \
        return failed ? EXIT_FAILURE : EXIT_SUCCESS;                                               \
    }

#endif
