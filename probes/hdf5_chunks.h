/*
 * Packed values, at the speed of inflating their chunks on all threads. The library reads one chunk
 * after the other on one thread; here it hands over the chunks as they lie in the file, and deflate
 * and the byte shuffle are undone side by side.
 */
#ifndef ASSAY_PROBES_HDF5_CHUNKS_H
#define ASSAY_PROBES_HDF5_CHUNKS_H

#include "probes/hdf5.h"

/*
 * The elements as stored, dense: out has info->count * info->element_bytes bytes. Chunks that went
 * through shuffle and deflate, one of them or none, are unpacked here, whatever else there is by
 * the library. info: of assay_h5_dataset, is_native. Several threads may be in here at once, while
 * no other calls the library; a failure says which chunk was the first to fail, in their order.
 * Fails: ASSAY_BAD_FILE, ASSAY_NO_MEMORY; out then holds anything.
 */
assay_status assay_h5_read_stored(void *out, hid_t file, const char *path,
                                  const assay_h5_info *info);

#endif
