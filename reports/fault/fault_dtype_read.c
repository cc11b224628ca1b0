/*
 * DTYPE-READ: bytes in another format: the two 16-bit formats, or a factor that is a ratio of two
 * formats' ranges.
 */
#include <math.h>
#include <stdio.h>

#include "engine/role.h"
#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_dtype_read[] = {
    {.name = "format-range",
     .about = "the output projection scaled by the ratio of two 8-bit formats",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_WEIGHT_SCALE,
     .value = 448.0 / 240,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .home = "attn.proj"},
    {0}};

assay_status assay_fault_match_dtype_read(assay_home *home)
{
    if (home->judged->against || home->judged->is_ids || !assay_home_multiplies(home))
        return ASSAY_OK;
    assay_knobs knobs = *home->knobs;
    knobs.weight_view = ASSAY_WEIGHT_OTHER_16_BIT;
    ASSAY_TRY(assay_home_offer_variant(
        home, &knobs,
        &(assay_offer_text){.kind = "the other 16-bit format",
                            .complexity = 0.3,
                            .evidence = "the weight's bytes read as bf16 for f16 (or the reverse) "
                                        "give the value"}));
    static const struct {
        double ratio;
        const char *name;
    } ratios[] = {{448.0 / 240, "448/240, ranges of the two 8-bit formats"},
                  {240.0 / 448, "240/448, ranges of the two 8-bit formats"},
                  {256, "2^8, an exponent read with the other bias"},
                  {1.0 / 256, "2^-8, an exponent read with the other bias"}};
    assay_relation_scale(&home->rel, home->scratch, &home->pair);
    char text[320];
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++)
        if (fabs(home->rel.value / ratios[i].ratio - 1) < 2e-3) {
            snprintf(text, sizeof text, "the value is the expected one times %.5g (%s)",
                     home->rel.value, ratios[i].name);
            ASSAY_TRY(assay_home_offer_relation(
                home, &(assay_offer_text){.kind = "a ratio of formats",
                                          .complexity = 0.5,
                                          .fitted = json_pack("{s:f}", "ratio", home->rel.value),
                                          .evidence = text}));
        }
    return ASSAY_OK;
}
