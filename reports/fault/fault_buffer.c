/*
 * BUFFER: the right values exist, but the reader is given other memory. Evidence: the value before
 * a hand-over is right and the one after it is not; the attention kernel's output is right and what
 * the projection reads is not; addresses of writer and reader differ.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/home_blocks.h"

const assay_fault_kind assay_fault_kinds_buffer[] = {
    {.name = "phantom-output",
     .about = "the attention kernel writes a buffer of its own; its caller reads zeros",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ATTN_OUT_BUFFER,
     .value = 1,
     .home = "attn.out"},
    {.name = "phantom-poison",
     .about = "the same, and the caller finds what was never written",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ATTN_OUT_BUFFER,
     .value = 2,
     .home = "attn.out"},
    {.name = "phantom-previous",
     .about = "the same, and the caller finds what the layer before left",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ATTN_OUT_BUFFER,
     .value = 3,
     .home = "attn.out"},
    {.name = "proj-lost",
     .about = "the output projection writes a buffer of its own; its caller reads zeros",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_OUTPUT_BUFFER,
     .value = 1,
     .n_ints = 1,
     .ints = {ASSAY_POINT_PROJ},
     .home = "attn.proj"},
    {.name = "shared-lost",
     .about = "the shared expert writes a buffer of its own; its caller reads zeros",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_OUTPUT_BUFFER,
     .value = 1,
     .n_ints = 1,
     .ints = {ASSAY_POINT_SHARED},
     .needs = ASSAY_NEEDS_SHARED_EXPERT,
     .home = "moe.shared"},
    {.name = "routed-lost",
     .about = "the sum over experts goes to a buffer that nobody reads",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_OUTPUT_BUFFER,
     .value = 1,
     .n_ints = 1,
     .ints = {ASSAY_POINT_MOE_ROUTED},
     .needs = ASSAY_NEEDS_MOE,
     .home = "moe.routed"},
    {.name = "live-buffer",
     .about = "the sum over experts is placed on the shared expert's output, still to be added",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_LIVE_BUFFER,
     .value = 1,
     .needs = ASSAY_NEEDS_SHARED_EXPERT,
     .home = "moe.shared",
     .device = true},
    {.name = "phantom-step",
     .about = "the same, and the caller finds what the step before left",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ATTN_OUT_BUFFER,
     .value = 4,
     .home = "attn.out"},
    {0}};

static bool all_zero(const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != 0)
            return false;
    return true;
}

/* What the reader sees, in words. */
static const char *look(const assay_home *home)
{
    const assay_judged *j = home->judged;
    if (j->seen->n_poison > 0)
        return "poison";
    if (assay_home_is_zeroed(home)) /* of a rank: in its part */
        return "zeros";
    return j->n_nonfinite > 0 ? "values that are not finite" : "other values";
}

static assay_status offer_hand_over(assay_home *home)
{
    const assay_judged *j = home->judged;
    char text[320];
    bool addresses = j->seen->written_address && j->seen->read_address &&
                     j->seen->written_address != j->seen->read_address;
    if (j->against)
        snprintf(text, sizeof text, "'%s' holds %s; '%s', which is handed over to it, is right",
                 j->seen->source ? j->seen->source : "the value after the hand-over", look(home),
                 j->against->source ? j->against->source : "the value before it");
    else if (addresses)
        snprintf(text, sizeof text, "written at 0x%llx, read at 0x%llx; the reader finds %s",
                 (unsigned long long)j->seen->written_address,
                 (unsigned long long)j->seen->read_address, look(home));
    else
        snprintf(text, sizeof text,
                 "the attention kernel's own output is right; what the output projection reads "
                 "holds %s",
                 look(home));
    return assay_home_offer(home, home->got,
                            &(assay_offer_text){.kind = "result lost at the hand-over",
                                                .complexity = 0.05,
                                                /* other values may be the right ones rearranged */
                                                .shape_only = !strcmp(look(home), "other values"),
                                                .fitted = json_pack("{s:s}", "found", look(home)),
                                                .evidence = text});
}

/* Where the writer missed the buffer, the reader finds what the step before left there: its first
 * values, and zeros behind them. */
static assay_status offer_step_before(assay_home *home)
{
    const assay_judged *j = home->judged;
    assay_pass *pass = assay_forced_pass(home->forced, j->prompt);
    assay_point point = j->point == ASSAY_POINT_OUT_ATTN ? ASSAY_POINT_KERNEL_OUT : j->point;
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS], n = 1;
    const double *left;
    char text[320];
    if (j->step == 0 || j->first_row > 0 || assay_point_at(j->point)->axes[0] != 'T')
        return ASSAY_OK;
    if (assay_pass_dims(&n_dims, dims, pass, j->step - 1, point, j->layer) != ASSAY_OK ||
        assay_pass_value(&left, pass, j->step - 1, point, j->layer) != ASSAY_OK)
        return ASSAY_OK;
    for (int i = 0; i < n_dims; i++)
        n *= dims[i];
    n = n < home->n ? n : home->n;
    memset(home->scratch, 0, (size_t)home->n * sizeof *home->scratch);
    memcpy(home->scratch, left, (size_t)n * sizeof *home->scratch);
    if (assay_home_was_due(home, j->step - 1, n))
        return ASSAY_OK;
    snprintf(text, sizeof text, "the value is what step %d left in this buffer", j->step - 1);
    return assay_home_offer(home, home->scratch,
                            &(assay_offer_text){.kind = "holds the value of the step before",
                                                .complexity = 0.1,
                                                .fitted = json_pack("{s:i}", "step", j->step - 1),
                                                .evidence = text});
}

/* The stream was overwritten by its own normalised value. */
static assay_status offer_in_place(assay_home *home)
{
    assay_knobs knobs = *home->knobs;
    if (!assay_home_covers(home, ASSAY_POINT_ATTN_RESID))
        return ASSAY_OK;
    knobs.residual_after_norm = true;
    return assay_home_offer_variant(
        home, &knobs,
        &(assay_offer_text){.kind = "residual overwritten in place",
                            .family = "attn_resid",
                            .complexity = 0.5,
                            .evidence =
                                "the residual add took the normalised value for the stream: "
                                "the norm was written over its input"});
}

/* Zeros and values that are not finite make any op's result theirs: they explain nothing. */
static bool can_explain(const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return !all_zero(x, n);
}

static assay_status offer_same_as(assay_home *home, assay_point point, int layer)
{
    double *other;
    int64_t n;
    char name[ASSAY_POINT_NAME_BYTES], text[320];
    if (assay_home_value(&other, &n, home, point, layer) != ASSAY_OK)
        return ASSAY_OK;
    assay_status s = ASSAY_OK;
    if (n == home->n && can_explain(other, n)) {
        assay_relation_equals(&home->rel, home->scratch, &home->pair, other);
        assay_point_format(name, point, layer);
        snprintf(text, sizeof text, "the value is that of %s", name);
        s = assay_home_offer_relation(home,
                                      &(assay_offer_text){.kind = "holds another tensor's value",
                                                          .complexity = 0.6,
                                                          .fitted = json_pack("{s:s}", "is", name),
                                                          .evidence = text});
        bool elsewhere = point != home->judged->point; /* else what an unwritten row keeps */
        if (s == ASSAY_OK && elsewhere && !assay_home_best(home) && !home->pair.sketch) {
            assay_offer_text some = {.kind = "holds another tensor's value",
                                     .complexity = 0.8,
                                     .fitted = json_pack("{s:s}", "is", name),
                                     .evidence = text};
            s = assay_home_offer_partly(home, other, home->scratch, &some);
            json_decref(some.fitted);
        }
    }
    free(other);
    return s;
}

static const struct { /* ops that read one tensor of their layer */
    assay_point point, input;
} readers[] = {
    {ASSAY_POINT_Q_A, ASSAY_POINT_IN_NORM},         {ASSAY_POINT_Q_A_NORM, ASSAY_POINT_Q_A},
    {ASSAY_POINT_Q, ASSAY_POINT_Q_A_NORM},          {ASSAY_POINT_Q, ASSAY_POINT_IN_NORM},
    {ASSAY_POINT_KV_A, ASSAY_POINT_IN_NORM},        {ASSAY_POINT_KV_LATENT, ASSAY_POINT_KV_A},
    {ASSAY_POINT_KV_B, ASSAY_POINT_KV_LATENT},      {ASSAY_POINT_PROJ, ASSAY_POINT_OUT_ATTN},
    {ASSAY_POINT_FFN_NORM, ASSAY_POINT_ATTN_RESID}, {ASSAY_POINT_FFN_GATE, ASSAY_POINT_FFN_NORM},
    {ASSAY_POINT_FFN_UP, ASSAY_POINT_FFN_NORM},     {ASSAY_POINT_FFN_OUT, ASSAY_POINT_FFN_ACT},
    {ASSAY_POINT_MOE_LOGITS, ASSAY_POINT_FFN_NORM}, {ASSAY_POINT_SHARED_GATE, ASSAY_POINT_FFN_NORM},
    {ASSAY_POINT_SHARED_UP, ASSAY_POINT_FFN_NORM},  {ASSAY_POINT_SHARED, ASSAY_POINT_SHARED_ACT}};

/* As the engine keeps it: a sum that was not captured is exact in the pass. */
static void round_to_run(double *x, int64_t n, const assay_home *home)
{
    assay_dtype format = assay_run_about(assay_forced_run(home->forced))->dtype;
    for (int64_t i = 0; i < n && format != ASSAY_DTYPE_F64; i++)
        x[i] = format == ASSAY_DTYPE_BF16  ? assay_bf16_to_f32(assay_f32_to_bf16((float)x[i]))
               : format == ASSAY_DTYPE_F16 ? assay_f16_to_f32(assay_f32_to_f16((float)x[i]))
                                           : (float)x[i];
}

/* The op is right, on x for what it should read. */
static assay_status offer_input(assay_home *home, assay_point input, double *x, int64_t n,
                                const char *kind, const char *from)
{
    char text[320];
    round_to_run(x, n, home);
    assay_status s = can_explain(x, n) ? assay_home_expect_from(home->scratch, home, input, x, n)
                                       : ASSAY_MISSING;
    snprintf(text, sizeof text, "the op on %s gives the value", from);
    if (s == ASSAY_OK)
        return assay_home_offer(home, home->scratch,
                                &(assay_offer_text){.kind = kind,
                                                    .family = assay_home_input_name(home),
                                                    .complexity = 0.5,
                                                    .fitted = json_pack("{s:s}", "reads", from),
                                                    .evidence = text});
    return s == ASSAY_MISSING || s == ASSAY_BAD_SHAPE ? ASSAY_OK : s;
}

/* What another layer has at its input: the reader was given the buffer of that layer, or one that
 * nobody wrote since. */
static assay_status offer_other_layer(assay_home *home, assay_point input, int layer)
{
    double *x;
    int64_t n;
    char name[ASSAY_POINT_NAME_BYTES], from[ASSAY_POINT_NAME_BYTES + 32];
    if (assay_home_value(&x, &n, home, input, layer) != ASSAY_OK)
        return ASSAY_OK;
    snprintf(from, sizeof from, "%s, another layer's,", assay_point_format(name, input, layer));
    assay_status s = offer_input(home, input, x, n, "reads another layer's buffer", from);
    free(x);
    return s;
}

/* The last rows of what the step before had at this input. */
static assay_status offer_last_step(assay_home *home, assay_point input)
{
    const assay_judged *j = home->judged;
    assay_pass *pass = assay_forced_pass(home->forced, j->prompt);
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS], width = 1;
    const double *left;
    double *x;
    char name[ASSAY_POINT_NAME_BYTES], from[ASSAY_POINT_NAME_BYTES + 48];
    if (j->step == 0 || j->first_row > 0 || assay_point_at(input)->axes[0] != 'T' ||
        assay_pass_dims(&n_dims, dims, pass, j->step - 1, input, j->layer) != ASSAY_OK ||
        assay_pass_value(&left, pass, j->step - 1, input, j->layer) != ASSAY_OK ||
        dims[0] < j->n_rows)
        return ASSAY_OK;
    for (int i = 1; i < n_dims; i++)
        width *= dims[i];
    ASSAY_TRY(assay_alloc(&x, (size_t)(j->n_rows * width), sizeof *x, "an input of the last step"));
    memcpy(x, left + (dims[0] - j->n_rows) * width, (size_t)(j->n_rows * width) * sizeof *x);
    snprintf(from, sizeof from, "%s of the step before", assay_point_format(name, input, j->layer));
    assay_status s =
        offer_input(home, input, x, j->n_rows * width, "reads the step before's buffer", from);
    free(x);
    return s;
}

/* What stands before the norm that the op should read behind, or behind the layer's other norm. */
static assay_status offer_other_norm(assay_home *home, assay_point input)
{
    const assay_judged *j = home->judged;
    bool first = input == ASSAY_POINT_IN_NORM;
    const struct {
        assay_point point;
        int layer;
        const char *kind;
    } from[] = {{!first          ? ASSAY_POINT_ATTN_RESID
                 : j->layer == 0 ? ASSAY_POINT_EMBED
                                 : ASSAY_POINT_OUT,
                 !first ? j->layer : j->layer - 1, "reads the value before the norm"},
                {first ? ASSAY_POINT_FFN_NORM : ASSAY_POINT_IN_NORM,
                 first ? j->layer - 1 : j->layer, "reads another norm's output"}};
    if (!first && input != ASSAY_POINT_FFN_NORM)
        return ASSAY_OK;
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        double *x;
        int64_t n;
        char name[ASSAY_POINT_NAME_BYTES];
        if ((from[i].layer < 0 && from[i].point != ASSAY_POINT_EMBED) ||
            assay_home_value(&x, &n, home, from[i].point, from[i].layer) != ASSAY_OK)
            continue;
        assay_status s = offer_input(home, input, x, n, from[i].kind,
                                     assay_point_format(name, from[i].point, from[i].layer));
        free(x);
        ASSAY_TRY(s);
    }
    return ASSAY_OK;
}

static assay_status offer_other_inputs(assay_home *home)
{
    const assay_judged *j = home->judged;
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (!assay_home_is(home, readers[i].point))
            continue;
        for (int away = -1; away <= 1; away += 2)
            if (j->layer + away >= 0 && j->layer + away < home->shape->n_layer &&
                !assay_home_settled(home))
                ASSAY_TRY(offer_other_layer(home, readers[i].input, j->layer + away));
        if (!assay_home_settled(home))
            ASSAY_TRY(offer_last_step(home, readers[i].input));
        if (!assay_home_settled(home))
            ASSAY_TRY(offer_other_norm(home, readers[i].input));
    }
    return ASSAY_OK;
}

/* A sum that takes another layer's value for one of its addends, whole or in some rows. */
static assay_status offer_other_addend(assay_home *home, assay_point addend)
{
    const assay_judged *j = home->judged;
    double *own = NULL, *other = NULL;
    int64_t n_own, n;
    char name[ASSAY_POINT_NAME_BYTES], text[320];
    assay_status s = ASSAY_OK;
    if (home->pair.sketch || j->layer < 1 ||
        assay_home_value(&own, &n_own, home, addend, j->layer) != ASSAY_OK)
        return ASSAY_OK;
    if (assay_home_value(&other, &n, home, addend, j->layer - 1) != ASSAY_OK || n != home->n ||
        n_own != n || !can_explain(other, n))
        goto out;
    for (int64_t i = 0; i < n; i++)
        other[i] += home->expected[i] - own[i];
    snprintf(text, sizeof text, "the sum with %s, another layer's, for this layer's gives it",
             assay_point_format(name, addend, j->layer - 1));
    assay_offer_text offered = {.kind = "adds another layer's value",
                                .complexity = 0.6,
                                .fitted = json_pack("{s:s}", "adds", name),
                                .evidence = text};
    s = assay_home_offer_partly(home, other, home->scratch, &offered);
    if (s == ASSAY_OK)
        s = assay_home_offer(home, other, &offered);
    else
        json_decref(offered.fitted);
out:
    free(own);
    free(other);
    return s;
}

static assay_status offer_other_addends(assay_home *home)
{
    static const struct {
        assay_point sum, addend;
    } sums[] = {{ASSAY_POINT_MOE_OUT, ASSAY_POINT_SHARED},
                {ASSAY_POINT_MOE_OUT, ASSAY_POINT_MOE_ROUTED},
                {ASSAY_POINT_OUT, ASSAY_POINT_MOE_OUT},
                {ASSAY_POINT_OUT, ASSAY_POINT_FFN_OUT},
                {ASSAY_POINT_ATTN_RESID, ASSAY_POINT_PROJ}};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        if (assay_home_is(home, sums[i].sum) && !assay_home_settled(home))
            ASSAY_TRY(offer_other_addend(home, sums[i].addend));
    return ASSAY_OK;
}

assay_status assay_fault_match_buffer(assay_home *home)
{
    const assay_judged *j = home->judged;
    if (j->is_ids)
        return ASSAY_OK;
    bool addresses = j->seen->written_address && j->seen->read_address &&
                     j->seen->written_address != j->seen->read_address;
    bool copy = j->point == ASSAY_POINT_OUT_ATTN && j->n_interval == 0;
    if (j->against || addresses || copy)
        ASSAY_TRY(offer_hand_over(home));
    ASSAY_TRY(offer_step_before(home));
    if (j->against)
        return ASSAY_OK;
    ASSAY_TRY(offer_in_place(home));
    /* tensors of the same layer that have this shape */
    static const assay_point same[] = {
        ASSAY_POINT_IN_NORM,    ASSAY_POINT_PROJ,        ASSAY_POINT_ATTN_RESID,
        ASSAY_POINT_FFN_NORM,   ASSAY_POINT_FFN_GATE,    ASSAY_POINT_FFN_UP,
        ASSAY_POINT_Q_A,        ASSAY_POINT_SHARED_GATE, ASSAY_POINT_SHARED_UP,
        ASSAY_POINT_MOE_ROUTED, ASSAY_POINT_SHARED};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (same[i] < j->point && j->layer >= 0 && !assay_home_covers(home, same[i]))
            ASSAY_TRY(offer_same_as(home, same[i], j->layer));
    if (j->layer > 0)
        ASSAY_TRY(offer_same_as(home, j->point, j->layer - 1));
    ASSAY_TRY(offer_other_addends(home));
    return offer_other_inputs(home);
}
