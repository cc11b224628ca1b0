/*
 * Experts one by one: what each adds to a row, which of them the wrong rows have in common, and an
 * explanation that holds for some of them alone.
 */
#include "reports/home_experts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

assay_status assay_home_expert_places(double *out, assay_home *home, const assay_knobs *knobs,
                                      const double *weights)
{
    const assay_judged *j = home->judged;
    int64_t U = home->shape->n_expert_used, D = j->n_cols;
    if (!weights)
        return assay_forced_expect(out, home->forced, home->index, knobs);
    ASSAY_TRY(assay_home_expert_outputs(out, home, knobs));
    for (int64_t p = 0; p < j->n_rows * U; p++)
        for (int64_t d = 0; d < D; d++)
            out[p * D + d] *= weights[p];
    return ASSAY_OK;
}

static bool stands_out(const assay_home *home, int64_t row)
{
    const assay_judged *j = home->judged;
    double error = 0, size = 0;
    for (int64_t i = row * j->n_cols; i < (row + 1) * j->n_cols; i++) {
        error += (home->got[i] - home->expected[i]) * (home->got[i] - home->expected[i]);
        size += home->expected[i] * home->expected[i];
    }
    return error > 36 * j->floor_row_median * j->floor_row_median * size;
}

static bool is_chosen(const double *ids, int64_t row, int n_used, int expert)
{
    for (int u = 0; u < n_used; u++)
        if ((int)ids[row * n_used + u] == expert)
            return true;
    return false;
}

int assay_home_suspect_experts(int *list, int most, const assay_home *home, const double *ids)
{
    const assay_judged *j = home->judged;
    int n = 0, U = home->shape->n_expert_used;
    for (int e = 0; e < home->shape->n_expert && n < most; e++) {
        bool always = true, ever = false;
        for (int64_t r = 0; r < j->n_rows && always; r++) {
            bool wrong = stands_out(home, r), chosen = is_chosen(ids, r, U, e);
            always = !wrong || chosen;
            ever = ever || (wrong && chosen);
        }
        if (always && ever)
            list[n++] = e;
    }
    return n;
}

/* Experts that a wrong row chose and no right one; returns how many. */
static int never_right(bool *out, const assay_home *home, const double *ids)
{
    int n = 0, U = home->shape->n_expert_used;
    for (int e = 0; e < home->shape->n_expert; e++) {
        bool wrong = false, right = false;
        for (int64_t r = 0; r < home->judged->n_rows; r++)
            if (is_chosen(ids, r, U, e)) {
                bool out_of_line = stands_out(home, r);
                wrong = wrong || out_of_line;
                right = right || !out_of_line;
            }
        out[e] = wrong && !right;
        n += out[e];
    }
    return n;
}

typedef struct places {
    double *ids, *weights; /* weights NULL: the home is no sum over experts */
    double *right, *other; /* [rows, U, width] */
    bool *of;              /* experts that take the other one */
} places;

static assay_status offer_set(assay_home *home, const places *p, int n,
                              const assay_offer_text *text)
{
    const assay_judged *j = home->judged;
    int64_t U = home->shape->n_expert_used, width = p->weights ? j->n_cols : j->n_cols / U;
    char kind[80], evidence[320], list[64] = "";
    size_t used = 0;
    json_t *experts = json_array();
    memcpy(home->scratch, home->expected, (size_t)home->n * sizeof *home->scratch);
    for (int64_t at = 0; at < j->n_rows * U; at++)
        for (int64_t d = 0; p->of[(int)p->ids[at]] && d < width; d++)
            home->scratch[(p->weights ? at / U : at) * width + d] +=
                p->other[at * width + d] - p->right[at * width + d];
    for (int e = 0; e < home->shape->n_expert; e++) {
        if (!p->of[e])
            continue;
        json_array_append_new(experts, json_integer(e));
        if (used + 8 < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "", e);
    }
    snprintf(kind, sizeof kind, "%s, in some experts", text->kind);
    snprintf(evidence, sizeof evidence, "in expert%s %s alone: %s", n > 1 ? "s" : "", list,
             text->evidence);
    assay_relation_score(&home->rel, home->scratch, &home->pair);
    return assay_home_offer_relation(
        home, &(assay_offer_text){.kind = kind,
                                  .family = "experts",
                                  .complexity = text->complexity + 0.4,
                                  .fitted = json_pack("{s:o}", "experts", experts),
                                  .evidence = evidence});
}

/* All experts that were never right, then each that all wrong rows have. */
static assay_status offer_sets(assay_home *home, const places *p, int n,
                               const assay_offer_text *text)
{
    int list[8], E = home->shape->n_expert;
    ASSAY_TRY(offer_set(home, p, n, text));
    if (n == 1 || assay_home_best(home))
        return ASSAY_OK;
    int n_list = assay_home_suspect_experts(list, 8, home, p->ids);
    for (int i = 0; i < n_list; i++) {
        memset(p->of, 0, (size_t)E * sizeof *p->of);
        p->of[list[i]] = true;
        ASSAY_TRY(offer_set(home, p, 1, text));
    }
    return ASSAY_OK;
}

bool assay_home_whole(const assay_home *home)
{
    const assay_offer *best = assay_home_best(home);
    return best && !best->shape_only && !strstr(best->kind, ", in some ");
}

assay_status assay_home_offer_in_experts(assay_home *home, const assay_knobs *knobs,
                                         const assay_offer_text *text)
{
    const assay_judged *j = home->judged;
    bool sum = assay_home_is(home, ASSAY_POINT_MOE_ROUTED);
    bool one_by_one = assay_home_is(home, ASSAY_POINT_MOE_EXPERT_ACT) ||
                      assay_home_is(home, ASSAY_POINT_MOE_EXPERT_DOWN);
    int64_t n, n_places = home->n * (sum ? home->shape->n_expert_used : 1);
    places p = {0};
    assay_status s = ASSAY_OK;
    if ((!sum && !one_by_one) || home->pair.sketch || j->n_nonfinite_added > 0 ||
        assay_home_value(&p.ids, &n, home, ASSAY_POINT_MOE_TOPK, j->layer) != ASSAY_OK)
        return ASSAY_OK;
    bool known = n == j->n_rows * home->shape->n_expert_used;
    for (int64_t i = 0; i < n && known; i++)
        known = p.ids[i] >= 0 && p.ids[i] < home->shape->n_expert;
    if (!known) {
        free(p.ids);
        return ASSAY_OK;
    }
    ASSAY_GO(assay_alloc(&p.of, (size_t)home->shape->n_expert, sizeof *p.of, "experts"));
    int n_wrong = never_right(p.of, home, p.ids);
    if (n_wrong == 0 || n_wrong == home->shape->n_expert) /* what they compute costs more */
        goto out;
    if (sum)
        ASSAY_GO(assay_home_value(&p.weights, &n, home, ASSAY_POINT_MOE_WEIGHTS, j->layer));
    ASSAY_GO(assay_alloc(&p.right, (size_t)n_places, 2 * sizeof *p.right, "places of experts"));
    p.other = p.right + n_places;
    ASSAY_GO(assay_home_expert_places(p.right, home, home->knobs, p.weights));
    ASSAY_GO(assay_home_expert_places(p.other, home, knobs, p.weights));
    s = offer_sets(home, &p, n_wrong, text);
out:
    free(p.ids);
    free(p.weights);
    free(p.right);
    free(p.of);
    return s == ASSAY_MISSING ? ASSAY_OK : s;
}
