/*
 * A reference made by the oracle: what a model computes for one prompt in float64, as a capture
 * (probes/capture.h) with the noise floor of every point.
 *
 *   floor   relative L2 between this pass and the same pass rounded to float32 (attribute floor)
 * and to bfloat16 (floor_bf16) at every op, with the exact pass's experts and keys: what rounding
 * alone makes of this point, from the first layer on
 *
 * Without decode steps, values are dropped layer by layer: memory does not grow with the number of
 * layers. Decode steps need the keys of all layers, so then everything is kept.
 */
#ifndef ASSAY_REFERENCES_REFERENCE_H
#define ASSAY_REFERENCES_REFERENCE_H

#include "references/oracle/oracle.h"

typedef struct assay_reference_options {
    bool latent;                 /* path */
    const assay_knobs *knobs;    /* NULL: the right ones */
    int first_layer, last_layer; /* 0, -1: all; with fewer, no logits unless the last layer is in */
    const char *selector;        /* probes/selector.h; NULL: all but attn.probs and moe.expert.* */
    int n_new;                   /* greedy ids to choose; n - 1 decode steps */
    bool no_floor;
    const char *prompt;  /* name; NULL: "default" */
    const char *text;    /* NULL: not known */
    const char *sha256;  /* of the model; NULL: not known */
    const char *profile; /* row of profile.def whose conventions the knobs follow; NULL: none */
    void (*progress)(void *user, int layer, int n_layers); /* NULL: none */
    void *user;
} assay_reference_options;

typedef struct assay_reference_made {
    int64_t n_values;
    int n_steps, n_greedy;
    int32_t *greedy;                /* yours to free */
    double logits_f32, logits_bf16; /* floors of the prefill's logits; NaN: not computed */
    int64_t n_ops;
} assay_reference_made;

/* Fails: ASSAY_USAGE (layers out of range, decode steps without the last layer), else as the oracle
 * and the capture do; then no file is left. */
assay_status assay_reference_write(assay_reference_made *out, const char *path,
                                   assay_oracle *oracle, const int32_t *tokens, int64_t n_tokens,
                                   const assay_reference_options *options);

#endif
