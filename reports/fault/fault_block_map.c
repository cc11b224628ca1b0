/*
 * BLOCK-MAP: quantized weights whose codes meet the wrong scale or stand at the wrong place.
 */
#include "engine/role.h"
#include "reports/home.h"
#include <math.h>

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
};

assay_status assay_fault_match_block_map(assay_home *home)
{
    if (home->judged->against || home->judged->is_ids || !assay_home_multiplies(home))
        return ASSAY_OK;
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        assay_knobs knobs = *home->knobs;
        knobs.weight_view = views[i].view;
        ASSAY_TRY(assay_home_offer_variant(home, &knobs,
                                           &(assay_offer_text){.kind = views[i].kind,
                                                               .complexity = 0.3,
                                                               .evidence = views[i].evidence}));
    }
    return ASSAY_OK;
}
