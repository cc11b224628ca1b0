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
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse attn.index.scores"},
    {.name = "kv-read-layer",
     .about = "the cache of layer 0 is read",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_KV_READ_LAYER,
     .value = 0,
     .home = "attn.probs attn.kernel_out attn.o_latent attn.lse attn.index.scores"},
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

/* The rotary key of another token, rotated for the place of this one: the angle is the token's own,
 * the vector is not. */
static assay_status try_rotated_rows(assay_home *home)
{
    static const int shifts[] = {1, -1, 2, -2};
    int64_t cols = home->pair.cols, rows = home->pair.rows;
    double *moved;
    char text[320];
    if (rows < 4)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&moved, (size_t)home->n, sizeof *moved, "rotated keys"));
    assay_status s = ASSAY_OK;
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts && s == ASSAY_OK; i++) {
        assay_knobs knobs = *home->knobs;
        knobs.rope.position_offset_k += shifts[i];
        s = assay_forced_expect(moved, home->forced, home->index, &knobs);
        for (int64_t t = 0; t < rows; t++) {
            int64_t from = t - shifts[i];
            bool inside = from >= 0 && from < rows;
            memcpy(home->scratch + t * cols, inside ? moved + from * cols : home->got + t * cols,
                   (size_t)cols * sizeof *moved);
        }
        snprintf(text, sizeof text,
                 "the rotary key of token t is that of token t%+d, rotated by t's own angle",
                 -shifts[i]);
        if (s == ASSAY_OK)
            s = assay_home_offer(
                home, home->scratch,
                &(assay_offer_text){.kind = "another token's rotary key",
                                    .complexity = 0.5,
                                    .fitted = json_pack("{s:i}", "shift", shifts[i]),
                                    .evidence = text});
    }
    free(moved);
    return s;
}

/* Puts what the run has at `point` of layer `from` as layer `to`'s into another pass. */
static assay_status put_as(assay_pass *pass, const assay_home *home, int step, assay_point point,
                           int from, int to)
{
    assay_pass *source = assay_forced_pass(home->forced, home->judged->prompt);
    const double *values;
    int n_dims;
    int64_t dims[ASSAY_MAX_DIMS], n = 1;
    ASSAY_TRY(assay_pass_dims(&n_dims, dims, source, step, point, from));
    for (int i = 0; i < n_dims; i++)
        n *= dims[i];
    ASSAY_TRY(assay_pass_value(&values, source, step, point, from));
    return assay_pass_put(pass, step, point, to, values, n);
}

/* This step's queries with another layer's keys and values: a pass of its own. */
static assay_status attend_other(double *out, assay_home *home, int layer)
{
    const assay_judged *j = home->judged;
    assay_run *run = assay_forced_run(home->forced);
    bool latent = assay_forced_is_latent(home->forced, j->prompt);
    bool index = j->point == ASSAY_POINT_INDEX_SCORES;
    assay_pass *pass;
    assay_pass_options options = {.latent = latent, .knobs = home->knobs};
    static const assay_point cached[][3] = {
        {ASSAY_POINT_K, ASSAY_POINT_V, ASSAY_POINT_K_ROPE},
        {ASSAY_POINT_KV_LATENT, ASSAY_POINT_K_ROPE, ASSAY_POINT_COUNT},
        {ASSAY_POINT_INDEX_K, ASSAY_POINT_COUNT, ASSAY_POINT_COUNT}};
    static const assay_point own[][3] = {
        {ASSAY_POINT_Q, ASSAY_POINT_Q_ROPE, ASSAY_POINT_INDEX_TOPK},
        {ASSAY_POINT_Q_LATENT, ASSAY_POINT_Q_ROPE, ASSAY_POINT_INDEX_TOPK},
        {ASSAY_POINT_INDEX_Q, ASSAY_POINT_INDEX_WEIGHTS, ASSAY_POINT_COUNT}};
    int which = index ? 2 : latent ? 1 : 0;
    assay_oracle *oracle = assay_forced_oracle(home->forced);
    ASSAY_TRY(assay_pass_new(&pass, oracle, &options));
    assay_status s = ASSAY_OK;
    for (int step = 0; step <= j->step; step++) {
        const assay_run_step *at = assay_run_step_at(run, j->prompt, step);
        int number;
        ASSAY_GO(assay_pass_add_step(&number, pass, at->tokens, at->n_tokens, at->first_position));
        for (int i = 0; i < 3; i++) {
            if (cached[which][i] != ASSAY_POINT_COUNT &&
                assay_oracle_has_point(oracle, cached[which][i], layer, latent))
                ASSAY_GO(put_as(pass, home, step, cached[which][i], layer, j->layer));
            if (step == j->step && own[which][i] != ASSAY_POINT_COUNT &&
                assay_oracle_has_point(oracle, own[which][i], j->layer, latent))
                ASSAY_GO(put_as(pass, home, step, own[which][i], j->layer, j->layer));
        }
    }
    s = assay_pass_expect(out, pass, j->step, j->point, j->layer, home->knobs);
out:
    assay_pass_free(pass);
    return s;
}

static assay_status try_other_cache(assay_home *home)
{
    const assay_judged *j = home->judged;
    char text[320];
    double *out;
    const assay_run_step *at =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    int64_t rows = j->point == ASSAY_POINT_PROBS ? j->n_rows / home->shape->n_head : j->n_rows;
    if (rows != at->n_tokens)
        return ASSAY_OK;
    ASSAY_TRY(assay_alloc(&out, (size_t)home->n, sizeof *out, "a value"));
    assay_status s = ASSAY_OK;
    for (int layer = 0; layer < home->shape->n_layer && s == ASSAY_OK; layer++) {
        if (layer == j->layer)
            continue;
        s = attend_other(out, home, layer);
        if (s == ASSAY_MISSING) {
            s = ASSAY_OK;
            continue;
        }
        snprintf(text, sizeof text, "attention with layer %d's keys and values gives the value",
                 layer);
        if (s == ASSAY_OK)
            s = assay_home_offer(home, out,
                                 &(assay_offer_text){.kind = "another layer's cache is read",
                                                     .family = "cache",
                                                     .complexity = 0.5,
                                                     .fitted = json_pack("{s:i}", "layer", layer),
                                                     .evidence = text});
    }
    free(out);
    return s;
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
    if (j->point == ASSAY_POINT_PROBS || j->point == ASSAY_POINT_LSE ||
        j->point == ASSAY_POINT_KERNEL_OUT || j->point == ASSAY_POINT_O_LATENT ||
        j->point == ASSAY_POINT_INDEX_SCORES)
        ASSAY_TRY(try_other_cache(home));
    for (size_t i = 0; i < sizeof cached / sizeof *cached; i++)
        if (j->point == cached[i]) {
            ASSAY_TRY(try_layers(home));
            ASSAY_TRY(try_rows(home));
            if (j->point == ASSAY_POINT_K_ROPE)
                ASSAY_TRY(try_rotated_rows(home));
        }
    return ASSAY_OK;
}
