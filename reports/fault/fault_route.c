/*
 * ROUTE: the router computed with one thing otherwise: gating function, bias, groups,
 * normalisation, scale.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/home.h"

const assay_fault_kind assay_fault_kinds_route[] = {
    {.name = "gating",
     .about = "softmax for sigmoid",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROUTER_GATING,
     .value = 1,
     .needs = ASSAY_NEEDS_ROUTER_BIAS,
     .home = "moe.probs"},
    {.name = "bias-left-out",
     .about = "the router's bias left out of the choice",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROUTER_BIAS,
     .value = 1,
     .needs = ASSAY_NEEDS_ROUTER_BIAS,
     .home = "moe.topk"},
    {.name = "bias-in-weights",
     .about = "the router's bias in the weights",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROUTER_BIAS,
     .value = 2,
     .needs = ASSAY_NEEDS_ROUTER_BIAS,
     .home = "moe.weights"},
    {.name = "not-renormalised",
     .about = "weights not renormalised",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROUTER_NORM,
     .value = 0,
     .needs = ASSAY_NEEDS_WEIGHTS_NORM,
     .home = "moe.weights"},
    {.name = "routed-scale",
     .about = "scale of the weights times a factor",
     .weakest = 1.003,
     .strongest = 3,
     .seam = ASSAY_SEAM_ROUTER_SCALE,
     .value = 1.01,
     .needs = ASSAY_NEEDS_MOE,
     .home = "moe.weights"},
    {.name = "groups-by-max",
     .about = "groups by their best expert",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROUTER_GROUPS,
     .value = 0,
     .needs = ASSAY_NEEDS_GROUPS,
     .home = "moe.topk"},
    {.name = "groups-ignored",
     .about = "experts of all groups may be chosen",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROUTER_GROUPS,
     .value = 3,
     .needs = ASSAY_NEEDS_GROUPS,
     .home = "moe.topk"},
    {.name = "choice-wrong",
     .about = "row 2 chooses expert 5 in its first place",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_EXPERT_CHOICE_WRONG,
     .value = 1,
     .n_ints = 3,
     .ints = {2, 0, 5},
     .needs = ASSAY_NEEDS_MOE,
     .home = "moe.topk"},
    {.name = "gating-sigmoid",
     .about = "sigmoid for softmax",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROUTER_GATING,
     .value = 2,
     .needs = ASSAY_NEEDS_SOFTMAX_GATE,
     .home = "moe.probs"},
    {.name = "groups-at-zero",
     .about = "experts of forbidden groups at 0 for minus infinity",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROUTER_GROUP_MASK,
     .value = 1,
     .needs = ASSAY_NEEDS_GROUPS,
     .home = "moe.topk"},
    {0}};

static assay_status offer(assay_home *home, const assay_knobs *knobs, const char *kind,
                          const char *evidence)
{
    return assay_home_offer_variant(
        home, knobs,
        &(assay_offer_text){
            .kind = kind, .family = "router", .complexity = 0.2, .evidence = evidence});
}

static assay_status try_gate(assay_home *home)
{
    static const struct {
        assay_gate gate;
        const char *kind, *evidence;
    } gates[] = {
        {ASSAY_GATE_SOFTMAX, "softmax for the gating function",
         "softmax over all experts gives it"},
        {ASSAY_GATE_SIGMOID, "sigmoid for the gating function", "sigmoid of each logit gives it"},
        {ASSAY_GATE_SOFTMAX_SELECTED, "softmax over the chosen experts only",
         "softmax over the chosen experts gives it"},
    };
    for (size_t i = 0; i < sizeof gates / sizeof *gates; i++) {
        assay_knobs knobs = *home->knobs;
        if (knobs.gate == gates[i].gate)
            continue;
        knobs.gate = gates[i].gate;
        ASSAY_TRY(offer(home, &knobs, gates[i].kind, gates[i].evidence));
    }
    return ASSAY_OK;
}

static assay_status try_bias(assay_home *home)
{
    assay_knobs knobs = *home->knobs;
    knobs.bias = ASSAY_BIAS_LEFT_OUT;
    ASSAY_TRY(offer(home, &knobs, "bias left out of the choice",
                    "the choice without the router's bias gives it"));
    knobs.bias = ASSAY_BIAS_IN_WEIGHTS;
    return offer(home, &knobs, "bias in the weights",
                 "weights from the biased probabilities give the value");
}

static assay_status try_groups(assay_home *home)
{
    static const struct {
        assay_groups groups;
        const char *kind;
    } rules[] = {{ASSAY_GROUPS_NONE, "groups ignored"},
                 {ASSAY_GROUPS_MAX, "groups by their best expert"},
                 {ASSAY_GROUPS_TOP2_SUM, "groups by the sum of their two best"},
                 {ASSAY_GROUPS_SUM_ALL, "groups by the sum of all"}};
    if (home->shape->n_group < 2)
        return ASSAY_OK;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        assay_knobs knobs = *home->knobs;
        if (knobs.groups == rules[i].groups)
            continue;
        knobs.groups = rules[i].groups;
        ASSAY_TRY(offer(home, &knobs, rules[i].kind, "this rule for the groups gives the choice"));
    }
    assay_knobs knobs = *home->knobs;
    knobs.group_mask_zero = true;
    return offer(home, &knobs, "forbidden groups at 0",
                 "forbidden groups at 0 for minus infinity give the choice");
}

/* Every place of the choice with a factor of its own: a place that is lost, places not told apart.
 */
static assay_status try_places(assay_home *home)
{
    const assay_judged *j = home->judged;
    int64_t U = j->n_cols, zero = 0, first = -1;
    bool equal = true;
    char text[320];
    if (!assay_home_is(home, ASSAY_POINT_MOE_WEIGHTS) || U < 2)
        return ASSAY_OK;
    memcpy(home->scratch, home->expected, (size_t)home->n * sizeof *home->scratch);
    for (int64_t u = 0; u < U; u++) {
        bool all_zero = true;
        for (int64_t r = 0; r < j->n_rows; r++) {
            all_zero = all_zero && home->got[r * U + u] == 0;
            equal = equal && fabs(home->got[r * U + u] - home->got[0]) <= 1e-6 * fabs(home->got[0]);
        }
        if (!all_zero)
            continue;
        first = zero++ == 0 ? u : first;
        for (int64_t r = 0; r < j->n_rows; r++)
            home->scratch[r * U + u] = 0;
    }
    assay_relation_score(&home->rel, home->scratch, &home->pair);
    snprintf(text, sizeof text,
             "the weights of %lld of %lld places are 0, place %lld the first; the others are right",
             (long long)zero, (long long)U, (long long)first);
    if (zero > 0 && zero < U)
        ASSAY_TRY(assay_home_offer_relation(
            home, &(assay_offer_text){.kind = "weights of a place lost",
                                      .family = "router",
                                      .complexity = 0.4,
                                      .fitted = json_pack("{s:I}", "place", (json_int_t)first),
                                      .evidence = text}));
    if (!equal || home->got[0] == 0)
        return ASSAY_OK;
    snprintf(text, sizeof text, "all weights are %.6g, whatever the scores", home->got[0]);
    return assay_home_offer(
        home, home->got,
        &(assay_offer_text){.kind = "equal weights",
                            .family = "router",
                            .complexity = 1,
                            .fitted = json_pack("{s:f}", "weight", home->got[0]),
                            .evidence = text});
}

/* The weights right, and applied to the experts' outputs twice or not at all. */
static assay_status try_power(assay_home *home)
{
    for (int power = 0; power <= 2; power += 2) {
        assay_knobs knobs = *home->knobs;
        knobs.routed_power = power;
        ASSAY_TRY(offer(home, &knobs, power ? "weights applied twice" : "weights not applied",
                        power ? "experts times the square of their weight give the sum"
                              : "experts summed without their weights give the sum"));
    }
    return ASSAY_OK;
}

/* Outputs of the experts at place u with the input times that place's weight. */
static assay_status on_scaled_input(double *down, assay_home *home, const double *x,
                                    const double *ids, const double *weights, int u)
{
    const assay_judged *j = home->judged;
    const assay_run_step *at =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    int U = home->shape->n_expert_used, step;
    int64_t D = home->shape->n_embd, T = j->n_rows;
    assay_pass_options options = {.latent = assay_forced_is_latent(home->forced, j->prompt),
                                  .knobs = home->knobs};
    assay_pass *pass;
    double *scaled;
    ASSAY_TRY(assay_pass_new(&pass, assay_forced_oracle(home->forced), &options));
    assay_status s = assay_alloc(&scaled, (size_t)(T * D), sizeof *scaled, "scaled inputs");
    for (int64_t i = 0; s == ASSAY_OK && i < T * D; i++)
        scaled[i] = x[i] * weights[i / D * U + u];
    if (s == ASSAY_OK) {
        ASSAY_GO(assay_pass_add_step(&step, pass, at->tokens, at->n_tokens, at->first_position));
        ASSAY_GO(assay_pass_put(pass, step, ASSAY_POINT_FFN_NORM, j->layer, scaled, T * D));
        ASSAY_GO(assay_pass_put(pass, step, ASSAY_POINT_MOE_TOPK, j->layer, ids, T * U));
        s = assay_pass_expect(down, pass, step, ASSAY_POINT_MOE_EXPERT_DOWN, j->layer, home->knobs);
    }
out:
    free(scaled);
    assay_pass_free(pass);
    return s;
}

/* The weight on what goes into the expert instead of on what comes out. */
static assay_status try_input_weight(assay_home *home)
{
    const assay_judged *j = home->judged;
    const assay_run_step *at =
        assay_run_step_at(assay_forced_run(home->forced), j->prompt, j->step);
    int U = home->shape->n_expert_used;
    int64_t n, D = j->n_cols;
    double *x = NULL, *ids = NULL, *weights = NULL, *down = NULL;
    assay_status s;
    if (j->n_rows != at->n_tokens)
        return ASSAY_OK;
    ASSAY_GO(assay_home_value(&x, &n, home, ASSAY_POINT_FFN_NORM, j->layer));
    ASSAY_GO(assay_home_value(&ids, &n, home, ASSAY_POINT_MOE_TOPK, j->layer));
    ASSAY_GO(assay_home_value(&weights, &n, home, ASSAY_POINT_MOE_WEIGHTS, j->layer));
    ASSAY_GO(assay_alloc(&down, (size_t)(home->n * U), sizeof *down, "experts"));
    memset(home->scratch, 0, (size_t)home->n * sizeof *home->scratch);
    for (int u = 0; u < U; u++) {
        ASSAY_GO(on_scaled_input(down, home, x, ids, weights, u));
        for (int64_t i = 0; i < home->n; i++)
            home->scratch[i] += down[(i / D * U + u) * D + i % D];
    }
    s = assay_home_offer(home, home->scratch,
                         &(assay_offer_text){.kind = "weights applied to the experts' input",
                                             .family = "router",
                                             .complexity = 0.4,
                                             .evidence = "experts of the weighted input, summed "
                                                         "without weights, give the sum"});
out:
    free(x);
    free(ids);
    free(weights);
    free(down);
    return s == ASSAY_MISSING ? ASSAY_OK : s;
}

static assay_status try_lowest(assay_home *home)
{
    assay_knobs knobs = *home->knobs;
    knobs.choose_lowest = true;
    return offer(home, &knobs, "the lowest scores chosen",
                 "the experts with the lowest scores are those of the run");
}

/* The right weights, given to the chosen experts in another order. */
static assay_status try_order(assay_home *home)
{
    int n = (int)home->judged->n_cols;
    bool moved = false;
    char order[160] = "";
    size_t used = 0;
    if (!assay_home_is(home, ASSAY_POINT_MOE_WEIGHTS) || n < 2 || n > ASSAY_RELATION_BLOCKS)
        return ASSAY_OK;
    assay_relation_blocks(&home->rel, home->scratch, &home->pair, n);
    for (int i = 0; i < n && home->rel.kind == ASSAY_REL_PERMUTED; i++) {
        moved = moved || home->rel.map[i] != i;
        if (used < sizeof order)
            used += (size_t)snprintf(order + used, sizeof order - used, " %d", home->rel.map[i]);
    }
    if (!moved)
        return ASSAY_OK;
    char text[320];
    snprintf(text, sizeof text, "the weights are right, but in another order than the experts:%s",
             order);
    return assay_home_offer_relation(
        home, &(assay_offer_text){
                  .kind = "weights given to other experts", .family = "router", .evidence = text});
}

/* Chosen probabilities over the sum of all, where that of the chosen ones is right. */
static assay_status try_sum_of_all(assay_home *home)
{
    const assay_judged *j = home->judged;
    int64_t U = j->n_cols, E = home->shape->n_expert, n, n_ids;
    double *probs, *ids = NULL;
    if (!home->knobs->weights_norm || !assay_home_is(home, ASSAY_POINT_MOE_WEIGHTS) ||
        assay_home_value(&probs, &n, home, ASSAY_POINT_MOE_PROBS, j->layer) != ASSAY_OK)
        return ASSAY_OK;
    assay_status s = ASSAY_OK;
    if (n != j->n_rows * E ||
        assay_home_value(&ids, &n_ids, home, ASSAY_POINT_MOE_TOPK, j->layer) != ASSAY_OK ||
        n_ids != home->n)
        goto out;
    for (int64_t r = 0; r < j->n_rows; r++) {
        double all = 0, chosen = 0;
        for (int64_t e = 0; e < E; e++)
            all += probs[r * E + e];
        for (int64_t u = 0; u < U; u++)
            if (ids[r * U + u] >= 0 && ids[r * U + u] < (double)E)
                chosen += probs[r * E + (int64_t)ids[r * U + u]];
        for (int64_t u = 0; u < U; u++)
            home->scratch[r * U + u] = home->expected[r * U + u] * (all > 0 ? chosen / all : 1);
    }
    assay_relation_score(&home->rel, home->scratch, &home->pair);
    s = assay_home_offer_relation(
        home, &(assay_offer_text){.kind = "renormalised over all experts",
                                  .family = "router",
                                  .complexity = 0.2,
                                  .evidence = "probabilities over the sum of all experts', not of "
                                              "the chosen ones, give the weights"});
out:
    free(probs);
    free(ids);
    return s;
}

static assay_status try_weights(assay_home *home)
{
    assay_knobs knobs = *home->knobs;
    char text[320];
    knobs.weights_norm = !knobs.weights_norm;
    ASSAY_TRY(offer(home, &knobs, knobs.weights_norm ? "renormalised" : "not renormalised",
                    knobs.weights_norm ? "weights divided by their sum give the value"
                                       : "weights as they are give the value"));
    ASSAY_TRY(try_sum_of_all(home));
    knobs = *home->knobs;
    double best, rest, right = knobs.weights_scale;
    ASSAY_TRY(assay_home_fit(&best, &rest, home, &knobs, &knobs.weights_scale, right / 64,
                             right * 64, 13));
    if (fabs(best / right - 1) < 2e-4)
        return ASSAY_OK;
    snprintf(text, sizeof text, "fitted scale of the weights %.6g, right is %.6g%s", best, right,
             fabs(best - 1) < 2e-3                   ? ": the scale is missing"
             : fabs(best / right / right - 1) < 2e-3 ? ": the scale is applied twice"
                                                     : "");
    return assay_home_offer_variant(
        home, &knobs,
        &(assay_offer_text){.kind = "scale of the weights",
                            .family = "router",
                            .complexity = 1,
                            .fitted = json_pack("{s:f, s:f}", "scale", best, "right", right),
                            .evidence = text});
}

/* The scores are right, most tokens have the experts that the scores give, some have others: no
 * rule for all, so this says where. */
static assay_status try_some_rows(assay_home *home)
{
    const assay_judged *j = home->judged;
    char text[320];
    int64_t n = 0, first = -1;
    for (int64_t r = 0; r < j->n_rows; r++) {
        bool same = true;
        for (int64_t i = 0; i < j->n_cols && same; i++) {
            same = false;
            for (int64_t k = 0; k < j->n_cols && !same; k++)
                same = home->got[r * j->n_cols + i] == home->expected[r * j->n_cols + k];
        }
        if (!same && n++ == 0)
            first = r;
    }
    if (n == 0 || 4 * n > j->n_rows)
        return ASSAY_OK;
    snprintf(text, sizeof text,
             "%lld of %lld tokens have other experts than their scores give, token %lld the first",
             (long long)n, (long long)j->n_rows, (long long)first);
    return assay_home_offer(
        home, home->got,
        &(assay_offer_text){
            .kind = "other experts for some tokens",
            .family = "router",
            .complexity = (double)n,
            .shape_only = true,
            .fitted = json_pack("{s:I, s:I}", "tokens", (json_int_t)n, "first", (json_int_t)first),
            .evidence = text});
}

assay_status assay_fault_match_route(assay_home *home)
{
    if (home->judged->against || home->shape->n_expert == 0)
        return ASSAY_OK;
    bool probs = assay_home_covers(home, ASSAY_POINT_MOE_PROBS);
    bool topk = assay_home_covers(home, ASSAY_POINT_MOE_TOPK);
    bool weights = assay_home_covers(home, ASSAY_POINT_MOE_WEIGHTS);
    /* of ids that a choice without the bias gives, the bias is the simpler account */
    if (topk || weights)
        ASSAY_TRY(try_bias(home));
    if (probs || weights)
        ASSAY_TRY(try_gate(home));
    if (topk) {
        ASSAY_TRY(try_groups(home));
        ASSAY_TRY(try_lowest(home));
    }
    if (assay_home_is(home, ASSAY_POINT_MOE_ROUTED)) {
        ASSAY_TRY(try_power(home));
        if (!assay_home_best(home))
            ASSAY_TRY(try_input_weight(home));
    }
    if (assay_home_is(home, ASSAY_POINT_MOE_TOPK))
        ASSAY_TRY(try_some_rows(home));
    if (weights) {
        ASSAY_TRY(try_weights(home));
        ASSAY_TRY(try_order(home));
        ASSAY_TRY(try_places(home));
    }
    return ASSAY_OK;
}
