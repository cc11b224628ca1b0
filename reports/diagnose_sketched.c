/*
 * A run of sketches: the walk that finds its values asks the fault classes what a home may be.
 * Afterwards the run has values, and is judged like any other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/diagnose_private.h"

typedef struct asker {
    int likely[ASSAY_POINT_COUNT]; /* the class that explained a home at this point; -1: none yet */
} asker;

static assay_status ask(assay_home *home, int fault)
{
    home->fault = fault;
    assay_status s = assay_fault_at(fault)->match(home);
    return s == ASSAY_OK ? s : assay_within(s, "class %s", assay_fault_at(fault)->name);
}

static assay_status explain(double *explained, bool *found, void *user, assay_forced *forced,
                            int index)
{
    asker *a = user;
    assay_home *home;
    ASSAY_TRY(assay_home_new(&home, forced, index));
    int *likely = &a->likely[home->judged->point];
    assay_status s = ASSAY_OK;
    if (*likely >= 0)
        ASSAY_GO(ask(home, *likely));
    for (int i = 0; i < assay_fault_count() && (*likely < 0 || !assay_home_best(home)); i++)
        if (i != *likely && assay_forced_cost(forced) < ASSAY_DIAGNOSE_PASSES)
            ASSAY_GO(ask(home, i));
    const assay_offer *best = assay_home_best(home);
    *found = best && best->values;
    if (*found) {
        memcpy(explained, best->values, (size_t)home->n * sizeof *explained);
        *likely = best->fault;
    }
out:
    assay_home_free(home);
    return s;
}

/* Values lie as the points say: a sketch cannot be put into another layout. */
static bool is_canonical(const assay_profile *p)
{
    return !p || (!p->rope_half_split_after && !p->index_hadamard && p->residual_scale == 1 &&
                  !p->cache_rope_first);
}

assay_status assay_diagnosis_walk(assay_result *result, assay_run *run, assay_oracle *oracle,
                                  const assay_forced_options *options)
{
    asker a;
    assay_sketch_walk w;
    if (!assay_run_is_sketched(run))
        return ASSAY_OK;
    if (!is_canonical(assay_run_about(run)->profile))
        return assay_fail(ASSAY_CANNOT_JUDGE,
                          "%s: sketches of a layout that is not the points': values are needed",
                          assay_run_about(run)->path);
    for (int i = 0; i < ASSAY_POINT_COUNT; i++)
        a.likely[i] = -1;
    ASSAY_TRY(assay_forced_walk(&w, run, oracle, options, explain, &a));
    if (w.n_sketches == 0)
        return assay_fail(ASSAY_CANNOT_JUDGE, "%s: none of its sketches can be judged",
                          assay_run_about(run)->path);
    if (w.n_behind > 0)
        result->inconclusive = true;
    return assay_strings_add(
        &result->notes, "judged from sketches: the values of %lld of %lld are known by theirs%s",
        (long long)w.n_known, (long long)w.n_sketches,
        w.n_estimated ? "; what depends on the others is not judged" : "");
}

void assay_diagnosis_merge_estimates(assay_diagnosis *d)
{
    for (int h = 0; h < d->n; h++) {
        const assay_judged *a = assay_forced_at(d->forced, d->homes[h].index);
        if (a->seen->known != ASSAY_KNOWN_ESTIMATE || d->homes[h].merged >= 0)
            continue;
        for (int g = 0; g < d->n && d->homes[h].merged < 0; g++) {
            const assay_judged *b = assay_forced_at(d->forced, d->homes[g].index);
            if (b->seen->known != ASSAY_KNOWN_ESTIMATE && d->homes[g].merged < 0 &&
                a->point == b->point && a->layer == b->layer &&
                d->homes[g].fault != ASSAY_FAULT_UNKNOWN)
                d->homes[h].merged = g;
        }
    }
}
