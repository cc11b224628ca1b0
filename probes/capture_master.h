/*
 * Master file of a run of several ranks: a capture whose shards are put together in canonical order
 * by HDF5 virtual datasets, without copying. The rank files must lie in the same folder.
 *
 *   /                      attributes of rank 0, master = i32 1, sources = names of the rank files
 *   .../<point>            split values: the shards of all ranks along the split axis; others: rank
 *                          0's
 *   .../<point>.rank<r>    what rank r alone saw, where it is split or partial
 *
 * HDF5 gives zeros for a source that is not there; readers must look (references/run does).
 */
#ifndef ASSAY_PROBES_CAPTURE_MASTER_H
#define ASSAY_PROBES_CAPTURE_MASTER_H

#include "engine/base/status.h"

/* ranks: complete captures of ranks 0 ... n-1, in any order. Fails: ASSAY_BAD_FILE when they are
 * not the ranks of one run. */
assay_status assay_capture_master(const char *path, const char *const *ranks, int n);

#endif
