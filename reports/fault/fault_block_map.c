/*
 * BLOCK-MAP: quantized weights whose codes meet the wrong scale or stand at the wrong place.
 */
#include <math.h>
#include <stdio.h>

#include "engine/role.h"
#include "reports/home_blocks.h"

const assay_fault_kind assay_fault_kinds_block_map[] = {
    {.name = "nibbles",
     .about = "nibbles of every byte of the output projection exchanged",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_WEIGHT_VIEW,
     .value = 2,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .home = "attn.proj"},
    {.name = "neighbour-scale",
     .about = "every block of the output projection with its neighbour's scale",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_WEIGHT_VIEW,
     .value = 3,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .home = "attn.proj"},
    {0}};

static const struct {
    assay_weight_view view;
    const char *kind, *evidence;
} views[] = {
    {ASSAY_WEIGHT_NIBBLES_EXCHANGED, "nibbles exchanged",
     "the weight with high and low half of every byte exchanged gives the value"},
    {ASSAY_WEIGHT_NEIGHBOURS_EXCHANGED, "neighbours exchanged",
     "the weight with elements 2i and 2i+1 exchanged gives the value"},
    {ASSAY_WEIGHT_NEIGHBOUR_SCALE, "scale of the neighbouring block",
     "the weight with block i decoded by block i+1's scale gives the value"},
    {ASSAY_WEIGHT_SCALE_BEFORE, "scale of the neighbouring block",
     "the weight with block i decoded by block i-1's scale gives the value"},
    {ASSAY_WEIGHT_SCALE_IN_ROW, "scale of the neighbouring block",
     "the weight with block i decoded by block i+1's scale, the last of a row by the first's, "
     "gives the value"},
    {ASSAY_WEIGHT_SCALE_NEXT_ROW, "scale of the next row",
     "the weight with every block decoded by the scale of the same block of the next row gives the "
     "value"},
};

/*
 * The view in all channels but a few: what an engine does at the ends of a tensor, where there is
 * no neighbour, is its own affair, and says nothing against the rest.
 */
static assay_status offer_but_few(assay_home *home, const assay_knobs *knobs,
                                  const assay_offer_text *text)
{
    const assay_judged *j = home->judged;
    int64_t rows = j->n_rows, cols = j->n_cols, n_open = 0;
    double *out = home->scratch;
    char evidence[320];
    assay_status s = assay_forced_expect(out, home->forced, home->index, knobs);
    if (s == ASSAY_MISSING)
        return ASSAY_OK;
    ASSAY_TRY(s);
    for (int64_t c = 0; c < cols; c++) {
        double rest = 0, size = 0;
        for (int64_t i = c; i < rows * cols; i += cols) {
            rest += (home->got[i] - out[i]) * (home->got[i] - out[i]);
            size += home->got[i] * home->got[i];
        }
        if (!(rest > 100 * j->floor_row_median * j->floor_row_median * size))
            continue;
        n_open++;
        for (int64_t i = c; i < rows * cols; i += cols)
            out[i] = home->got[i];
    }
    if (n_open == 0 || n_open * 50 > cols)
        return ASSAY_OK;
    snprintf(evidence, sizeof evidence, "%s, in all channels but %lld", text->evidence,
             (long long)n_open);
    return assay_home_offer(home, out,
                            &(assay_offer_text){.kind = text->kind,
                                                .complexity = text->complexity + 0.3,
                                                .evidence = evidence});
}

assay_status assay_fault_match_block_map(assay_home *home)
{
    if (home->judged->against || home->judged->is_ids || !assay_home_multiplies(home))
        return ASSAY_OK;
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        assay_knobs knobs = *home->knobs;
        assay_offer_text text = {
            .kind = views[i].kind, .complexity = 0.3, .evidence = views[i].evidence};
        knobs.weight_view = views[i].view;
        ASSAY_TRY(assay_home_offer_variant(home, &knobs, &text));
        if (!assay_home_best(home))
            ASSAY_TRY(offer_but_few(home, &knobs, &text));
    }
    if (!assay_home_settled(home))
        ASSAY_TRY(assay_home_try_columns(home));
    if (!assay_home_settled(home))
        ASSAY_TRY(assay_home_try_neighbour_scales(home));
    return assay_home_best(home) ? ASSAY_OK : assay_home_try_block_factors(home);
}
