/*
 * Findings: a fault class with a place, numbers, a confidence and a command that shows it again;
 * and the result of a command, which renderers turn into text, JSON, JUnit, SARIF, HTML. The JSON
 * form is the contract (schema in reports/README.md).
 *
 * A finding owns its strings. Lists are small and plain.
 */
#ifndef ASSAY_REPORTS_FINDING_H
#define ASSAY_REPORTS_FINDING_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef enum {
    ASSAY_VERDICT_PASS,
    ASSAY_VERDICT_FAIL,
    ASSAY_VERDICT_INCONCLUSIVE,
    ASSAY_VERDICT_SKIP
} assay_verdict;

const char *assay_verdict_name(assay_verdict verdict);

typedef struct assay_strings {
    char **items;
    int n;
} assay_strings;

typedef struct assay_numbers {
    int64_t *items;
    int n;
} assay_numbers;

assay_status assay_strings_add(assay_strings *list, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
assay_status assay_strings_add_once(assay_strings *list, const char *text);
void assay_strings_clear(assay_strings *list);
/* Kept sorted, each number once. */
assay_status assay_numbers_add(assay_numbers *list, int64_t number);
void assay_numbers_clear(assay_numbers *list);

typedef struct assay_finding {
    char *fault_class; /* "FUSED-ORDER"; "UNKNOWN" when no class explains the error */
    char *kind;        /* "parts exchanged" */
    char *point;       /* home: first place, "blk.0.attn.q_a" */
    char *last_good;   /* last good point before it; NULL: none */
    char *op;          /* what makes the point */
    assay_strings points;
    assay_numbers layers, ranks, steps;
    assay_strings prompts;
    json_t *fitted;    /* object: fitted numbers; never NULL */
    double confidence; /* explained share x margin over the best other class, 0 ... 1 */
    double explained;  /* share of the added error that the explanation removes, 0 ... 1; NaN: not
                          measured */
    double error_rel, error_cos,
        error_gain; /* relative L2, cosine, gain of candidate on expected */
    double floor;   /* relative L2 that rounding alone can make here */
    bool has_first_bad;
    int64_t first_bad[4]; /* first bad coordinate, canonical axes */
    int n_first_bad;
    double first_bad_got, first_bad_expected;
    char *sentence; /* one sentence: what is wrong, where */
    assay_strings evidence;
    char *advice;
    char *reproduce;
    char *bundle; /* file that shows it without the model (reports/repro.h); NULL: none */
    char *check;  /* row of `assay check` that it is of; NULL: none */
} assay_finding;

void assay_finding_init(assay_finding *finding);
void assay_finding_clear(assay_finding *finding);
/* Puts a text in the place of what *to, a member of a finding, holds. */
assay_status assay_finding_set(char **to, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A place where it was seen; each list has it once. layer -1: of no layer. */
assay_status assay_finding_add_place(assay_finding *finding, const char *point, int layer, int step,
                                     const char *prompt);

typedef struct assay_check_row {
    char *name;
    assay_verdict verdict;
    char *summary; /* one line; for SKIP the reason */
    double seconds;
    assay_strings details;
} assay_check_row;

typedef struct assay_result {
    char *command; /* "check" */
    char *command_line;
    json_t *model;              /* object */
    int64_t n_points, n_judged; /* coverage */
    int n_checks;
    assay_check_row *checks;
    int n_findings;
    assay_finding *findings;
    assay_strings notes;
    json_t *extra; /* object: command-specific members that are put beside the others ("rates",
                      "agreement", ...) */
    double seconds;
    bool inconclusive; /* a requested row or point could not be judged */
} assay_result;

assay_status assay_result_init(assay_result *result, const char *command);
void assay_result_clear(assay_result *result);
/* Takes over the contents (the source is left empty). */
assay_status assay_result_add_finding(assay_result *result, assay_finding *finding);
/* Adds an empty row and hands it out; valid until the next add. */
assay_status assay_result_add_check(assay_check_row **row, assay_result *result, const char *name);
/* FAIL if there is any finding or failed row; else INCONCLUSIVE if so marked or any row is, or
 * nothing was judged; else PASS. */
assay_verdict assay_result_verdict(const assay_result *result);
/* 0, 1 or 125. */
int assay_result_exit(const assay_result *result);

json_t *assay_finding_to_json(const assay_finding *finding);
/* The JSON object of design section 8. New reference. */
json_t *assay_result_to_json(const assay_result *result);
/* Reads it back (for `assay report`). Fails: ASSAY_BAD_FILE with line and column or member. */
assay_status assay_result_from_json(assay_result *out, const char *path);

#endif
