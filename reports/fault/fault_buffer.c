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
    if (all_zero(home->got, home->n))
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

/* The op is right, on what another layer has at its input: the reader was given the buffer of that
 * layer, or one that nobody wrote since. */
static assay_status offer_other_input(assay_home *home, assay_point input, int layer)
{
    double *x;
    int64_t n;
    char name[ASSAY_POINT_NAME_BYTES], text[320];
    if (assay_home_value(&x, &n, home, input, layer) != ASSAY_OK)
        return ASSAY_OK;
    assay_status s = can_explain(x, n) ? assay_home_expect_from(home->scratch, home, input, x, n)
                                       : ASSAY_MISSING;
    free(x);
    assay_point_format(name, input, layer);
    snprintf(text, sizeof text, "the op on %s, another layer's, gives the value", name);
    if (s == ASSAY_OK)
        return assay_home_offer(home, home->scratch,
                                &(assay_offer_text){.kind = "reads another layer's buffer",
                                                    .family = assay_home_input_name(home),
                                                    .complexity = 0.5,
                                                    .fitted = json_pack("{s:s}", "reads", name),
                                                    .evidence = text});
    return s == ASSAY_MISSING || s == ASSAY_BAD_SHAPE ? ASSAY_OK : s;
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
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        for (int away = -1; away <= 1 && assay_home_is(home, readers[i].point); away += 2)
            if (j->layer + away >= 0 && j->layer + away < home->shape->n_layer &&
                !assay_home_settled(home))
                ASSAY_TRY(offer_other_input(home, readers[i].input, j->layer + away));
    return ASSAY_OK;
}
