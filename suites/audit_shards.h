/*
 * Shards of every tensor for a number of ranks: no block is cut, every element is owned exactly
 * once (or by every rank). Nothing of the data is read.
 *
 * Experts are judged both ways, cut inside and dealt out whole: a tensor is a finding only where
 * neither way works; where one does not, a note says so. Another note lists the rank counts from 1
 * to 16 over which nothing is cut.
 */
#ifndef ASSAY_SUITES_AUDIT_SHARDS_H
#define ASSAY_SUITES_AUDIT_SHARDS_H

#include "engine/shard.h"
#include "suites/audit.h"

assay_status assay_audit_shards(assay_audit *audit, const assay_gguf *file, int n_ranks);

/*
 * How often each element of [rows, width] is owned by the given shards: *least and *most, by
 * counting. For slices from anywhere (assay_shard_of, or a foreign run's description). Fails:
 * ASSAY_BAD_SHAPE when a part leaves the matrix.
 */
assay_status assay_audit_ownership(int *least, int *most, int64_t *first_wrong_row,
                                   const assay_shard *shards, int n_shards, int64_t rows,
                                   int64_t width, int expected);

#endif
