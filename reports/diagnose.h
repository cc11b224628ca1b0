/*
 * Diagnosis: homes of the forced pass -> findings. Every home is offered to every fault class; the
 * best explanation that leaves no home wins, simpler ones win ties; what nothing explains is
 * reported as UNKNOWN with its shape.
 *
 * Homes are searched from the one that stands out most; a later home at the same point is first
 * offered to the class that explained the earlier one. A home whose interval of uncaptured ops
 * holds a home that another step or prompt shows more precisely belongs to that one. One finding
 * per class, kind and family of points.
 */
#ifndef ASSAY_REPORTS_DIAGNOSE_H
#define ASSAY_REPORTS_DIAGNOSE_H

#include "references/forced.h"
#include "reports/finding.h"

/* What a diagnosis cost. Hypotheses: each class of fault.def at each home. */
typedef struct assay_diagnose_cost {
    int n_homes;            /* values at which an error is born */
    int64_t n_hypotheses;   /* homes x classes: the sum of what follows */
    int64_t n_asked;        /* classes that looked at a home */
    int64_t n_answered;     /* left out, since the class that explained a like home did so here */
    int64_t n_belongs;      /* left out with their home, which belongs to another */
    int64_t n_unaffordable; /* left out for ASSAY_DIAGNOSE_PASSES */
} assay_diagnose_cost;

typedef struct assay_diagnose_options {
    const char *reproduce; /* the command that shows it again, put into every finding */
    const char *bundles;   /* folder for a bundle per finding (reports/repro.h); NULL: none */
    const assay_gguf
        *file;          /* the oracle's model, for its hash; NULL: "same model" stays unproven */
    const char *sha256; /* of that file; "": not computed, which is said; NULL: computed here */
    bool is_own;        /* the run was made from that very file: nothing is to be proven */
    assay_forced_options forced;
    void (*on_judged)(void *user, const assay_judged *judged); /* NULL: none; sees every value */
    void *on_judged_user;
    double *passes; /* NULL: none; what the diagnosis cost, in oracle passes (forced.h) */
    assay_diagnose_cost *cost; /* NULL: nobody asks */
} assay_diagnose_options;

/* A diagnosis costs at most so many oracle passes over the prompts: homes that are left are not
 * searched any more, and a note says so. */
#define ASSAY_DIAGNOSE_PASSES 20

/*
 * Runs the forced pass over the run and adds findings, notes and coverage to the result. Fails:
 * ASSAY_CANNOT_JUDGE when nothing can be compared: other model (hash or shapes), no point in
 * common.
 */
assay_status assay_diagnose(assay_result *result, assay_run *run, assay_oracle *oracle,
                            const assay_diagnose_options *options);

#endif
