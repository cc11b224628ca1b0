/*
 * The fault campaign: every plantable kind put into engine runs of one or more models, captured,
 * diagnosed, and the diagnosis compared with what was planted; healthy runs in between.
 *
 * A plant is visible when the forced pass says that it changes its home by at least 3 x the floor
 * there (or makes it non-finite, or flips ids outside the noise). Rates are over visible plants;
 * invisible ones are listed with their size. Nothing in the diagnosis knows of the plants.
 *
 * Tier `sketch`: the diagnosis has a capture of sketches alone; what is visible is still told by a
 * full capture of a second run, so that rates of both tiers are of the same plants.
 */
#ifndef ASSAY_SUITES_CAMPAIGN_H
#define ASSAY_SUITES_CAMPAIGN_H

#include "engine/engine.h"
#include "reports/fault.h"
#include "reports/finding.h"

#define ASSAY_CAMPAIGN_TEXT 160

typedef struct assay_trial { /* one engine run and what is put into it */
    int model;               /* index in the campaign's list */
    int n_plants;            /* 0: a healthy run */
    assay_plant plants[2];
    assay_path path;
    assay_dtype dtype;
    int prompt;          /* 0 short, 1 longer, 2 longest */
    int chunk;           /* rows of a prefill call; 0: at once */
    int n_new;           /* decode steps behind the prefill + 1 */
    assay_fault_run run; /* cache, padding and requests besides what the plants need */
} assay_trial;

typedef struct assay_outcome {
    int status; /* assay_status of the trial */
    int n_findings;
    bool visible[2];
    double
        size[2]; /* largest added error over floor at a home of the plant; INFINITY: ids, masks */
    bool detected[2];                /* some finding names a home of the plant, in its layer */
    bool class_right[2];             /* and has its class */
    int n_elsewhere;                 /* findings that belong to no plant */
    char first[ASSAY_CAMPAIGN_TEXT]; /* first finding, or the error */
    char found_class[2][32]; /* class of the finding at the plant's home, else of the first */
    double seconds, passes;
} assay_outcome;

typedef struct assay_campaign assay_campaign;

typedef struct assay_campaign_options {
    const char *const *models;
    int n_models;
    bool quick;
    const char *tier; /* what the captures keep: "sketch", or NULL: full */
    const char
        *classes; /* "LEAK,MERGE": only plants of these, and runs as a server has them; NULL */
    assay_backend backend; /* on a device: the faults that only a device has, in graph mode */
    int n_workers;         /* processes; 0: all cores */
    void (*progress)(void *user, int done, int total);
    void *user;
} assay_campaign_options;

/* Makes the list of trials. Fails: ASSAY_BAD_FILE, ASSAY_IO, ASSAY_UNSUPPORTED. */
assay_status assay_campaign_new(assay_campaign **out, const assay_campaign_options *options);
void assay_campaign_free(assay_campaign *campaign);
int assay_campaign_n(const assay_campaign *campaign);
const assay_trial *assay_campaign_trial(const assay_campaign *campaign, int index);
const assay_outcome *assay_campaign_outcome(const assay_campaign *campaign, int index);
/* Runs one trial in this process. */
assay_status assay_campaign_run_one(assay_outcome *out, assay_campaign *campaign,
                                    const assay_trial *trial);
/* Runs all, in worker processes. */
assay_status assay_campaign_run(assay_campaign *campaign);
/* Rates, confusion, misses, smallest sizes found: members of result->extra (reports/README.md);
 * rows that say which rates hold: a false alarm fails. */
assay_status assay_campaign_report(assay_result *result, const assay_campaign *campaign);

#endif
