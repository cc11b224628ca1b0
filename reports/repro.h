/*
 * Bundles: one finding in one small HDF5 file, for a report that needs no model.
 *
 * A bundle holds what the judge asked for while it judged and explained one value, and nothing
 * else: the captured values that it took as inputs, the value itself, and the bytes of the weights
 * that it decoded. It is made by running the diagnosis on that one value and watching what is read;
 * it is shown by running the same diagnosis on the bundle. A bundle that does not give its finding
 * back is never written.
 *
 *   /                 assay_repro i32 = 1; assay_version; class, kind, point of the finding
 *       eps           f64 [6]: epsilons of the norms that were assumed
 *   /finding          u8: the finding as it was, JSON
 *   /only/0 ...       places that are judged: attributes prompt, step, point
 *   /files/0 ...      the files of the run, cut (references/run_cut.h): captures of format 1
 *   /model/header     u8 [n]: GGUF header with all tensors and without the tokenizer
 *   /model/ranges     i64 [k, 2]: offset in the GGUF file, number of bytes
 *   /model/bytes      u8: those bytes, one range behind the other. Attribute size: of the file
 *   /expected         f32 [rows, columns]: what the op gives, computed in float64
 *   /actual           f32 [rows, columns]: what was captured
 *
 * Weights stay in their block format: faults of reading them (scales, codes, number formats) show
 * in the bytes alone, and float64 would be eight to sixteen times as large. Those of a checkpoint's
 * folder are kept in GGUF's order: bf16, f16 and f32 as they are, float8 times its scale as f32.
 * Header and ranges put into place are a GGUF file, so what reads a model reads a bundle's.
 */
#ifndef ASSAY_REPORTS_REPRO_H
#define ASSAY_REPORTS_REPRO_H

#include "reports/finding.h"

/* Whether the file says that it is a bundle. */
bool assay_repro_is_bundle(const char *path);

/*
 * Judges the bundle again: findings, coverage and a note whether they are the finding it was made
 * for. Fails: ASSAY_BAD_FILE, ASSAY_IO (a scratch folder in TMPDIR is needed).
 */
assay_status assay_repro_replay(assay_result *result, const char *path);

#endif
