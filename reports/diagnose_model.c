/*
 * Findings about the whole model: weights that are not those of the file, another number of experts
 * than the file says.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/diagnose_private.h"

#define FEWEST_PRODUCTS 6

static const assay_judged *judged_of(const assay_diagnosis *d, int position)
{
    return assay_forced_at(d->forced, d->homes[position].index);
}

static bool is_product_point(assay_point point)
{
    static const assay_point points[] = {ASSAY_POINT_Q_A,         ASSAY_POINT_Q,
                                         ASSAY_POINT_KV_A,        ASSAY_POINT_KV_B,
                                         ASSAY_POINT_PROJ,        ASSAY_POINT_FFN_GATE,
                                         ASSAY_POINT_FFN_UP,      ASSAY_POINT_FFN_OUT,
                                         ASSAY_POINT_MOE_LOGITS,  ASSAY_POINT_SHARED_GATE,
                                         ASSAY_POINT_SHARED_UP,   ASSAY_POINT_SHARED,
                                         ASSAY_POINT_MOE_ROUTED,  ASSAY_POINT_INDEX_Q_PROJ,
                                         ASSAY_POINT_INDEX_K_PROJ};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        if (point == points[i])
            return true;
    return false;
}

/* A product with a weight of the file, or an interval of ops that holds one. */
static bool is_product(const assay_diagnosis *d, int index)
{
    const assay_judged *j = assay_forced_at(d->forced, index);
    assay_point points[ASSAY_FORCED_INTERVAL];
    int layers[ASSAY_FORCED_INTERVAL], steps[ASSAY_FORCED_INTERVAL];
    if (j->against || j->is_ids)
        return false;
    bool product = is_product_point(j->point);
    int n = j->n_interval > 0 && !product
                ? assay_forced_interval(points, layers, steps, d->forced, index)
                : 0;
    for (int i = 0; i < n; i++)
        product = product || is_product_point(points[i]);
    return product;
}

/* An op without a weight, on captured inputs. */
static bool is_plain(const assay_judged *j)
{
    return !j->is_ids && !j->against && j->n_interval == 0 &&
           (j->point == ASSAY_POINT_Q_ROPE || j->point == ASSAY_POINT_K_ROPE ||
            j->point == ASSAY_POINT_PROBS || j->point == ASSAY_POINT_KERNEL_OUT ||
            j->point == ASSAY_POINT_O_LATENT || j->point == ASSAY_POINT_ATTN_RESID ||
            j->point == ASSAY_POINT_FFN_ACT || j->point == ASSAY_POINT_OUT ||
            j->point == ASSAY_POINT_MOE_OUT || j->point == ASSAY_POINT_MOE_WEIGHTS);
}

typedef struct tally {
    int products, wrong_products, plain, wrong_plain;
    double least_cos, most_cos; /* of wrong products */
} tally;

static tally count_all(const assay_diagnosis *d)
{
    tally t = {.least_cos = 1, .most_cos = -1};
    for (int i = 0; i < assay_forced_n(d->forced); i++) {
        const assay_judged *j = assay_forced_at(d->forced, i);
        bool product = is_product(d, i), plain = is_plain(j);
        t.products += product;
        t.wrong_products += product && j->is_home;
        t.plain += plain;
        t.wrong_plain += plain && j->is_home;
        if (product && j->is_home && 1 - j->one_minus_cos < t.least_cos)
            t.least_cos = 1 - j->one_minus_cos;
        if (product && j->is_home && 1 - j->one_minus_cos > t.most_cos)
            t.most_cos = 1 - j->one_minus_cos;
    }
    return t;
}

/* The home that stands for all: the first product, in the order of the flow, whose error is no less
 * than half of the largest. -1: none. */
static int spokesman(const assay_diagnosis *d)
{
    double largest = 0;
    for (int i = 0; i < d->n; i++)
        if (d->homes[i].merged < 0 && is_product(d, d->homes[i].index))
            largest = fmax(largest, judged_of(d, i)->rel);
    for (int i = 0; i < d->n; i++)
        if (d->homes[i].merged < 0 && is_product(d, d->homes[i].index) &&
            2 * judged_of(d, i)->rel >= largest)
            return i;
    return -1;
}

static bool has_weight(const assay_diagnosis *d, int position)
{
    const assay_judged *j = judged_of(d, position);
    return is_product(d, d->homes[position].index) || j->point == ASSAY_POINT_EMBED ||
           j->point == ASSAY_POINT_LOGITS || j->point == ASSAY_POINT_IN_NORM ||
           j->point == ASSAY_POINT_Q_A_NORM || j->point == ASSAY_POINT_KV_LATENT ||
           j->point == ASSAY_POINT_FFN_NORM || j->point == ASSAY_POINT_FINAL_NORM ||
           j->point == ASSAY_POINT_INDEX_K_NORM || j->point == ASSAY_POINT_INDEX_WEIGHTS ||
           j->point == ASSAY_POINT_MOE_TOPK || j->point == ASSAY_POINT_MOE_EXPERT_GATE ||
           j->point == ASSAY_POINT_MOE_EXPERT_UP || j->point == ASSAY_POINT_MOE_EXPERT_DOWN ||
           j->point == ASSAY_POINT_K || j->point == ASSAY_POINT_V ||
           j->point == ASSAY_POINT_Q_LATENT;
}

assay_status assay_diagnosis_other_weights(assay_diagnosis *d)
{
    tally t = count_all(d);
    int first = spokesman(d);
    if (first < 0 || t.wrong_products < FEWEST_PRODUCTS || 10 * t.wrong_products < 9 * t.products ||
        10 * t.wrong_plain > t.plain)
        return ASSAY_OK;
    if (t.plain == 0 && t.most_cos > 0.7) /* nothing speaks for the rest of the engine */
        return ASSAY_OK;
    ASSAY_TRY(assay_diagnosis_explain_home(d, first, -1));
    assay_located *l = &d->homes[first];
    if (l->fault != ASSAY_FAULT_UNKNOWN && l->fault != ASSAY_FAULT_WEIGHT_SOURCE)
        return ASSAY_OK;
    if (json_object_get(l->fitted, "layer"))
        return ASSAY_OK; /* another layer's weights, of this file */
    l->fault = ASSAY_FAULT_WEIGHT_SOURCE;
    l->confidence = 0.9;
    l->explained = NAN; /* no values of that file are at hand */
    l->shape[0] = l->second[0] = '\0';
    snprintf(l->kind, sizeof l->kind, "weights of another model file");
    snprintf(l->family, sizeof l->family, "model");
    snprintf(l->evidence, sizeof l->evidence,
             "%d of %d products disagree with this file's weights on the run's own inputs (cosine "
             "%.3f ... %.3f), %d of %d ops without weights agree: what was run is another file, "
             "version or quantization of the model",
             t.wrong_products, t.products, t.least_cos, t.most_cos, t.plain - t.wrong_plain,
             t.plain);
    json_object_set_new(l->fitted, "products", json_integer(t.products));
    json_object_set_new(l->fitted, "disagree", json_integer(t.wrong_products));
    for (int i = 0; i < d->n; i++)
        if (i != first && d->homes[i].merged < 0 && has_weight(d, i))
            d->homes[i].merged = first;
    for (int i = 0; i < d->n; i++)
        if (d->homes[i].merged >= 0 && d->homes[d->homes[i].merged].merged >= 0)
            d->homes[i].merged = first;
    return ASSAY_OK;
}

assay_status assay_diagnosis_expert_count(bool *differs, assay_result *result, const assay_run *run,
                                          const assay_oracle *oracle, const char *reproduce)
{
    const assay_oracle_shape *shape = assay_oracle_shape_of(oracle);
    int used = shape->n_expert_used;
    assay_finding f;
    char sentence[160];
    assay_status s;
    *differs = false;
    if (shape->n_expert == 0)
        return ASSAY_OK;
    assay_finding_init(&f);
    ASSAY_GO(assay_diagnosis_list_widths(&f, &used, run, ASSAY_POINT_MOE_TOPK, shape->n_expert_used,
                                         true));
    if (used == shape->n_expert_used)
        goto out;
    *differs = true;
    snprintf(sentence, sizeof sentence,
             "the run chooses %d experts for a token, the model file says %d", used,
             shape->n_expert_used);
    ASSAY_GO(assay_diagnosis_fact(
        &f, ASSAY_FAULT_ROUTE, "another number of experts",
        assay_point_at(ASSAY_POINT_MOE_TOPK)->made_by, sentence,
        "Compare the engine's number of experts with <arch>.expert_used_count of the file; one of "
        "them is not the model's.",
        reproduce));
    json_object_set_new(f.fitted, "top_k", json_integer(used));
    json_object_set_new(f.fitted, "right", json_integer(shape->n_expert_used));
    ASSAY_GO(
        assay_strings_add(&f.evidence,
                          "the captured choice has %d ids a token; values behind it have other "
                          "shapes than this file's, so nothing else was judged",
                          used));
    s = assay_result_add_finding(result, &f);
out:
    assay_finding_clear(&f);
    return s;
}
