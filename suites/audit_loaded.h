/*
 * Weights as an engine holds them after loading, against the model file: which row of which tensor
 * each row is, and whether that is the one that belongs there. Names the order of fused parts and
 * the slice of every rank from the weights alone.
 *
 * path: one safetensors file (a single rank), or a folder with the ranks' state as vLLM saves it,
 * model-rank-R-part-P.safetensors. Judged are the projections of loaded.def, which are split along
 * their rows; other tensors are counted in a note. A row is another one's when it is equal within
 * the rounding of 16-bit formats.
 */
#ifndef ASSAY_SUITES_AUDIT_LOADED_H
#define ASSAY_SUITES_AUDIT_LOADED_H

#include "suites/audit.h"

/* Fails: ASSAY_MISSING where a rank's file is not there; as assay_safetensors_open. */
assay_status assay_audit_loaded(assay_audit *audit, const assay_gguf *file, const char *path);

#endif
