/*
 * The forced pass on what transformers computed in float32: every op agrees.
 */
#include "data.h"
#include "diagnosed.h"
#include "expect.h"

#include <stdio.h>

static assay_result result;

typedef struct worst {
    double rel, bound;
    int n, n_flips_outside;
    char where[ASSAY_POINT_NAME_BYTES];
} worst;

static void see(void *user, const assay_judged *j)
{
    worst *w = user;
    w->n++;
    w->n_flips_outside += (int)j->n_flips_outside;
    if (!j->is_ids && j->rel > w->rel) {
        w->rel = j->rel;
        assay_point_format(w->where, j->point, j->layer);
    }
}

static void expect_within(const char *capture, const char *model, double bound)
{
    worst w = {0};
    EXPECT_OK(diagnosed_watched(&result, capture, model, see, &w));
    ck_assert_msg(w.rel <= bound, "%s: added error %g, bound %g", w.where, w.rel, bound);
    ck_assert_int_eq(w.n_flips_outside, 0);
    ck_assert_int_gt(w.n, 100);
    assay_result_clear(&result);
}

START_TEST(every_op_of_the_shipped_float32_reference_agrees_within_a_millionth)
{
    expect_within(data_shipped("glm5-tiny-Q4_K_M.hf-fp32.h5"),
                  data_shipped("glm5-tiny-Q4_K_M.gguf"), 1e-6);
}
END_TEST

START_TEST(every_op_of_all_float32_references_agrees)
{
    static const char *const names[] = {"glm5-tiny-bf16", "glm5-tiny-Q4_K_M", "dsv3-tiny-bf16",
                                        "dsv2lite-tiny-bf16", "llama-tiny-bf16"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char capture[600], model[600], name[100];
        snprintf(name, sizeof name, "references/%s.hf-fp32.h5", names[i]);
        const char *path = data_large(name);
        if (!path)
            return;
        snprintf(capture, sizeof capture, "%s", path);
        snprintf(name, sizeof name, "models/%s.gguf", names[i]);
        snprintf(model, sizeof model, "%s", data_large(name));
        expect_within(capture, model, 2e-6); /* the Q4_K_M file has the long prompt */
    }
}
END_TEST

EXPECT_MAIN("forced", every_op_of_the_shipped_float32_reference_agrees_within_a_millionth,
            every_op_of_all_float32_references_agrees)
