/*
 * Checklists: which rows of `assay check` run on which models, what must be there, and which
 * findings are known and accepted. A YAML file:
 *
 *     checklist: ci                        name, required
 *     about: every commit                  optional
 *     checks: [file, weights, config]      keys of checklist.def: defaults for all models
 *     models:                              optional; without it one run on the command line's MODEL
 *       - model: tiny.gguf
 *         reference: tiny.h5
 *     expect:                              optional: greedy continuations for row smoke
 *       - prompt: "Count from 6 to 10:"
 *         text: " 6, 7, 8, 9, 10."
 *     accept:                              optional: known findings (class) or failed rows (check)
 *       - class: LOGIT-SHAPE
 *         point: blk.*.attn.*              optional pattern; kind: exact, optional
 *         reason: the vendor's kernel caps logits, ticket 4711
 *         owner: J. Doe
 *         expires: 2027-01-31              after this day the acceptance itself fails
 *
 * Unknown keys, doubled keys, wrong types, unknown rows, classes and words, missing files, dates
 * that are none: refused with line and column. One document a file, no aliases.
 */
#ifndef ASSAY_SUITES_CHECKLIST_H
#define ASSAY_SUITES_CHECKLIST_H

#include "suites/check.h"

typedef struct assay_checklist_run {
    char *model, *reference, *twin, *against, *profile, *backend, *path, *dtype; /* NULL: not set */
    int64_t ranks, chunk;                                                        /* -1: not set */
    double time_budget_s, budget_mb, max_kl_mean, max_kl, min_top1, min_top5;    /* NaN: not set */
    assay_strings checks, require, prompts; /* empty: not set */
} assay_checklist_run;

typedef struct assay_acceptance {
    char *check;                      /* name of a row; or NULL and */
    char *fault_class, *kind, *point; /* NULL: any kind, any point */
    char *reason, *owner, *expires;   /* "2027-01-31" */
    int line, column;
    int n_used; /* findings or rows it accepted */
} assay_acceptance;

typedef struct assay_checklist {
    char *file, *name, *about;
    assay_checklist_run defaults;
    int n_runs;                /* 0: the command line's model with the defaults */
    assay_checklist_run *runs; /* with the defaults filled in */
    int n_expected;
    assay_check_expected *expected;
    int n_acceptances;
    assay_acceptance *acceptances;
} assay_checklist;

/* Fails: ASSAY_IO, ASSAY_BAD_FILE with file, line and column. */
assay_status assay_checklist_read(assay_checklist **out, const char *path);
void assay_checklist_free(assay_checklist *list);

/*
 * Runs it: rows of several models are named "model: row". What the list sets goes over `options`
 * (model_path may be NULL when the list names models). Accepted findings become notes, and accepted
 * rows SKIP, as does a row whose findings are all accepted; a required row that was skipped, a
 * bound of the agreement that is passed and an acceptance that has expired fail. today:
 * "2026-11-29"; NULL: now (UTC).
 */
assay_status assay_checklist_check(assay_result *result, assay_checklist *list,
                                   const assay_check_options *options, const char *today);

/* Applies the acceptances to a result; for the function above and its tests. */
assay_status assay_checklist_accept(assay_result *result, assay_checklist *list, const char *today);

/* Keys of checklist.def, for lists. */
typedef struct assay_checklist_key {
    const char *name, *type, *meaning;
} assay_checklist_key;

int assay_checklist_key_count(void);
const assay_checklist_key *assay_checklist_key_at(int index);

#endif
