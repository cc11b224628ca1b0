/*
 * UNWRITTEN: the affected elements are poison, zero or an earlier step's value, in a region with
 * straight borders; all others are as expected.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_unwritten[] = {
    {.name = "rows-unwritten",
     .about = "the attention kernel writes only its first 3 rows; the others keep poison",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ATTN_OUT_BUFFER,
     .value = 5,
     .n_ints = 1,
     .ints = {3},
     .home = "attn.kernel_out"},
    {.name = "rows-zero",
     .about = "the attention kernel writes only its first 3 rows; the others are zero",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ATTN_OUT_BUFFER,
     .value = 6,
     .n_ints = 1,
     .ints = {3},
     .home = "attn.kernel_out"},
    {.name = "heads-zero",
     .about = "the attention kernel writes only its first 3 heads; the others are zero",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ATTN_OUT_BUFFER,
     .value = 7,
     .n_ints = 1,
     .ints = {3},
     .home = "attn.kernel_out"},
    {.name = "proj-rows-zero",
     .about = "the output projection writes only its first 4 rows",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_OUTPUT_BUFFER,
     .value = 6,
     .n_ints = 2,
     .ints = {ASSAY_POINT_PROJ, 4},
     .home = "attn.proj"},
    {.name = "routed-rows-unwritten",
     .about = "the sum over experts writes only its first 5 rows; the others keep poison",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_OUTPUT_BUFFER,
     .value = 5,
     .n_ints = 2,
     .ints = {ASSAY_POINT_MOE_ROUTED, 5},
     .needs = ASSAY_NEEDS_MOE,
     .home = "moe.routed"},
    {0}};

static assay_status offer_poison(assay_home *home)
{
    const assay_seen *seen = home->judged->seen;
    int64_t own, foreign;
    uint32_t owner = 0;
    char text[320];
    if (seen->n_poison <= 0)
        return ASSAY_OK;
    assay_home_poison(&own, &foreign, &owner, home);
    memcpy(home->scratch, home->expected, (size_t)home->n * sizeof *home->scratch);
    for (int64_t i = 0; i < home->n; i++)
        if (!isfinite(home->got[i]))
            home->scratch[i] = home->got[i];
    if (foreign > own)
        snprintf(text, sizeof text,
                 "%lld elements carry the NaN pattern of buffer %u, which this op reads: it was "
                 "never written",
                 (long long)foreign, owner);
    else
        snprintf(
            text, sizeof text,
            "%lld elements still hold the NaN pattern that the buffer was filled with before use",
            (long long)seen->n_poison);
    return assay_home_offer(home, home->scratch,
                            &(assay_offer_text){.kind = foreign > own
                                                            ? "reads what was never written"
                                                            : "never written",
                                                .complexity = foreign > own ? 0.1 : 0.01,
                                                .evidence = text});
}

static assay_status offer_zeros(assay_home *home)
{
    const assay_judged *j = home->judged;
    char text[320];
    assay_relation_zero(&home->rel, home->scratch, &home->pair);
    ASSAY_TRY(assay_home_offer_relation(
        home, &(assay_offer_text){
                  .kind = "all zero",
                  .evidence = "every element is zero; the op on its captured inputs gives other "
                              "values"}));
    if (j->n_rows > 1) {
        assay_relation_zero_rows(&home->rel, home->scratch, &home->pair);
        snprintf(text, sizeof text,
                 "%.0f of %lld rows are zero, the first is row %lld; the others "
                 "are as expected",
                 home->rel.value, (long long)j->n_rows, (long long)home->rel.index);
        if (home->rel.value > 0)
            ASSAY_TRY(assay_home_offer_relation(
                home, &(assay_offer_text){.kind = "rows zero", .evidence = text}));
    }
    if (j->n_groups > 1) {
        assay_relation_zero_blocks(&home->rel, home->scratch, &home->pair, j->n_groups);
        snprintf(text, sizeof text,
                 "%.0f of %d heads are zero, the first is head %lld; the others "
                 "are as expected",
                 home->rel.value, j->n_groups, (long long)home->rel.index);
        if (home->rel.value > 0)
            ASSAY_TRY(assay_home_offer_relation(
                home, &(assay_offer_text){.kind = "heads zero", .evidence = text}));
    }
    assay_relation_tail(&home->rel, home->scratch, &home->pair);
    if (home->rel.index > 0 && home->rel.index < j->n_cols) {
        snprintf(text, sizeof text,
                 "channels from %lld on are zero in every row; the others are as "
                 "expected",
                 (long long)home->rel.index);
        ASSAY_TRY(assay_home_offer_relation(
            home, &(assay_offer_text){.kind = "channels zero", .evidence = text}));
    }
    return ASSAY_OK;
}

/* What an earlier step left at the same place. */
static assay_status offer_left_over(assay_home *home)
{
    const assay_judged *j = home->judged;
    assay_run *run = assay_forced_run(home->forced);
    for (int step = j->step - 1; step >= 0 && step >= j->step - 2; step--) {
        const assay_seen *seen = assay_run_find(run, j->prompt, step, j->point, j->layer);
        if (!seen || !seen->has_values)
            continue;
        int64_t n = assay_seen_count(seen);
        if (n != home->n || assay_home_was_due(home, step, n))
            continue;
        double *old;
        ASSAY_TRY(assay_alloc(&old, (size_t)n, sizeof *old, "an earlier value"));
        assay_status s = assay_run_read(old, run, seen);
        if (s == ASSAY_OK) {
            assay_relation_equals(&home->rel, home->scratch, &home->pair, old);
            char text[320];
            snprintf(text, sizeof text, "the value is the one that step %d left here", step);
            s = assay_home_offer_relation(
                home, &(assay_offer_text){.kind = "left over from an earlier step",
                                          .fitted = json_pack("{s:i}", "step", step),
                                          .evidence = text});
        }
        free(old);
        ASSAY_TRY(s);
    }
    return ASSAY_OK;
}

/* Rows that hold what the layer before left in a buffer that both use. */
static assay_status offer_layer_before(assay_home *home)
{
    const assay_judged *j = home->judged;
    double *old;
    int64_t n;
    char name[ASSAY_POINT_NAME_BYTES], text[320];
    if (j->layer < 1 || home->pair.sketch ||
        assay_home_value(&old, &n, home, j->point, j->layer - 1) != ASSAY_OK)
        return ASSAY_OK;
    bool usable = n == home->n;
    for (int64_t i = 0; i < n && usable; i++)
        usable = isfinite(old[i]);
    snprintf(text, sizeof text, "the value is the one that %s left here",
             assay_point_format(name, j->point, j->layer - 1));
    assay_offer_text some = {.kind = "left over from the layer before",
                             .complexity = 0.4,
                             .fitted = json_pack("{s:i}", "layer", j->layer - 1),
                             .evidence = text};
    assay_status s = usable ? assay_home_offer_partly(home, old, home->scratch, &some) : ASSAY_OK;
    json_decref(some.fitted);
    free(old);
    return s;
}

assay_status assay_fault_match_unwritten(assay_home *home)
{
    const assay_judged *j = home->judged;
    if (j->is_ids || j->against)
        return ASSAY_OK;
    /* the right values are known to be elsewhere: BUFFER */
    if ((j->seen->written_address && j->seen->read_address &&
         j->seen->written_address != j->seen->read_address) ||
        (j->point == ASSAY_POINT_OUT_ATTN && j->n_interval == 0))
        return ASSAY_OK;
    ASSAY_TRY(offer_poison(home));
    ASSAY_TRY(offer_zeros(home));
    ASSAY_TRY(offer_left_over(home));
    return assay_home_best(home) ? ASSAY_OK : offer_layer_before(home);
}
