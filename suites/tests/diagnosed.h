/*
 * Diagnoses for tests: a capture and a model in, a result out.
 */
#ifndef ASSAY_SUITES_TESTS_DIAGNOSED_H
#define ASSAY_SUITES_TESTS_DIAGNOSED_H

#include "reports/diagnose.h"
#include "suites/campaign.h"

/* Runs the diagnosis by a GGUF file or a checkpoint's folder; the status is handed back. The result
 * is yours to clear when it is ASSAY_OK.
 */
assay_status diagnosed(assay_result *result, const char *capture, const char *model);
/* The same, and every judged value is shown to on_judged. */
assay_status diagnosed_watched(assay_result *result, const char *capture, const char *model,
                               void (*on_judged)(void *user, const assay_judged *judged),
                               void *user);
/* The same with a bundle per finding in `folder`. */
assay_status diagnosed_bundled(assay_result *result, const char *capture, const char *model,
                               const char *folder);
/* The same under a profile of references/profile.def. */
assay_status diagnosed_as(assay_result *result, const char *capture, const char *model,
                          const char *profile);
/* Oracle passes that the last diagnosis cost. */
double diagnosed_passes(void);
/* Runs the engine over the tokens with these settings and captures everything to `capture`. */
assay_status capture_planted(const char *capture, const char *model, const int32_t *tokens, int n,
                             int n_new, assay_dtype dtype, const assay_seam_setting *settings,
                             int n_settings);
/* The same, and `inject` may change what the engine makes (engine/tap.h). */
assay_status capture_injected(const char *capture, const char *model, const int32_t *tokens, int n,
                              int n_new, assay_dtype dtype, const assay_seam_setting *settings,
                              int n_settings, assay_tap_fn *inject, void *user);
/* What the captures that follow keep; NULL: everything. */
void capture_tier(const char *name);
/* Findings as one text, for messages: "FUSED-ORDER at blk.0.attn.q_a (parts exchanged); ...". */
const char *diagnosed_text(const assay_result *result);
/* A finding of one of the classes ("UNWRITTEN|BUFFER") that names the point ("attn.proj", in some
 * layer); NULL: none. */
const assay_finding *diagnosed_find(const assay_result *result, const char *classes,
                                    const char *point);

#endif
