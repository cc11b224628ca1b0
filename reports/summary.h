/*
 * The sentences that several renderers share: what was asked, what came out, where a finding is.
 */
#ifndef ASSAY_REPORTS_SUMMARY_H
#define ASSAY_REPORTS_SUMMARY_H

#include "reports/finding.h"

/* A member of result->model or "" (path, name, architecture, sha256). */
const char *assay_summary_model(const assay_result *result, const char *member);
/* File the result is about: the capture (extra.candidate.path) or else the model; "" unknown. */
const char *assay_summary_subject(const assay_result *result);
/* Last part of a path. */
const char *assay_summary_basename(const char *path);

/* "2 findings; 1 of 12 checks failed, 3 skipped; 209 of 212 points judged; 18.2 s". Returns out. */
char *assay_summary_counts(char *out, size_t room, const assay_result *result);
/* Why a result is not a pass though nothing was found; "" when it is. */
const char *assay_summary_open_reason(const assay_result *result);
/* The sentence without a leading "<point>: ", which stands in front of it anyway; never empty. */
const char *assay_summary_sentence(const assay_finding *finding);
/* "last good point before it: ..."; "" where that means nothing: a fault of the file, or nothing
 * else was judged. Returns out. */
char *assay_summary_last_good(char *out, size_t room, const assay_result *result,
                              const assay_finding *finding);
/* "confidence 0.99; explains 100 % of the added error"; only what was measured. Returns out. */
char *assay_summary_sure(char *out, size_t room, const assay_finding *finding);
/* "layers 0-3; rank 1; steps 0-12; prompts count, text". Returns out. */
char *assay_summary_where(char *out, size_t room, const assay_finding *finding);
/* "relative 1.41, cosine -0.02, gain -0.03, floor 0.004"; only what was measured. Returns out. */
char *assay_summary_error(char *out, size_t room, const assay_finding *finding);
/* "[0, 3, 17]: got NaN, expected 0.25"; "" when unknown. Returns out. */
char *assay_summary_first_bad(char *out, size_t room, const assay_finding *finding);
/* The command that shows the finding's bundle; "" without one. Returns out. */
char *assay_summary_replay(char *out, size_t room, const assay_finding *finding);
/* "permutation [1, 0], scale 0.5"; "" when nothing was fitted. Yours to free. */
char *assay_summary_fitted(const assay_finding *finding);

/* "top-1 equal in 44 of 44 rows, top-5 overlap 0.977, ..." of extra.agreement; "" when there is
 * none. Returns out. */
char *assay_summary_agreement(char *out, size_t room, const assay_result *result);

int assay_summary_n_checks(const assay_result *result, assay_verdict verdict);

#endif
