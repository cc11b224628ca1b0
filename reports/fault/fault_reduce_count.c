/*
 * REDUCE-COUNT: a sum whose components are counted otherwise: routed and shared experts, a block's
 * output in the residual add, the heads of the output projection, the whole n times.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/home_ranks.h"

const assay_fault_kind assay_fault_kinds_reduce_count[] = {
    {.name = "shared-missing",
     .about = "the shared expert is not added",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_SHARED_TIMES,
     .value = 0,
     .needs = ASSAY_NEEDS_SHARED_EXPERT,
     .home = "moe.out"},
    {.name = "shared-twice",
     .about = "the shared expert is added twice",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_SHARED_TIMES,
     .value = 2,
     .needs = ASSAY_NEEDS_SHARED_EXPERT,
     .home = "moe.out"},
    {.name = "routed-twice",
     .about = "the routed experts are added twice",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_ROUTED_TIMES,
     .value = 2,
     .needs = ASSAY_NEEDS_MOE,
     .home = "moe.out"},
    {.name = "residual-twice",
     .about = "attention's output is added twice",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_RESIDUAL_TIMES,
     .value = 2,
     .n_ints = 1,
     .ints = {0},
     .home = "attn_resid"},
    {.name = "reduce-missing",
     .about = "the sum over ranks behind the output projection does not run",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_REDUCE_TIMES,
     .value = 0,
     .n_ints = 1,
     .ints = {ASSAY_POINT_PROJ},
     .ranks = true,
     .home = "attn.proj"},
    {.name = "reduce-twice",
     .about = "the sum over ranks behind the output projection runs twice",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_REDUCE_TIMES,
     .value = 2,
     .n_ints = 1,
     .ints = {ASSAY_POINT_PROJ},
     .ranks = true,
     .home = "attn.proj"},
    {.name = "reduce-twice-ffn",
     .about = "the sum over ranks behind the feed-forward block runs twice",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_REDUCE_TIMES,
     .value = 2,
     .n_ints = 1,
     .ints = {ASSAY_POINT_FFN_OUT},
     .needs = ASSAY_NEEDS_DENSE,
     .ranks = true,
     .home = "ffn.out"},
    {.name = "bias-every-rank",
     .about = "the bias behind a reduced projection is added on every rank (models that have one)",
     .weakest = NAN,
     .strongest = NAN,
     .seam = ASSAY_SEAM_RANK_BIAS,
     .value = 1,
     .needs = ASSAY_NEEDS_DENSE,
     .ranks = true,
     .home = "attn.proj ffn.out"},
    {0}};

static assay_status try_count(assay_home *home, assay_knobs *knobs, double *times, const char *what,
                              const char *family)
{
    static const double counts[] = {0, 2, 4, 8, 0.5, 0.25, 0.125};
    char text[320], kind[64];
    double right = *times;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        *times = right * counts[i];
        snprintf(kind, sizeof kind, "%s %s", what,
                 counts[i] == 0  ? "missing"
                 : counts[i] > 1 ? "added too often"
                                 : "divided");
        snprintf(text, sizeof text, "%s counted %g times gives the value", what, counts[i]);
        ASSAY_TRY(assay_home_offer_variant(
            home, knobs,
            &(assay_offer_text){.kind = kind,
                                .family = family,
                                .complexity = 0.3,
                                .fitted = json_pack("{s:f}", "times", counts[i]),
                                .evidence = text}));
    }
    *times = right;
    return ASSAY_OK;
}

/* Routed and shared experts, each by the number that fits best. */
static assay_status try_factors(assay_home *home)
{
    static const char *const names[] = {"routed experts", "shared expert"};
    static const assay_point points[] = {ASSAY_POINT_MOE_ROUTED, ASSAY_POINT_SHARED};
    double *part[2] = {NULL}, a = 0, b = 0, c = 0, x = 0, y = 0, of[2];
    int64_t n[2] = {0};
    char kind[64], text[320];
    assay_status s = ASSAY_OK;
    for (int i = 0; i < 2; i++)
        if (assay_home_value(&part[i], &n[i], home, points[i], home->judged->layer) != ASSAY_OK)
            part[i] = NULL;
    if (!part[0] || !part[1] || n[0] != home->n || n[1] != home->n)
        goto out;
    for (int64_t i = 0; i < home->n; i++) {
        a += part[0][i] * part[0][i];
        b += part[0][i] * part[1][i];
        c += part[1][i] * part[1][i];
        x += part[0][i] * home->got[i];
        y += part[1][i] * home->got[i];
    }
    if (!(a * c - b * b > 1e-6 * a * c))
        goto out;
    of[0] = (x * c - y * b) / (a * c - b * b);
    of[1] = (y * a - x * b) / (a * c - b * b);
    int odd = fabs(of[0] - 1) > fabs(of[1] - 1) ? 0 : 1;
    if (fabs(of[odd] - 1) < 1e-3 || fabs(of[1 - odd] - 1) > 0.01)
        goto out;
    for (int64_t i = 0; i < home->n; i++)
        home->scratch[i] = part[1 - odd][i] + of[odd] * part[odd][i];
    double scale = home->knobs->weights_scale;
    bool is_scale = fabs(scale - 1) > 0.01 &&
                    (fabs(of[odd] / scale - 1) < 2e-3 || fabs(of[odd] * scale - 1) < 2e-3);
    snprintf(kind, sizeof kind, "%s times a factor", names[odd]);
    snprintf(text, sizeof text, "%s times %.6g, %s as they are, give the sum%s", names[odd],
             of[odd], names[1 - odd],
             is_scale ? ": the scale of the routed experts acts where it should not, or not where "
                        "it should"
                      : "");
    s = assay_home_offer(home, home->scratch,
                         &(assay_offer_text){.kind = kind,
                                             .complexity = 1,
                                             .fitted = json_pack("{s:f}", "times", of[odd]),
                                             .evidence = text});
out:
    free(part[0]);
    free(part[1]);
    return s;
}

/* Any other share of attention's output in the residual add. */
static assay_status try_share(assay_home *home)
{
    assay_knobs knobs = *home->knobs;
    double best, rest;
    char text[320];
    ASSAY_TRY(assay_home_fit(&best, &rest, home, &knobs, &knobs.attn_times, 0.05, 20, 17));
    if (fabs(best - 1) < 1e-3)
        return ASSAY_OK;
    snprintf(text, sizeof text, "attention output counted %.5g times gives the value", best);
    return assay_home_offer_variant(
        home, &knobs,
        &(assay_offer_text){.kind = best > 1 ? "attention output added too often"
                                             : "attention output divided",
                            .family = "attn_resid",
                            .complexity = 1,
                            .fitted = json_pack("{s:f}", "times", best),
                            .evidence = text});
}

static assay_status try_whole(assay_home *home)
{
    char text[320];
    assay_relation_scale(&home->rel, home->scratch, &home->pair);
    double f = home->rel.value, n = f > 1 ? f : f > 0 ? 1 / f : 0;
    if (n < 1.9 || fabs(n - round(n)) > 5e-3 * n || round(n) > 16)
        return ASSAY_OK;
    snprintf(text, sizeof text, "the value is %.4g times the expected one: summed over %s%g", f,
             f > 1 ? "a group of " : "too few, 1 of ", round(n));
    return assay_home_offer_relation(
        home, &(assay_offer_text){.kind = f > 1 ? "summed too often" : "not summed",
                                  .complexity = 0.8,
                                  .fitted = json_pack("{s:f}", "times", f),
                                  .evidence = text});
}

/* The layer's output as counts of what the residual stream adds up: the layer's input, attention,
 * feed-forward. */
static assay_status try_stream(assay_home *home)
{
    static const char *const names[] = {"residual stream", "attention output",
                                        "feed-forward output"};
    const assay_judged *j = home->judged;
    double *part[3] = {0};
    char kind[64], text[320];
    assay_status s = ASSAY_OK;
    bool all = true, moe = assay_oracle_has_point(assay_forced_oracle(home->forced),
                                                  ASSAY_POINT_MOE_OUT, j->layer, false);
    const struct {
        assay_point point;
        int layer;
    } from[3] = {{j->layer == 0 ? ASSAY_POINT_EMBED : ASSAY_POINT_OUT, j->layer - 1},
                 {ASSAY_POINT_PROJ, j->layer},
                 {moe ? ASSAY_POINT_MOE_OUT : ASSAY_POINT_FFN_OUT, j->layer}};
    for (int i = 0; i < 3; i++) {
        int64_t n;
        all = all && assay_home_value(&part[i], &n, home, from[i].point, from[i].layer) == ASSAY_OK;
        all = all && n == home->n;
    }
    if (all)
        assay_relation_components(&home->rel, home->scratch, &home->pair,
                                  (const double *const *)part, 3);
    int odd = all && home->rel.index >= 0 && home->rel.index < 3 ? (int)home->rel.index : -1;
    if (odd >= 0) {
        double n = home->rel.value;
        snprintf(kind, sizeof kind, "%s %s", names[odd],
                 n == 0  ? "missing"
                 : n > 1 ? "added too often"
                         : "divided");
        snprintf(text, sizeof text,
                 "the layer's output is %.4g x its input + %.4g x attention + %.4g x feed-forward",
                 home->rel.count[0], home->rel.count[1], home->rel.count[2]);
        s = assay_home_offer_relation(
            home,
            &(assay_offer_text){.kind = kind,
                                .fitted = json_pack("{s:[f,f,f]}", "counts", home->rel.count[0],
                                                    home->rel.count[1], home->rel.count[2]),
                                .evidence = text});
    }
    for (int i = 0; i < 3; i++)
        free(part[i]);
    return s;
}

/* Every row is off by the same multiple of the bias: it was added by several ranks, or by none. */
static assay_status try_bias(assay_home *home, const char *bias)
{
    const double *b;
    int64_t dims[4], cols = home->pair.cols;
    char name[64], text[320];
    double cross = 0, square = 0;
    int n_ranks = assay_run_about(assay_forced_run(home->forced))->n_ranks;
    snprintf(name, sizeof name, "blk.%d.%s", home->judged->layer, bias);
    assay_status s = assay_oracle_weight(&b, dims, assay_forced_oracle(home->forced), name);
    if (s != ASSAY_OK || dims[3] != cols)
        return s == ASSAY_MISSING ? ASSAY_OK : s;
    for (int64_t i = 0; i < home->n; i++) {
        cross += (home->got[i] - home->expected[i]) * b[i % cols];
        square += b[i % cols] * b[i % cols];
    }
    double more = square > 0 ? round(cross / square) : 0;
    if (more == 0)
        return ASSAY_OK;
    for (int64_t i = 0; i < home->n; i++)
        home->scratch[i] = home->expected[i] + more * b[i % cols];
    snprintf(text, sizeof text,
             "the bias is in the sum %g times: add it on one rank, or behind the "
             "reduction",
             more + 1);
    return assay_home_offer(home, home->scratch,
                            &(assay_offer_text){.kind = n_ranks > 1 && more + 1 == n_ranks
                                                            ? "bias added on every rank"
                                                            : "bias counted otherwise",
                                                .complexity = 0.2,
                                                .fitted = json_pack("{s:f}", "times", more + 1),
                                                .evidence = text});
}

/* What each head adds to the output projection, [H][rows, D]; *room is yours to free. */
static assay_status head_parts(double **room, const double **parts, int *n, assay_home *home)
{
    const assay_judged *j = home->judged;
    double *heads;
    const double *weight;
    int64_t n_heads, dims[4];
    char name[64];
    int H = home->shape->n_head;
    snprintf(name, sizeof name, "blk.%d.attn_output.weight", j->layer);
    *room = NULL;
    *n = 0;
    if (H > 64 || assay_home_value(&heads, &n_heads, home, ASSAY_POINT_OUT_ATTN, j->layer))
        return ASSAY_OK;
    assay_status s = assay_oracle_weight(&weight, dims, assay_forced_oracle(home->forced), name);
    int64_t D = j->n_cols, W = n_heads / j->n_rows, V = W / H;
    if (s == ASSAY_OK && dims[2] == D && dims[3] == W)
        s = assay_alloc(room, (size_t)(H * home->n), sizeof **room, "parts of heads");
    for (int h = 0; s == ASSAY_OK && *room && h < H; h++) {
        double *part = *room + h * home->n;
        parts[h] = part;
        for (int64_t t = 0; t < j->n_rows; t++)
            for (int64_t d = 0; d < D; d++) {
                double sum = 0;
                for (int64_t v = h * V; v < (h + 1) * V; v++)
                    sum += weight[d * W + v] * heads[t * W + v];
                part[t * D + d] = sum;
            }
        *n = H;
    }
    free(heads);
    return s;
}

static assay_status try_heads(assay_home *home)
{
    double *room;
    const double *parts[64];
    int n, missing = 0, twice = 0;
    char text[320];
    ASSAY_TRY(head_parts(&room, parts, &n, home));
    if (n < 2) {
        free(room);
        return ASSAY_OK;
    }
    assay_relation_components(&home->rel, home->scratch, &home->pair, parts, n);
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        missing += fabs(home->rel.count[i]) < 0.02;
        twice += home->rel.count[i] > 1.5;
        json_array_append_new(list, json_real(home->rel.count[i]));
    }
    snprintf(text, sizeof text, "%d of %d heads' parts are missing, %d are added more than once",
             missing, n, twice);
    assay_status s = ASSAY_OK;
    if (missing + twice > 0 && missing < n)
        s = assay_home_offer_relation(
            home, &(assay_offer_text){.kind = missing > twice ? "parts of the sum missing"
                                                              : "parts of the sum added twice",
                                      .fitted = json_pack("{s:o}", "counts", list),
                                      .evidence = text});
    else
        json_decref(list);
    free(room);
    return s;
}

assay_status assay_fault_match_reduce_count(assay_home *home)
{
    const assay_judged *j = home->judged;
    if (j->against || j->is_ids || j->n_nonfinite_added > 0)
        return ASSAY_OK;
    ASSAY_TRY(assay_home_try_own_addend(home, false));
    assay_knobs knobs = *home->knobs;
    if (assay_home_is(home, ASSAY_POINT_MOE_OUT) ||
        (assay_home_is(home, ASSAY_POINT_OUT) && assay_home_covers(home, ASSAY_POINT_MOE_OUT))) {
        ASSAY_TRY(try_count(home, &knobs, &knobs.shared_times, "shared expert", NULL));
        ASSAY_TRY(try_count(home, &knobs, &knobs.routed_times, "routed experts", NULL));
        if (assay_home_is(home, ASSAY_POINT_MOE_OUT) && !assay_home_settled(home))
            ASSAY_TRY(try_factors(home));
    }
    /* one add, seen by the norm behind it and by the layer's output where it was not captured */
    if (assay_home_covers(home, ASSAY_POINT_ATTN_RESID)) {
        ASSAY_TRY(try_count(home, &knobs, &knobs.attn_times, "attention output", "attn_resid"));
        ASSAY_TRY(try_count(home, &knobs, &knobs.stream_times, "residual stream", "attn_resid"));
    }
    if (assay_home_covers(home, ASSAY_POINT_ATTN_RESID) && !assay_home_settled(home))
        ASSAY_TRY(try_share(home));
    if (assay_home_is(home, ASSAY_POINT_OUT))
        ASSAY_TRY(try_count(home, &knobs, &knobs.ffn_times, "feed-forward output", NULL));
    if (assay_home_is(home, ASSAY_POINT_OUT) && !assay_home_settled(home))
        ASSAY_TRY(try_stream(home));
    static const assay_point reduced[] = {ASSAY_POINT_PROJ,       ASSAY_POINT_FFN_OUT,
                                          ASSAY_POINT_MOE_ROUTED, ASSAY_POINT_SHARED,
                                          ASSAY_POINT_MOE_OUT,    ASSAY_POINT_EMBED};
    bool ranks = assay_run_about(assay_forced_run(home->forced))->n_ranks > 1;
    for (size_t i = 0; i < sizeof reduced / sizeof *reduced; i++)
        if (assay_home_is(home, reduced[i]) && (ranks || reduced[i] != ASSAY_POINT_EMBED))
            ASSAY_TRY(try_whole(home));
    if (assay_home_is(home, ASSAY_POINT_PROJ))
        ASSAY_TRY(try_bias(home, "attn_output.bias"));
    if (assay_home_is(home, ASSAY_POINT_FFN_OUT))
        ASSAY_TRY(try_bias(home, "ffn_down.bias"));
    if (assay_home_is(home, ASSAY_POINT_PROJ) && !assay_home_settled(home))
        ASSAY_TRY(try_heads(home));
    return ASSAY_OK;
}
