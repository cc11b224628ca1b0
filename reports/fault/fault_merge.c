/*
 * MERGE: attention over two parts of the keys, each right, put together wrongly.
 */
#include <stdio.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_merge[] = {{0}};

static const struct {
    assay_merge merge;
    const char *kind;
} ways[] = {
    {ASSAY_MERGE_MEAN, "parts averaged"},
    {ASSAY_MERGE_SUM, "parts added"},
    {ASSAY_MERGE_LSE_SIGN, "log-sum-exp with the other sign"},
    {ASSAY_MERGE_LSE_BASE_2, "log-sum-exp in another base"},
    {ASSAY_MERGE_FIRST_ONLY, "only the first part used"},
    {ASSAY_MERGE_LAST_ONLY, "only the last part used"},
    {ASSAY_MERGE_EMPTY_COUNTS, "an empty part counts"},
    {ASSAY_MERGE_EMPTY_REPEATS, "an empty part repeats the one before"},
};

static assay_status try_border(assay_home *home, int at, assay_parts parts)
{
    char text[320];
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        assay_knobs knobs = *home->knobs;
        knobs.merge_at = at;
        knobs.merge_parts = parts;
        knobs.merge = ways[i].merge;
        if (parts == ASSAY_PARTS_TWO)
            snprintf(text, sizeof text, "keys 0 ... %d and the rest attended apart; %s", at - 1,
                     ways[i].kind);
        else
            snprintf(text, sizeof text, "every %d keys attended apart, put together %s; %s", at,
                     parts == ASSAY_PARTS_ALL ? "at once" : "one by one", ways[i].kind);
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){
                .kind = ways[i].kind,
                .family = "attention",
                .complexity = parts == ASSAY_PARTS_TWO ? 0.7 : 0.75,
                .fitted = json_pack("{s:i}", parts == ASSAY_PARTS_TWO ? "border" : "part", at),
                .evidence = text}));
    }
    return ASSAY_OK;
}

assay_status assay_fault_match_merge(assay_home *home)
{
    const assay_judged *j = home->judged;
    if (j->against || j->is_ids || !assay_home_attends(home))
        return ASSAY_OK;
    const assay_run_step *step =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    int n_keys = (int)(step->first_position + step->n_tokens);
    for (int at = 1; at < n_keys; at++) {
        /* chunks of a power of two, the half, the border of this step */
        bool power = (at & (at - 1)) == 0;
        if (power || at == n_keys / 2 || at == step->first_position)
            ASSAY_TRY(try_border(home, at, ASSAY_PARTS_TWO));
        if (!power || at < 4)
            continue;
        if (!assay_home_settled(home))
            ASSAY_TRY(try_border(home, at, ASSAY_PARTS_ALL));
        if (!assay_home_settled(home) && 2 * at < n_keys)
            ASSAY_TRY(try_border(home, at, ASSAY_PARTS_CHAIN));
    }
    return ASSAY_OK;
}
