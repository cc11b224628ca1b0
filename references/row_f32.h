/*
 * Rows of float32 side by side as they lie: sums, the proof of both sides' checksums and the sums
 * behind the channels' gains, each in one way through a row. The same with any instruction set.
 */
#ifndef ASSAY_REFERENCES_ROW_F32_H
#define ASSAY_REFERENCES_ROW_F32_H

#include "engine/base/wide.h"
#include "references/metric.h"

/* Checksums of both sides (probes/recorder.h) as far as rows were seen, each the sum of its lanes;
 * and whether the last row had a mask, which the next one then is expected to have: it costs time
 * alone to be wrong. */
typedef struct assay_row_proof {
    uint64_t got[ASSAY_LANES_F64], ref[ASSAY_LANES_F64];
    bool proves, masked;
} assay_row_proof;

/*
 * assay_row_sums_of of the widened rows, with differences rounded to float32: max_abs and the sums'
 * terms within 2^-24 of theirs, counts the same. Where it proves, what the row's words contribute
 * is added to the proof: `first` counts the elements of the value before this row; first and n are
 * even then.
 */
void assay_row_sums_of_f32(assay_row_sums *out, assay_row_proof *proof, const float *got,
                           const float *ref, int64_t first, int64_t n);

/* Sums of channels are kept this many times too large, so that squares of small values stay where
 * float32 has all its digits. */
#define ASSAY_CHANNELS_SCALE 0x1p64
#define ASSAY_ROWS_AT_ONCE 8

/*
 * Of ASSAY_ROWS_AT_ONCE rows of one place in their tokens:
 *
 *   de[c] += sum over rows of (got - ref) * (weight * ref)     ee[c] += ... of weight * ref * ref
 *
 * Differences, products and the sum over these rows in float32, in the order of the rows, then
 * added in float64. Only ratios of such sums are asked for, and float32's rounding shifts those by
 * parts in 10^7 of their distance from 1. weight: ASSAY_CHANNELS_SCALE / <ref, ref> of the token; 0
 * leaves a row out whose values are finite. assay_channels_fit says which rows may come here.
 */
void assay_channels_add_f32(double *de, double *ee, const float *const got[ASSAY_ROWS_AT_ONCE],
                            const float *const ref[ASSAY_ROWS_AT_ONCE],
                            const float weight[ASSAY_ROWS_AT_ONCE], int64_t n);

/* Whether nothing leaves float32's range: weight = 1 / <ref, ref>, dd = |got - ref|^2. */
bool assay_channels_fit(double weight, double dd);
/* One row in float64 throughout, for those that do not fit. */
void assay_channels_add_wide(double *de, double *ee, const float *got, const float *ref,
                             double weight, int64_t n);

#endif
