/*
 * What inflating the packed chunks of a capture costs by itself, over the chunks as they lie in
 * memory, with as many threads, nothing else done with what comes out: by zlib, as every reader
 * pays that goes by way of HDF5, and by libdeflate, as probes/hdf5_chunks.c does it.
 */
#ifndef ASSAY_SUITES_INFLATE_RATE_H
#define ASSAY_SUITES_INFLATE_RATE_H

#include <stdint.h>

#include "engine/base/status.h"

typedef struct assay_inflate assay_inflate;

/* Lists the packed chunks of two captures. Fails: as opening and mapping them; ASSAY_BAD_FILE. */
assay_status assay_inflate_open(assay_inflate **out, const char *a, const char *b);
void assay_inflate_close(assay_inflate *inflate);
/* Bytes of all chunks, unpacked; 0: there are none. */
uint64_t assay_inflate_bytes(const assay_inflate *inflate);
/* Inflates all of them once. Fails: ASSAY_BAD_FILE, ASSAY_NO_MEMORY. */
assay_status assay_inflate_by_zlib(const assay_inflate *inflate);
assay_status assay_inflate_by_libdeflate(const assay_inflate *inflate);

#endif
