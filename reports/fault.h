/*
 * Fault classes: one row in fault.def and one file fault/fault_<name>.c each.
 *     X(id, "NAME", cost, make or NULL, match, "definition", "advice")
 *
 * match() looks at one home of the forced pass and says how well its class explains the added
 * error; it must not know who planted what. make() plants the class in an engine run by seam
 * settings, never by touching the tensor that match() looks at.
 */
#ifndef ASSAY_REPORTS_FAULT_H
#define ASSAY_REPORTS_FAULT_H

#include "engine/hparams.h"
#include "engine/seam.h"
#include "references/forced.h"
#include "reports/finding.h"

/* "--plant KIND[:layer=A,head=B,rank=R,step=S,value=V]" */
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

typedef struct assay_fault_kind { /* a plantable sub-kind */
    const char *name;             /* for --plant */
    const char *about;
    double weakest, strongest; /* range of `value` for the campaign; NaN: no strength */
} assay_fault_kind;

typedef struct assay_fault {
    const char *name;       /* "FUSED-ORDER" */
    const char *definition; /* one sentence */
    const char *advice;
    const assay_fault_kind *kinds; /* ends with a NULL name; NULL: cannot be planted yet */
} assay_fault;

int assay_fault_count(void);
const assay_fault *assay_fault_at(int index);
const assay_fault *assay_fault_find(const char *name);

#endif
