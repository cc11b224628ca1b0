/*
 * Every tensor of a GGUF file against the checkpoint that it was converted from.
 *
 * The converter's mapping is undone row by row: kv_b put together from (or taken apart to) k_b and
 * v_b, experts stacked, llama's rotary rows in half-split order, float8 with its block scales. A
 * row differs when its relative L2 is beyond the block type's error (audit_error.def); a tensor
 * also when its gain is. What differs is tried as a permutation of heads, of rows inside the heads,
 * a factor, or the tensor of another layer, and the finding says what it is.
 *
 * Tensors of the file without a source, and the other way round, are findings (nextn blocks and
 * rotary tables are left out where the file has none).
 */
#ifndef ASSAY_SUITES_AUDIT_AGAINST_H
#define ASSAY_SUITES_AUDIT_AGAINST_H

#include "references/safetensors.h"
#include "suites/audit.h"

assay_status assay_audit_against(assay_audit *audit, const assay_gguf *file,
                                 const assay_safetensors *source, int n_threads,
                                 assay_audit_progress_fn *progress, void *user);

#endif
