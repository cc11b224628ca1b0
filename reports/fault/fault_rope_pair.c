/*
 * ROPE-PAIR: the rotation right but for the pairing of channels, or q and k (weights or outputs)
 * permuted inside every head.
 */
#include <math.h>
#include <stdio.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_rope_pair[] = {
    {.name = "rope-pairing",
     .about = "half-split pairs in the main attention",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROPE_PAIRING,
     .value = 1,
     .home = "attn.q_rope attn.k_rope"},
    {.name = "index-pairing",
     .about = "half-split pairs in the indexer's queries",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROPE_PAIRING,
     .value = 1,
     .n_ints = 1,
     .ints = {2},
     .needs = ASSAY_NEEDS_INDEXER,
     .home = "attn.index.q"},
    {0}};

static const struct {
    assay_pairing pairing;
    const char *kind, *evidence;
} pairings[] = {
    {ASSAY_PAIR_ADJACENT, "adjacent pairs for half-split",
     "rotating channels (2i, 2i+1) for (i, i + W/2) gives the value"},
    {ASSAY_PAIR_HALF_SPLIT, "half-split pairs for adjacent",
     "rotating channels (i, i + W/2) for (2i, 2i+1) gives the value"},
    {ASSAY_PAIR_SPLIT_TO_ADJACENT, "pairs read half-split, written adjacent",
     "pairs (i, i + W/2) rotated and written to (2i, 2i+1) give the value"},
    {ASSAY_PAIR_ADJACENT_TO_SPLIT, "pairs read adjacent, written half-split",
     "pairs (2i, 2i+1) rotated and written to (i, i + W/2) give the value"},
};

static assay_status try_pairings(assay_home *home, bool index)
{
    for (size_t i = 0; i < sizeof pairings / sizeof *pairings; i++) {
        assay_knobs knobs = *home->knobs;
        assay_rope_knobs *rope = index ? &knobs.index_rope : &knobs.rope;
        if (rope->pairing == pairings[i].pairing)
            continue;
        rope->pairing = pairings[i].pairing;
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){.kind = pairings[i].kind,
                                .family = index ? "rotary of the indexer" : "rotary",
                                .complexity = 0.2,
                                /* the same pairs, stored in another order: scores are the same as
                                 * long as queries and keys have it (see diagnose.c) */
                                .convention = !index &&
                                              home->knobs->rope.pairing == ASSAY_PAIR_ADJACENT &&
                                              pairings[i].pairing == ASSAY_PAIR_ADJACENT_TO_SPLIT,
                                .evidence = pairings[i].evidence}));
    }
    return ASSAY_OK;
}

/* Weights of q or k with their rows in the other order: a permutation before the rotation. */
static assay_status try_inside(assay_home *home)
{
    const assay_judged *j = home->judged;
    int64_t width = j->n_cols / j->n_groups;
    int n_moved = 0;
    char text[320];
    if (width > ASSAY_RELATION_BLOCKS || width < 4)
        return ASSAY_OK;
    assay_relation_inside(&home->rel, home->scratch, &home->pair, j->n_groups);
    json_t *list = json_array();
    for (int i = 0; i < home->rel.n_blocks; i++) {
        n_moved += home->rel.map[i] != i;
        json_array_append_new(list, json_integer(home->rel.map[i]));
    }
    if (n_moved == 0) {
        json_decref(list);
        return ASSAY_OK;
    }
    snprintf(text, sizeof text,
             "the channels of every head are the expected ones in another order (%d of %lld moved)",
             n_moved, (long long)width);
    return assay_home_offer_relation(
        home, &(assay_offer_text){.kind = "channels permuted inside every head",
                                  .family = "rotary",
                                  .fitted = json_pack("{s:o}", "permutation", list),
                                  .evidence = text});
}

assay_status assay_fault_match_rope_pair(assay_home *home)
{
    if (home->judged->against ||
        (home->judged->is_ids && !assay_home_is(home, ASSAY_POINT_INDEX_TOPK)))
        return ASSAY_OK;
    bool main_part =
        assay_home_covers(home, ASSAY_POINT_Q_ROPE) || assay_home_covers(home, ASSAY_POINT_K_ROPE);
    bool index = assay_home_covers(home, ASSAY_POINT_INDEX_Q) ||
                 assay_home_covers(home, ASSAY_POINT_INDEX_K);
    if (main_part && !home->judged->is_ids)
        ASSAY_TRY(try_pairings(home, false));
    if (index)
        ASSAY_TRY(try_pairings(home, true));
    if (assay_home_is(home, ASSAY_POINT_Q) || assay_home_is(home, ASSAY_POINT_Q_ROPE) ||
        assay_home_is(home, ASSAY_POINT_K_ROPE) ||
        (assay_home_is(home, ASSAY_POINT_K) && !home->shape->is_mla))
        ASSAY_TRY(try_inside(home));
    return ASSAY_OK;
}
