/*
 * Faults of devices, as their captures look: the same values made on the host by changing one op's
 * output in flight, and named by the diagnosis. (With their real mechanisms:
 * gpu/suite_gpu_faults.c.)
 */
#include "data.h"
#include "diagnosed.h"
#include "expect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LAYER 2 /* one with experts */
#define N_NEW 5

static const int32_t tokens[] = {3, 17, 5, 250, 33, 8, 91, 64, 120};

typedef struct change {
    assay_point point;
    void (*make)(float *x, int64_t n, const struct change *c);
    float *seen; /* the value of the point that is copied */
    assay_point copied;
    int64_t n_seen;
} change;

/* Replayed steps are those behind the second decode step. */
static assay_status inject(void *user, const assay_tap_event *event)
{
    change *c = user;
    int64_t n = assay_buffer_count(event->buffer);
    if (event->layer != LAYER || event->is_prefill)
        return ASSAY_OK;
    if (c->seen && event->point == c->copied) {
        c->n_seen = n;
        memcpy(c->seen, event->buffer->data, (size_t)n * sizeof *c->seen);
    }
    if (event->point == c->point)
        c->make(event->buffer->data, n, c);
    return ASSAY_OK;
}

static void make_nan(float *x, int64_t n, const change *c)
{
    (void)c;
    for (int64_t i = 0; i < n; i++)
        x[i] = NAN;
}

static void make_copy(float *x, int64_t n, const change *c)
{
    ck_assert_int_eq(n, c->n_seen);
    memcpy(x, c->seen, (size_t)n * sizeof *x);
}

/* 8-bit codes under the scale of a row that holds 40. */
static void make_coarse(float *x, int64_t n, const change *c)
{
    const float step = 40.0f / 127;
    (void)c;
    for (int64_t i = 0; i < n; i++)
        x[i] = rintf(x[i] / step) * step;
}

static void expect_named(change *c, const assay_seam_setting *settings, int n_settings,
                         const char *fault_class, const char *point)
{
    assay_result result;
    char capture[700], model[600];
    snprintf(capture, sizeof capture, "%s", data_scratch("device.h5"));
    snprintf(model, sizeof model, "%s", data_shipped("glm5-tiny-Q4_K_M.gguf"));
    EXPECT_OK(capture_injected(capture, model, tokens, sizeof tokens / sizeof *tokens, N_NEW,
                               ASSAY_DTYPE_F32, settings, n_settings, c ? inject : NULL, c));
    EXPECT_OK(diagnosed(&result, capture, model));
    ck_assert_msg(result.n_findings == 1, "%s", diagnosed_text(&result));
    ck_assert_msg(diagnosed_find(&result, fault_class, point) != NULL, "%s",
                  diagnosed_text(&result));
    assay_result_clear(&result);
}

START_TEST(sum_of_finite_operands_that_is_finite_nowhere_was_read_too_early)
{
    change c = {.point = ASSAY_POINT_MOE_OUT, .make = make_nan};
    expect_named(&c, NULL, 0, "RACE", "moe.out");
}
END_TEST

START_TEST(codes_for_larger_values_than_there_are_have_a_foreign_scale)
{
    change c = {.point = ASSAY_POINT_IN_NORM, .make = make_coarse};
    expect_named(&c, NULL, 0, "LEAK", "attn.in_norm");
}
END_TEST

START_TEST(live_buffer_that_was_written_over_holds_the_other_result)
{
    float seen[4096];
    change c = {.point = ASSAY_POINT_SHARED,
                .make = make_copy,
                .seen = seen,
                .copied = ASSAY_POINT_MOE_ROUTED};
    expect_named(&c, NULL, 0, "BUFFER", "moe.shared");
}
END_TEST

START_TEST(step_with_the_lengths_of_an_earlier_one_is_a_stale_graph)
{
    const assay_seam_setting last = {ASSAY_SEAM_MASK_SHIFT, LAYER, -1, -1, 3, -1, -1, 0, {0}};
    expect_named(NULL, &last, 1, "GRAPH-STALE", "attn.probs");
}
END_TEST

EXPECT_MAIN("device_faults", sum_of_finite_operands_that_is_finite_nowhere_was_read_too_early,
            codes_for_larger_values_than_there_are_have_a_foreign_scale,
            live_buffer_that_was_written_over_holds_the_other_result,
            step_with_the_lengths_of_an_earlier_one_is_a_stale_graph)
