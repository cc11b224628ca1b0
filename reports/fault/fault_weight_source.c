/*
 * WEIGHT-SOURCE: the op right, with another tensor's weight.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/role.h"
#include "reports/home_experts.h"

const assay_fault_kind assay_fault_kinds_weight_source[] = {
    {.name = "other-layer",
     .about = "the output projection with layer 0's weight",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_WEIGHT_LAYER,
     .value = 0,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .home = "attn.proj"},
    {.name = "other-layer-norm",
     .about = "the norm before attention with layer 0's weight",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_WEIGHT_LAYER,
     .value = 0,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_NORM},
     .home = "attn.in_norm"},
    {.name = "weight-random",
     .about = "random numbers of the right size for the output projection",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_WEIGHT_VIEW,
     .value = 7,
     .n_ints = 1,
     .ints = {ASSAY_ROLE_ATTN_OUTPUT},
     .home = "attn.proj"},
    {.name = "head-tied",
     .about = "the embedding used as output head",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_HEAD_TIED,
     .value = 1,
     .home = "logits"},
    {0}};

/*
 * No map leads from expected to got, yet the size is right in every row: what a product with
 * numbers of the right size gives.
 */
static assay_status try_cloud(assay_home *home)
{
    const assay_judged *j = home->judged;
    if (!assay_home_multiplies(home) || j->n_interval > 2)
        return ASSAY_OK;
    for (int64_t r = 0; r < j->n_rows; r++) {
        double got = 0, want = 0, cross = 0;
        for (int64_t i = r * j->n_cols; i < (r + 1) * j->n_cols; i++) {
            got += home->got[i] * home->got[i];
            want += home->expected[i] * home->expected[i];
            cross += home->got[i] * home->expected[i];
        }
        if (!(got > want / 100 && got < want * 100 && cross * cross < 0.16 * got * want))
            return ASSAY_OK;
    }
    return assay_home_offer(
        home, home->got,
        &(assay_offer_text){.kind = "numbers of another tensor or of none",
                            .complexity = 4,
                            .shape_only = true,
                            .evidence =
                                "every row has the right size and no likeness to what is "
                                "expected; no other layer's weight and no map explains it"});
}

typedef struct expert_room {
    double *ids, *weights; /* of the run; weights NULL: the home is no sum over experts */
    double *right, *other; /* places under the model's weights and under another layer's */
} expert_room;

/* Layer `from`'s tensors `parts` for one expert, the layer's own for all others. */
static assay_status try_expert(assay_home *home, const expert_room *room, int expert, int from,
                               int parts)
{
    static const char *const names[] = {
        [1] = "gate", [2] = "up", [4] = "down", [7] = "gate, up, down"};
    const assay_judged *j = home->judged;
    int64_t U = home->shape->n_expert_used, width = room->weights ? j->n_cols : j->n_cols / U;
    char text[320];
    memcpy(home->scratch, home->expected, (size_t)home->n * sizeof *home->scratch);
    for (int64_t p = 0; p < j->n_rows * U; p++)
        for (int64_t d = 0; (int)room->ids[p] == expert && d < width; d++) {
            double *at = home->scratch + (room->weights ? p / U * width : p * width) + d;
            *at += room->other[p * width + d] - room->right[p * width + d];
        }
    assay_relation_score(&home->rel, home->scratch, &home->pair);
    snprintf(text, sizeof text, "expert %d with layer %d's weights (%s) gives the value", expert,
             from, names[parts]);
    return assay_home_offer_relation(
        home, &(assay_offer_text){.kind = "one expert with another layer's weight",
                                  .family = "experts",
                                  .complexity = 0.6,
                                  .fitted = json_pack("{s:i, s:i, s:s}", "expert", expert, "layer",
                                                      from, "tensors", names[parts]),
                                  .evidence = text});
}

static assay_status try_experts(assay_home *home)
{
    static const int masks[] = {1, 2, 4, 7};
    const assay_judged *j = home->judged;
    bool sum = assay_home_is(home, ASSAY_POINT_MOE_ROUTED);
    int64_t n, places = home->n * (sum ? home->shape->n_expert_used : 1);
    expert_room room = {0};
    int list[8], n_list;
    assay_status s = ASSAY_OK;
    if (assay_home_value(&room.ids, &n, home, ASSAY_POINT_MOE_TOPK, j->layer) != ASSAY_OK)
        return ASSAY_OK;
    n_list = assay_home_suspect_experts(list, 8, home, room.ids);
    if (n_list == 0)
        goto out;
    if (sum)
        ASSAY_GO(assay_home_value(&room.weights, &n, home, ASSAY_POINT_MOE_WEIGHTS, j->layer));
    ASSAY_GO(assay_alloc(&room.right, (size_t)places, 2 * sizeof *room.right, "places of experts"));
    room.other = room.right + places;
    ASSAY_GO(assay_home_expert_places(room.right, home, home->knobs, room.weights));
    for (int from = home->shape->n_layer_dense; from < home->shape->n_layer; from++)
        for (size_t m = 0; m < sizeof masks / sizeof *masks && from != j->layer; m++) {
            assay_knobs knobs = *home->knobs;
            knobs.weight_layer_shift = from - j->layer;
            knobs.expert_parts = masks[m];
            if (assay_home_settled(home))
                goto out;
            ASSAY_GO(assay_home_expert_places(room.other, home, &knobs, room.weights));
            for (int i = 0; i < n_list; i++)
                ASSAY_GO(try_expert(home, &room, list[i], from, masks[m]));
        }
out:
    free(room.ids);
    free(room.weights);
    free(room.right);
    return s;
}

/* Norms: where each stands, and the tensor it takes its weight from. */
static const struct {
    assay_point point;
    const char *weight; /* behind "blk.N." */
} norms[] = {{ASSAY_POINT_IN_NORM, "attn_norm.weight"},
             {ASSAY_POINT_Q_A_NORM, "attn_q_a_norm.weight"},
             {ASSAY_POINT_KV_LATENT, "attn_kv_a_norm.weight"},
             {ASSAY_POINT_FFN_NORM, "ffn_norm.weight"},
             {ASSAY_POINT_FINAL_NORM, "output_norm.weight"}};

static assay_status norm_weight(const double **w, char name[64], assay_home *home, size_t norm,
                                int layer)
{
    int64_t dims[4];
    if (norms[norm].point == ASSAY_POINT_FINAL_NORM)
        snprintf(name, 64, "%s", norms[norm].weight);
    else
        snprintf(name, 64, "blk.%d.%s", layer, norms[norm].weight);
    ASSAY_TRY(assay_oracle_weight(w, dims, assay_forced_oracle(home->forced), name));
    return dims[3] == home->pair.cols ? ASSAY_OK : ASSAY_MISSING;
}

/* The weight of a norm of another kind: of the one beside it, of the final one. */
static assay_status try_other_norms(assay_home *home)
{
    const assay_judged *j = home->judged;
    int64_t cols = home->pair.cols;
    size_t own = 0, n = sizeof norms / sizeof *norms;
    const double *w;
    double *right;
    char name[64], text[320];
    while (own < n && !assay_home_is(home, norms[own].point))
        own++;
    if (own == n || norm_weight(&w, name, home, own, j->layer) != ASSAY_OK)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&right, (size_t)cols, sizeof *right, "a norm's weight"));
    memcpy(right, w, (size_t)cols * sizeof *right);
    assay_status s = ASSAY_OK;
    for (size_t k = 0; k < n && s == ASSAY_OK; k++)
        for (int layer = 0; layer < home->shape->n_layer && k != own && s == ASSAY_OK; layer++) {
            if ((norms[k].point == ASSAY_POINT_FINAL_NORM && layer > 0) ||
                norm_weight(&w, name, home, k, layer) != ASSAY_OK)
                continue;
            for (int64_t i = 0; i < home->n; i++)
                home->scratch[i] = right[i % cols] != 0
                                       ? home->expected[i] / right[i % cols] * w[i % cols]
                                       : home->got[i];
            snprintf(text, sizeof text, "the norm with the weight of '%s' gives the value", name);
            assay_relation_score(&home->rel, home->scratch, &home->pair);
            s = assay_home_offer_relation(
                home, &(assay_offer_text){.kind = "another norm's weight",
                                          .complexity = 0.4,
                                          .fitted = json_pack("{s:s}", "tensor", name),
                                          .evidence = text});
        }
    free(right);
    return s;
}

/* The embedding's rows out of the output head. */
static assay_status try_head_rows(assay_home *home)
{
    const assay_judged *j = home->judged;
    const assay_run_step *at =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    int64_t dims[4], cols = home->pair.cols;
    const double *w;
    if (assay_oracle_weight(&w, dims, assay_forced_oracle(home->forced), "output.weight") !=
            ASSAY_OK ||
        dims[3] != cols)
        return ASSAY_OK;
    for (int64_t r = 0; r < j->n_rows; r++) {
        int64_t token = at->tokens[j->first_row + r];
        bool known = token >= 0 && token < dims[2];
        for (int64_t c = 0; c < cols; c++)
            home->scratch[r * cols + c] =
                known ? w[token * cols + c] * home->knobs->embed_scale : home->got[r * cols + c];
    }
    assay_relation_score(&home->rel, home->scratch, &home->pair);
    return assay_home_offer_relation(
        home, &(assay_offer_text){.kind = "embedding taken from the output head",
                                  .complexity = 0.2,
                                  .evidence = "the rows of these tokens in the output head are "
                                              "the value"});
}

assay_status assay_fault_match_weight_source(assay_home *home)
{
    const assay_judged *j = home->judged;
    char text[320];
    if (j->against || j->is_ids || j->n_nonfinite_added > 0)
        return ASSAY_OK;
    if (assay_home_is(home, ASSAY_POINT_LOGITS)) {
        assay_knobs knobs = *home->knobs;
        knobs.head_tied = !knobs.head_tied;
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){.kind = "output head tied to the embedding",
                                .complexity = 0.2,
                                .evidence = "final_norm times the embedding's rows gives the "
                                            "logits"}));
        return try_cloud(home);
    }
    if (assay_home_is(home, ASSAY_POINT_EMBED))
        return try_head_rows(home);
    ASSAY_TRY(try_other_norms(home));
    if (j->layer < 0 || !assay_home_weighs(home))
        return ASSAY_OK;
    for (int layer = 0; layer < home->shape->n_layer; layer++) {
        if (layer == j->layer)
            continue;
        assay_knobs knobs = *home->knobs;
        knobs.weight_layer_shift = layer - j->layer;
        snprintf(text, sizeof text, "this op with layer %d's weight gives the value", layer);
        ASSAY_TRY(assay_home_offer_variant(
            home, &knobs,
            &(assay_offer_text){.kind = "another layer's weight",
                                .complexity = 0.3,
                                .fitted = json_pack("{s:i}", "layer", layer),
                                .evidence = text}));
    }
    if (assay_home_is(home, ASSAY_POINT_MOE_ROUTED) ||
        assay_home_is(home, ASSAY_POINT_MOE_EXPERT_GATE) ||
        assay_home_is(home, ASSAY_POINT_MOE_EXPERT_UP) ||
        assay_home_is(home, ASSAY_POINT_MOE_EXPERT_DOWN))
        ASSAY_TRY(try_experts(home));
    return try_cloud(home);
}
