/*
 * A run as a server has it: one request or several, beside each other or one after the other, all
 * captured into one file.
 */
#ifndef ASSAY_SUITES_REQUESTS_H
#define ASSAY_SUITES_REQUESTS_H

#include "engine/engine.h"
#include "reports/fault.h"

typedef struct assay_requests {
    assay_engine_options engine;   /* tap and room for positions are set here */
    assay_fault_run run;           /* requests: which; the rest is in engine */
    const int32_t *first, *second; /* prompts; second: of those with several requests */
    int64_t n;                     /* tokens of either */
    int64_t chunk, n_new;          /* as assay_engine_generate */
    const char *selector;          /* what is captured (probes/selector.h); NULL: everything */
    const char *tier;              /* what is kept of it; NULL: full */
} assay_requests;

/*
 * One request: prompt `default`. One after the other: `first`, `second` (and `third`, the first
 * again). Beside each other: the first, half of the second and the first without its last token, in
 * steps that they share, as sequences of `default`.
 */
assay_status assay_requests_capture(const char *path, assay_model *model,
                                    const assay_requests *requests);

#endif
