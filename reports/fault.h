/*
 * Fault classes: one row in fault.def and one file fault/fault_<name>.c each.
 *     X(ID, "NAME", file, "definition", "advice")
 * The file defines  const assay_fault_kind assay_fault_kinds_<file>[]  (plantable sub-kinds; only
 * the end row when the engine has no mechanism yet) and  assay_fault_match_<file>.
 *
 * match() looks at one home of the forced pass and offers explanations of the added error
 * (reports/home.h); it must not know who planted what. A plant is a list of seam settings: the real
 * op takes the wrong part, pointer, index or constant; the tensor that match() looks at is never
 * touched.
 */
#ifndef ASSAY_REPORTS_FAULT_H
#define ASSAY_REPORTS_FAULT_H

#include "engine/engine.h"
#include "engine/hparams.h"
#include "engine/seam.h"
#include "references/forced.h"
#include "reports/finding.h"

/* "--plant KIND[:layer=A,head=B,rank=R,step=S,sequence=Q,value=V]" */
typedef struct assay_plant {
    char kind[64]; /* "phantom-output", "file-order", ... : a sub-kind named by the class's file */
    int layer, head, rank, step, sequence; /* -1: any */
    double value;                          /* NaN: the kind's own default */
} assay_plant;

/* Fails: ASSAY_USAGE, lists the kinds there are. */
assay_status assay_plant_parse(assay_plant *out, const char *text);
/* Translates a plant to seam settings for this model; *n is advanced. Fails: ASSAY_USAGE when the
 * model has no such mechanism. */
assay_status assay_plant_make(assay_seam_setting *settings, int *n, int max,
                              const assay_plant *plant, const assay_hparams *hparams);

/* Fails: ASSAY_USAGE when ops of this backend do not have the mechanism (seam.def). */
assay_status assay_plant_on(const assay_plant *plant, bool is_device);

/* Fills what the plants' mechanisms need and the options do not say yet. */
void assay_plant_shape(assay_engine_options *options, const assay_plant *plants, int n);

typedef enum { /* which models have the mechanism */
               ASSAY_NEEDS_NOTHING,
               ASSAY_NEEDS_MLA,
               ASSAY_NEEDS_RANK_Q, /* MLA with q_a */
               ASSAY_NEEDS_MOE,
               ASSAY_NEEDS_SHARED_EXPERT,
               ASSAY_NEEDS_GROUPS,
               ASSAY_NEEDS_ROUTER_BIAS,
               ASSAY_NEEDS_SOFTMAX_GATE,
               ASSAY_NEEDS_WEIGHTS_NORM, /* renormalised router weights */
               ASSAY_NEEDS_INDEXER,
               ASSAY_NEEDS_NEXTN,    /* a layer that predicts further tokens */
               ASSAY_NEEDS_GQA,      /* fewer key heads than query heads */
               ASSAY_NEEDS_DENSE,    /* a dense feed-forward layer */
               ASSAY_NEEDS_EXTENSION /* of the context, by rotary frequencies */
} assay_fault_needs;

typedef struct assay_fault_run { /* how an engine runs so that it has the mechanism; 0: no matter */
    int page_size, key_split, pad_to;
    assay_cache_type cache;
    bool draft; /* the prediction layers run */
    enum {
        ASSAY_REQUESTS_ONE,
        ASSAY_REQUESTS_PREFIX,  /* one after the other, prefixes reused */
        ASSAY_REQUESTS_EVICTED, /* the same, the first again after the second took its pages */
        ASSAY_REQUESTS_BATCH    /* three in every step */
    } requests;
} assay_fault_run;

typedef struct assay_fault_kind { /* a plantable sub-kind */
    const char *name;             /* for --plant */
    const char *about;
    double weakest, strongest; /* range of `value` for the campaign; NaN: no strength */
    assay_seam seam;
    double value; /* of the setting, unless the plant says otherwise */
    int n_ints;
    int ints[4];
    assay_fault_needs needs;
    /* points where it is at home, without the layer, separated by blanks: the first of them that
     * the run shows must be named */
    const char *home;
    bool ranks;  /* shows in runs of several ranks alone */
    bool device; /* only a device has the mechanism */
    bool global; /* of the engine, not of a layer: a layer in the plant says nothing */
    assay_fault_run run;
    struct { /* a second setting that belongs to it, in every layer where any_layer */
        bool is_there;
        assay_seam seam;
        bool any_layer;
        double value;
        int n_ints, ints[2];
    } also;
} assay_fault_kind;

struct assay_home;
typedef assay_status assay_fault_match_fn(struct assay_home *home);

typedef struct assay_fault {
    const char *name;       /* "FUSED-ORDER" */
    const char *definition; /* one sentence */
    const char *advice;
    const assay_fault_kind *kinds; /* ends with a NULL name */
    assay_fault_match_fn *match;
} assay_fault;

#define X(id, name, file, definition, advice)                                                      \
    extern const assay_fault_kind assay_fault_kinds_##file[];                                      \
    assay_fault_match_fn assay_fault_match_##file;
#include "reports/fault.def"
#undef X

enum {
#define X(id, name, file, definition, advice) ASSAY_FAULT_##id,
#include "reports/fault.def"
#undef X
    ASSAY_FAULT_COUNT
};

int assay_fault_count(void);
const assay_fault *assay_fault_at(int index);
const assay_fault *assay_fault_find(const char *name); /* NULL: none */
/* The kind and its class (an index); NULL: none. */
const assay_fault_kind *assay_fault_kind_find(const char *name, int *fault);
bool assay_fault_kind_fits(const assay_fault_kind *kind, const assay_hparams *hparams);

#endif
