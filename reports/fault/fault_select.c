/*
 * SELECT: the indexer with one thing otherwise, or an attention that ignores its choice.
 */
#include <math.h>
#include <stdio.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_select[] = {
    {.name = "index-no-relu",
     .about = "no relu on the indexer's scores",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_INDEX_RELU,
     .value = 0,
     .needs = ASSAY_NEEDS_INDEXER,
     .home = "attn.index.scores"},
    {.name = "index-scale",
     .about = "the indexer's scores times a factor",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_INDEX_SCALE,
     .value = -1,
     .needs = ASSAY_NEEDS_INDEXER,
     .home = "attn.index.scores"},
    {.name = "index-rope-last",
     .about = "the other end of the indexer's heads rotated",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_INDEX_ROPE_LAST,
     .value = 1,
     .needs = ASSAY_NEEDS_INDEXER,
     .home = "attn.index.q"},
    {.name = "index-top-k",
     .about = "fewer keys kept than the model says",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_INDEX_TOP_K,
     .value = -120,
     .needs = ASSAY_NEEDS_INDEXER,
     .home = "attn.index.topk"},
    {.name = "index-heads",
     .about = "only the first head of the indexer summed",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_INDEX_HEADS,
     .value = 1,
     .needs = ASSAY_NEEDS_INDEXER,
     .home = "attn.index.scores"},
    {0}};

static assay_status offer(assay_home *home, const assay_knobs *knobs, const char *kind,
                          json_t *fitted, const char *evidence)
{
    return assay_home_offer_variant(home, knobs,
                                    &(assay_offer_text){.kind = kind,
                                                        .family = "indexer",
                                                        .complexity = 0.25,
                                                        .fitted = fitted,
                                                        .evidence = evidence});
}

static assay_status try_scores(assay_home *home)
{
    assay_knobs knobs = *home->knobs;
    knobs.index_relu = false;
    ASSAY_TRY(
        offer(home, &knobs, "no relu on the scores", NULL, "scores without the relu give it"));
    knobs = *home->knobs;
    knobs.index_scale = -knobs.index_scale;
    ASSAY_TRY(offer(home, &knobs, "scores with the other sign", NULL,
                    "scores with the other sign give it"));
    knobs = *home->knobs;
    knobs.choose_lowest = true;
    return assay_home_is(home, ASSAY_POINT_INDEX_TOPK)
               ? offer(home, &knobs, "the lowest scores chosen", NULL,
                       "the keys with the lowest scores are those of the run")
               : ASSAY_OK;
}

/* Heads left out of the sum: the first ones alone, as a rank or a loop that ends early has them. */
static assay_status try_heads(assay_home *home)
{
    int H = home->shape->index_n_head;
    char text[320];
    for (int n = 1; n < H; n++) {
        assay_knobs knobs = *home->knobs;
        knobs.index_heads = n;
        snprintf(text, sizeof text, "the first %d of %d heads summed give the scores", n, H);
        ASSAY_TRY(offer(home, &knobs, "heads left out of the scores",
                        json_pack("{s:i, s:i}", "heads", n, "right", H), text));
    }
    return ASSAY_OK;
}

static assay_status offer_size(assay_home *home, int top_k)
{
    assay_knobs knobs = *home->knobs;
    knobs.index_top_k = top_k;
    return offer(home, &knobs, "another number of keys",
                 json_pack("{s:i, s:i}", "top_k", top_k, "right", home->knobs->index_top_k),
                 "this number of selected keys gives it");
}

/* The longest list that the run has. */
static int most_kept(const assay_home *home)
{
    const assay_judged *j = home->judged;
    int most = 0;
    for (int64_t r = 0; r < j->n_rows; r++) {
        int n = 0;
        for (int64_t i = 0; i < j->n_cols; i++)
            n += home->got[r * j->n_cols + i] >= 0;
        most = n > most ? n : most;
    }
    return most;
}

static assay_status try_size(assay_home *home)
{
    static const int steps[] = {-1, 1, -2, 2, -8, 8, -16, 16, -32, 32, -64, 64};
    if (assay_home_is(home, ASSAY_POINT_INDEX_TOPK)) {
        int kept = most_kept(home);
        return kept > 0 && kept != home->knobs->index_top_k ? offer_size(home, kept) : ASSAY_OK;
    }
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (home->knobs->index_top_k + steps[i] > 0)
            ASSAY_TRY(offer_size(home, home->knobs->index_top_k + steps[i]));
    return ASSAY_OK;
}

assay_status assay_fault_match_select(assay_home *home)
{
    const assay_judged *j = home->judged;
    if (j->against || !home->shape->has_indexer)
        return ASSAY_OK;
    bool scores = assay_home_covers(home, ASSAY_POINT_INDEX_SCORES);
    if (scores || assay_home_is(home, ASSAY_POINT_INDEX_TOPK))
        ASSAY_TRY(try_scores(home));
    if (scores && !assay_home_settled(home))
        ASSAY_TRY(try_heads(home));
    if (assay_home_covers(home, ASSAY_POINT_INDEX_TOPK))
        ASSAY_TRY(try_size(home));
    if (assay_home_covers(home, ASSAY_POINT_INDEX_Q) ||
        assay_home_covers(home, ASSAY_POINT_INDEX_K)) {
        assay_knobs knobs = *home->knobs;
        knobs.index_rope_last = !knobs.index_rope_last;
        ASSAY_TRY(offer(home, &knobs, "the other end of the indexer's heads rotated", NULL,
                        "the rotated channels at the other end give it"));
    }
    if (assay_home_attends(home)) {
        assay_knobs knobs = *home->knobs;
        knobs.dense = true;
        ASSAY_TRY(offer(home, &knobs, "the selection is ignored", NULL,
                        "attention over all visible keys gives the value"));
    }
    if (assay_home_is(home, ASSAY_POINT_INDEX_SCORES)) {
        assay_relation_scale(&home->rel, home->scratch, &home->pair);
        ASSAY_TRY(assay_home_offer_relation(
            home, &(assay_offer_text){.kind = "scale of the scores",
                                      .family = "indexer",
                                      .complexity = 1,
                                      .fitted = json_pack("{s:f}", "ratio", home->rel.value),
                                      .evidence = "the scores are the expected ones times one "
                                                  "factor"}));
    }
    return ASSAY_OK;
}
