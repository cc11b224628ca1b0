/*
 * Import: a run, whoever captured it, written as a capture of ours (format 1) in canonical layout.
 * Values are kept as float32 (ids as int32) with the format they were computed in beside them; the
 * profile's name goes along, so that conventions which no layout can undo (an epsilon, 8-bit
 * activations) are still known. Earlier hand-overs and ranks' own values are kept as such.
 */
#ifndef ASSAY_REFERENCES_IMPORT_H
#define ASSAY_REFERENCES_IMPORT_H

#include "probes/capture.h"
#include "references/run.h"

typedef struct assay_import_result {
    int64_t n_values, n_steps;
    int n_prompts;
} assay_import_result;

/* options may be NULL: everything. Fails as assay_run_read and the capture do. */
assay_status assay_import_run(assay_import_result *out, const assay_run *run, const char *path,
                              const assay_capture_options *options);

#endif
