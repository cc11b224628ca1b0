/*
 * The rows of `assay check`: one row in check.def and one file check/check_<name>.c each.
 *     X(id, "name", "what it shows", "needs", function)
 *
 * Rows run in the order of the table. A row that cannot apply is SKIP with its reason; a row that
 * was asked for and could not be judged is INCONCLUSIVE; nothing that was not compared is a PASS.
 * With plants, every row that runs the engine runs the planted one: it is the engine under test.
 */
#ifndef ASSAY_SUITES_CHECK_H
#define ASSAY_SUITES_CHECK_H

#include "engine/engine.h"
#include "references/oracle/oracle.h"
#include "references/run.h"
#include "reports/fault.h"
#include "reports/finding.h"

#define ASSAY_CHECK_MAX_PROMPTS 16
#define ASSAY_CHECK_MAX_PLANTS 16

typedef void assay_check_progress_fn(void *user, const char *row, int done, int total);

/* A greedy continuation that row `smoke` expects. */
typedef struct assay_check_expected {
    const char *prompt, *text;
} assay_check_expected;

typedef struct assay_check_options {
    const char *model_path;
    const char *reference_path, *twin_path, *against_path; /* NULL: none given */
    const char *profile; /* conventions of the reference; NULL: by its producer */
    assay_engine_options
        engine; /* backend, path, dtype, products, threads; seams come from the plants */
    const assay_plant *plants;
    int n_plants;
    int n_ranks, chunk;
    const char *reproduce;   /* the command that shows a finding again */
    const char *bundles;     /* folder for bundles (reports/repro.h); NULL: none */
    double time_budget_s;    /* prompts are cut to it */
    int64_t budget_bytes;    /* of values of one run that are kept at a time */
    const char *const *rows; /* only these rows run; n_rows 0: all */
    int n_rows;
    const char *const *wanted_prompts; /* only these of the reference; none: all */
    int n_wanted_prompts;
    const assay_check_expected *expected; /* continuations beside the reference's */
    int n_expected;
    assay_check_progress_fn *progress; /* NULL: none */
    void *progress_user;
} assay_check_options;

assay_check_options assay_check_options_default(void);

/* A prompt that rows run: the reference's, or seeded ids. */
typedef struct assay_check_prompt {
    char name[64];
    const int32_t *tokens; /* owned by the context or by the reference */
    int64_t n;
    int reference_index; /* prompt of the reference; -1: seeded */
} assay_check_prompt;

/* What a check may use; opened once for all rows. */
typedef struct assay_check_context {
    const assay_check_options *options;
    assay_gguf *file;   /* NULL: it cannot be read */
    char sha256[65];    /* of the file set */
    assay_model *model; /* the reference's conventions applied; NULL: see model_error */
    assay_status model_status;
    char model_error[512];
    assay_oracle *oracle; /* opened on first use by assay_check_oracle */
    assay_run *reference; /* NULL: none given */
    assay_run *twin;      /* NULL: none given */
    assay_engine_options engine;
    assay_seams seams;
    assay_seam_setting settings[4 * ASSAY_CHECK_MAX_PLANTS]; /* of all plants */
    int n_settings;
    int n_prompts;
    assay_check_prompt prompts[ASSAY_CHECK_MAX_PROMPTS];
    int32_t *seeded;     /* memory of seeded prompts */
    assay_run *seen;     /* capture of the engine over the prompts, by assay_check_capture */
    char folder[64];     /* scratch folder of the capture; "" none */
    double tokens_per_s; /* of a prefill, as row `probe` saw it; 0: not known */
    double token_bytes;  /* of its values at all points, by row `probe`; 0: not known */
    int n_ops_findings;  /* findings of the forced pass; -1: it has not run */
    struct assay_check_stages *stages; /* by assay_check_plan (check_stages.h) */
    assay_result *result;              /* findings go here */
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

/*
 * Opens the model, runs all rows, fills result: rows, findings, notes, coverage. A model file that
 * cannot be read is the failed row `file`, and its error code is returned with its line; all other
 * rows are then SKIP.
 */
assay_status assay_check_run(assay_result *result, const assay_check_options *options);

/* For rows. */
assay_status assay_check_say(assay_check_row *row, assay_verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The oracle of the model, opened on first use. */
assay_status assay_check_oracle(assay_oracle **out, assay_check_context *context);
/* Tokens of this prompt whose values at all points fit the budgets, of time and of bytes: all, or a
 * beginning of at least 8. */
int64_t assay_check_length(const assay_check_context *context, const assay_check_prompt *prompt);
/* An engine under test: options of the command line, planted; positions: room in its cache. */
assay_status assay_check_engine(assay_engine **out, assay_check_context *context,
                                const assay_engine_options *options, int64_t positions);
/* The engine's capture over all prompts (the reference's steps where there are some), opened as a
 * run. */
assay_status assay_check_capture(assay_run **out, assay_check_context *context);
void assay_check_drop_capture(assay_check_context *context);

#endif
