/*
 * A capture of sketches: a fault is found at its place, a healthy run is clean, and the values that
 * are asked for next name the cause.
 */
#include <stdio.h>
#include <string.h>

#include "child.h"
#include "data.h"
#include "expect.h"

#define PLANT "gate-up-order:layer=2"

static char model[600], ids[600], reference[600], sketches[600], full[600], prompt[700];
static child_end end;

static int call(const char *const *words)
{
    ck_assert(child_run(&end, words, &(child_options){0}));
    ck_assert_msg(end.signal == 0, "signal %d: %s", end.signal, end.errors);
    return end.exit;
}

static void prepare(void)
{
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    snprintf(ids, sizeof ids, "%s", data_scratch("ids.txt"));
    snprintf(reference, sizeof reference, "%s", data_scratch("reference.h5"));
    snprintf(sketches, sizeof sketches, "%s", data_scratch("sketches.h5"));
    snprintf(full, sizeof full, "%s", data_scratch("full.h5"));
    FILE *file = fopen(ids, "w");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 40; i++)
        fprintf(file, "%d,", 7 * i + 3);
    fputs("9", file);
    fclose(file);
    int exit =
        call((const char *const[]){"reference", model, "--tokens", ids, "-o", reference, NULL});
    ck_assert_msg(exit == 0, "exit %d: %s", exit, end.errors);
}

static int compare_sketches(const char *plant)
{
    int exit =
        call((const char *const[]){"run", model, "--tokens", ids, "-n", "1", "--capture", sketches,
                                   "--tier", "sketch", plant ? "--plant" : NULL, plant, NULL});
    ck_assert_msg(exit == 0, "exit %d: %s", exit, end.errors);
    return call((const char *const[]){"compare", sketches, reference, "--model", model, NULL});
}

START_TEST(sketches_of_a_healthy_run_agree)
{
    prepare();
    int exit = compare_sketches(NULL);
    ck_assert_msg(exit == 0, "exit %d: %s %s", exit, end.output, end.errors);
}
END_TEST

START_TEST(sketches_lead_to_the_values_that_name_the_cause)
{
    prepare();
    int exit = compare_sketches(PLANT);
    ck_assert_msg(exit == 1, "exit %d: %s %s", exit, end.output, end.errors);
    ck_assert_msg(strstr(end.output, "--points \"layer=1-2\" --tier full"), "%s", end.output);
    ck_assert_msg(strstr(end.output, "MODEL.gguf") == NULL, "%s", end.output);
    snprintf(prompt, sizeof prompt, "%s:default", sketches);
    ck_assert_msg(strstr(end.output, prompt), "%s", end.output);
    ck_assert_int_eq(call((const char *const[]){"run", model, "--tokens", prompt, "-n", "1",
                                                "--capture", full, "--points", "layer=1-2",
                                                "--tier", "full", "--plant", PLANT, NULL}),
                     0);
    exit = call((const char *const[]){"diagnose", full, "--model", model, "--layers", "2-2", NULL});
    ck_assert_int_eq(exit, 1);
    ck_assert_msg(strstr(end.output, "FUSED-ORDER"), "%s", end.output);
    /* one layer was asked for: the others are not read, not even for a hash */
    ck_assert_msg(strstr(end.output, "same model: unproven"), "%s", end.output);
}
END_TEST

EXPECT_MAIN("sketched", sketches_of_a_healthy_run_agree,
            sketches_lead_to_the_values_that_name_the_cause)
