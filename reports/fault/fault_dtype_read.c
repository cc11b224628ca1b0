/*
 * DTYPE-READ: bytes in another format: the two 16-bit formats, or a factor that is a ratio of two
 * formats' ranges.
 */
#include <math.h>
#include <stdio.h>

#include "engine/role.h"
#include "reports/home_blocks.h"

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
    {.name = "cache-bf16-as-f16",
     .about = "bfloat16 bytes of the cache read as float16",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_CODEC,
     .value = 1,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse attn.index.scores",
     .run = {.cache = ASSAY_CACHE_BF16}},
    {.name = "cache-f16-as-bf16",
     .about = "float16 bytes of the cache read as bfloat16",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_CODEC,
     .value = 2,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse attn.index.scores",
     .run = {.cache = ASSAY_CACHE_F16}},
    {.name = "cache-scale-exponent",
     .about = "only the exponent of the scale of an 8-bit cache is read",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_ROW_SCALE,
     .value = 2,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse attn.index.scores",
     .run = {.cache = ASSAY_CACHE_F8E4M3}},
    {0}};

/* What attention and the indexer read from the cache. */
static assay_status try_cache(assay_home *home)
{
    static const struct {
        assay_misread misread;
        const char *kind, *text;
    } ways[] = {{ASSAY_MISREAD_BF16_AS_F16, "cache of another 16-bit format",
                 "bfloat16 bytes of the cache read as float16 give the value"},
                {ASSAY_MISREAD_F16_AS_BF16, "cache of another 16-bit format",
                 "float16 bytes of the cache read as bfloat16 give the value"},
                {ASSAY_MISREAD_SCALE_POWER_OF_2, "mantissa of the scale dropped",
                 "rows of the cache times the power of two below their scale give the value"}};
    for (size_t i = 0; i < 3; i++) {
        assay_knobs knobs = *home->knobs;
        knobs.misread = ways[i].misread;
        if (i == 2 && knobs.codec == ASSAY_STORED_PLAIN)
            continue;
        ASSAY_TRY(assay_home_offer_variant(home, &knobs,
                                           &(assay_offer_text){.kind = ways[i].kind,
                                                               .family = "attention",
                                                               .complexity = 0.3,
                                                               .evidence = ways[i].text}));
    }
    return ASSAY_OK;
}

assay_status assay_fault_match_dtype_read(assay_home *home)
{
    if (home->judged->against || home->judged->is_ids)
        return ASSAY_OK;
    if (assay_home_attends(home) || home->judged->point == ASSAY_POINT_INDEX_SCORES)
        ASSAY_TRY(try_cache(home));
    if (!assay_home_multiplies(home))
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
    if (!assay_home_settled(home))
        ASSAY_TRY(assay_home_try_scale_exponents(home));
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
