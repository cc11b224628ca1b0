/*
 * The rows of `assay check`: one row in check.def and one file check/check_<name>.c each.
 *     X(id, "name", "what it shows", "needs", function)
 */
#ifndef ASSAY_SUITES_CHECK_H
#define ASSAY_SUITES_CHECK_H

#include "engine/engine.h"
#include "references/oracle/oracle.h"
#include "references/run.h"
#include "reports/fault.h"
#include "reports/finding.h"

/* What a check may use; opened once for all rows. */
typedef struct assay_check_context {
    const char *model_path;
    assay_gguf *file;     /* NULL: it could not be opened (row `file` then fails) */
    assay_model *model;   /* NULL: see above */
    assay_oracle *oracle; /* opened on first use by assay_check_oracle */
    assay_run *reference; /* NULL: none given */
    assay_run *twin;      /* NULL: none given */
    const char *reference_path, *twin_path, *against_path;
    assay_engine_options engine; /* backend, path, dtype, threads, seams as the command line asks */
    const assay_plant *plants;
    int n_plants;
    const assay_seam_setting *settings; /* of all plants */
    int n_settings;
    int n_ranks, chunk;
    const char *expected_text; /* for smoke; NULL: the reference's */
    double time_budget_s;
    assay_result *result; /* findings go here */
} assay_check_context;

/* Fills the row's verdict, summary and details, and adds findings. An error code means that the
 * check itself broke. */
typedef assay_status assay_check_fn(assay_check_row *row, assay_check_context *context);

typedef struct assay_check {
    const char *name, *shows, *needs;
    assay_check_fn *run;
} assay_check;

int assay_check_count(void);
const assay_check *assay_check_at(int index);

#endif
