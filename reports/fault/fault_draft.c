/*
 * DRAFT: homes in the layers behind the trunk that predict further tokens: what their input is made
 * of. What is wrong in the layer itself the other classes name.
 */
#include <math.h>

#include "reports/home.h"

#define KIND(id, text, how)                                                                        \
    {                                                                                              \
        .name = id, .about = text, .weakest = NAN, .strongest = NAN,                               \
        .seam = ASSAY_SEAM_NEXTN_INPUT, .value = how, .needs = ASSAY_NEEDS_NEXTN,                  \
        .home = "nextn.in", .run = {                                                               \
            .draft = true                                                                          \
        }                                                                                          \
    }

const assay_fault_kind assay_fault_kinds_draft[] = {
    KIND("draft-halves", "the hidden half before the embedding's", 1),
    KIND("draft-raw", "the hidden state is handed on before its norm", 2),
    KIND("draft-embed-lost", "the embedding at position 0 is zeros", 3),
    {0}};

assay_status assay_fault_match_draft(assay_home *home)
{
    static const struct {
        const char *kind, *text;
    } ways[] = {
        {"hidden state before the embedding", "the halves of the joined input are exchanged"},
        {"hidden state before its norm", "the hidden state was taken before the norm"},
        {"an embedding lost", "the embedding of position 0 is zeros in the joined input"},
    };
    if (home->judged->layer < home->shape->n_layer || home->judged->against)
        return ASSAY_OK;
    for (int i = 0; i < 3; i++) {
        assay_knobs knobs = *home->knobs;
        knobs.nextn_concat_exchanged = i == 0;
        knobs.nextn_hidden_raw = i == 1;
        knobs.nextn_embed_lost = i == 2;
        ASSAY_TRY(assay_home_offer_variant(home, &knobs,
                                           &(assay_offer_text){.kind = ways[i].kind,
                                                               .complexity = 0.2,
                                                               .evidence = ways[i].text}));
    }
    return ASSAY_OK;
}
