/*
 * Assertions that print what was found. Shared by all suites.
 */
#ifndef ASSAY_SUITES_TESTS_EXPECT_H
#define ASSAY_SUITES_TESTS_EXPECT_H

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/status.h"

#define EXPECT_OK(expr)                                                                            \
    do {                                                                                           \
        assay_status expect_status_ = (expr);                                                      \
        ck_assert_msg(expect_status_ == ASSAY_OK, "%s: %s", #expr, assay_error_text());            \
    } while (0)

#define EXPECT_FAILS(code, expr)                                                                   \
    do {                                                                                           \
        assay_status expect_status_ = (expr);                                                      \
        ck_assert_msg(expect_status_ == (code), "%s: status %d, line '%s'", #expr,                 \
                      (int)expect_status_, expect_status_ ? assay_error_text() : "");              \
    } while (0)

/* The recorded line holds the text. */
#define EXPECT_SAYS(text)                                                                          \
    ck_assert_msg(strstr(assay_error_text(), (text)) != NULL, "'%s' is not in '%s'", (text),       \
                  assay_error_text())

/* NaN on either side fails. */
#define EXPECT_NEAR(got, want, bound)                                                              \
    do {                                                                                           \
        double expect_got_ = (got), expect_want_ = (want);                                         \
        ck_assert_msg(fabs(expect_got_ - expect_want_) <= (bound), "%s: %.12g, expected %.12g",    \
                      #got, expect_got_, expect_want_);                                            \
    } while (0)

/* main() of a suite: EXPECT_MAIN("number", first_test, second_test, ...). Each test is a case of
 * its own name: CK_RUN_CASE=first_test runs it alone, CK_FORK=no without the limit on its time. */
#define EXPECT_MAIN(suite_name, ...)                                                               \
    int main(void)                                                                                 \
    {                                                                                              \
        const TTest *expect_tests_[] = {__VA_ARGS__};                                              \
        Suite *suite = suite_create(suite_name);                                                   \
        for (size_t i = 0; i < sizeof expect_tests_ / sizeof *expect_tests_; i++) {                \
            TCase *tcase = tcase_create(expect_tests_[i]->name);                                   \
            tcase_set_timeout(tcase, 800);                                                         \
            tcase_add_test(tcase, expect_tests_[i]);                                               \
            suite_add_tcase(suite, tcase);                                                         \
        }                                                                                          \
        SRunner *runner = srunner_create(suite);                                                   \
        srunner_run_all(runner, CK_NORMAL);                                                        \
        int failed = srunner_ntests_failed(runner);                                                \
        srunner_free(runner);                                                                      \
        return failed ? EXIT_FAILURE : EXIT_SUCCESS;                                               \
    }

#endif
