/*
 * Speculative decoding with the model's own prediction layers, verified greedily: the ids are those
 * of assay_engine_generate, in fewer steps where drafts are right. The engine needs option `draft`.
 */
#ifndef ASSAY_ENGINE_DRAFT_H
#define ASSAY_ENGINE_DRAFT_H

#include "engine/engine.h"

#define ASSAY_MAX_DRAFTS 8

typedef struct assay_draft_report {
    int n_positions;                     /* drafts a step: the model's prediction layers */
    int64_t n_steps;                     /* decode steps */
    int64_t n_drafted[ASSAY_MAX_DRAFTS]; /* by place in the draft */
    int64_t n_accepted[ASSAY_MAX_DRAFTS];
} assay_draft_report;

/* As assay_engine_generate. Fails: ASSAY_USAGE when the engine does not draft. */
assay_status assay_engine_generate_drafted(int32_t *out_ids, assay_draft_report *report,
                                           assay_engine *engine, const int32_t *prompt,
                                           int64_t n_prompt, int64_t n_new, int64_t chunk);

#endif
