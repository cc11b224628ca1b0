/*
 * KV-ADDR: what attention reads is another slot's, layer's or head's value, of the right size.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_kv_addr[] = {
    {.name = "kv-slot",
     .about = "keys written one slot too far",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_SLOT,
     .value = 1,
     .n_ints = 1,
     .ints = {0},
     .home = "attn.kernel_out attn.o_latent attn.lse"},
    {.name = "kv-read-layer",
     .about = "the cache of layer 0 is read",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_READ_LAYER,
     .value = 0,
     .home = "attn.kernel_out attn.o_latent attn.lse"},
    {0}};

static assay_status try_slots(assay_home *home)
{
    static const int shifts[] = {1, -1, 2, -2, 3, 4};
    char text[320];
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++)
        for (int what = 0; what < 3; what++) {
            assay_knobs knobs = *home->knobs;
            knobs.key_row_shift = what != 2 ? shifts[i] : 0;
            knobs.value_row_shift = what != 1 ? shifts[i] : 0;
            snprintf(text, sizeof text, "%s read %d slot(s) off give the value",
                     what == 0   ? "keys and values"
                     : what == 1 ? "keys"
                                 : "values",
                     shifts[i]);
            ASSAY_TRY(assay_home_offer_variant(
                home, &knobs,
                &(assay_offer_text){.kind = "slots shifted",
                                    .family = "attention",
                                    .complexity = 0.5,
                                    .fitted = json_pack("{s:i}", "shift", shifts[i]),
                                    .evidence = text}));
        }
    return ASSAY_OK;
}

/* A cached tensor that is another layer's. */
static assay_status try_layers(assay_home *home)
{
    const assay_judged *j = home->judged;
    char text[320];
    for (int layer = 0; layer < home->shape->n_layer; layer++) {
        double *other;
        int64_t n;
        if (layer == j->layer || assay_home_value(&other, &n, home, j->point, layer) != ASSAY_OK)
            continue;
        assay_status s = ASSAY_OK;
        if (n == home->n) {
            assay_relation_equals(&home->rel, home->scratch, &home->pair, other);
            snprintf(text, sizeof text, "the value is layer %d's", layer);
            s = assay_home_offer_relation(
                home, &(assay_offer_text){.kind = "another layer's",
                                          .fitted = json_pack("{s:i}", "layer", layer),
                                          .evidence = text});
        }
        free(other);
        ASSAY_TRY(s);
    }
    return ASSAY_OK;
}

static assay_status try_rows(assay_home *home)
{
    char text[320];
    if (home->pair.rows < 3)
        return ASSAY_OK;
    assay_relation_shifted_rows(&home->rel, home->scratch, &home->pair, 4);
    snprintf(text, sizeof text, "every row is the one of %.0f position(s) before", home->rel.value);
    return assay_home_offer_relation(
        home, &(assay_offer_text){.kind = "rows shifted",
                                  .fitted = json_pack("{s:f}", "shift", home->rel.value),
                                  .evidence = text});
}

assay_status assay_fault_match_kv_addr(assay_home *home)
{
    const assay_judged *j = home->judged;
    static const assay_point cached[] = {ASSAY_POINT_K,      ASSAY_POINT_V,
                                         ASSAY_POINT_K_ROPE, ASSAY_POINT_KV_LATENT,
                                         ASSAY_POINT_KV_B,   ASSAY_POINT_INDEX_K};
    if (j->against || j->is_ids)
        return ASSAY_OK;
    if (assay_home_attends(home))
        ASSAY_TRY(try_slots(home));
    for (size_t i = 0; i < sizeof cached / sizeof *cached; i++)
        if (j->point == cached[i]) {
            ASSAY_TRY(try_layers(home));
            ASSAY_TRY(try_rows(home));
        }
    return ASSAY_OK;
}
