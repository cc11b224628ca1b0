/*
 * Packed values, at the speed of inflating their chunks on all threads. The library reads one chunk
 * after the other on one thread; here it hands over the chunks as they lie in the file, and zlib
 * and the byte shuffle are undone side by side.
 */
#ifndef ASSAY_PROBES_HDF5_CHUNKS_H
#define ASSAY_PROBES_HDF5_CHUNKS_H

#include "probes/hdf5.h"

/*
 * The elements as stored, dense: out has info->count * info->element_bytes bytes. *done false: they
 * are no numbers as this machine has them, or lie in several files; out then holds anything. Chunks
 * that went through shuffle and deflate, one of them or none, are unpacked here, whatever else
 * there is by the library. info: of assay_h5_dataset. Fails: ASSAY_BAD_FILE, ASSAY_NO_MEMORY.
 */
assay_status assay_h5_read_stored(void *out, bool *done, hid_t file, const char *path,
                                  const assay_h5_info *info);

#endif
